//! The devices on which an agent computes: one [`Device`] per GPU, and their node.
//!
//! The contract is bit for bit: every device gives the same product, checksum, memory and digests for the
//! same inputs. A device only does the heavy work; [`crate::probe`] evaluates its results. The CPU device is
//! in [`crate::reference`], a device in a process of its own in [`crate::driver`].

use std::time::Instant;

use market::fabric::Internode;
use market::verification::{
    CollectiveAlgorithm, CollectiveRate, DeviceKind, DiagnosticFacts, Digest, GpuClaim, GpuFacts,
    Inventory, NcclId, NcclPart, NcclSum, NodeFacts, OpenedBlock, Step, StorageFacts, Trouble,
    TroubleKind, Word64,
};
use serde::{Deserialize, Serialize};

use crate::gemm::GemmInputs;
use crate::memory::Contents;
use crate::probe;
use crate::probe::burn::{BurnWork, Burned};
use crate::probe::links::{LibraryWork, LinkRates, LinkWork};
use crate::probe::memory::ProvedMemory;
use crate::probe::storage::StorageWork;
use crate::tensor::{TensorRun, TensorWork};

/// Why a device could not do its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("GPU {gpu}: {what}")]
pub struct DeviceError {
    /// Which GPU of the node.
    pub gpu: u32,
    /// The kind of trouble.
    pub kind: TroubleKind,
    /// What went wrong, in the driver's words.
    pub what: String,
}

impl DeviceError {
    /// The trouble as the broker receives it.
    #[must_use]
    pub fn trouble(&self, step: Step) -> Trouble {
        Trouble {
            gpu: Some(self.gpu),
            step,
            kind: self.kind,
            detail: shortened(&self.what),
        }
    }
}

/// The most characters of a driver's message in a report; each takes four bytes at most.
const LONGEST_DETAIL: usize = 128;

/// A driver's message, shortened for a report.
pub(crate) fn shortened(words: &str) -> String {
    words.chars().take(LONGEST_DETAIL).collect()
}

/// A rate that can be measured beside the copy within memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// Reading memory: bytes read.
    Read,
    /// Two arrays into a third: bytes read plus bytes written.
    Triad,
    /// From pinned host memory.
    FromHost,
    /// To pinned host memory.
    ToHost,
}

/// The result of comparing memory with its contents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternCheck {
    /// Words that differed.
    pub bad_words: u64,
    /// The lowest byte offset of such a word.
    pub lowest_bad_offset: Option<u64>,
}

impl PatternCheck {
    /// Both checks together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let offsets = [self.lowest_bad_offset, other.lowest_bad_offset];
        Self {
            bad_words: self.bad_words + other.bad_words,
            lowest_bad_offset: offsets.into_iter().flatten().min(),
        }
    }
}

/// One GPU.
pub trait Device: Send {
    /// The driver's claims about it.
    fn claim(&self) -> GpuClaim;

    /// Computes the product once, keeps it, and gives its checksum.
    ///
    /// Errors: [`DeviceError`], here and below, when the device fails at its work.
    fn multiply(&mut self, inputs: &GemmInputs) -> Result<Word64, DeviceError>;

    /// The checksums of the rows of the last product ([`crate::gemm::row_sum`]): n of them.
    fn row_sums(&mut self) -> Result<Vec<Word64>, DeviceError>;

    /// The rows with these numbers of the last product, as far as it has them: n entries each.
    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<Vec<i32>>, DeviceError>;

    /// How much memory can be allocated. Units: MiB.
    fn allocatable_mib(&mut self) -> Result<u32, DeviceError>;

    /// Fills memory and gives the number of bytes that now hold the contents.
    fn fill(&mut self, contents: &Contents, bytes: u64) -> Result<u64, DeviceError>;

    /// Compares filled memory with its contents.
    fn compare(&mut self, contents: &Contents) -> Result<PatternCheck, DeviceError>;

    /// Compares filled memory with its contents, and inverts each block before it reads the next: from the
    /// highest address with `down`.
    fn invert(&mut self, contents: &Contents, down: bool) -> Result<PatternCheck, DeviceError>;

    /// The digests of all blocks of filled memory under a key, in order.
    fn digest_blocks(&mut self, block_bytes: u32, key: &Digest)
    -> Result<Vec<Word64>, DeviceError>;

    /// Hashes filled memory under a key, with the tree over the digests by at most this many threads.
    fn prove(
        &mut self,
        block_bytes: u32,
        key: &Digest,
        threads: usize,
    ) -> Result<ProvedMemory, DeviceError> {
        let hashed = probe::memory::hash(self, block_bytes, key, threads)?;
        Ok(ProvedMemory::Here(hashed))
    }

    /// Opens blocks of its last proof, whose digests it keeps: none where it handed them over.
    fn open_blocks(&mut self, _blocks: &[u64]) -> Result<Vec<OpenedBlock>, DeviceError> {
        Ok(Vec::new())
    }

    /// Whether filled memory is enough for the rates of memory: arrays too large for any cache.
    fn room_for_streams(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Copies within memory and gives the rate, bytes read plus bytes written. The contents are lost. A wrong
    /// copy is an error. `sample` counts those of a rate from zero, here and below. Units: 1e6 bytes per
    /// second.
    fn copy_mb_per_s(&mut self, sample: u32) -> Result<u64, DeviceError>;

    /// Measures another rate once, where the device can. The contents of memory are lost.
    /// Units: 1e6 bytes per second.
    fn rate_mb_per_s(&mut self, _rate: Rate, _sample: u32) -> Result<Option<u64>, DeviceError> {
        Ok(None)
    }

    /// Computes products on the tensor units, where it has such for the format. The contents of
    /// memory and the product are lost.
    fn tensor_products(&mut self, _work: &TensorWork) -> Result<Option<TensorRun>, DeviceError> {
        Ok(None)
    }

    /// Loads it for a while and holds memory meanwhile, where it is no pretended one. The contents
    /// of memory and the product are lost.
    fn burn(&mut self, _work: &BurnWork) -> Result<Option<Burned>, DeviceError> {
        Ok(None)
    }

    /// Its state as the driver shows it now; the counters are in `health_before`. None where there is no
    /// driver to ask.
    fn observe(&mut self) -> Result<GpuFacts, DeviceError> {
        Ok(GpuFacts::default())
    }

    /// The errors (XID) that the driver reported since the device was opened; none where it may not
    /// be listened to.
    fn xids(&mut self) -> Result<Option<Vec<u32>>, DeviceError> {
        Ok(None)
    }

    /// Frees its memory: another program is to use the GPU.
    fn release(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// No later call may last beyond this.
    fn set_deadline(&mut self, _deadline: Instant) {}
}

const NO_NCCL: &str = "this node has no NCCL";

/// The result here of a sum over the GPUs of several nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NcclRate {
    /// How it was done.
    pub algorithm: CollectiveAlgorithm,
    /// How long each repeat took, microseconds.
    pub repeats_us: Vec<u64>,
    /// Wrong words, in all repeats: at least this many.
    pub wrong_words: u64,
}

/// A node's facts beyond the work of its devices.
pub trait Surroundings: Send {
    /// The facts from system and driver at the beginning, without the GPUs.
    fn before(&mut self) -> NodeFacts;

    /// Adds the GPU errors in the system's log since the beginning.
    fn listen(&mut self, _facts: &mut NodeFacts) {}

    /// Adds facts that are known only at the end.
    fn after(&mut self, facts: &mut NodeFacts);

    /// Measures the links between its GPUs, as many as it can by the deadline; none if it can measure none.
    fn links(&mut self, _work: &LinkWork, _deadline: Instant) -> Option<LinkRates> {
        None
    }

    /// The results of the vendor's own diagnostic by the deadline, for the tests of this run level; none
    /// where the node lacks it.
    fn diagnostic(&mut self, _run: &str, _deadline: Instant) -> Option<DiagnosticFacts> {
        None
    }

    /// How fast its storage is read and written, measured by the deadline; none where that cannot be
    /// measured.
    fn storage(&mut self, _work: &StorageWork, _deadline: Instant) -> Option<StorageFacts> {
        None
    }

    /// Runs the vendor's library over its GPUs, and gives the results by the deadline; none where it cannot.
    fn library(&mut self, _work: &LibraryWork, _deadline: Instant) -> Vec<CollectiveRate> {
        Vec::new()
    }

    /// Its contribution to a sum by NCCL with other nodes, which reach it over these interfaces; none where
    /// it cannot tell by the deadline.
    fn nccl_part(&mut self, _over: &[String], _deadline: Instant) -> Option<NcclPart> {
        None
    }

    /// Makes the id by which the GPUs of all nodes find each other. It keeps the process that waits for them
    /// until the sum is requested.
    ///
    /// Errors: in words.
    fn nccl_id(&mut self, _deadline: Instant) -> Result<NcclId, String> {
        Err(NO_NCCL.to_owned())
    }

    /// Sums with the GPUs of other nodes.
    ///
    /// Errors: in words.
    fn nccl_sum(&mut self, _sum: &NcclSum, _deadline: Instant) -> Result<NcclRate, String> {
        Err(NO_NCCL.to_owned())
    }
}

/// A machine with its GPUs.
pub struct Node {
    /// Its address at the provider.
    pub host: String,
    /// The kind of its devices.
    pub kind: DeviceKind,
    /// Whether any part of its report is modelled rather than measured.
    pub simulated: bool,
    /// The driver's version.
    pub driver: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Host memory, GiB.
    pub memory_gib: u32,
    /// The network to its sibling nodes.
    pub internode: Internode,
    /// The adapters to that network, in the system's order.
    pub nics: Vec<String>,
    /// The public keys of its SSH server.
    pub ssh_host_keys: Vec<String>,
    /// Its GPUs, in the driver's order.
    pub devices: Vec<Box<dyn Device>>,
    /// Its further facts; none for a simulated node.
    pub surroundings: Option<Box<dyn Surroundings>>,
    /// The reasons why its GPUs could not be opened: then they get no work.
    pub troubles: Vec<Trouble>,
    /// The other node of its lease to which a simulated node's link is slow.
    pub slow_link_to: Option<u32>,
}

impl Node {
    /// The node's claims about itself.
    #[must_use]
    pub fn inventory(&self) -> Inventory {
        Inventory {
            driver: self.driver.clone(),
            vcpus: self.vcpus,
            memory_gib: self.memory_gib,
            internode: self.internode,
            gpus: self.devices.iter().map(|device| device.claim()).collect(),
            nics: self.nics.clone(),
            ssh_host_keys: self.ssh_host_keys.clone(),
        }
    }

    /// No GPU may work beyond this from now on.
    pub fn set_deadline(&mut self, deadline: Instant) {
        for device in &mut self.devices {
            device.set_deadline(deadline);
        }
    }

    /// Does the same on all GPUs at once, so that a few GPUs cannot stand in for many.
    ///
    /// Errors: a [`DeviceError`] for each GPU that failed, in the driver's order; the others have done
    /// theirs.
    pub fn on_all<T: Send, S: Send>(
        &mut self,
        state: Vec<S>,
        work: impl Fn(u32, &mut dyn Device, S) -> Result<T, DeviceError> + Sync,
    ) -> Result<Vec<T>, Vec<DeviceError>> {
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        for result in self.on_each(state, work) {
            match result {
                Ok(value) => done.push(value),
                Err(error) => failed.push(error),
            }
        }
        if failed.is_empty() {
            Ok(done)
        } else {
            Err(failed)
        }
    }

    /// As [`Self::on_all`], with each GPU's result, in the driver's order.
    pub fn on_each<T: Send, S: Send>(
        &mut self,
        state: Vec<S>,
        work: impl Fn(u32, &mut dyn Device, S) -> Result<T, DeviceError> + Sync,
    ) -> Vec<Result<T, DeviceError>> {
        let work = &work;
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..)
                .zip(self.devices.iter_mut().zip(state))
                .map(|(gpu, (device, state))| {
                    (gpu, scope.spawn(move || work(gpu, device.as_mut(), state)))
                })
                .collect();
            running
                .into_iter()
                .map(|(gpu, handle)| {
                    let crash = |_| DeviceError {
                        gpu,
                        kind: TroubleKind::Driver,
                        what: "its worker crashed".to_owned(),
                    };
                    handle.join().map_err(crash)?
                })
                .collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_checks_together_count_all_bad_words_and_keep_the_lowest() {
        let high = PatternCheck {
            bad_words: 2,
            lowest_bad_offset: Some(40),
        };
        let low = PatternCheck {
            bad_words: 1,
            lowest_bad_offset: Some(8),
        };
        let both = PatternCheck {
            bad_words: 3,
            lowest_bad_offset: Some(8),
        };
        assert_eq!(high.and(low), both);
        assert_eq!(low.and(high), both);
        assert_eq!(low.and(PatternCheck::default()), low);
    }
}
