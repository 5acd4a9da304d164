//! One opened GPU: its context, its kernels, and the data on it.

use std::collections::BTreeMap;
use std::ffi::{CString, c_void};

use market::verification::{GpuClaim, HostLink, TroubleKind};

use super::buffer::{Argument, Buffer, Pinned};
use super::images::{self, Capability};
use super::nvml::Managed;
use super::{DriverError, kind_of, result, sys, words};
use crate::device::DeviceError;
use crate::gemm::GemmInputs;

/// Threads of a thread block.
pub(super) const THREADS: u32 = 256;
/// Thread blocks for each multiprocessor, for compute kernels.
const BLOCKS_PER_SM: u32 = 16;
/// Thread blocks for each multiprocessor, for streaming kernels: as many as every part can run at once
/// (`kernels/stream.cuh`), so that none waits for others to end.
const STREAM_BLOCKS_PER_SM: u32 = 4;
/// Thread blocks of a grid in its first dimension, at most.
const MOST_BLOCKS: u32 = i32::MAX.unsigned_abs();
/// The tile of the product that one thread block computes.
const GEMM_TILE: u32 = 128;
/// Rows of the product's inputs are a multiple of this. Units: bytes.
const GEMM_PITCH: u32 = 16;

/// The shared memory that a thread block has without a request. Units: bytes.
const SHARED_UNASKED: u32 = 48 << 10;

/// Resources that a thread block of a kernel needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub threads: u32,
    /// Shared memory beyond the kernel's static part. Units: bytes.
    pub shared_bytes: u32,
}

/// A product on the GPU.
pub(super) struct Product {
    pub inputs: GemmInputs,
    pub pitch: u32,
    pub left: Buffer,
    pub right: Buffer,
    pub product: Buffer,
}

/// The PCI bus address of one of the compute library's GPUs, as the management library writes it.
///
/// The two libraries number GPUs differently where the compute library is shown only some of them
/// (`CUDA_VISIBLE_DEVICES`).
pub(super) fn bus_id(gpu: u32) -> Result<String, DriverError> {
    // The driver itself refuses a number that belongs to none of its GPUs.
    let device = result::device::get(gpu as i32)?;
    // SAFETY: the device is one that the driver gave.
    let attribute = |which| unsafe { result::device::get_attribute(device, which) };
    use sys::CUdevice_attribute as about;
    let domain = attribute(about::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
    let bus = attribute(about::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?;
    let slot = attribute(about::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?;
    Ok(format!("{domain:08x}:{bus:02x}:{slot:02x}.0"))
}

/// One GPU, opened.
pub(super) struct CudaGpu {
    pub gpu: u32,
    pub device: sys::CUdevice,
    pub context: sys::CUcontext,
    pub managed: Managed,
    pub claim: GpuClaim,
    pub capability: Capability,
    pub sm_count: u32,
    /// Its last cache before memory. Units: bytes.
    pub cache_bytes: u64,
    functions: BTreeMap<&'static str, sys::CUfunction>,
    pub memory: Option<Buffer>,
    /// A word of the contents that memory was last filled with, which the broker drew.
    pub drawn: u32,
    pub product: Option<Product>,
    /// The host's side of host copies, while they are measured.
    pub pinned: Option<Pinned>,
    pub host_link: Option<HostLink>,
}

// SAFETY: its handles belong to the process, and the process uses them from one thread only.
unsafe impl Send for CudaGpu {}

impl CudaGpu {
    pub fn open(gpu: u32, managed: Managed) -> Result<Self, DeviceError> {
        let failed = |error: DriverError| DeviceError {
            gpu,
            kind: if managed.is_lost() {
                TroubleKind::GpuLost
            } else {
                kind_of(error)
            },
            what: words(error),
        };
        // NVML knows no more than 64 GPUs.
        let device = result::device::get(gpu as i32).map_err(failed)?;
        // SAFETY: the device is one that the driver gave; the context lives until the process ends.
        let attribute = |which| unsafe { result::device::get_attribute(device, which) };
        use sys::CUdevice_attribute as about;
        let number = |which| {
            let value = attribute(which).map_err(failed)?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let sm_count = number(about::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let capability = Capability {
            major: number(about::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            minor: number(about::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        };
        let cache_bytes = u64::from(number(about::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?);
        // SAFETY: as above.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(failed)?;
        // SAFETY: it was just retained.
        unsafe { result::ctx::set_current(context) }.map_err(failed)?;
        let (name, uuid, memory_mib) = managed.claim().map_err(|error| DeviceError {
            gpu,
            kind: TroubleKind::Driver,
            what: error.to_string(),
        })?;
        let claim = GpuClaim {
            name,
            uuid,
            memory_mib,
            sm_count: Some(sm_count),
        };
        Ok(Self {
            gpu,
            device,
            context,
            managed,
            claim,
            capability,
            sm_count,
            cache_bytes,
            functions: BTreeMap::new(),
            memory: None,
            drawn: 0,
            product: None,
            pinned: None,
            host_link: None,
        })
    }

    /// Makes this GPU the current one of this process.
    pub fn enter(&self) -> Result<(), DeviceError> {
        // SAFETY: the context was retained and lives until the process ends.
        let entered = unsafe { result::ctx::set_current(self.context) };
        entered.map_err(|error| self.error(error))
    }

    pub fn error(&self, error: DriverError) -> DeviceError {
        let kind = match kind_of(error) {
            TroubleKind::Driver | TroubleKind::GpuWithdrawn if self.managed.is_lost() => {
                TroubleKind::GpuLost
            }
            kind => kind,
        };
        DeviceError {
            gpu: self.gpu,
            kind,
            what: words(error),
        }
    }

    pub fn failed(&self, what: &str) -> DeviceError {
        DeviceError {
            gpu: self.gpu,
            kind: TroubleKind::Driver,
            what: what.to_owned(),
        }
    }

    fn function(&mut self, kernel: &'static str) -> Result<sys::CUfunction, DeviceError> {
        if let Some(function) = self.functions.get(kernel) {
            return Ok(*function);
        }
        let Some(image) = images::image(kernel, self.capability) else {
            let Capability { major, minor } = self.capability;
            return Err(self.failed(&format!(
                "this agent has no kernels for compute capability {major}.{minor}"
            )));
        };
        let name = CString::new(kernel).map_err(|_| self.failed("a kernel without a name"))?;
        // SAFETY: the image is a whole cubin or zero-terminated PTX; the driver copies it.
        let module = unsafe { result::module::load_data(image.as_ptr().cast()) };
        let module = module.map_err(|error| self.error(error))?;
        // SAFETY: the module was just loaded and stays so until the process ends.
        let function = unsafe { result::module::get_function(module, name) };
        let function = function.map_err(|error| self.error(error))?;
        self.functions.insert(kernel, function);
        Ok(function)
    }

    /// Starts a kernel; `grid` is in thread blocks of [`THREADS`] threads.
    pub fn launch(
        &mut self,
        kernel: &'static str,
        grid: (u32, u32),
        arguments: &[Argument],
    ) -> Result<(), DeviceError> {
        let block = Block {
            threads: THREADS,
            shared_bytes: 0,
        };
        self.launch_blocks(kernel, grid, block, arguments)
    }

    /// Starts a kernel; `grid` is in thread blocks.
    pub fn launch_blocks(
        &mut self,
        kernel: &'static str,
        grid: (u32, u32),
        block: Block,
        arguments: &[Argument],
    ) -> Result<(), DeviceError> {
        let function = self.function(kernel)?;
        if block.shared_bytes > SHARED_UNASKED {
            use sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as most;
            // SAFETY: the function came from the driver. It never asks for more than 227 KiB.
            let asked = unsafe {
                result::function::set_function_attribute(function, most, block.shared_bytes as i32)
            };
            asked.map_err(|error| self.error(error))?;
        }
        let mut pointers: Vec<*mut c_void> = arguments
            .iter()
            .map(|argument| argument.0.as_ptr().cast_mut().cast())
            .collect();
        // SAFETY: each call passes its kernel's arguments in number and size. The buffers among them are as
        // long as the counts passed beside them, and live until the work has been waited for.
        let launched = unsafe {
            result::launch_kernel(
                function,
                (grid.0, grid.1, 1),
                (block.threads, 1, 1),
                block.shared_bytes,
                result::stream::null(),
                &mut pointers,
            )
        };
        launched.map_err(|error| self.error(error))
    }

    pub fn wait(&self) -> Result<(), DeviceError> {
        result::ctx::synchronize().map_err(|error| self.error(error))
    }

    /// Thread blocks for this many independent pieces.
    pub fn grid(&self, pieces: u64) -> (u32, u32) {
        self.grid_of(BLOCKS_PER_SM, pieces)
    }

    /// Thread blocks that stream through this many vectors, each with several accesses in flight.
    pub fn stream_grid(&self, vectors: u64) -> (u32, u32) {
        self.grid_of(STREAM_BLOCKS_PER_SM, vectors)
    }

    /// Thread blocks with one thread for each vector, up to the limit of a grid.
    pub fn vector_grid(&self, vectors: u64) -> (u32, u32) {
        let blocks = vectors.div_ceil(u64::from(THREADS));
        // At most `MOST_BLOCKS`, which is a u32.
        (blocks.clamp(1, u64::from(MOST_BLOCKS)) as u32, 1)
    }

    fn grid_of(&self, blocks_per_sm: u32, pieces: u64) -> (u32, u32) {
        let most = u64::from(self.sm_count.max(1) * blocks_per_sm);
        // At most `most`, which is a u32.
        (pieces.div_ceil(u64::from(THREADS)).clamp(1, most) as u32, 1)
    }

    pub fn buffer(&self, bytes: u64) -> Result<Buffer, DeviceError> {
        Buffer::new(bytes).map_err(|error| self.error(error))
    }

    pub fn zeroed(&self, bytes: u64) -> Result<Buffer, DeviceError> {
        Buffer::zeroed(bytes).map_err(|error| self.error(error))
    }

    /// Zeroes a buffer: unwritten memory must not pass as an earlier result.
    pub fn empty(&self, buffer: &Buffer) -> Result<(), DeviceError> {
        buffer.clear().map_err(|error| self.error(error))
    }

    /// The checksum of this many words, as by [`crate::gemm::checksum`].
    pub fn checksum(
        &mut self,
        address: sys::CUdeviceptr,
        entries: u64,
    ) -> Result<u64, DeviceError> {
        let sum = self.zeroed(8)?;
        let arguments = [
            Argument::from(address),
            Argument::from(entries),
            Argument::from(&sum),
        ];
        self.launch("product_checksum", self.grid(entries), &arguments)?;
        self.wait()?;
        let sums = sum.read::<u64>(1).map_err(|error| self.error(error))?;
        Ok(sums[0])
    }

    /// Each row's contribution to a product's checksum.
    pub fn sums_of_rows(&mut self, product: &Product) -> Result<Vec<u64>, DeviceError> {
        let n = product.inputs.n;
        let sums = self.zeroed(u64::from(n) * 8)?;
        let arguments = [
            Argument::from(&product.product),
            Argument::from(n),
            Argument::from(&sums),
        ];
        // One thread block computes one row at a time.
        let grid = self.grid(u64::from(n) * u64::from(THREADS));
        self.launch("product_rows", grid, &arguments)?;
        self.wait()?;
        sums.read(n as usize).map_err(|error| self.error(error))
    }

    /// Puts the inputs on the GPU, unless they are there. They replace those of an equally large product.
    pub fn prepare(&mut self, inputs: &GemmInputs) -> Result<Product, DeviceError> {
        if let Some(product) = self.product.take_if(|product| product.inputs == *inputs) {
            return Ok(product);
        }
        let alike =
            |product: &mut Product| (product.inputs.n, product.inputs.k) == (inputs.n, inputs.k);
        let pitch = inputs.k.next_multiple_of(GEMM_PITCH);
        let n = u64::from(inputs.n);
        let product = match self.product.take_if(alike) {
            Some(before) => Product {
                inputs: *inputs,
                ..before
            },
            None => {
                self.product = None;
                self.memory = None;
                Product {
                    inputs: *inputs,
                    pitch,
                    left: self.zeroed(n * u64::from(pitch))?,
                    right: self.zeroed(n * u64::from(pitch))?,
                    product: self.buffer(n * n * 4)?,
                }
            }
        };
        let arguments = [
            Argument::from(&product.left),
            Argument::from(&product.right),
            Argument::from(inputs.left),
            Argument::from(inputs.right),
            Argument::from(inputs.n),
            Argument::from(inputs.k),
            Argument::from(pitch),
        ];
        let grid = self.grid(n * u64::from(inputs.k) / 4);
        self.launch("gemm_inputs", grid, &arguments)?;
        Ok(product)
    }

    /// Starts a product on the integer units.
    pub fn multiply_integers(
        &mut self,
        product: &Product,
        kernel: &'static str,
    ) -> Result<(), DeviceError> {
        let n = product.inputs.n;
        let tiles = n.div_ceil(GEMM_TILE);
        let arguments = [
            Argument::from(&product.left),
            Argument::from(&product.right),
            Argument::from(&product.product),
            Argument::from(n),
            Argument::from(product.pitch),
        ];
        self.launch(kernel, (tiles, tiles), &arguments)
    }

    pub fn filled(&self) -> Result<&Buffer, DeviceError> {
        self.memory
            .as_ref()
            .ok_or_else(|| self.failed("memory was not filled"))
    }
}
