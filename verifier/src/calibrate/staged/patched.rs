//! An agent that was changed: its GPUs do less than they say, or are fewer.

use std::path::Path;
use std::time::Instant;

use market::verification::{
    Digest, GpuClaim, GpuCounts, GpuFacts, NodeFacts, VerificationOrder, Word64,
};

use crate::device::{Device, DeviceError, Node, PatternCheck, Rate, Surroundings};
use crate::driver::{RemoteDevice, Worker};
use crate::gemm::GemmInputs;
use crate::memory::Contents;
use crate::probe::burn::{BurnWork, Burned};
use crate::tensor::{TensorRun, TensorWork};

/// What is changed of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patch {
    /// It shows the GPU under another id.
    Renames,
    /// It sums half of the inner dimension and fills half of the memory.
    HalvesWork,
    /// It claims a quarter more memory than there is, and fills what there is.
    InventsMemory,
}

impl Patch {
    /// What it really fills of so much memory.
    const fn really(self, bytes: u64) -> u64 {
        let less = match self {
            Self::Renames => bytes,
            Self::HalvesWork => bytes / 2,
            Self::InventsMemory => bytes / 5 * 4,
        };
        less / 16 * 16
    }

    /// What it says where there is so much.
    const fn claimed(self, mib: u32) -> u32 {
        match self {
            Self::InventsMemory => mib / 4 * 5,
            _ => mib,
        }
    }
}

/// A GPU as the changed agent uses it.
struct Patched {
    inner: Box<dyn Device>,
    patch: Patch,
    /// What it said that it filled. Units: bytes.
    said_bytes: u64,
}

impl Patched {
    fn of(inner: Box<dyn Device>, patch: Patch) -> Box<dyn Device> {
        Box::new(Self {
            inner,
            patch,
            said_bytes: 0,
        })
    }
}

impl Device for Patched {
    fn claim(&self) -> GpuClaim {
        let claim = self.inner.claim();
        let uuid = match self.patch {
            Patch::Renames => claim.uuid.chars().rev().collect(),
            _ => claim.uuid,
        };
        GpuClaim {
            uuid,
            memory_mib: self.patch.claimed(claim.memory_mib),
            ..claim
        }
    }

    fn multiply(&mut self, inputs: &GemmInputs) -> Result<Word64, DeviceError> {
        let k = match self.patch {
            Patch::HalvesWork => inputs.k.div_ceil(2),
            _ => inputs.k,
        };
        self.inner.multiply(&GemmInputs { k, ..*inputs })
    }

    fn row_sums(&mut self) -> Result<Vec<Word64>, DeviceError> {
        self.inner.row_sums()
    }

    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<Vec<i32>>, DeviceError> {
        self.inner.read_rows(rows)
    }

    fn allocatable_mib(&mut self) -> Result<u32, DeviceError> {
        Ok(self.patch.claimed(self.inner.allocatable_mib()?))
    }

    fn fill(&mut self, contents: &Contents, bytes: u64) -> Result<u64, DeviceError> {
        self.inner.fill(contents, self.patch.really(bytes))?;
        self.said_bytes = bytes;
        Ok(bytes)
    }

    fn compare(&mut self, contents: &Contents) -> Result<PatternCheck, DeviceError> {
        match self.patch {
            Patch::Renames => self.inner.compare(contents),
            _ => Ok(PatternCheck::default()),
        }
    }

    fn invert(&mut self, contents: &Contents, down: bool) -> Result<PatternCheck, DeviceError> {
        match self.patch {
            Patch::Renames => self.inner.invert(contents, down),
            _ => Ok(PatternCheck::default()),
        }
    }

    fn digest_blocks(&mut self, block: u32, key: &Digest) -> Result<Vec<Word64>, DeviceError> {
        let there = self.inner.digest_blocks(block, key)?;
        let said = (self.said_bytes / u64::from(block)) as usize;
        // It answers for what is not there with what is.
        Ok(there.into_iter().cycle().take(said).collect())
    }

    fn room_for_streams(&mut self) -> Result<(), DeviceError> {
        self.inner.room_for_streams()
    }

    fn copy_mb_per_s(&mut self, sample: u32) -> Result<u64, DeviceError> {
        self.inner.copy_mb_per_s(sample)
    }

    fn rate_mb_per_s(&mut self, rate: Rate, sample: u32) -> Result<Option<u64>, DeviceError> {
        self.inner.rate_mb_per_s(rate, sample)
    }

    fn tensor_products(&mut self, work: &TensorWork) -> Result<Option<TensorRun>, DeviceError> {
        self.inner.tensor_products(work)
    }

    fn burn(&mut self, work: &BurnWork) -> Result<Option<Burned>, DeviceError> {
        self.inner.burn(work)
    }

    fn observe(&mut self) -> Result<GpuFacts, DeviceError> {
        self.inner.observe()
    }

    fn xids(&mut self) -> Result<Option<Vec<u32>>, DeviceError> {
        self.inner.xids()
    }

    fn set_deadline(&mut self, deadline: Instant) {
        self.inner.set_deadline(deadline);
    }
}

/// A system that shows another number of GPUs, and none of the links between them.
struct Recounted {
    inner: Box<dyn Surroundings>,
    count: fn(u32, u32) -> u32,
    by: u32,
}

impl Recounted {
    fn around(
        inner: Box<dyn Surroundings>,
        count: fn(u32, u32) -> u32,
        by: u32,
    ) -> Box<dyn Surroundings> {
        Box::new(Self { inner, count, by })
    }

    fn recount(&self, counts: &mut GpuCounts) {
        for count in [
            &mut counts.kernel,
            &mut counts.nvml,
            &mut counts.cuda,
            &mut counts.device_nodes,
        ] {
            *count = count.map(|count| (self.count)(count, self.by));
        }
    }
}

impl Surroundings for Recounted {
    fn before(&mut self) -> NodeFacts {
        let mut facts = self.inner.before();
        self.recount(&mut facts.host.counts);
        facts
    }

    fn after(&mut self, facts: &mut NodeFacts) {
        self.inner.after(facts);
        if let Some(counts) = &mut facts.recount {
            self.recount(counts);
        }
    }
}

/// A node without some of its GPUs, of which nothing is said either.
pub fn without(node: Node, left_out: &[u32]) -> Node {
    if left_out.is_empty() {
        return node;
    }
    let devices = (0..).zip(node.devices);
    let devices = devices.filter(|(gpu, _)| !left_out.contains(gpu));
    // No node has so many.
    let fewer = left_out.len() as u32;
    let recounted = |inner| Recounted::around(inner, u32::saturating_sub, fewer);
    Node {
        devices: devices.map(|(_, device)| device).collect(),
        surroundings: node.surroundings.map(recounted),
        troubles: Vec::new(),
        ..node
    }
}

/// A node whose agent is changed.
pub fn patched(node: Node, patch: Patch) -> Node {
    let devices = node.devices.into_iter();
    Node {
        devices: devices.map(|device| Patched::of(device, patch)).collect(),
        ..node
    }
}

/// A node that shows each GPU twice, each time through another process, and has whoever counts them
/// count as many.
///
/// Errors: why a GPU does not open a second time, in words.
pub fn posing(
    mut node: Node,
    agent: &Path,
    root: &Path,
    gpus: &[(u32, &GpuClaim)],
) -> Result<Node, String> {
    for &(gpu, _) in gpus {
        let worker = Worker::start(agent).map_err(|why| why.to_string())?;
        let again = RemoteDevice::open(worker, gpu, root).map_err(|why| why.to_string())?;
        node.devices
            .push(Patched::of(Box::new(again), Patch::Renames));
    }
    let recounted = |inner| Recounted::around(inner, u32::saturating_mul, 2);
    node.surroundings = node.surroundings.map(recounted);
    Ok(node)
}

/// The order for a node that was sold as twice as many GPUs.
pub fn for_twice_the_gpus(mut order: VerificationOrder) -> VerificationOrder {
    order.expected.gpus *= 2;
    order
}

/// The order for a GPU that was sold with a quarter more memory than it has.
pub fn for_more_memory(mut order: VerificationOrder) -> VerificationOrder {
    let block = u64::from(order.memory.block_bytes);
    order.expected.memory_mib = Patch::InventsMemory.claimed(order.expected.memory_mib);
    order.memory.pattern_bytes = order.memory.pattern_bytes / 4 * 5 / block * block;
    order
}

/// The order for a run that leaves others a little of the memory, and wants no more to be there.
pub fn beside_others(mut order: VerificationOrder) -> VerificationOrder {
    order.expected.memory_mib = order.expected.memory_mib / 4 * 3;
    let block = u64::from(order.memory.block_bytes);
    order.memory.pattern_bytes = (order.memory.pattern_bytes / 4 * 3 / block).max(1) * block;
    order
}
