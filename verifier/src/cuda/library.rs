//! The vendor library's results for the same products, where the node has it: for comparison only. It is
//! loaded by name on demand; nothing links to it.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;

use libloading::{Library, Symbol};
use market::verification::TroubleKind;

use super::buffer::Buffer;
use super::gpu::CudaGpu;
use crate::device::DeviceError;
use crate::tensor::{Format, LibraryRun, TensorWork};

/// Names of cuBLASLt, the newest known version first.
const MATRICES: [&str; 4] = [
    "libcublasLt.so.13",
    "libcublasLt.so.12",
    "libcublasLt.so.11",
    "libcublasLt.so",
];

/// Memory that the library may use in addition to the matrices. Units: bytes.
const WORKSPACE: usize = 32 << 20;

// Numbers of the library's interface. Source: cuBLAS 12.9 documentation, cublasLt API; library_types.h.
const COMPUTE_32F: c_int = 68;
const REAL_32F: c_int = 0;
const REAL_16BF: c_int = 14;
const REAL_8F_E4M3: c_int = 28;
const TRANSPOSE_LEFT: c_int = 3;
const TRANSPOSED: i32 = 1;
const MOST_WORKSPACE: c_int = 1;
const SUCCESS: c_int = 0;
/// Whether 8-bit products are summed as fast as the tensor units can, with fewer digits, as frameworks do:
/// one byte.
const FAST_ACCUMULATION: c_int = 25;
const ON: i8 = 1;
/// The settings that identify an algorithm: number, size in bytes, and its words.
const SETTINGS: [(c_int, usize, &str); 4] = [
    (0, 4, "algorithm"),
    (1, 4, "tile"),
    (6, 4, "stages"),
    (8, 2, "cluster"),
];

/// How many algorithms the library is asked for, its own preferred one first.
const WAYS: usize = 8;
/// How often each is timed before the fastest is kept.
const TRIES: u32 = 3;

type Handle = *mut c_void;

/// An algorithm for a product, as the library chose it. Shape: that of `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Default, Clone, Copy)]
struct Chosen {
    algorithm: [u64; 8],
    workspace_bytes: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

type Version = unsafe extern "C" fn() -> usize;
type Create = unsafe extern "C" fn(*mut Handle) -> c_int;
type CreateProduct = unsafe extern "C" fn(*mut Handle, c_int, c_int) -> c_int;
type SetAttribute = unsafe extern "C" fn(Handle, c_int, *const c_void, usize) -> c_int;
type CreateLayout = unsafe extern "C" fn(*mut Handle, c_int, u64, u64, i64) -> c_int;
type Choose = unsafe extern "C" fn(
    Handle,
    Handle,
    Handle,
    Handle,
    Handle,
    Handle,
    Handle,
    c_int,
    *mut Chosen,
    *mut c_int,
) -> c_int;
type Setting =
    unsafe extern "C" fn(*const [u64; 8], c_int, *mut c_void, usize, *mut usize) -> c_int;
type Multiply = unsafe extern "C" fn(
    Handle,
    Handle,
    *const f32,
    u64,
    Handle,
    u64,
    Handle,
    *const f32,
    u64,
    Handle,
    u64,
    Handle,
    *const [u64; 8],
    u64,
    usize,
    *mut c_void,
) -> c_int;

/// Loads the first library of these names that exists.
pub(super) fn first(names: &[&'static str]) -> Option<(&'static str, Library)> {
    names.iter().find_map(|name| {
        // SAFETY: it is the vendor's library, whose start-up code the node's owner installed to be run.
        let library = unsafe { Library::new(*name) }.ok()?;
        Some((*name, library))
    })
}

/// A product as the library describes it. The library's resources stay until the process ends; a GPU's
/// process ends after a calibration.
struct Product<'a> {
    library: &'a Library,
    handle: Handle,
    product: Handle,
    inputs: Handle,
    output: Handle,
    ways: Vec<Chosen>,
    /// How it sums, in words; none where there is only one way.
    sums: Option<String>,
}

impl<'a> Product<'a> {
    /// The product of n x k by k x n, in column-major order: A is given as its transpose. None where the
    /// library has no algorithm for it.
    ///
    /// Errors: the name of the call that failed, with its status.
    fn plan(library: &'a Library, format: Format, n: u32, k: u32) -> Result<Option<Self>, String> {
        let create: Symbol<Create> = symbol(library, "cublasLtCreate")?;
        let describe: Symbol<CreateProduct> = symbol(library, "cublasLtMatmulDescCreate")?;
        let set: Symbol<SetAttribute> = symbol(library, "cublasLtMatmulDescSetAttribute")?;
        let lay_out: Symbol<CreateLayout> = symbol(library, "cublasLtMatrixLayoutCreate")?;
        let prefer: Symbol<Create> = symbol(library, "cublasLtMatmulPreferenceCreate")?;
        let limit: Symbol<SetAttribute> = symbol(library, "cublasLtMatmulPreferenceSetAttribute")?;
        let choose: Symbol<Choose> = symbol(library, "cublasLtMatmulAlgoGetHeuristic")?;
        let entries = match format {
            Format::Bf16 => REAL_16BF,
            Format::Fp8 => REAL_8F_E4M3,
        };
        let (rows, inner) = (u64::from(n), u64::from(k));
        let [
            mut handle,
            mut product,
            mut inputs,
            mut output,
            mut preference,
        ] = [std::ptr::null_mut(); 5];
        let (mut ways, mut count) = (vec![Chosen::default(); WAYS], 0);
        let mut sums = None;
        // SAFETY: each call gets the arguments of its documentation, and writes to variables of ours that
        // outlive it. Both inputs have the same shape, since A is given as its transpose.
        unsafe {
            done("cublasLtCreate", create(&raw mut handle))?;
            done(
                "cublasLtMatmulDescCreate",
                describe(&raw mut product, COMPUTE_32F, REAL_32F),
            )?;
            let transposed = std::ptr::from_ref(&TRANSPOSED).cast();
            done(
                "cublasLtMatmulDescSetAttribute",
                set(product, TRANSPOSE_LEFT, transposed, size_of::<i32>()),
            )?;
            if format == Format::Fp8 {
                let on = std::ptr::from_ref(&ON).cast();
                sums = Some(match set(product, FAST_ACCUMULATION, on, size_of::<i8>()) {
                    SUCCESS => "fast accumulation".to_owned(),
                    // An earlier version, or one without this choice, still computes the product.
                    status => format!("fast accumulation refused: {status}"),
                });
            }
            let layout = "cublasLtMatrixLayoutCreate";
            done(
                layout,
                lay_out(&raw mut inputs, entries, inner, rows, i64::from(k)),
            )?;
            done(
                layout,
                lay_out(&raw mut output, REAL_32F, rows, rows, i64::from(n)),
            )?;
            done(
                "cublasLtMatmulPreferenceCreate",
                prefer(&raw mut preference),
            )?;
            let most = std::ptr::from_ref(&WORKSPACE).cast();
            done(
                "cublasLtMatmulPreferenceSetAttribute",
                limit(preference, MOST_WORKSPACE, most, size_of::<usize>()),
            )?;
            // For a format that this GPU lacks, the library returns an error or no algorithm.
            let answer = choose(
                handle,
                product,
                inputs,
                inputs,
                output,
                output,
                preference,
                WAYS as c_int,
                ways.as_mut_ptr(),
                &raw mut count,
            );
            if answer != SUCCESS || count < 1 {
                return Ok(None);
            }
            ways.truncate(count as usize);
        }
        Ok(Some(Self {
            library,
            handle,
            product,
            inputs,
            output,
            ways,
            sums,
        }))
    }

    /// An algorithm in words: its settings, as far as this version of the library reports them.
    fn words(&self, way: &Chosen) -> String {
        let setting = symbol::<Setting>(self.library, "cublasLtMatmulAlgoConfigGetAttribute");
        let Ok(setting) = setting else {
            let sums = self.sums.iter().map(|sums| format!(", {sums}"));
            return format!("way not told{}", sums.collect::<String>());
        };
        let told = SETTINGS.iter().filter_map(|(number, bytes, words)| {
            // The machines that this runs on are little-endian.
            let (mut value, mut written) = (0_u32, 0);
            // SAFETY: it reads the algorithm and writes as many bytes of the value as the size passed, four
            // at most.
            let answer = unsafe {
                let value = (&raw mut value).cast();
                setting(
                    &raw const way.algorithm,
                    *number,
                    value,
                    *bytes,
                    &raw mut written,
                )
            };
            (answer == SUCCESS).then(|| format!("{words} {value}"))
        });
        let told = told.collect::<Vec<_>>().join(" ");
        match &self.sums {
            Some(sums) => format!("{told}, {sums}"),
            None => told,
        }
    }

    /// Starts it by one of the algorithms.
    fn multiply(
        &self,
        way: &Chosen,
        left: &Buffer,
        right: &Buffer,
        to: &Buffer,
        workspace: &Buffer,
    ) -> Result<(), String> {
        let multiply: Symbol<Multiply> = symbol(self.library, "cublasLtMatmul")?;
        let (one, zero) = (1.0_f32, 0.0_f32);
        // SAFETY: the matrices are as large as the layouts declare and live until the work has been waited
        // for; scales are read before the call returns.
        let answer = unsafe {
            multiply(
                self.handle,
                self.product,
                &raw const one,
                left.address,
                self.inputs,
                right.address,
                self.inputs,
                &raw const zero,
                to.address,
                self.output,
                to.address,
                self.output,
                &raw const way.algorithm,
                workspace.address,
                WORKSPACE,
                std::ptr::null_mut(),
            )
        };
        done("cublasLtMatmul", answer)
    }
}

pub(super) fn symbol<'a, T>(library: &'a Library, name: &str) -> Result<Symbol<'a, T>, String> {
    // SAFETY: the types above are those of the functions' documentation.
    unsafe { library.get(name.as_bytes()) }.map_err(|_| format!("the library has no {name}"))
}

pub(super) fn done(call: &str, answer: c_int) -> Result<(), String> {
    match answer {
        SUCCESS => Ok(()),
        status => Err(format!("{call} answered {status}")),
    }
}

impl CudaGpu {
    /// The rate of the vendor's library on the same inputs and the same shape. A refusal by the library is
    /// also an answer.
    pub fn library_products(&mut self, work: &TensorWork) -> Result<LibraryRun, DeviceError> {
        match self.by_library(work) {
            Err(DeviceError { kind, what, .. })
                if !matches!(kind, TroubleKind::GpuLost | TroubleKind::GpuWithdrawn) =>
            {
                Ok(LibraryRun::Failed { why: what })
            }
            run => run,
        }
    }

    fn by_library(&mut self, work: &TensorWork) -> Result<LibraryRun, DeviceError> {
        let Some((name, library)) = first(&MATRICES) else {
            return Ok(LibraryRun::NotInstalled);
        };
        // The process ends soon, and unloading a library that holds a context is risky.
        let library = ManuallyDrop::new(library);
        let inputs = self.packed_inputs(&work.inputs, work.format, work.most)?;
        let n = work.inputs.n;
        let to = self.buffer(u64::from(n) * u64::from(n) * 4)?;
        let workspace = self.buffer(WORKSPACE as u64)?;
        let planned = Product::plan(&library, work.format, n, work.inputs.k);
        let failed = |why: String| self.failed(&why);
        let Some(product) = planned.map_err(failed)? else {
            return Ok(LibraryRun::NoSuchProduct);
        };
        let multiply = |gpu: &mut Self, way: &Chosen| {
            let done = product.multiply(way, &inputs.left, &inputs.right, &to, &workspace);
            done.map_err(|why| gpu.failed(&why))
        };
        let mut best: Option<(f64, &Chosen)> = None;
        let mut refused = None;
        for way in &product.ways {
            // The first run loads the kernel and raises the clocks.
            let tried = multiply(self, way)
                .and_then(|()| self.timed(|gpu| (0..TRIES).try_for_each(|_| multiply(gpu, way))));
            match tried {
                Ok(ms) if best.is_none_or(|(least_ms, _)| ms < least_ms) => best = Some((ms, way)),
                Ok(_) => {}
                Err(error) => refused = Some(error),
            }
        }
        let Some((_, way)) = best else {
            return refused.map_or(Ok(LibraryRun::NoSuchProduct), Err);
        };
        let timed = work.timed.max(1);
        self.warm_up(timed, |gpu| multiply(gpu, way))?;
        let elapsed_ms = self.timed(|gpu| (0..timed).try_for_each(|_| multiply(gpu, way)))?;
        let gflops = self.gflops(work, elapsed_ms)?;
        let version: Symbol<Version> =
            symbol(&library, "cublasLtGetVersion").map_err(|why| self.failed(&why))?;
        // SAFETY: it takes no argument and returns a number.
        let version = unsafe { version() };
        Ok(LibraryRun::Measured {
            library: format!("{name} {version}"),
            way: product.words(way),
            gflops,
        })
    }
}
