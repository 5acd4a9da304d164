//! GPUs: the canonical GPU, its family, what an offer sells and what a demand names.
//!
//! The published data of each GPU is in `catalogue`. `names` resolves a seller's SKU or name to a GPU, and
//! `wanted` a demand's. The verifier checks that a machine really has the GPU.

mod catalogue;
mod names;
#[cfg(test)]
mod tests;
mod wanted;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::string_schema;
use crate::table::squeeze;
use catalogue::CATALOGUE;
pub use catalogue::{Certainty, GPU_TABLE, GpuSpec, GpuVendor};
pub use names::{ProductName, Resolution, product_names, resolve, resolve_product_name};
pub use wanted::{GpuFit, GpuWanted, GpusWanted};

/// The suffix that a family is written with where a canonical GPU has the very same name.
const FORM_UNKNOWN: &str = "/form-unknown";

/// A name that the catalogue does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{asked}` is no GPU of the catalogue{}; `broker gpus` and GET /v1/gpus list all",
    self.hint()
)]
pub struct UnknownGpu {
    /// The name that was asked for, cut to 80 characters.
    pub asked: String,
    /// Up to three known names that look most like it, nearest first.
    pub nearest: Vec<&'static str>,
}

impl UnknownGpu {
    /// The nearest names, in words that begin with a semicolon; nothing where there are none.
    fn hint(&self) -> String {
        match self.nearest.as_slice() {
            [] => String::new(),
            nearest => format!("; the nearest names are {}", nearest.join(", ")),
        }
    }

    fn new(asked: &str) -> Self {
        let asked: String = asked.chars().take(80).collect();
        let mut nearest = names::spelling::near(&asked);
        nearest.truncate(MOST_NEAREST);
        if !nearest.is_empty() {
            return Self { asked, nearest };
        }
        let squeezed = squeeze(&asked);
        let names = Gpu::all()
            .map(Gpu::name)
            .chain(GpuFamily::all().map(GpuFamily::name));
        let mut ranked: Vec<(usize, &'static str)> = names
            .map(|name| (edit_distance(&squeezed, &squeeze(name)), name))
            .collect();
        ranked.sort_unstable();
        ranked.dedup();
        // With half of the letters wrong it is another name, not a typo.
        let limit = squeezed.len().div_ceil(2);
        let nearest = ranked
            .into_iter()
            .filter(|(far, _)| *far <= limit)
            .map(|(_, name)| name)
            .take(MOST_NEAREST)
            .collect();
        Self { asked, nearest }
    }
}

/// How many near names an error lists.
const MOST_NEAREST: usize = 3;

/// How many letters to insert, delete or change to turn one text into the other.
fn edit_distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

/// A canonical GPU such as `H100-SXM`: a row of the catalogue. Ordered as the catalogue is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gpu(u16);

impl Gpu {
    /// The GPU of this canonical name, in any case.
    ///
    /// Errors: [`UnknownGpu`], also for a family: `H100` names no single GPU.
    pub fn parse(name: &str) -> Result<Self, UnknownGpu> {
        CATALOGUE
            .position(name)
            .map(Self)
            .ok_or_else(|| UnknownGpu::new(name))
    }

    /// The canonical name.
    #[must_use]
    pub fn name(self) -> &'static str {
        &self.spec().canonical
    }

    /// The published data about it.
    #[must_use]
    pub fn spec(self) -> &'static GpuSpec {
        &CATALOGUE.specs[usize::from(self.0)]
    }

    /// The name of its family.
    #[must_use]
    pub fn family(self) -> &'static str {
        &self.spec().family
    }

    /// All GPUs of the catalogue, in its order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..).zip(&CATALOGUE.specs).map(|(at, _)| Self(at))
    }
}

/// A model without form and memory size: `H100` for `H100-SXM`, `H100-PCIe` and `H100-NVL`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GpuFamily(u16);

impl GpuFamily {
    /// The family of this name, in any case.
    ///
    /// Errors: [`UnknownGpu`].
    pub fn parse(name: &str) -> Result<Self, UnknownGpu> {
        CATALOGUE
            .family_position(name)
            .map(Self)
            .ok_or_else(|| UnknownGpu::new(name))
    }

    /// The family's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        &CATALOGUE.families[usize::from(self.0)]
    }

    /// All families: those of the catalogue, then those that sellers name without a GPU.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..).zip(&CATALOGUE.families).map(|(at, _)| Self(at))
    }

    /// Reads a family as it stands beside canonical names: see [`Self::write_beside_gpus`].
    fn parse_beside_gpus(name: &str) -> Result<Self, UnknownGpu> {
        Self::find_beside_gpus(name).ok_or_else(|| UnknownGpu::new(name))
    }

    fn find_beside_gpus(name: &str) -> Option<Self> {
        CATALOGUE
            .family_position(name.strip_suffix(FORM_UNKNOWN).unwrap_or(name))
            .map(Self)
    }

    /// Writes the family so that it cannot be read as a GPU: `H100`, but `L4/form-unknown`.
    fn write_beside_gpus(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if CATALOGUE.position(self.name()).is_some() {
            f.write_str(FORM_UNKNOWN)
        } else {
            Ok(())
        }
    }
}

/// The GPU of an offer: a known one, or a family whose form the seller leaves open.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GpuIdentity {
    /// This GPU.
    Known(Gpu),
    /// Some GPU of this family; the seller does not say which.
    FamilyOnly(GpuFamily),
}

impl GpuIdentity {
    /// Reads an identity as [`fmt::Display`] writes it.
    ///
    /// Errors: [`UnknownGpu`].
    pub fn parse(name: &str) -> Result<Self, UnknownGpu> {
        match CATALOGUE.position(name) {
            Some(position) => Ok(Self::Known(Gpu(position))),
            None => GpuFamily::parse_beside_gpus(name).map(Self::FamilyOnly),
        }
    }

    /// The GPU, when it is known.
    #[must_use]
    pub const fn known(&self) -> Option<Gpu> {
        match self {
            Self::Known(gpu) => Some(*gpu),
            Self::FamilyOnly(_) => None,
        }
    }

    /// The GPUs that it may be, in the order of the catalogue.
    pub fn forms(&self) -> impl Iterator<Item = Gpu> + '_ {
        Gpu::all().filter(move |gpu| match self {
            Self::Known(known) => gpu == known,
            Self::FamilyOnly(family) => gpu.family() == family.name(),
        })
    }

    /// Whether a GPU that it may be has this memory, allowing for sellers' rounding. Units: MiB.
    #[must_use]
    pub fn may_have_memory(&self, mib: u64) -> bool {
        self.forms()
            .any(|gpu| names::memory_matches(gpu.spec().memory_gb, mib))
    }

    /// The GPUs that it may be: where the form is open and `published_mib` is given, those whose memory
    /// matches. Units: MiB.
    pub fn forms_of(&self, published_mib: Option<u64>) -> impl Iterator<Item = Gpu> + '_ {
        let is_known = self.known().is_some();
        self.forms().filter(move |gpu| {
            is_known
                || published_mib.is_none_or(|mib| names::memory_matches(gpu.spec().memory_gb, mib))
        })
    }

    /// The name of the family, which is always known.
    #[must_use]
    pub fn family(&self) -> &'static str {
        match self {
            Self::Known(gpu) => gpu.family(),
            Self::FamilyOnly(family) => family.name(),
        }
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for GpuFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for GpuIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(gpu) => gpu.fmt(f),
            Self::FamilyOnly(family) => family.write_beside_gpus(f),
        }
    }
}

macro_rules! read_and_written_as_a_name {
    ($type:ident, $pattern:literal, $example:literal) => {
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($type), "({})"), self)
            }
        }

        impl FromStr for $type {
            type Err = UnknownGpu;

            fn from_str(name: &str) -> Result<Self, UnknownGpu> {
                Self::parse(name)
            }
        }

        string_schema!($type, stringify!($type), $pattern, 40, $example);
    };
}

read_and_written_as_a_name!(Gpu, "^[A-Za-z0-9/-]{1,40}$", "H100-SXM");
read_and_written_as_a_name!(GpuFamily, "^[A-Za-z0-9/-]{1,40}$", "H100");
read_and_written_as_a_name!(GpuIdentity, "^[A-Za-z0-9/-]{1,40}$", "H100-SXM");
// Sellers separate the words of a name as they like.
read_and_written_as_a_name!(GpuWanted, "^[A-Za-z0-9/ _.+-]{1,40}$", "H100");
