//! A GPU's work for the agent.

use market::verification::{Digest, GpuClaim, GpuFacts, Pattern, TroubleKind, Word64};
use nvml_wrapper::error::NvmlError;

use super::buffer::{Argument, Buffer};
use super::gpu::{CudaGpu, THREADS};
use super::images::Capability;
use super::variants::{exact_kernel, goes_down, hashes_down};
use super::{kind_of, result};
use crate::device::{Device, DeviceError, PatternCheck, Rate};
use crate::gemm::GemmInputs;
use crate::memory::{Contents, hash_point};
use crate::probe::burn::{BurnWork, Burned, summary};
use crate::tensor::{Format, TensorRun, TensorWork};

const MIB: u64 = 1 << 20;
/// The step by which the search for allocatable memory decreases. Units: bytes.
const SEARCH_STEP: u64 = 64 * MIB;

const NO_PRODUCT: &str = "nothing was multiplied";

/// The largest entry of a load. Such integers use all the digits of BF16; shorter ones would draw less power.
/// Nothing is known of the product except that it repeats.
const LOAD_MOST: u8 = u8::MAX;

/// The number by which the kernels know a pattern.
const fn pattern_number(pattern: Pattern) -> u32 {
    match pattern {
        Pattern::Prf | Pattern::MovingInversion => 0,
        Pattern::Complement => 1,
        Pattern::Address => 2,
        Pattern::Slow => 3,
        Pattern::WalkingOne => 4,
        Pattern::WalkingZero => 5,
    }
}

impl CudaGpu {
    /// The differences that a kernel finds between memory and its contents; with `down` it begins at the
    /// highest address.
    pub fn differences(
        &mut self,
        kernel: &'static str,
        contents: &Contents,
        down: u32,
    ) -> Result<PatternCheck, DeviceError> {
        let memory = Argument::from(self.filled()?);
        let blocks = self.filled()?.bytes / 16;
        let found = self.buffer(16)?;
        found
            .write(&[0, u64::MAX])
            .map_err(|error| self.error(error))?;
        let arguments = [
            memory,
            Argument::from(blocks),
            Argument::from(contents.stream),
            Argument::from(pattern_number(contents.pattern)),
            Argument::from(down),
            Argument::from(&found),
        ];
        self.launch(kernel, self.grid(blocks), &arguments)?;
        self.wait()?;
        let found = found.read::<u64>(2).map_err(|error| self.error(error))?;
        Ok(PatternCheck {
            bad_words: found[0],
            lowest_bad_offset: (found[0] > 0).then(|| found[1].saturating_mul(4)),
        })
    }

    /// Fills memory, from the highest address with `down`.
    pub fn fill_by(
        &mut self,
        contents: &Contents,
        bytes: u64,
        down: u32,
    ) -> Result<u64, DeviceError> {
        self.product = None;
        let memory = match self.memory.take_if(|memory| memory.bytes == bytes) {
            Some(memory) => memory,
            None => {
                self.memory = None;
                self.buffer(bytes)?
            }
        };
        let blocks = bytes / 16;
        let arguments = [
            Argument::from(&memory),
            Argument::from(blocks),
            Argument::from(contents.stream),
            Argument::from(pattern_number(contents.pattern)),
            Argument::from(down),
        ];
        self.memory = Some(memory);
        [self.drawn, ..] = contents.stream.parameters();
        self.launch("memory_fill", self.grid(blocks), &arguments)?;
        self.wait()?;
        Ok(bytes)
    }

    /// Hashes memory, from the last block with `down`.
    pub fn digests_by(
        &mut self,
        block_bytes: u32,
        key: &Digest,
        down: u32,
    ) -> Result<Vec<Word64>, DeviceError> {
        let memory = Argument::from(self.filled()?);
        let blocks = self.filled()?.bytes / u64::from(block_bytes);
        let digests = self.buffer(blocks.max(1) * 8)?;
        let arguments = [
            memory,
            Argument::from(blocks),
            Argument::from(block_bytes / 16),
            Argument::from(hash_point(key).value()),
            Argument::from(down),
            Argument::from(&digests),
        ];
        // One thread block hashes one block of memory at a time.
        let grid = self.grid(blocks.saturating_mul(u64::from(THREADS)));
        self.launch("memory_digest", grid, &arguments)?;
        self.wait()?;
        let digests = digests.read::<u64>(blocks as usize);
        let digests = digests.map_err(|error| self.error(error))?;
        Ok(digests.into_iter().map(Word64).collect())
    }
}

impl Device for CudaGpu {
    fn claim(&self) -> GpuClaim {
        self.claim.clone()
    }

    fn multiply(&mut self, inputs: &GemmInputs) -> Result<Word64, DeviceError> {
        let product = self.prepare(inputs)?;
        self.empty(&product.product)?;
        self.multiply_integers(&product, exact_kernel(inputs))?;
        let entries = u64::from(inputs.n) * u64::from(inputs.n);
        let sum = self.checksum(product.product.address, entries)?;
        self.product = Some(product);
        Ok(Word64(sum))
    }

    fn row_sums(&mut self) -> Result<Vec<Word64>, DeviceError> {
        let Some(product) = self.product.take() else {
            return Err(self.failed(NO_PRODUCT));
        };
        let sums = self.sums_of_rows(&product)?;
        self.product = Some(product);
        Ok(sums.into_iter().map(Word64).collect())
    }

    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<Vec<i32>>, DeviceError> {
        let Some(product) = &self.product else {
            return Err(self.failed(NO_PRODUCT));
        };
        let n = product.inputs.n;
        let row_bytes = u64::from(n) * 4;
        let there = rows.iter().filter(|row| **row < n);
        let read = there.map(|row| {
            let from = u64::from(*row) * row_bytes;
            product.product.read_from(from, n as usize)
        });
        let read: Result<_, _> = read.collect();
        read.map_err(|error| self.error(error))
    }

    fn allocatable_mib(&mut self) -> Result<u32, DeviceError> {
        self.product = None;
        self.memory = None;
        let (free, _) = result::mem_get_info().map_err(|error| self.error(error))?;
        let mut bytes = free as u64 / (2 * MIB) * (2 * MIB);
        // The driver's free memory cannot always be allocated in one piece.
        while bytes >= SEARCH_STEP {
            match Buffer::new(bytes) {
                Ok(_) => break,
                Err(error) if kind_of(error) == TroubleKind::OutOfMemory => bytes -= SEARCH_STEP,
                Err(error) => return Err(self.error(error)),
            }
        }
        Ok(u32::try_from(bytes / MIB).unwrap_or(u32::MAX))
    }

    fn fill(&mut self, contents: &Contents, bytes: u64) -> Result<u64, DeviceError> {
        self.fill_by(contents, bytes, goes_down(&contents.stream))
    }

    fn compare(&mut self, contents: &Contents) -> Result<PatternCheck, DeviceError> {
        self.differences("memory_compare", contents, goes_down(&contents.stream))
    }

    fn invert(&mut self, contents: &Contents, down: bool) -> Result<PatternCheck, DeviceError> {
        self.differences("memory_invert", contents, u32::from(down))
    }

    fn digest_blocks(
        &mut self,
        block_bytes: u32,
        key: &Digest,
    ) -> Result<Vec<Word64>, DeviceError> {
        self.digests_by(block_bytes, key, hashes_down(key))
    }

    fn room_for_streams(&mut self) -> Result<(), DeviceError> {
        CudaGpu::room_for_streams(self)
    }

    fn copy_mb_per_s(&mut self, sample: u32) -> Result<u64, DeviceError> {
        self.copies(sample)
    }

    fn rate_mb_per_s(&mut self, rate: Rate, sample: u32) -> Result<Option<u64>, DeviceError> {
        let measured = match rate {
            Rate::Read => self.reads(sample),
            Rate::Triad => self.triads(sample),
            Rate::FromHost => self.host_copies(false),
            Rate::ToHost => self.host_copies(true),
        };
        measured.map(Some)
    }

    fn tensor_products(&mut self, work: &TensorWork) -> Result<Option<TensorRun>, DeviceError> {
        CudaGpu::tensor_products(self, work)
    }

    fn burn(&mut self, work: &BurnWork) -> Result<Option<Burned>, DeviceError> {
        self.pinned = None;
        let operations = work.inputs.operations();
        // The tensor units, the part that buyers pay for, draw most power; they are loaded where the agent
        // has a kernel.
        let looks = match self.ready(&work.inputs, Format::Bf16, LOAD_MOST)? {
            Some(product) => {
                self.fill(&work.contents, work.held_bytes)?;
                let multiply = |gpu: &mut Self| gpu.multiply_tiles(&product);
                self.load(operations, &product.product, work.lasts, multiply)?
            }
            None => {
                let product = self.prepare(&work.inputs)?;
                self.fill(&work.contents, work.held_bytes)?;
                let multiply = |gpu: &mut Self| gpu.multiply_integers(&product, "gemm_exact");
                self.load(operations, &product.product, work.lasts, multiply)?
            }
        };
        let held = self.compare(&work.contents)?;
        Ok(Some(Burned {
            burn: summary(&looks, self.managed.slowdown_temperature_c()),
            dwell_bad_words: held.bad_words,
        }))
    }

    fn observe(&mut self) -> Result<GpuFacts, DeviceError> {
        let facts = self.managed.facts().map_err(|error| DeviceError {
            gpu: self.gpu,
            kind: match error {
                NvmlError::GpuLost => TroubleKind::GpuLost,
                _ => TroubleKind::Driver,
            },
            what: error.to_string(),
        })?;
        let Capability { major, minor } = self.capability;
        Ok(GpuFacts {
            compute_capability: Some(format!("{major}.{minor}")),
            host_link: self.host_link,
            ..facts
        })
    }

    fn xids(&mut self) -> Result<Option<Vec<u32>>, DeviceError> {
        Ok(self.managed.xids())
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        (self.memory, self.product, self.pinned) = (None, None, None);
        Ok(())
    }
}
