//! GPUs behind a driver, each in a process of its own.
//!
//! A driver call that hangs cannot be cancelled, a process can be given up: the agent starts itself
//! once more for each GPU ([`serve()`] is what that process does) and speaks with it over its standard
//! streams, each call under a deadline. Nothing here knows which driver it is; the one
//! for CUDA is in `cuda`.

mod node;
mod patience;
mod remote;
mod serve;
mod wire;

use std::path::Path;
use std::time::Duration;

use market::verification::{CollectiveRate, GpuClaim, LibraryFacts, NcclId, NcclSum, TroubleKind};
use serde::{Deserialize, Serialize};

use crate::device::{Device, DeviceError, NcclRate};
use crate::probe::links::{LibraryWork, LinkRates, LinkWork};
pub use node::{NodeIdentity, open_node};
pub use patience::Patience;
pub use serve::{say_last_words, serve};

/// What a driver shows before any GPU is touched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// The driver's version.
    pub version: String,
    /// The newest CUDA version that it serves: 1000 x major + 10 x minor.
    pub cuda_version: Option<u32>,
    /// GPUs by the management library.
    pub managed: Option<u32>,
    /// GPUs that can be computed on.
    pub usable: u32,
    /// The driver's libraries as they were loaded.
    pub libraries: Vec<LibraryFacts>,
}

/// Why there is nothing to survey.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NoDriver {
    /// A library of the driver is missing.
    #[error("this machine has no {0}: the driver of its GPUs is not installed or not visible here")]
    Missing(String),
    /// The GPUs are another vendor's.
    #[error("the GPUs of this machine are AMD's (unsupported_vendor): this agent drives NVIDIA's")]
    UnsupportedVendor,
    /// The driver is there and does not work.
    #[error("the driver does not start: {what}")]
    Refused {
        /// The kind of trouble.
        kind: TroubleKind,
        /// The driver's message.
        what: String,
        /// Whether a driver that is still being loaded gives the same error.
        may_come_up: bool,
    },
}

impl NoDriver {
    /// The kind of trouble for the broker.
    #[must_use]
    pub const fn kind(&self) -> TroubleKind {
        match self {
            Self::Missing(_) => TroubleKind::Driver,
            Self::UnsupportedVendor => TroubleKind::UnsupportedVendor,
            Self::Refused { kind, .. } => *kind,
        }
    }

    /// Whether the fabric between the GPUs is not ready.
    fn is_fabric(&self) -> bool {
        self.kind() == TroubleKind::FabricNotReady
    }

    /// Whether a machine whose driver is still being installed or loaded shows the same.
    const fn may_come_up(&self) -> bool {
        match self {
            Self::Missing(_) => true,
            Self::UnsupportedVendor => false,
            Self::Refused { may_come_up, .. } => *may_come_up,
        }
    }

    /// The same, with the time waited for it.
    fn after(mut self, waited: Duration) -> Self {
        if let Self::Missing(what) | Self::Refused { what, .. } = &mut self
            && !waited.is_zero()
        {
            what.push_str(&format!(" (after {} s)", patience::seconds(waited)));
        }
        self
    }
}

/// An opened GPU, with the claims about it.
pub type Opened = (Box<dyn Device>, GpuClaim);

/// A driver, as the process of one GPU uses it.
pub trait Driver {
    /// Looks around without touching a GPU.
    ///
    /// Errors: [`NoDriver`].
    fn survey(&mut self) -> Result<Survey, NoDriver>;

    /// Opens one GPU of a machine whose `/sys` is under a root, and works near it from then on.
    ///
    /// Errors: [`DeviceError`].
    fn open(&mut self, gpu: u32, root: &Path) -> Result<Opened, DeviceError>;

    /// Opens all GPUs at once and measures the links between them, as many as fit in that time. It reports
    /// each rate at once.
    ///
    /// Errors: [`DeviceError`] of the first GPU that failed.
    fn links(
        &mut self,
        work: &LinkWork,
        lasts: Duration,
        told: &mut dyn FnMut(LinkRates),
    ) -> Result<(), DeviceError>;

    /// Opens all GPUs at once and runs the vendor's library over them until that time; it reports nothing
    /// where the node lacks the library. It reports each rate at once.
    ///
    /// Errors: [`DeviceError`] of the first GPU that failed.
    fn library(
        &mut self,
        work: &LibraryWork,
        lasts: Duration,
        told: &mut dyn FnMut(CollectiveRate),
    ) -> Result<(), DeviceError>;

    /// The version number of NCCL; none where the node lacks it. Touches no GPU.
    fn nccl_version(&mut self) -> Option<u32>;

    /// Makes the id by which the GPUs of several nodes find each other, and waits for them from then on.
    ///
    /// Errors: [`DeviceError`].
    fn nccl_id(&mut self) -> Result<NcclId, DeviceError>;

    /// Opens GPUs and has NCCL sum over them and those of other nodes.
    ///
    /// Errors: [`DeviceError`] of the first GPU that failed.
    fn nccl_sum(&mut self, sum: &NcclSum) -> Result<NcclRate, DeviceError>;
}
