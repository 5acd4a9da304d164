//! Memory: filled, read back, and proved under a key that came after the fill.

use market::verification::{Digest, Filled, MemoryWork, OpenedBlock, Pattern, Word64};

use crate::device::{Device, DeviceError, PatternCheck};
use crate::memory::{self, Contents};
use crate::merkle::Tree;

/// Does all passes but the reading of the last, whose fill stays in place. Where less can be had than is
/// ordered, that is filled: how much the node should have is for its broker to judge.
///
/// Errors: [`DeviceError`] when the device does not fill or read.
pub fn fill(
    device: &mut dyn Device,
    nonce: &Digest,
    gpu: u32,
    work: &MemoryWork,
) -> Result<(Filled, PatternCheck), DeviceError> {
    let allocatable_mib = device.allocatable_mib()?;
    let bytes = memory::work_where(work, allocatable_mib).pattern_bytes;
    let mut check = PatternCheck::default();
    let mut filled_bytes = 0;
    for (pass, &pattern) in work.passes.iter().enumerate() {
        let contents = Contents::derive(nonce, gpu, pattern);
        filled_bytes = device.fill(&contents, bytes)?;
        if pattern == Pattern::MovingInversion {
            let up = device.invert(&contents, false)?;
            check = check.and(up).and(device.invert(&contents.turned(), true)?);
        }
        if pass + 1 < work.passes.len() {
            check = check.and(device.compare(&contents)?);
        }
    }
    Ok((
        Filled {
            allocatable_mib,
            filled_bytes,
        },
        check,
    ))
}

/// Memory under the fresh key.
#[derive(Debug)]
pub struct ProvedMemory {
    digests: Vec<Word64>,
    tree: Tree,
    /// How all passes compared.
    pub check: PatternCheck,
}

/// Hashes memory under the fresh key, then reads back the last fill.
///
/// Errors: [`DeviceError`] when the device does not read.
pub fn prove(
    device: &mut dyn Device,
    nonce: &Digest,
    gpu: u32,
    work: &MemoryWork,
    key: &Digest,
    earlier: PatternCheck,
) -> Result<ProvedMemory, DeviceError> {
    let digests = device.digest_blocks(work.block_bytes, key)?;
    let tree = memory::tree(&digests);
    let proved = memory::proved_pattern(work);
    let last = device.compare(&Contents::derive(nonce, gpu, proved))?;
    Ok(ProvedMemory {
        digests,
        tree,
        check: earlier.and(last),
    })
}

impl ProvedMemory {
    /// What the agent commits to.
    #[must_use]
    pub fn root(&self) -> Digest {
        self.tree.root()
    }

    /// Opens the blocks that the broker drew.
    #[must_use]
    pub fn open(&self, blocks: &[u64]) -> Vec<OpenedBlock> {
        blocks
            .iter()
            .filter_map(|&block| {
                let digest = *self.digests.get(usize::try_from(block).ok()?)?;
                Some(OpenedBlock {
                    block,
                    digest,
                    path: self.tree.path(block),
                })
            })
            .collect()
    }
}
