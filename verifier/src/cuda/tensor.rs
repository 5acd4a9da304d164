//! The exact product on the tensor units of this GPU.

use super::buffer::{Argument, Buffer};
use super::gpu::{Block, CudaGpu};
use super::images::{self, Capability};
use super::variants::walk;
use crate::device::DeviceError;
use crate::gemm::GemmInputs;
use crate::tensor::{Format, TensorRun, TensorWork};

/// The tile of the product that one thread block computes: rows, columns.
const TILE: (u32, u32) = (128, 256);
/// Rows of the inputs are padded with zeros to a multiple of this.
const ROW_MULTIPLE: u32 = 256;
/// The bytes of a row are a multiple of this.
const DEPTH_MULTIPLE: u32 = 128;

/// A kernel and how it is started, as the head of its source describes.
#[derive(Debug, Clone, Copy)]
struct Kernel {
    name: &'static str,
    block: Block,
    /// Whether a thread block computes one tile after the other.
    goes_on: bool,
}

/// The inputs of a product, in the order of `packed.cuh`.
struct Packed {
    left: Buffer,
    right: Buffer,
    /// The bytes of a row.
    depth: u32,
}

/// The kernels of a format, the best one first.
const fn kernels(format: Format) -> [Kernel; 2] {
    let (groups, warps) = match format {
        Format::Bf16 => ("gemm_bf16_groups", "gemm_bf16"),
        Format::Fp8 => ("gemm_fp8_groups", "gemm_fp8"),
    };
    let (rows, columns) = TILE;
    [
        Kernel {
            name: groups,
            block: Block {
                threads: 384,
                shared_bytes: 4 * (rows + columns) * 128 + 1_024,
            },
            goes_on: true,
        },
        Kernel {
            name: warps,
            block: Block {
                threads: 256,
                shared_bytes: 4 * (rows + columns) * 64,
            },
            goes_on: false,
        },
    ]
}

/// A product on the tensor units that can be started.
pub(super) struct Ready {
    kernel: Kernel,
    blocks: u32,
    arguments: [Argument; 6],
    pub product: Buffer,
    /// They live as long as the kernel reads them.
    _inputs: Packed,
}

/// The kernels of a format that a GPU can run, the best one first.
fn carried(format: Format, gpu: Capability) -> impl Iterator<Item = Kernel> {
    let all = kernels(format).into_iter();
    all.filter(move |kernel| images::image(kernel.name, gpu).is_some())
}

impl CudaGpu {
    /// Computes products on the tensor units; none where this GPU has none for the format, or where the agent
    /// has no kernel for them.
    pub fn tensor_products(&mut self, work: &TensorWork) -> Result<Option<TensorRun>, DeviceError> {
        let Some(ready) = self.ready(&work.inputs, work.format, work.most)? else {
            return Ok(None);
        };
        let timed = work.timed.max(1);
        self.warm_up(timed, |gpu| gpu.multiply_tiles(&ready))?;
        let elapsed_ms =
            self.timed(|gpu| (0..timed).try_for_each(|_| gpu.multiply_tiles(&ready)))?;
        let gflops = self.gflops(work, elapsed_ms)?;

        let sums = self.zeroed(8 * u64::from(work.checked.max(1)))?;
        for at in 0..u64::from(work.checked) {
            // An unwritten product must not pass as the one before.
            self.empty(&ready.product)?;
            self.multiply_tiles(&ready)?;
            let entries = ready.product.bytes / 4;
            let arguments = [
                Argument::from(&ready.product),
                Argument::from(entries),
                Argument::from(sums.address + 8 * at),
            ];
            self.launch("product_checksum", self.grid(entries), &arguments)?;
        }
        self.wait()?;
        let checksums = sums.read::<u64>(work.checked as usize);
        let checksums = checksums.map_err(|error| self.error(error))?;
        Ok(Some(TensorRun {
            gflops,
            checksums: checksums
                .into_iter()
                .map(market::verification::Word64)
                .collect(),
        }))
    }

    /// Puts the inputs of a product on the GPU, with entries of at most this value; none where it has no
    /// kernel for the format. It overwrites earlier data.
    pub fn ready(
        &mut self,
        inputs: &GemmInputs,
        format: Format,
        most: u8,
    ) -> Result<Option<Ready>, DeviceError> {
        let Some(kernel) = carried(format, self.capability).next() else {
            return Ok(None);
        };
        let packed = self.packed_inputs(inputs, format, most)?;
        let n = inputs.n;
        let product = self.buffer(u64::from(n) * u64::from(n) * 4)?;
        let tiles = n.div_ceil(TILE.0) * n.div_ceil(TILE.1);
        let blocks = if kernel.goes_on {
            tiles.min(self.sm_count.max(1))
        } else {
            tiles
        };
        let arguments = [
            Argument::from(&packed.left),
            Argument::from(&packed.right),
            Argument::from(&product),
            Argument::from(n),
            Argument::from(packed.depth),
            Argument::from(walk(inputs)),
        ];
        Ok(Some(Ready {
            kernel,
            blocks,
            arguments,
            product,
            _inputs: packed,
        }))
    }

    /// Starts a product on the tensor units.
    pub fn multiply_tiles(&mut self, ready: &Ready) -> Result<(), DeviceError> {
        let Kernel { name, block, .. } = ready.kernel;
        self.launch_blocks(name, (ready.blocks, 1), block, &ready.arguments)
    }

    /// Puts the inputs on the GPU. What was there before goes.
    fn packed_inputs(
        &mut self,
        inputs: &GemmInputs,
        format: Format,
        most: u8,
    ) -> Result<Packed, DeviceError> {
        self.product = None;
        self.memory = None;
        let GemmInputs {
            n,
            k,
            left: left_stream,
            right: right_stream,
        } = *inputs;
        let depth = (k * format.entry_bytes()).next_multiple_of(DEPTH_MULTIPLE);
        let bytes = u64::from(n.next_multiple_of(ROW_MULTIPLE)) * u64::from(depth);
        let (left, right) = (self.zeroed(bytes)?, self.zeroed(bytes)?);
        let number = match format {
            Format::Bf16 => 0_u32,
            Format::Fp8 => 1,
        };
        let arguments = [
            Argument::from(&left),
            Argument::from(&right),
            Argument::from(left_stream),
            Argument::from(right_stream),
            Argument::from(n),
            Argument::from(k),
            Argument::from(depth),
            Argument::from(number),
            Argument::from(u32::from(most)),
        ];
        let grid = self.grid(u64::from(n) * u64::from(k) / 4);
        self.launch("packed_inputs", grid, &arguments)?;
        Ok(Packed { left, right, depth })
    }

    /// The rate of the products that were timed. Units: 1e9 operations per second.
    fn gflops(&self, work: &TensorWork, elapsed_ms: f64) -> Result<u64, DeviceError> {
        if elapsed_ms > 0.0 {
            let all = work.inputs.operations() * f64::from(work.timed.max(1));
            Ok((all / elapsed_ms / 1e6) as u64)
        } else {
            Err(self.failed("its clock stands still"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_that_is_measured_has_kernels_and_no_8_bit_kernel_is_left_unmeasured() {
        let parts = [
            (7, 0),
            (7, 5),
            (8, 0),
            (8, 6),
            (8, 9),
            (9, 0),
            (10, 0),
            (10, 1),
            (10, 3),
            (11, 0),
            (12, 0),
            (12, 1),
            (13, 0),
        ];
        for (major, minor) in parts {
            for format in Format::ALL {
                let part = Capability { major, minor };
                let carried = carried(format, part).next().is_some();
                let rated = format.is_rated_on(&format!("{major}.{minor}"));
                let said = format!("{} on {major}.{minor}", format.words());
                assert!(carried || !rated, "{said}");
                assert!(rated || !carried || format == Format::Bf16, "{said}");
            }
        }
    }
}
