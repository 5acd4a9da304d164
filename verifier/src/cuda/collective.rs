//! NCCL, where the node has it: its version, and its operations over all GPUs of this process, alone or with
//! those of other nodes. It is loaded by name on demand; nothing links to it.

use std::ffi::{c_int, c_void};

use libloading::{Library, Symbol};
use market::verification::{CollectiveOperation, NcclId, NcclSum};

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
/// The rank that broadcasts words, and that receives their sum.
const ROOT: c_int = 0;

type Handle = *mut c_void;

/// The id by which GPUs of several processes find each other. Shape: that of `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Id([u8; 128]);

type Join = unsafe extern "C" fn(*mut Handle, c_int, *const c_int) -> c_int;
type MakeId = unsafe extern "C" fn(*mut Id) -> c_int;
type JoinOthers = unsafe extern "C" fn(*mut Handle, c_int, Id, c_int) -> c_int;
type Group = unsafe extern "C" fn() -> c_int;
// Source, destination, count, type, further arguments, handle and stream.
type Reducing = unsafe extern "C" fn(u64, u64, usize, c_int, c_int, Handle, *mut c_void) -> c_int;
type Gathering = unsafe extern "C" fn(u64, u64, usize, c_int, Handle, *mut c_void) -> c_int;
type Rooted = unsafe extern "C" fn(u64, u64, usize, c_int, c_int, Handle, *mut c_void) -> c_int;
type ReducingRooted =
    unsafe extern "C" fn(u64, u64, usize, c_int, c_int, c_int, Handle, *mut c_void) -> c_int;

/// The library's version as it numbers it; none where it is not installed or does not say.
pub(super) fn version_number() -> Option<u32> {
    let (_, library) = first(&NAMES)?;
    number(&library).filter(|number| *number > 0)
}

/// Its version number; 0 where it does not report one.
fn number(library: &Library) -> Option<u32> {
    let version: Symbol<unsafe extern "C" fn(*mut c_int) -> c_int> =
        symbol(library, "ncclGetVersion").ok()?;
    let mut number = 0;
    // SAFETY: it writes one number.
    let answer = unsafe { version(&raw mut number) };
    Some(match answer {
        SUCCESS => u32::try_from(number).unwrap_or(0),
        _ => 0,
    })
}

/// Its threads outlive every use here, so it is never unloaded.
fn loaded() -> Option<&'static Library> {
    let (_, library) = first(&NAMES)?;
    Some(Box::leak(Box::new(library)))
}

/// Makes the id by which the GPUs of several processes find each other. They connect to this process, which
/// must be one of them.
///
/// Errors: in words, also where the library is not installed.
pub(super) fn id() -> Result<NcclId, String> {
    let library = loaded().ok_or("NCCL is not installed")?;
    let make: Symbol<MakeId> = symbol(library, "ncclGetUniqueId")?;
    let mut id = Id([0; 128]);
    // SAFETY: it writes one id.
    done("ncclGetUniqueId", unsafe { make(&raw mut id) })?;
    Ok(NcclId(id.0))
}

/// The GPUs of this process, joined by the library. The library's resources stay until the process ends; the
/// process that opens all GPUs ends after it has measured.
pub(super) struct Joined {
    library: &'static Library,
    /// One for each GPU, in their order, with a stream of that GPU. This stream waits for work marked on the
    /// GPU's own stream, and the reverse.
    each: Vec<(Handle, sys::CUstream)>,
}

impl Joined {
    /// Joins the GPUs; none where the library is not installed.
    ///
    /// Errors: in words, a call that was refused.
    pub(super) fn of(gpus: &[CudaGpu]) -> Result<Option<Self>, String> {
        let Some(library) = loaded() else {
            return Ok(None);
        };
        let join: Symbol<Join> = symbol(library, "ncclCommInitAll")?;
        // No machine has so many GPUs.
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
        Self::with_streams(library, gpus, handles).map(Some)
    }

    /// Joins the GPUs with those of other processes; waits for them without a limit.
    ///
    /// Errors: in words, a refused call, or that the library is not installed.
    pub(super) fn with_others(gpus: &[CudaGpu], sum: &NcclSum) -> Result<Self, String> {
        let library = loaded().ok_or("NCCL is not installed")?;
        let begin: Symbol<Group> = symbol(library, "ncclGroupStart")?;
        let end: Symbol<Group> = symbol(library, "ncclGroupEnd")?;
        let join: Symbol<JoinOthers> = symbol(library, "ncclCommInitRank")?;
        let mut handles = vec![std::ptr::null_mut(); gpus.len()];
        // SAFETY: it takes no argument.
        done("ncclGroupStart", unsafe { begin() })?;
        // No gang has so many GPUs.
        let (ranks, first) = (sum.ranks as c_int, sum.first_rank as c_int);
        for ((gpu, handle), rank) in gpus.iter().zip(&mut handles).zip(first..) {
            gpu.enter().map_err(|error| error.what)?;
            // SAFETY: it writes one handle, at the latest when the group ends, until when they all stay
            // where they are.
            let answer = unsafe { join(&raw mut *handle, ranks, Id(sum.id.0), rank) };
            done("ncclCommInitRank", answer)?;
        }
        // SAFETY: as above.
        done("ncclGroupEnd", unsafe { end() })?;
        Self::with_streams(library, gpus, handles)
    }

    fn with_streams(
        library: &'static Library,
        gpus: &[CudaGpu],
        handles: Vec<Handle>,
    ) -> Result<Self, String> {
        let mut each = Vec::new();
        for (gpu, handle) in gpus.iter().zip(handles) {
            gpu.enter().map_err(|error| error.what)?;
            let stream = result::stream::create(result::stream::StreamKind::Default);
            each.push((handle, stream.map_err(words)?));
        }
        Ok(Self { library, each })
    }

    /// Starts the sum of all buffers' first `words` into as many others, which may be themselves.
    ///
    /// Errors: in words, a call that was refused.
    pub(super) fn sum(&self, held: &[Buffer], into: &[Buffer], words: u64) -> Result<(), String> {
        let reduce: Symbol<Reducing> = symbol(self.library, "ncclAllReduce")?;
        self.all(
            "ncclAllReduce",
            held,
            into,
            |_, from, to, handle, stream| {
                // SAFETY: as `all` demands. Memory of a GPU is counted in as many bits as memory here.
                unsafe { reduce(from, to, words as usize, UINT32, SUM, handle, stream) }
            },
        )
    }

    /// Starts an operation in place, on buffers that have one part of this many words for each GPU.
    ///
    /// Errors: in words, a call that was refused.
    pub(super) fn start(
        &self,
        operation: CollectiveOperation,
        held: &[Buffer],
        part_words: u64,
    ) -> Result<(), String> {
        let all_words = part_words * held.len() as u64;
        // As above.
        let (part, all) = (part_words as usize, all_words as usize);
        // The address of a GPU's own part in its buffer.
        let own = |at: u64| at * part_words * 4;
        match operation {
            CollectiveOperation::AllReduce => self.sum(held, held, all_words),
            CollectiveOperation::ReduceScatter => {
                let name = "ncclReduceScatter";
                let scatter: Symbol<Reducing> = symbol(self.library, name)?;
                self.all(name, held, held, |at, from, to, handle, stream| {
                    // SAFETY: as `all` demands.
                    unsafe { scatter(from, to + own(at), part, UINT32, SUM, handle, stream) }
                })
            }
            CollectiveOperation::AllGather => {
                let name = "ncclAllGather";
                let gather: Symbol<Gathering> = symbol(self.library, name)?;
                self.all(name, held, held, |at, from, to, handle, stream| {
                    // SAFETY: as `all` demands.
                    unsafe { gather(from + own(at), to, part, UINT32, handle, stream) }
                })
            }
            CollectiveOperation::Broadcast => {
                let name = "ncclBroadcast";
                let broadcast: Symbol<Rooted> = symbol(self.library, name)?;
                self.all(name, held, held, |_, from, to, handle, stream| {
                    // SAFETY: as `all` demands.
                    unsafe { broadcast(from, to, all, UINT32, ROOT, handle, stream) }
                })
            }
            CollectiveOperation::Reduce => {
                let name = "ncclReduce";
                let reduce: Symbol<ReducingRooted> = symbol(self.library, name)?;
                self.all(name, held, held, |_, from, to, handle, stream| {
                    // SAFETY: as `all` demands.
                    unsafe { reduce(from, to, all, UINT32, SUM, ROOT, handle, stream) }
                })
            }
        }
    }

    /// Starts one operation on all GPUs, by one call each. The call gets the GPU's number here, the addresses
    /// of its two buffers, its handle and its stream.
    ///
    /// `call` may read and write only within these buffers, which lie on the GPU of the handle and live until
    /// the operation has been waited for.
    ///
    /// Errors: in words, a call that was refused.
    fn all(
        &self,
        name: &str,
        held: &[Buffer],
        into: &[Buffer],
        call: impl Fn(u64, u64, u64, Handle, *mut c_void) -> c_int,
    ) -> Result<(), String> {
        let begin: Symbol<Group> = symbol(self.library, "ncclGroupStart")?;
        let end: Symbol<Group> = symbol(self.library, "ncclGroupEnd")?;
        // SAFETY: it takes no argument.
        done("ncclGroupStart", unsafe { begin() })?;
        let buffers = (0..).zip(held.iter().zip(into));
        for ((at, (held, into)), (handle, stream)) in buffers.zip(&self.each) {
            let answer = call(at, held.address, into.address, *handle, stream.cast());
            done(name, answer)?;
        }
        // SAFETY: as above.
        done("ncclGroupEnd", unsafe { end() })
    }
}
