//! The parts of `libnccl.so` that the agent calls: one process joins its GPUs, alone or with those of
//! others (`nodes.rs`), and sums over them.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use crate::nodes::{self, Id, Others};
use crate::script::{Fault, Joins};
use crate::state::{State, state};

const SUCCESS: c_int = 0;
const SYSTEM_ERROR: c_int = 2;
const INVALID_ARGUMENT: c_int = 4;

const UINT32: c_int = 3;
const SUM: c_int = 0;
/// The part of the links' rate that it reaches.
const EFFICIENCY: f64 = 0.95;
/// The share of its rate that a bad link has.
const SLOW_LINK: f64 = 0.1;

/// What one GPU brings to the sum that is being put together.
struct Brought {
    gpu: usize,
    from: u64,
    to: u64,
    words: usize,
}

/// What is called between the beginning and the end of a group.
#[derive(Default)]
struct Group {
    /// By what GPUs of this process are to join others, and of how many.
    joining: Vec<(Id, u32)>,
    brought: Vec<Brought>,
}

static GROUP: Mutex<Option<Group>> = Mutex::new(None);
/// The other processes, once this one has joined them.
static OTHERS: Mutex<Option<Others>> = Mutex::new(None);

fn locked<T>(what: &'static Mutex<Option<T>>) -> std::sync::MutexGuard<'static, Option<T>> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the agent passes the address of a variable of this type.
    unsafe { version.write(state().script.collective.version) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetUniqueId(id: *mut Id) -> c_int {
    if state().script.collective.talks && std::env::var_os("NCCL_DEBUG_FILE").is_none() {
        println!("NCCL INFO Bootstrap: Using lo:127.0.0.1<0>");
    }
    let Ok(made) = nodes::open() else {
        return SYSTEM_ERROR;
    };
    // SAFETY: the agent passes the address of a variable of this type.
    unsafe { id.write(made) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRank(
    handle: *mut *mut c_void,
    ranks: c_int,
    id: Id,
    rank: c_int,
) -> c_int {
    let mut group = locked(&GROUP);
    let Some(group) = group.as_mut().filter(|_| (0..ranks).contains(&rank)) else {
        // Alone it would wait for the other GPUs of this very thread.
        return INVALID_ARGUMENT;
    };
    let gpu = state().gpu;
    // SAFETY: the agent passes room for a handle, which is the number of its GPU, from 1.
    unsafe { handle.write(std::ptr::without_provenance_mut(gpu + 1)) };
    group.joining.push((id, ranks.cast_unsigned()));
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
    *locked(&GROUP) = Some(Group::default());
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
    if kind != UINT32 || operation != SUM || stream.is_null() {
        return INVALID_ARGUMENT;
    }
    let Some(group) = &mut *locked(&GROUP) else {
        return INVALID_ARGUMENT;
    };
    group.brought.push(Brought {
        gpu: handle.addr() - 1,
        from,
        to,
        words,
    });
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupEnd() -> c_int {
    let group = locked(&GROUP).take().unwrap_or_default();
    if let Some((id, ranks)) = group.joining.first() {
        return join(id, *ranks, group.joining.len() as u32);
    }
    match sum(&mut state(), &group.brought) {
        Some(()) => SUCCESS,
        None => INVALID_ARGUMENT,
    }
}

fn join(id: &Id, ranks: u32, here: u32) -> c_int {
    let joins = state().script.collective.joins;
    match joins {
        Joins::Refused => return SYSTEM_ERROR,
        Joins::Hangs => loop {
            std::thread::park();
        },
        // All nodes are on loopback, which it does not choose by itself.
        Joins::Well if std::env::var("NCCL_SOCKET_IFNAME").as_deref() != Ok("=lo") => {
            return SYSTEM_ERROR;
        }
        Joins::Well => {}
    }
    let name = state().script.collective.name.clone();
    match Others::join(id, (ranks, here), &name) {
        Ok(others) => {
            *locked(&OTHERS) = Some(others);
            SUCCESS
        }
        Err(_) => SYSTEM_ERROR,
    }
}

/// Puts the sum where each wants it; none where memory or words do not fit, or the others are gone.
fn sum(state: &mut State, all: &[Brought]) -> Option<()> {
    let words = all.first()?.words;
    let mut sums = vec![0_u32; words];
    for one in all {
        let brings_wrongly = state.script.gpus[one.gpu].fault == Fault::BringsWrongly;
        let held = state.memory(one.from, words as u64 * 4)?;
        for (sum, word) in sums.iter_mut().zip(held.chunks_exact(4)) {
            *sum = sum.wrapping_add(u32::from_le_bytes(word.try_into().ok()?));
        }
        if brings_wrongly {
            let sum = sums.last_mut()?;
            *sum = sum.wrapping_add(1);
        }
    }
    let rates = all
        .iter()
        .map(|one| state.script.gpus[one.gpu].link_mb_per_s);
    let mut slowest = rates.fold(f64::INFINITY, f64::min);
    let mut count = all.len() as u64;
    if let Some(others) = &mut *locked(&OTHERS) {
        // A ring goes from node to node over all of their adapters together.
        let here = &state.script.collective;
        let is_slow = here.slow_to.as_ref().is_some_and(|to| others.has(to));
        let of_full = if is_slow { SLOW_LINK } else { 1.0 };
        let network = here.network_mb_per_s * of_full * all.len() as f64;
        slowest = others.sum(&mut sums, slowest.min(network)).ok()?;
        count = others.ranks();
    }
    let (slowest, bytes) = (slowest * EFFICIENCY, words as u64 * 4);
    let current = state.gpu;
    for one in all {
        if one.words != words {
            return None;
        }
        let wrong = state.script.gpus[one.gpu].fault == Fault::ReducesWrongly;
        let held = state.memory(one.to, bytes)?;
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
