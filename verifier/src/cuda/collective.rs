//! NCCL, where the node has it: its version, and its sum over all GPUs of this process. It is looked
//! for by name when it is wanted; nothing is built against it.

use std::ffi::{c_int, c_void};

use libloading::{Library, Symbol};

use super::buffer::Buffer;
use super::gpu::CudaGpu;
use super::library::{done, first, symbol};
use super::{result, sys, words};

/// Its names.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

// Numbers of the library's interface. Source: NCCL 2.28 documentation, types: ncclDataType_t, ncclRedOp_t.
const UINT32: c_int = 3;
const SUM: c_int = 0;
const SUCCESS: c_int = 0;

type Handle = *mut c_void;
type Join = unsafe extern "C" fn(*mut Handle, c_int, *const c_int) -> c_int;
type Group = unsafe extern "C" fn() -> c_int;
type AllReduce = unsafe extern "C" fn(u64, u64, usize, c_int, c_int, Handle, *mut c_void) -> c_int;

/// The library's version; none where it is not installed.
pub(super) fn version() -> Option<String> {
    let (name, library) = first(&NAMES)?;
    let version: Symbol<unsafe extern "C" fn(*mut c_int) -> c_int> =
        symbol(&library, "ncclGetVersion").ok()?;
    let mut number = 0;
    // SAFETY: it writes one number.
    let answer = unsafe { version(&raw mut number) };
    Some(match answer {
        SUCCESS => format!(
            "{name} {}.{}.{}",
            number / 10_000,
            number / 100 % 100,
            number % 100
        ),
        _ => name.to_owned(),
    })
}

/// The GPUs of this process as the library joined them. What it made for that stays until the process
/// ends, as the process that opens all GPUs does after it has measured.
pub(super) struct Joined {
    library: &'static Library,
    /// One for each GPU, in their order, with a stream of that GPU. What is marked on the GPU's stream of
    /// its own waits for it, and it for that.
    each: Vec<(Handle, sys::CUstream)>,
}

impl Joined {
    /// Joins the GPUs; none where the library is not installed.
    ///
    /// Errors: in words, a call that was refused.
    pub(super) fn of(gpus: &[CudaGpu]) -> Result<Option<Self>, String> {
        let Some((_, library)) = first(&NAMES) else {
            return Ok(None);
        };
        // Its threads outlive every use of it here: it is never unloaded.
        let library: &'static Library = Box::leak(Box::new(library));
        let join: Symbol<Join> = symbol(library, "ncclCommInitAll")?;
        // No machine has so many.
        let devices: Vec<c_int> = gpus.iter().map(|gpu| gpu.gpu as c_int).collect();
        let mut handles = vec![std::ptr::null_mut(); devices.len()];
        // SAFETY: it reads as many devices as are named and writes as many handles.
        let answer = unsafe {
            join(
                handles.as_mut_ptr(),
                devices.len() as c_int,
                devices.as_ptr(),
            )
        };
        done("ncclCommInitAll", answer)?;
        let mut each = Vec::new();
        for (gpu, handle) in gpus.iter().zip(handles) {
            gpu.enter().map_err(|error| error.what)?;
            let stream = result::stream::create(result::stream::StreamKind::Default);
            each.push((handle, stream.map_err(words)?));
        }
        Ok(Some(Self { library, each }))
    }

    /// Starts the sum of all buffers' first `words`, each in its place.
    ///
    /// Errors: in words, a call that was refused.
    pub(super) fn sum(&self, held: &[Buffer], words: u64) -> Result<(), String> {
        // Memory of a GPU is counted in as many bits as memory here.
        let count = words as usize;
        let begin: Symbol<Group> = symbol(self.library, "ncclGroupStart")?;
        let end: Symbol<Group> = symbol(self.library, "ncclGroupEnd")?;
        let reduce: Symbol<AllReduce> = symbol(self.library, "ncclAllReduce")?;
        // SAFETY: each buffer holds as many words, lies on the GPU of its handle, and lives until the sum
        // is waited for.
        unsafe {
            done("ncclGroupStart", begin())?;
            for (buffer, (handle, stream)) in held.iter().zip(&self.each) {
                let at = buffer.address;
                let answer = reduce(at, at, count, UINT32, SUM, *handle, stream.cast());
                done("ncclAllReduce", answer)?;
            }
            done("ncclGroupEnd", end())
        }
    }
}
