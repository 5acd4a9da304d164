//! GPUs through the CUDA driver: the only place that names cudarc and the management library.
//!
//! All of it runs in the process of one GPU (see [`crate::driver`]), on one thread, on the default
//! stream: a call that hangs or a symbol that is missing in an old driver (cudarc panics then) ends
//! that process and nothing else. No compiler is needed on the node: the kernels are part of the
//! agent ([`images`]).

pub mod images;
mod nvml;

use std::collections::BTreeMap;
use std::ffi::{CString, c_void};
use std::fs;
use std::io;
use std::path::Path;

use cudarc::driver::{DriverError, result, sys};
use market::verification::{
    DeviceKind, Digest, GpuClaim, GpuFacts, HostLink, LibraryFacts, Pattern, TroubleKind, Word64,
};
use nvml_wrapper::Nvml;
use sha2::{Digest as _, Sha256};

use crate::device::{Device, DeviceError, PatternCheck, Rate};
use crate::driver::{Driver, NoDriver, Opened, Survey};
use crate::gemm::GemmInputs;
use crate::memory::{Contents, hash_point};
use images::Capability;
use nvml::Managed;

/// What the GPUs here are.
pub const DEVICE_KIND: DeviceKind = DeviceKind::Cuda;

const COMPUTE_LIBRARY: &str = "libcuda.so.1";
const MANAGEMENT_LIBRARY: &str = "libnvidia-ml.so.1";
/// The interface through which AMD's driver shows its GPUs.
const AMD_DRIVER: &str = "/dev/kfd";

const MIB: u64 = 1 << 20;
const THREADS: u32 = 256;
/// Thread blocks for each multiprocessor, enough to keep memory busy.
const BLOCKS_PER_SM: u32 = 16;
/// The tile of the product that one thread block computes.
const GEMM_TILE: u32 = 128;
/// Rows of the product's inputs are a multiple of this. Units: bytes.
const GEMM_PITCH: u32 = 16;
/// Memory that is streamed through for a rate, at most: beyond any cache. Units: bytes.
const STREAMED: u64 = 4 << 30;
/// How often memory is streamed through for one sample.
const STREAM_ROUNDS: u64 = 20;
/// What goes over the host link at once, at most. Units: bytes.
const HOST_COPY: u64 = 256 * MIB;
/// How often for one sample.
const HOST_ROUNDS: u64 = 16;
/// What the search for allocatable memory goes down by. Units: bytes.
const SEARCH_STEP: u64 = 64 * MIB;

/// Serves a GPU on the standard streams, as the process that the agent starts for it.
///
/// Errors: what reading or writing them gives.
pub fn serve() -> io::Result<()> {
    crate::driver::serve(
        &mut Cuda::default(),
        &mut io::stdin().lock(),
        &mut io::stdout().lock(),
    )
}

/// The driver of this machine.
#[derive(Default)]
struct Cuda {
    nvml: Option<&'static Nvml>,
}

impl Cuda {
    /// Loads both libraries. The process uses them until it ends.
    fn start(&mut self) -> Result<&'static Nvml, NoDriver> {
        // SAFETY: it loads a library of the system, which runs that library's own start-up code.
        if !unsafe { sys::is_culib_present() } {
            return Err(if Path::new(AMD_DRIVER).exists() {
                NoDriver::UnsupportedVendor
            } else {
                NoDriver::Missing(COMPUTE_LIBRARY.to_owned())
            });
        }
        let nvml = match self.nvml {
            Some(nvml) => nvml,
            None => Box::leak(Box::new(Nvml::init().map_err(|error| match error {
                nvml_wrapper::error::NvmlError::LibloadingError(_) => {
                    NoDriver::Missing(MANAGEMENT_LIBRARY.to_owned())
                }
                error => NoDriver::Refused {
                    kind: TroubleKind::Driver,
                    what: error.to_string(),
                },
            })?)),
        };
        self.nvml = Some(nvml);
        result::init().map_err(|error| NoDriver::Refused {
            kind: kind_of(error),
            what: words(error),
        })?;
        Ok(nvml)
    }
}

impl Driver for Cuda {
    fn survey(&mut self) -> Result<Survey, NoDriver> {
        let nvml = self.start()?;
        let usable = result::device::get_count().map_err(|error| NoDriver::Refused {
            kind: kind_of(error),
            what: words(error),
        })?;
        let cuda_version = nvml.sys_cuda_driver_version().ok();
        Ok(Survey {
            version: nvml.sys_driver_version().unwrap_or_default(),
            cuda_version: cuda_version.and_then(|version| u32::try_from(version).ok()),
            managed: nvml.device_count().ok(),
            usable: u32::try_from(usable).unwrap_or(0),
            libraries: mapped_libraries(),
        })
    }

    fn open(&mut self, gpu: u32) -> Result<Opened, DeviceError> {
        let error = |kind, what| DeviceError { gpu, kind, what };
        let nvml = self
            .start()
            .map_err(|no| error(no.kind(), no.to_string()))?;
        // Before the GPU is used: what is in use now is somebody else's.
        let managed = Managed::open(nvml, gpu).map_err(|failed| {
            let kind = match failed {
                nvml_wrapper::error::NvmlError::GpuLost => TroubleKind::GpuLost,
                _ => TroubleKind::Driver,
            };
            error(kind, failed.to_string())
        })?;
        let device = CudaGpu::open(gpu, managed)?;
        let claim = device.claim();
        Ok((Box::new(device), claim))
    }
}

/// The driver's libraries as they are mapped into this process.
fn mapped_libraries() -> Vec<LibraryFacts> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut paths: Vec<&str> = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .filter(|path| path.contains("/libcuda.so") || path.contains("/libnvidia-ml.so"))
        .collect();
    paths.sort_unstable();
    paths.dedup();
    paths
        .into_iter()
        .map(|path| LibraryFacts {
            path: path.to_owned(),
            sha256: fs::read(path)
                .ok()
                .map(|bytes| Digest(Sha256::digest(bytes).into())),
        })
        .collect()
}

/// What an error of the driver amounts to.
fn kind_of(error: DriverError) -> TroubleKind {
    use sys::cudaError_enum as code;
    match error.0 {
        code::CUDA_ERROR_SYSTEM_NOT_READY => TroubleKind::FabricNotReady,
        code::CUDA_ERROR_OUT_OF_MEMORY => TroubleKind::OutOfMemory,
        code::CUDA_ERROR_NO_DEVICE | code::CUDA_ERROR_INVALID_DEVICE => TroubleKind::GpuWithdrawn,
        _ => TroubleKind::Driver,
    }
}

/// The driver's name of an error, without asking the driver.
fn words(error: DriverError) -> String {
    format!("{:?}", error.0)
}

/// Device memory that goes with its owner.
#[derive(Debug)]
struct Buffer {
    address: sys::CUdeviceptr,
    bytes: u64,
}

impl Buffer {
    fn new(bytes: u64) -> Result<Self, DriverError> {
        // SAFETY: a context is current, and what is allocated is used only through this.
        let address = unsafe { result::malloc_sync(bytes as usize) }?;
        Ok(Self { address, bytes })
    }

    fn zeroed(bytes: u64) -> Result<Self, DriverError> {
        let buffer = Self::new(bytes)?;
        // SAFETY: as many bytes as were allocated.
        unsafe { result::memset_d8_sync(buffer.address, 0, bytes as usize) }?;
        Ok(buffer)
    }

    /// The first values, of integers.
    fn read<T: Copy + Default>(&self, count: usize) -> Result<Vec<T>, DriverError> {
        assert!(
            count * size_of::<T>() <= self.bytes as usize,
            "read within the buffer"
        );
        let mut values = vec![T::default(); count];
        // SAFETY: the buffer holds as many bytes, and any bytes are integers.
        unsafe { result::memcpy_dtoh_sync(&mut values, self.address) }?;
        Ok(values)
    }

    fn write<T: Copy>(&self, values: &[T]) -> Result<(), DriverError> {
        assert!(
            size_of_val(values) <= self.bytes as usize,
            "written within the buffer"
        );
        // SAFETY: the buffer holds as many bytes.
        unsafe { result::memcpy_htod_sync(self.address, values) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was allocated here and is not used again. A failure leaves it allocated until
        // the process ends.
        let _ = unsafe { result::free_sync(self.address) };
    }
}

/// Pinned host memory that goes with its owner.
struct Pinned {
    address: *mut c_void,
    bytes: u64,
}

impl Pinned {
    fn new(bytes: u64) -> Result<Self, DriverError> {
        // SAFETY: a context is current, and what is allocated is used only through this.
        let address = unsafe { result::malloc_host(bytes as usize, 0) }?;
        Ok(Self { address, bytes })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: it was allocated here and is not used again.
        let _ = unsafe { result::free_host(self.address) };
    }
}

/// An argument of a kernel, in as many bytes as any of ours takes.
#[repr(align(16))]
#[derive(Clone, Copy)]
struct Argument([u8; 16]);

impl Argument {
    fn of(bytes: &[u8]) -> Self {
        let mut slot = [0; 16];
        slot[..bytes.len()].copy_from_slice(bytes);
        Self(slot)
    }
}

impl From<u32> for Argument {
    fn from(value: u32) -> Self {
        Self::of(&value.to_ne_bytes())
    }
}

impl From<u64> for Argument {
    fn from(value: u64) -> Self {
        Self::of(&value.to_ne_bytes())
    }
}

impl From<&Buffer> for Argument {
    fn from(buffer: &Buffer) -> Self {
        Self::from(buffer.address)
    }
}

impl From<crate::prf::Stream> for Argument {
    fn from(stream: crate::prf::Stream) -> Self {
        let bytes: Vec<u8> = stream
            .parameters()
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .collect();
        Self::of(&bytes)
    }
}

/// A product that is on the GPU.
struct Product {
    inputs: GemmInputs,
    pitch: u32,
    left: Buffer,
    right: Buffer,
    product: Buffer,
}

/// One GPU, opened.
struct CudaGpu {
    gpu: u32,
    managed: Managed,
    claim: GpuClaim,
    capability: Capability,
    sm_count: u32,
    functions: BTreeMap<&'static str, sys::CUfunction>,
    memory: Option<Buffer>,
    product: Option<Product>,
    host_link: Option<HostLink>,
}

// SAFETY: its handles belong to the process, and the process uses them from one thread only.
unsafe impl Send for CudaGpu {}

impl CudaGpu {
    fn open(gpu: u32, managed: Managed) -> Result<Self, DeviceError> {
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
            managed,
            claim,
            capability,
            sm_count,
            functions: BTreeMap::new(),
            memory: None,
            product: None,
            host_link: None,
        })
    }

    fn error(&self, error: DriverError) -> DeviceError {
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

    fn failed(&self, what: &str) -> DeviceError {
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
    fn launch(
        &mut self,
        kernel: &'static str,
        grid: (u32, u32),
        arguments: &[Argument],
    ) -> Result<(), DeviceError> {
        let function = self.function(kernel)?;
        let mut pointers: Vec<*mut c_void> = arguments
            .iter()
            .map(|argument| argument.0.as_ptr().cast_mut().cast())
            .collect();
        // SAFETY: each call names its kernel's arguments in number and size, and the buffers among
        // them are as long as the counts beside them say and live until the work is waited for.
        let launched = unsafe {
            result::launch_kernel(
                function,
                (grid.0, grid.1, 1),
                (THREADS, 1, 1),
                0,
                result::stream::null(),
                &mut pointers,
            )
        };
        launched.map_err(|error| self.error(error))
    }

    fn wait(&self) -> Result<(), DeviceError> {
        result::ctx::synchronize().map_err(|error| self.error(error))
    }

    /// Thread blocks for so many independent pieces.
    fn grid(&self, pieces: u64) -> (u32, u32) {
        let most = u64::from(self.sm_count.max(1) * BLOCKS_PER_SM);
        // At most `most`, which is a u32.
        (pieces.div_ceil(u64::from(THREADS)).clamp(1, most) as u32, 1)
    }

    fn buffer(&self, bytes: u64) -> Result<Buffer, DeviceError> {
        Buffer::new(bytes).map_err(|error| self.error(error))
    }

    fn zeroed(&self, bytes: u64) -> Result<Buffer, DeviceError> {
        Buffer::zeroed(bytes).map_err(|error| self.error(error))
    }

    /// Puts the inputs on the GPU, unless they are there.
    fn prepare(&mut self, inputs: &GemmInputs) -> Result<Product, DeviceError> {
        if let Some(product) = self.product.take_if(|product| product.inputs == *inputs) {
            return Ok(product);
        }
        self.product = None;
        self.memory = None;
        let pitch = inputs.k.next_multiple_of(GEMM_PITCH);
        let n = u64::from(inputs.n);
        let product = Product {
            inputs: *inputs,
            pitch,
            left: self.zeroed(n * u64::from(pitch))?,
            right: self.zeroed(n * u64::from(pitch))?,
            product: self.buffer(n * n * 4)?,
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

    fn filled(&self) -> Result<&Buffer, DeviceError> {
        self.memory
            .as_ref()
            .ok_or_else(|| self.failed("memory was not filled"))
    }

    /// Times what `work` starts. Units: milliseconds.
    fn timed(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), DeviceError>,
    ) -> Result<f64, DeviceError> {
        let event = || result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let begin = event().map_err(|error| self.error(error))?;
        let end = event().map_err(|error| self.error(error))?;
        let stream = result::stream::null();
        // SAFETY, here and below: both events were just made and are destroyed once, at the end.
        unsafe { result::event::record(begin, stream) }.map_err(|error| self.error(error))?;
        work(self)?;
        unsafe { result::event::record(end, stream) }.map_err(|error| self.error(error))?;
        unsafe { result::event::synchronize(end) }.map_err(|error| self.error(error))?;
        let elapsed = unsafe { result::event::elapsed(begin, end) };
        for event in [begin, end] {
            // Nothing is lost when it is not freed.
            let _ = unsafe { result::event::destroy(event) };
        }
        elapsed.map(f64::from).map_err(|error| self.error(error))
    }

    /// Streams through memory and gives the rate. `arrays` is how many are touched, all read but
    /// the last unless there is only one. Units: 1e6 bytes per second.
    fn stream(&mut self, kernel: &'static str, arrays: u64) -> Result<u64, DeviceError> {
        let memory = self.filled()?;
        let bytes = (memory.bytes / arrays).min(STREAMED) / 16 * 16;
        let addresses: Vec<u64> = (0..arrays).map(|at| memory.address + at * bytes).collect();
        let mut arguments: Vec<Argument> = addresses.into_iter().map(Argument::from).collect();
        let sum = self.zeroed(8)?;
        match kernel {
            "stream_triad" => arguments.extend([Argument::from(3_u32), Argument::from(bytes / 16)]),
            "stream_read" => arguments.extend([Argument::from(bytes / 16), Argument::from(&sum)]),
            _ => arguments.push(Argument::from(bytes / 16)),
        }
        let grid = self.grid(bytes / 16);
        // The first run brings the kernel and wakes the clocks.
        self.launch(kernel, grid, &arguments)?;
        let elapsed_ms = self.timed(|gpu| {
            (0..STREAM_ROUNDS).try_for_each(|_| gpu.launch(kernel, grid, &arguments))
        })?;
        self.rate(bytes * arrays * STREAM_ROUNDS, elapsed_ms)
    }

    fn rate(&self, bytes: u64, elapsed_ms: f64) -> Result<u64, DeviceError> {
        if elapsed_ms > 0.0 {
            Ok((bytes as f64 / elapsed_ms / 1e3) as u64)
        } else {
            Err(self.failed("its clock stands still"))
        }
    }

    /// Copies over the host link. Units: 1e6 bytes per second.
    fn host_copies(&mut self, to_host: bool) -> Result<u64, DeviceError> {
        let memory = self.filled()?;
        let (address, bytes) = (memory.address, memory.bytes.min(HOST_COPY));
        let pinned = Pinned::new(bytes).map_err(|error| self.error(error))?;
        let elapsed_ms = self.timed(|gpu| {
            for _ in 0..HOST_ROUNDS {
                // SAFETY: both sides hold as many bytes and live until the copies are waited for.
                let copied = unsafe {
                    let stream = result::stream::null();
                    let host = pinned.address.cast::<u8>();
                    if to_host {
                        let to = std::slice::from_raw_parts_mut(host, pinned.bytes as usize);
                        result::memcpy_dtoh_async(to, address, stream)
                    } else {
                        let from = std::slice::from_raw_parts(host, pinned.bytes as usize);
                        result::memcpy_htod_async(address, from, stream)
                    }
                };
                copied.map_err(|error| gpu.error(error))?;
            }
            // While it carries data: an idle link is narrower.
            gpu.host_link = gpu.managed.host_link().or(gpu.host_link);
            Ok(())
        })?;
        self.rate(bytes * HOST_ROUNDS, elapsed_ms)
    }
}

/// The number by which the kernels know a pattern.
const fn pattern_number(pattern: Pattern) -> u32 {
    match pattern {
        Pattern::Prf => 0,
        Pattern::Complement => 1,
        Pattern::Address => 2,
    }
}

impl Device for CudaGpu {
    fn claim(&self) -> GpuClaim {
        self.claim.clone()
    }

    fn multiply(&mut self, inputs: &GemmInputs) -> Result<Word64, DeviceError> {
        let product = self.prepare(inputs)?;
        let tiles = inputs.n.div_ceil(GEMM_TILE);
        let arguments = [
            Argument::from(&product.left),
            Argument::from(&product.right),
            Argument::from(&product.product),
            Argument::from(inputs.n),
            Argument::from(product.pitch),
        ];
        self.launch("gemm_exact", (tiles, tiles), &arguments)?;
        let sum = self.zeroed(8)?;
        let entries = u64::from(inputs.n) * u64::from(inputs.n);
        let arguments = [
            Argument::from(&product.product),
            Argument::from(entries),
            Argument::from(&sum),
        ];
        self.launch("product_checksum", self.grid(entries), &arguments)?;
        self.wait()?;
        let sums = sum.read::<u64>(1).map_err(|error| self.error(error))?;
        self.product = Some(product);
        Ok(Word64(sums[0]))
    }

    fn read_product(&mut self) -> Result<Vec<i32>, DeviceError> {
        let Some(product) = &self.product else {
            return Err(self.failed("nothing was multiplied"));
        };
        let n = product.inputs.n as usize;
        product
            .product
            .read(n * n)
            .map_err(|error| self.error(error))
    }

    fn allocatable_mib(&mut self) -> Result<u32, DeviceError> {
        self.product = None;
        self.memory = None;
        let (free, _) = result::mem_get_info().map_err(|error| self.error(error))?;
        let mut bytes = free as u64 / (2 * MIB) * (2 * MIB);
        // What the driver calls free is not always to be had in one piece.
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
        ];
        self.memory = Some(memory);
        self.launch("memory_fill", self.grid(blocks), &arguments)?;
        self.wait()?;
        Ok(bytes)
    }

    fn compare(&mut self, contents: &Contents) -> Result<PatternCheck, DeviceError> {
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
            Argument::from(&found),
        ];
        self.launch("memory_compare", self.grid(blocks), &arguments)?;
        self.wait()?;
        let found = found.read::<u64>(2).map_err(|error| self.error(error))?;
        Ok(PatternCheck {
            bad_words: found[0],
            lowest_bad_offset: (found[0] > 0).then(|| found[1].saturating_mul(4)),
        })
    }

    fn digest_blocks(
        &mut self,
        block_bytes: u32,
        key: &Digest,
    ) -> Result<Vec<Word64>, DeviceError> {
        let memory = Argument::from(self.filled()?);
        let blocks = self.filled()?.bytes / u64::from(block_bytes);
        let digests = self.buffer(blocks.max(1) * 8)?;
        let arguments = [
            memory,
            Argument::from(blocks),
            Argument::from(block_bytes / 16),
            Argument::from(hash_point(key).value()),
            Argument::from(&digests),
        ];
        // One thread block for a block of memory at a time.
        let grid = self.grid(blocks.saturating_mul(u64::from(THREADS)));
        self.launch("memory_digest", grid, &arguments)?;
        self.wait()?;
        let digests = digests.read::<u64>(blocks as usize);
        let digests = digests.map_err(|error| self.error(error))?;
        Ok(digests.into_iter().map(Word64).collect())
    }

    fn copy_mb_per_s(&mut self, _: u32) -> Result<u64, DeviceError> {
        self.stream("stream_copy", 2)
    }

    fn rate_mb_per_s(&mut self, rate: Rate, _: u32) -> Result<Option<u64>, DeviceError> {
        let measured = match rate {
            Rate::Read => self.stream("stream_read", 1),
            Rate::Triad => self.stream("stream_triad", 3),
            Rate::FromHost => self.host_copies(false),
            Rate::ToHost => self.host_copies(true),
        };
        measured.map(Some)
    }

    fn observe(&mut self) -> Result<GpuFacts, DeviceError> {
        let facts = self.managed.facts().map_err(|error| DeviceError {
            gpu: self.gpu,
            kind: match error {
                nvml_wrapper::error::NvmlError::GpuLost => TroubleKind::GpuLost,
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
}
