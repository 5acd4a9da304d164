//! Memory: filled, read back, and proved under a key that is drawn after the fill.

use std::time::{Duration, Instant};

use market::verification::{Digest, Filled, MemoryWork, OpenedBlock, Pattern, Word64};

use crate::device::{Device, DeviceError, PatternCheck};
use crate::memory::{self, Contents};
use crate::merkle::Tree;

/// Does all passes except the reading of the last, whose fill stays in place. Where less memory can be
/// allocated than was ordered, it fills that: the broker judges how much the node should have.
///
/// Errors: [`DeviceError`] when the device does not fill or read.
pub fn fill(
    device: &mut dyn Device,
    seed: &Digest,
    gpu: u32,
    work: &MemoryWork,
) -> Result<(Filled, PatternCheck), DeviceError> {
    let allocatable_mib = device.allocatable_mib()?;
    fill_of(device, seed, gpu, work, allocatable_mib)
}

/// As [`fill`], on a GPU that others use. It fills exactly the ordered amount and does not try how much could
/// be allocated, which would take memory that others may ask for meanwhile.
///
/// Errors: [`DeviceError`] when the device does not fill or read.
pub fn fill_beside_others(
    device: &mut dyn Device,
    seed: &Digest,
    gpu: u32,
    work: &MemoryWork,
) -> Result<(Filled, PatternCheck), DeviceError> {
    // Twice as much always leaves room for the hashing; nothing is judged by it.
    let twice_mib = work.pattern_bytes.saturating_mul(2).div_ceil(1 << 20);
    let claimed_mib = u32::try_from(twice_mib).unwrap_or(u32::MAX);
    fill_of(device, seed, gpu, work, claimed_mib)
}

fn fill_of(
    device: &mut dyn Device,
    seed: &Digest,
    gpu: u32,
    work: &MemoryWork,
    allocatable_mib: u32,
) -> Result<(Filled, PatternCheck), DeviceError> {
    let bytes = memory::work_where(work, allocatable_mib).pattern_bytes;
    let (last, before) = work.passes.split_last().unwrap_or((&Pattern::Prf, &[]));
    let mut check = PatternCheck::default();
    let began = Instant::now();
    let repeated = Duration::from_millis(work.repeated_ms);
    for round in 0.. {
        for &pattern in before {
            let contents = Contents::in_round(seed, gpu, pattern, round);
            check = check.and(pass(device, &contents, bytes)?);
        }
        if before.is_empty() || began.elapsed() >= repeated {
            break;
        }
    }
    let filled_bytes = device.fill(&Contents::derive(seed, gpu, *last), bytes)?;
    Ok((
        Filled {
            allocatable_mib,
            filled_bytes,
        },
        check,
    ))
}

/// One pass: fills, inverts where the pattern requires it, and reads back.
fn pass(
    device: &mut dyn Device,
    contents: &Contents,
    bytes: u64,
) -> Result<PatternCheck, DeviceError> {
    device.fill(contents, bytes)?;
    let mut check = PatternCheck::default();
    if contents.pattern == Pattern::MovingInversion {
        let up = device.invert(contents, false)?;
        check = up.and(device.invert(&contents.turned(), true)?);
    }
    Ok(check.and(device.compare(contents)?))
}

/// Memory under the fresh key, kept by the process that drives the GPU: the digests of an H200's are 72 MB,
/// and to hand them over takes longer than to hash them.
#[derive(Debug)]
pub enum ProvedMemory {
    /// The digests are here.
    Here(HashedMemory),
    /// Its device keeps them, and gave the root.
    OnDevice(Digest),
}

impl ProvedMemory {
    /// The commitment of the agent.
    #[must_use]
    pub fn root(&self) -> Digest {
        match self {
            Self::Here(hashed) => hashed.root(),
            Self::OnDevice(root) => *root,
        }
    }

    /// Opens the blocks that the broker drew from this device's last proof.
    ///
    /// Errors: [`DeviceError`] when the device keeps the digests and does not answer.
    pub fn open(
        &self,
        device: &mut dyn Device,
        blocks: &[u64],
    ) -> Result<Vec<OpenedBlock>, DeviceError> {
        match self {
            Self::Here(hashed) => Ok(hashed.open(blocks)),
            Self::OnDevice(_) => device.open_blocks(blocks),
        }
    }
}

/// The digests of memory, and the tree over them.
#[derive(Debug)]
pub struct HashedMemory {
    digests: Vec<Word64>,
    tree: Tree,
}

/// Hashes memory under the fresh key: the least work possible between that key and the answer. At most this
/// many threads make the tree.
///
/// Errors: [`DeviceError`] when the device does not read.
pub fn hash<D: Device + ?Sized>(
    device: &mut D,
    block_bytes: u32,
    key: &Digest,
    threads: usize,
) -> Result<HashedMemory, DeviceError> {
    let digests = device.digest_blocks(block_bytes, key)?;
    let tree = memory::tree(&digests, threads);
    Ok(HashedMemory { digests, tree })
}

/// Reads back the last fill, except the slow one, whose comparison would take as long as the fill. Earlier
/// passes compared every word, and the memory that holds the slow fill was hashed and is opened.
///
/// Errors: [`DeviceError`] when the device does not read.
pub fn read_back(
    device: &mut dyn Device,
    seed: &Digest,
    gpu: u32,
    work: &MemoryWork,
) -> Result<PatternCheck, DeviceError> {
    let last = memory::proved_pattern(work);
    if last == Pattern::Slow {
        return Ok(PatternCheck::default());
    }
    device.compare(&Contents::derive(seed, gpu, last))
}

impl HashedMemory {
    /// The root of the tree.
    #[must_use]
    pub fn root(&self) -> Digest {
        self.tree.root()
    }

    /// Opens these blocks.
    #[must_use]
    pub fn open(&self, blocks: &[u64]) -> Vec<OpenedBlock> {
        blocks
            .iter()
            .filter_map(|&block| memory::open(&self.digests, &self.tree, block))
            .collect()
    }
}
