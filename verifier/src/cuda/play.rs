//! Runs the shared vectors by every kernel that the agent has for this GPU, in all of its variants: all must
//! give the same result.

use market::verification::Word64;

use super::buffer::{Argument, Buffer};
use super::gpu::CudaGpu;
use super::tensor::carried;
use super::variants::{DIRECTIONS, EXACT_KERNELS, WALKS};
use crate::device::DeviceError;
use crate::gemm::GemmInputs;
use crate::prf::Stream;
use crate::tensor::Format;
use crate::vectors::{MemoryVector, Played, ProductVector, StreamVector, Vector};

/// The most steps of the ring that add up to a vector's sum.
const MOST_STEPS: u32 = 8;

impl CudaGpu {
    /// Runs a vector. It overwrites the data on the GPU.
    pub fn play_by_all(&mut self, vector: &Vector) -> Result<Vec<Played>, DeviceError> {
        match vector {
            Vector::Product(product) => self.play_product(product),
            Vector::Memory(memory) => self.play_memory(memory),
            Vector::Stream(arrays) => self.play_streams(arrays),
        }
    }

    fn play_product(&mut self, vector: &ProductVector) -> Result<Vec<Played>, DeviceError> {
        let ProductVector { inputs, format, .. } = *vector;
        let GemmInputs { n, .. } = inputs;
        let entries = u64::from(n) * u64::from(n);
        let mut played = Vec::new();
        // As 16-bit numbers the product equals that of the integers.
        if format == Format::Bf16 {
            let product = self.prepare(&inputs)?;
            for kernel in EXACT_KERNELS {
                self.empty(&product.product)?;
                self.multiply_integers(&product, kernel)?;
                let gave = self.checksum(product.product.address, entries)?;
                played.push(vector.played(kernel.to_owned(), Some(Word64(gave))));
                let sums = self.sums_of_rows(&product)?;
                let gave = sums.into_iter().fold(0, u64::wrapping_add);
                played.push(vector.played(format!("{kernel}, by rows"), Some(Word64(gave))));
            }
        }
        let before = played.len();
        for kernel in carried(format, self.capability) {
            for walk in 0..WALKS {
                let ready = self.ready_by(kernel, &inputs, format, (format.most(), walk))?;
                self.empty(&ready.product)?;
                self.multiply_tiles(&ready)?;
                let gave = self.checksum(ready.product.address, entries)?;
                let by = format!("{}, walk {walk}", kernel.name);
                played.push(vector.played(by, Some(Word64(gave))));
            }
        }
        if played.len() == before {
            played.push(vector.played("tensor units".to_owned(), None));
        }
        Ok(played)
    }

    fn play_memory(&mut self, vector: &MemoryVector) -> Result<Vec<Played>, DeviceError> {
        let MemoryVector {
            contents,
            key,
            block_bytes,
            ..
        } = *vector;
        let mut played = Vec::new();
        for down in DIRECTIONS {
            self.fill_by(&contents, vector.bytes(), down)?;
            let digests = self.digests_by(block_bytes, &key, down)?;
            let check = self.differences("memory_compare", &contents, down)?;
            let by = format!("memory_fill, memory_digest and memory_compare, way {down}");
            played.push(vector.played(by, &digests, check.bad_words));
            // Inverting twice gives the original; the other patterns cannot be inverted.
            if contents.pattern == market::verification::Pattern::Prf {
                let once = self.differences("memory_invert", &contents, down)?;
                let twice = self.differences("memory_invert", &contents.turned(), 1 - down)?;
                let digests = self.digests_by(block_bytes, &key, down)?;
                let by = format!("memory_invert twice, way {down} first");
                played.push(vector.played(by, &digests, once.and(twice).bad_words));
            }
        }
        Ok(played)
    }

    fn play_streams(&mut self, vector: &StreamVector) -> Result<Vec<Played>, DeviceError> {
        let StreamVector { scale, vectors, .. } = *vector;
        let bytes = vectors * 16;
        let (left, right) = (
            self.held(&vector.left, bytes)?,
            self.held(&vector.right, bytes)?,
        );
        let to = self.zeroed(bytes)?;
        let (grid, wide) = (self.stream_grid(vectors), self.vector_grid(vectors));
        let mut played = Vec::new();
        for turn in [0, vectors / 2, vectors.saturating_sub(1)] {
            let [count, begins] = [Argument::from(vectors), Argument::from(turn)];
            let [a, b, target] = [&left, &right, &to].map(Argument::from);
            self.empty(&to)?;
            self.launch("stream_copy", wide, &[target, a, count, begins])?;
            let copied = self.checksum(to.address, vectors * 4)?;
            let by = |kernel: &str| format!("{kernel}, begun at {turn}");
            played.push(vector.played("copy", by("stream_copy"), vector.copied, copied));
            // The same sum in ring steps, which the kernel for three arrays computes in one run.
            if scale <= MOST_STEPS {
                for _ in 0..scale {
                    self.launch("ring_add", grid, &[target, b, count, begins])?;
                }
                let added = self.checksum(to.address, vectors * 4)?;
                played.push(vector.played("sum", by("ring_add"), vector.triad, added));
            }
            self.empty(&to)?;
            let arguments = [target, a, b, Argument::from(scale), count, begins];
            self.launch("stream_triad", wide, &arguments)?;
            let triad = self.checksum(to.address, vectors * 4)?;
            played.push(vector.played("sum", by("stream_triad"), vector.triad, triad));
            let sum = self.zeroed(8)?;
            let arguments = [a, count, begins, Argument::from(&sum)];
            self.launch("stream_read", grid, &arguments)?;
            self.wait()?;
            let read = sum.read::<u64>(1).map_err(|error| self.error(error))?;
            played.push(vector.played("read", by("stream_read"), vector.sum, read[0]));
        }
        Ok(played)
    }

    /// A buffer that holds a stream.
    fn held(&mut self, stream: &Stream, bytes: u64) -> Result<Buffer, DeviceError> {
        let buffer = self.buffer(bytes)?;
        let arguments = [
            Argument::from(&buffer),
            Argument::from(bytes / 16),
            Argument::from(*stream),
            Argument::from(0_u32),
            Argument::from(0_u32),
        ];
        self.launch("memory_fill", self.grid(bytes / 16), &arguments)?;
        Ok(buffer)
    }
}
