//! GPUs through the CUDA driver: the only place that names cudarc and the management library.
//!
//! All of it runs on one thread and on the default stream, in the process of one GPU (see [`crate::driver`]),
//! in one that measures the links between all GPUs (`cuda/links.rs`), or in one that measures those to other
//! nodes (`cuda/nodes.rs`). A call that hangs, or a symbol that an old driver lacks (cudarc panics then),
//! ends only that process. The node needs no compiler: the kernels are part of the agent ([`images`]).

mod buffer;
mod collective;
mod gpu;
pub mod images;
mod library;
mod links;
mod measure;
mod nodes;
mod nvml;
mod streams;
mod tensor;
mod variants;
mod work;

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use cudarc::driver::{DriverError, result, sys};
use market::verification::{
    CollectiveRate, DeviceKind, Digest, LibraryFacts, NcclId, NcclSum, TroubleKind,
};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use nvml_wrapper::Nvml;
use sha2::{Digest as _, Sha256};

use crate::device::{Device, DeviceError, NcclRate};
use crate::driver::{Driver, NoDriver, Opened, Survey};
use crate::host;
use crate::probe::links::{LibraryWork, LinkRates, LinkWork};
use gpu::CudaGpu;
use nvml::Managed;

/// The kind of these devices.
pub const DEVICE_KIND: DeviceKind = DeviceKind::Cuda;

const COMPUTE_LIBRARY: &str = "libcuda.so.1";
const MANAGEMENT_LIBRARY: &str = "libnvidia-ml.so.1";

/// Serves a GPU on the standard streams, as the process that the agent starts for it.
///
/// Errors: those of reading or writing them.
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
            return Err(NoDriver::Missing(COMPUTE_LIBRARY.to_owned()));
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
                    may_come_up: matches!(error, nvml_wrapper::error::NvmlError::DriverNotLoaded),
                },
            })?)),
        };
        self.nvml = Some(nvml);
        result::init().map_err(refused)?;
        Ok(nvml)
    }
}

impl Driver for Cuda {
    fn survey(&mut self) -> Result<Survey, NoDriver> {
        let nvml = self.start()?;
        let usable = result::device::get_count().map_err(refused)?;
        let cuda_version = nvml.sys_cuda_driver_version().ok();
        Ok(Survey {
            version: nvml.sys_driver_version().unwrap_or_default(),
            cuda_version: cuda_version.and_then(|version| u32::try_from(version).ok()),
            managed: nvml.device_count().ok(),
            usable: u32::try_from(usable).unwrap_or(0),
            libraries: mapped_libraries(),
        })
    }

    fn open(&mut self, gpu: u32, root: &Path) -> Result<Opened, DeviceError> {
        // Before anything is pinned: host memory is allocated near the processors on which the process runs.
        if self.start().is_ok()
            && let Ok(bus_id) = gpu::bus_id(gpu)
        {
            stay_near(&host::cpus_near(root, &bus_id));
        }
        let device = self.opened(gpu)?;
        let claim = device.claim();
        Ok((Box::new(device), claim))
    }

    fn links(
        &mut self,
        work: &LinkWork,
        lasts: Duration,
        told: &mut dyn FnMut(LinkRates),
    ) -> Result<(), DeviceError> {
        let until = Instant::now() + lasts;
        links::measure(&mut self.all_opened(work.gpus)?, work, until, told)
    }

    fn library(
        &mut self,
        work: &LibraryWork,
        lasts: Duration,
        told: &mut dyn FnMut(CollectiveRate),
    ) -> Result<(), DeviceError> {
        let until = Instant::now() + lasts;
        links::library(&mut self.all_opened(work.gpus)?, work, until, told)
    }

    fn nccl_version(&mut self) -> Option<u32> {
        collective::version_number()
    }

    fn nccl_id(&mut self) -> Result<NcclId, DeviceError> {
        collective::id().map_err(|what| DeviceError {
            gpu: 0,
            kind: TroubleKind::Driver,
            what,
        })
    }

    fn nccl_sum(&mut self, sum: &NcclSum) -> Result<NcclRate, DeviceError> {
        nodes::sum(&mut self.all_opened(sum.gpus)?, sum)
    }
}

impl Cuda {
    fn all_opened(&mut self, gpus: u32) -> Result<Vec<CudaGpu>, DeviceError> {
        (0..gpus).map(|gpu| self.opened(gpu)).collect()
    }

    fn opened(&mut self, gpu: u32) -> Result<CudaGpu, DeviceError> {
        let error = |kind, what| DeviceError { gpu, kind, what };
        let nvml = self
            .start()
            .map_err(|no| error(no.kind(), no.to_string()))?;
        let bus_id = gpu::bus_id(gpu).map_err(|failed| error(kind_of(failed), words(failed)))?;
        // Before the GPU is used: anything that occupies it now belongs to another.
        let managed = Managed::open(nvml, &bus_id).map_err(|failed| {
            let kind = match failed {
                nvml_wrapper::error::NvmlError::GpuLost => TroubleKind::GpuLost,
                _ => TroubleKind::Driver,
            };
            error(kind, failed.to_string())
        })?;
        CudaGpu::open(gpu, managed)
    }
}

/// Binds this process, and the processes that it starts later, to these processors. Where that is not
/// permitted, it runs where it did.
fn stay_near(cpus: &[usize]) {
    let mut near = CpuSet::new();
    let known = cpus.iter().filter(|cpu| near.set(**cpu).is_ok()).count();
    if known > 0 {
        let _ = sched_setaffinity(Pid::from_raw(0), &near);
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

/// Why the driver does not start. While its device nodes are missing it reports that there is no GPU, or an
/// unknown error.
fn refused(error: DriverError) -> NoDriver {
    use sys::cudaError_enum as code;
    NoDriver::Refused {
        kind: kind_of(error),
        what: words(error),
        may_come_up: matches!(
            error.0,
            code::CUDA_ERROR_NO_DEVICE | code::CUDA_ERROR_UNKNOWN
        ),
    }
}

/// The kind of trouble for a driver error.
fn kind_of(error: DriverError) -> TroubleKind {
    use sys::cudaError_enum as code;
    match error.0 {
        code::CUDA_ERROR_SYSTEM_NOT_READY => TroubleKind::FabricNotReady,
        code::CUDA_ERROR_OUT_OF_MEMORY => TroubleKind::OutOfMemory,
        code::CUDA_ERROR_ECC_UNCORRECTABLE => TroubleKind::EccUncorrectable,
        code::CUDA_ERROR_NO_DEVICE | code::CUDA_ERROR_INVALID_DEVICE => TroubleKind::GpuWithdrawn,
        _ => TroubleKind::Driver,
    }
}

/// The driver's name of an error, without asking the driver.
fn words(error: DriverError) -> String {
    format!("{:?}", error.0)
}
