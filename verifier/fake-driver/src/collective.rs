//! The parts of `libnccl.so` that the agent calls. One process joins its GPUs, alone or with those of others
//! (`nodes.rs`), and sums over them; alone it also does the library's other operations.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use crate::kernels;
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
/// The part of it that it reaches with a ring.
const RING_EFFICIENCY: f64 = 0.75;
/// The share of its rate that a bad link reaches.
const SLOW_LINK: f64 = 0.1;

/// A collective operation of GPUs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    AllReduce,
    ReduceScatter,
    AllGather,
    Broadcast,
    Reduce,
}

impl Operation {
    /// The call for it.
    const fn call(self) -> &'static str {
        match self {
            Self::AllReduce => "ncclAllReduce",
            Self::ReduceScatter => "ncclReduceScatter",
            Self::AllGather => "ncclAllGather",
            Self::Broadcast => "ncclBroadcast",
            Self::Reduce => "ncclReduce",
        }
    }
}

/// One GPU's part of a pending operation: `words` are those in its call, which for gather and scatter are one
/// part.
struct Brought {
    operation: Operation,
    gpu: usize,
    from: u64,
    to: u64,
    words: usize,
}

/// The calls between the beginning and the end of a group.
#[derive(Default)]
struct Group {
    /// The ids by which GPUs of this process join others, and the number of ranks.
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

fn bring(
    operation: Operation,
    (from, to, words): (u64, u64, usize),
    is_known: bool,
    handle: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    // The default stream belongs to the current GPU: there is not one for each.
    if !is_known || stream.is_null() {
        return INVALID_ARGUMENT;
    }
    let Some(group) = &mut *locked(&GROUP) else {
        return INVALID_ARGUMENT;
    };
    group.brought.push(Brought {
        operation,
        gpu: handle.addr() - 1,
        from,
        to,
        words,
    });
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
    let is_known = kind == UINT32 && operation == SUM;
    let what = (from, to, words);
    bring(Operation::AllReduce, what, is_known, handle, stream)
}

#[unsafe(no_mangle)]
extern "C" fn ncclReduceScatter(
    from: u64,
    to: u64,
    words: usize,
    kind: c_int,
    operation: c_int,
    handle: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    let is_known = kind == UINT32 && operation == SUM;
    let what = (from, to, words);
    bring(Operation::ReduceScatter, what, is_known, handle, stream)
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllGather(
    from: u64,
    to: u64,
    words: usize,
    kind: c_int,
    handle: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    let what = (from, to, words);
    bring(Operation::AllGather, what, kind == UINT32, handle, stream)
}

#[unsafe(no_mangle)]
extern "C" fn ncclBroadcast(
    from: u64,
    to: u64,
    words: usize,
    kind: c_int,
    root: c_int,
    handle: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    let is_known = kind == UINT32 && root == 0;
    let what = (from, to, words);
    bring(Operation::Broadcast, what, is_known, handle, stream)
}

#[unsafe(no_mangle)]
extern "C" fn ncclReduce(
    from: u64,
    to: u64,
    words: usize,
    kind: c_int,
    operation: c_int,
    root: c_int,
    handle: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    let is_known = kind == UINT32 && operation == SUM && root == 0;
    let what = (from, to, words);
    bring(Operation::Reduce, what, is_known, handle, stream)
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupEnd() -> c_int {
    let group = locked(&GROUP).take().unwrap_or_default();
    if let Some((id, ranks)) = group.joining.first() {
        return join(id, *ranks, group.joining.len() as u32);
    }
    let hangs = |one: &Brought| {
        let hangs = Fault::HangsIn(one.operation.call().to_owned());
        state().script.gpus[one.gpu].fault == hangs
    };
    if group.brought.iter().any(hangs) {
        kernels::hang();
    }
    match together(&mut state(), &group.brought) {
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

/// Runs the pending operation of all; none where operations, memory or words do not fit, or the others are
/// gone.
fn together(state: &mut State, all: &[Brought]) -> Option<()> {
    let (operation, words) = all.first().map(|one| (one.operation, one.words))?;
    if all
        .iter()
        .any(|one| (one.operation, one.words) != (operation, words))
    {
        return None;
    }
    let here = all.len() as u64;
    let brought = match operation {
        Operation::ReduceScatter => words * all.len(),
        _ => words,
    };
    let mut held = Vec::new();
    for one in all {
        let bytes = state.memory(one.from, brought as u64 * 4)?;
        let mut of_one: Vec<u32> = bytes
            .chunks_exact(4)
            .filter_map(|word| Some(u32::from_le_bytes(word.try_into().ok()?)))
            .collect();
        if state.script.gpus[one.gpu].fault == Fault::BringsWrongly {
            let last = of_one.last_mut()?;
            *last = last.wrapping_add(1);
        }
        held.push(of_one);
    }
    let rates = all
        .iter()
        .map(|one| state.script.gpus[one.gpu].link_mb_per_s);
    let mut slowest = rates.fold(f64::INFINITY, f64::min);
    let mut count = here;
    let summed = || {
        let mut sums = vec![0_u32; brought];
        for of_one in &held {
            for (sum, word) in sums.iter_mut().zip(of_one) {
                *sum = sum.wrapping_add(*word);
            }
        }
        sums
    };
    let results: Vec<Option<Vec<u32>>> = match operation {
        Operation::AllReduce => {
            let mut sums = summed();
            if let Some(others) = &mut *locked(&OTHERS) {
                // A ring between nodes uses all of their adapters together.
                let own = &state.script.collective;
                let is_slow = own.slow_to.as_ref().is_some_and(|to| others.has(to));
                let of_full = if is_slow { SLOW_LINK } else { 1.0 };
                let network = own.network_mb_per_s * of_full * here as f64;
                slowest = others.sum(&mut sums, slowest.min(network)).ok()?;
                count = others.ranks();
            }
            all.iter().map(|_| Some(sums.clone())).collect()
        }
        Operation::ReduceScatter => summed()
            .chunks(words)
            .map(|part| Some(part.to_vec()))
            .collect(),
        Operation::AllGather => all.iter().map(|_| Some(held.concat())).collect(),
        Operation::Broadcast => all.iter().map(|_| Some(held[0].clone())).collect(),
        Operation::Reduce => {
            let first = std::iter::once(Some(summed()));
            first.chain(all.iter().skip(1).map(|_| None)).collect()
        }
    };
    let is_ring = std::env::var("NCCL_ALGO").as_deref() == Ok("Ring");
    let efficiency = if is_ring { RING_EFFICIENCY } else { EFFICIENCY };
    let bytes = words as u64 * 4;
    let moved = match operation {
        Operation::AllReduce => 2 * (count - 1) * bytes / count,
        Operation::ReduceScatter | Operation::AllGather => (count - 1) * bytes,
        Operation::Broadcast | Operation::Reduce => bytes,
    };
    let current = state.gpu;
    for (one, result) in all.iter().zip(results) {
        if let Some(result) = result {
            let errs = Fault::ErrsIn(operation.call().to_owned());
            let wrong = state.script.gpus[one.gpu].fault == errs;
            let held = state.memory(one.to, result.len() as u64 * 4)?;
            for (is, word) in result.iter().zip(held.chunks_exact_mut(4)) {
                word.copy_from_slice(&is.to_le_bytes());
            }
            if wrong {
                *held.last_mut()? ^= 1;
            }
        }
        state.gpu = one.gpu;
        state.move_bytes(moved, slowest * efficiency);
    }
    state.gpu = current;
    Some(())
}
