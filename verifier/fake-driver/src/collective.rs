//! The parts of `libnccl.so` that the agent calls: one process joins its GPUs and sums over them.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use crate::script::Fault;
use crate::state::{State, state};

const SUCCESS: c_int = 0;
const INVALID_ARGUMENT: c_int = 4;

/// 2.28.9, as the library says it.
const VERSION: c_int = 22_809;
const UINT32: c_int = 3;
const SUM: c_int = 0;
/// The part of the links' rate that it reaches.
const EFFICIENCY: f64 = 0.95;

/// What one GPU brings to the sum that is being put together.
struct Brought {
    gpu: usize,
    address: u64,
    words: usize,
}

static GROUP: Mutex<Vec<Brought>> = Mutex::new(Vec::new());

fn group() -> std::sync::MutexGuard<'static, Vec<Brought>> {
    GROUP.lock().unwrap_or_else(PoisonError::into_inner)
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the agent passes the address of a variable of this type.
    unsafe { version.write(VERSION) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitAll(
    handles: *mut *mut c_void,
    count: c_int,
    devices: *const c_int,
) -> c_int {
    for at in 0..count as usize {
        // SAFETY: the agent passes as many devices, and room for as many handles. A handle is the number
        // of its GPU, from 1.
        unsafe {
            let device = devices.add(at).read();
            let handle = std::ptr::without_provenance_mut(device as usize + 1);
            handles.add(at).write(handle);
        }
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupStart() -> c_int {
    group().clear();
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllReduce(
    from: u64,
    to: u64,
    words: usize,
    kind: c_int,
    operation: c_int,
    handle: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    // The stream that no GPU has made is whichever one's is current: not one for each.
    if from != to || kind != UINT32 || operation != SUM || stream.is_null() {
        return INVALID_ARGUMENT;
    }
    let gpu = handle.addr() - 1;
    group().push(Brought {
        gpu,
        address: to,
        words,
    });
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupEnd() -> c_int {
    let all = std::mem::take(&mut *group());
    match sum(&mut state(), &all) {
        Some(()) => SUCCESS,
        None => INVALID_ARGUMENT,
    }
}

/// Puts the sum in the place of what each brought; none where memory or words do not fit.
fn sum(state: &mut State, all: &[Brought]) -> Option<()> {
    let words = all.first()?.words;
    let mut sums = vec![0_u32; words];
    for one in all {
        let held = state.memory(one.address, words as u64 * 4)?;
        for (sum, word) in sums.iter_mut().zip(held.chunks_exact(4)) {
            *sum = sum.wrapping_add(u32::from_le_bytes(word.try_into().ok()?));
        }
    }
    let rates = all
        .iter()
        .map(|one| state.script.gpus[one.gpu].link_mb_per_s);
    let slowest = rates.fold(f64::INFINITY, f64::min) * EFFICIENCY;
    let (count, bytes) = (all.len() as u64, words as u64 * 4);
    let current = state.gpu;
    for one in all {
        if one.words != words {
            return None;
        }
        let wrong = state.script.gpus[one.gpu].fault == Fault::ReducesWrongly;
        let held = state.memory(one.address, bytes)?;
        for (sum, word) in sums.iter().zip(held.chunks_exact_mut(4)) {
            word.copy_from_slice(&sum.to_le_bytes());
        }
        if wrong {
            *held.last_mut()? ^= 1;
        }
        state.gpu = one.gpu;
        state.move_bytes(2 * (count - 1) * bytes / count, slowest);
    }
    state.gpu = current;
    Some(())
}
