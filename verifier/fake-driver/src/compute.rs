//! The part of `libcuda.so.1` that the agent calls.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Mutex;

use crate::kernels;
use crate::script::Fault;
use crate::state::{State, state};

const SUCCESS: c_uint = 0;
const INVALID_VALUE: c_uint = 1;
const OUT_OF_MEMORY: c_uint = 2;
const INVALID_DEVICE: c_uint = 101;
const INVALID_IMAGE: c_uint = 200;
const ILLEGAL_ADDRESS: c_uint = 700;

/// Numbers of the attributes that the agent reads.
const MULTIPROCESSOR_COUNT: c_uint = 16;
const PCI_BUS: c_uint = 33;
const PCI_SLOT: c_uint = 34;
const CACHE_BYTES: c_uint = 38;
const PCI_DOMAIN: c_uint = 50;
const CAPABILITY_MAJOR: c_uint = 75;
const CAPABILITY_MINOR: c_uint = 76;

/// The attribute of a function that the agent sets, and Hopper's maximum for it.
const DYNAMIC_SHARED_BYTES: c_uint = 8;
const MOST_SHARED: c_int = 227 << 10;

/// Pinned host memory, by address.
static PINNED: Mutex<BTreeMap<usize, Layout>> = Mutex::new(BTreeMap::new());

/// The answer of a call while the GPU is there, and that of a lost one otherwise.
fn unless_gone(call: impl FnOnce(&mut State) -> c_uint) -> c_uint {
    let mut state = state();
    match state.gone {
        Some(answer) => answer,
        None => call(&mut state),
    }
}

/// Writes an answer to the agent's variable.
fn give<T>(target: *mut T, value: T) -> c_uint {
    // SAFETY: the agent's wrappers pass the address of a variable of this type.
    unsafe { target.write(value) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> c_uint {
    state().init.1
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_uint {
    give(count, state().script.gpus.len() as c_int)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_uint {
    let mut state = state();
    if ordinal < 0 || ordinal as usize >= state.script.gpus.len() {
        return INVALID_DEVICE;
    }
    state.gpu = ordinal as usize;
    give(device, ordinal)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) -> c_uint {
    let state = state();
    let card = &state.script.gpus[device as usize];
    let number = match attribute {
        MULTIPROCESSOR_COUNT => card.sm_count,
        // Buses are counted from one.
        PCI_BUS => state.managed_as(device as usize) as c_int + 1,
        PCI_SLOT | PCI_DOMAIN => 0,
        CACHE_BYTES => card.cache_bytes,
        CAPABILITY_MAJOR => card.capability.0,
        CAPABILITY_MINOR => card.capability.1,
        _ => return INVALID_VALUE,
    };
    give(value, number)
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) -> c_uint {
    unless_gone(|state| {
        state.show();
        // A handle is the number of its card, counted from one.
        give(
            context,
            std::ptr::without_provenance_mut(device as usize + 1),
        )
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_uint {
    state().gpu = context.addr().wrapping_sub(1);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> c_uint {
    let state = state();
    let is_reached = |gpu: c_int| {
        let card = &state.script.gpus[gpu as usize];
        card.over_bus || card.links.contains(&true)
    };
    give(can, c_int::from(is_reached(device) && is_reached(peer)))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxEnablePeerAccess(_context: *mut c_void, _flags: c_uint) -> c_uint {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    to_context: *mut c_void,
    from: u64,
    _from_context: *mut c_void,
    bytes: usize,
    _stream: *mut c_void,
) -> c_uint {
    if state().card().fault == Fault::HangsIn("cuMemcpyPeerAsync".to_owned()) {
        kernels::hang();
    }
    unless_gone(|state| {
        let there = to_context.addr().wrapping_sub(1);
        let here = state.card();
        let rate = here
            .link_mb_per_s
            .min(state.script.gpus[there].link_mb_per_s);
        let is_slow = here.slow_to == Some(there);
        state.move_bytes(bytes as u64, if is_slow { rate / 10.0 } else { rate });
        let copied = state
            .memory(from, bytes as u64)
            .map(|memory| memory.to_vec());
        match (copied, state.memory(to, bytes as u64)) {
            (Some(copied), Some(memory)) => {
                memory.copy_from_slice(&copied);
                SUCCESS
            }
            _ => ILLEGAL_ADDRESS,
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(stream: *mut *mut c_void, _flags: c_uint) -> c_uint {
    unless_gone(|state| give(stream, std::ptr::without_provenance_mut(state.gpu + 1)))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> c_uint {
    unless_gone(|state| {
        state.waited();
        SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(module: *mut *mut c_void, image: *const c_void) -> c_uint {
    // SAFETY: the agent passes the first byte of an image, which is longer than four.
    let start = unsafe { *image.cast::<[u8; 4]>() };
    if start != *b"\x7fELF" && !start.starts_with(b"//") {
        return INVALID_IMAGE;
    }
    give(module, std::ptr::dangling_mut::<usize>().cast())
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(
    function: *mut *mut c_void,
    _module: *mut c_void,
    name: *const c_char,
) -> c_uint {
    // SAFETY: the agent passes a zero-terminated name.
    let name = unsafe { CStr::from_ptr(name) };
    let mut state = state();
    state.functions.push(name.to_string_lossy().into_owned());
    // A handle is the number of the name, counted from one.
    give(
        function,
        std::ptr::without_provenance_mut(state.functions.len()),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: *mut c_void, attribute: c_uint, value: c_int) -> c_uint {
    let known = function.addr().wrapping_sub(1) < state().functions.len();
    let bytes = 0..=MOST_SHARED;
    if known && attribute == DYNAMIC_SHARED_BYTES && bytes.contains(&value) {
        SUCCESS
    } else {
        INVALID_VALUE
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared_bytes: c_uint,
    _stream: *mut c_void,
    arguments: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_uint {
    kernels::run(function.addr().wrapping_sub(1), arguments)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_uint {
    unless_gone(|state| {
        give(total, (state.card().memory_mib << 20) as usize);
        give(free, state.free_bytes() as usize)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_uint {
    unless_gone(|state| match state.allocate(bytes as u64) {
        Some(allocated) => give(address, allocated),
        None => OUT_OF_MEMORY,
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> c_uint {
    unless_gone(|state| {
        if state.free(address) {
            SUCCESS
        } else {
            INVALID_VALUE
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8_v2(address: u64, value: u8, bytes: usize) -> c_uint {
    unless_gone(|state| {
        state.waited();
        // A product that is gone must be computed again.
        state.product_at.take_if(|at| at[2] == address);
        match state.memory(address, bytes as u64) {
            Some(memory) => {
                memory.fill(value);
                SUCCESS
            }
            None => ILLEGAL_ADDRESS,
        }
    })
}

fn to_gpu(address: u64, from: *const c_void, bytes: usize) -> c_uint {
    unless_gone(|state| {
        let rate = state.card().host_mb_per_s.0;
        state.move_bytes(bytes as u64, rate);
        let Some(memory) = state.memory(address, bytes as u64) else {
            return ILLEGAL_ADDRESS;
        };
        // SAFETY: the agent passes as many bytes.
        memory.copy_from_slice(unsafe { std::slice::from_raw_parts(from.cast(), bytes) });
        SUCCESS
    })
}

fn to_host(to: *mut c_void, address: u64, bytes: usize) -> c_uint {
    unless_gone(|state| {
        let rate = state.card().host_mb_per_s.1;
        state.move_bytes(bytes as u64, rate);
        let Some(memory) = state.memory(address, bytes as u64) else {
            return ILLEGAL_ADDRESS;
        };
        // SAFETY: the agent passes room for as many bytes.
        unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), bytes) }.copy_from_slice(memory);
        SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> c_uint {
    state().waited();
    to_gpu(to, from, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> c_uint {
    state().waited();
    to_host(to, from, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    bytes: usize,
    _stream: *mut c_void,
) -> c_uint {
    to_gpu(to, from, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    bytes: usize,
    _stream: *mut c_void,
) -> c_uint {
    to_host(to, from, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(
    to: u64,
    from: u64,
    bytes: usize,
    _stream: *mut c_void,
) -> c_uint {
    unless_gone(|state| {
        state.stream_bytes(2 * bytes as u64);
        let copied = state
            .memory(from, bytes as u64)
            .map(|memory| memory.to_vec());
        match (copied, state.memory(to, bytes as u64)) {
            (Some(copied), Some(memory)) => {
                memory.copy_from_slice(&copied);
                SUCCESS
            }
            _ => ILLEGAL_ADDRESS,
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, _flags: c_uint) -> c_uint {
    let Ok(layout) = Layout::from_size_align(bytes.max(1), 4_096) else {
        return INVALID_VALUE;
    };
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        return OUT_OF_MEMORY;
    }
    let mut pinned = PINNED.lock().expect("nobody panics while holding it");
    pinned.insert(memory.addr(), layout);
    give(address, memory.cast())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(address: *mut c_void) -> c_uint {
    let mut pinned = PINNED.lock().expect("nobody panics while holding it");
    match pinned.remove(&address.addr()) {
        Some(layout) => {
            // SAFETY: it was allocated with this layout and is freed once.
            unsafe { dealloc(address.cast(), layout) };
            SUCCESS
        }
        None => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(event: *mut *mut c_void, _flags: c_uint) -> c_uint {
    let mut state = state();
    state.events.push(0.0);
    give(event, std::ptr::without_provenance_mut(state.events.len()))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: *mut c_void, _stream: *mut c_void) -> c_uint {
    unless_gone(|state| {
        let now_ms = state.now_ms();
        match state.events.get_mut(event.addr().wrapping_sub(1)) {
            Some(recorded) => {
                *recorded = now_ms;
                SUCCESS
            }
            None => INVALID_VALUE,
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: *mut c_void) -> c_uint {
    unless_gone(|state| {
        let now_ms = state.now_ms();
        let reached = state.events.get(event.addr().wrapping_sub(1));
        // Work queued behind it goes on.
        if reached.is_some_and(|reached_ms| *reached_ms >= now_ms) {
            state.waited();
        }
        SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime(
    elapsed_ms: *mut f32,
    begin: *mut c_void,
    end: *mut c_void,
) -> c_uint {
    unless_gone(|state| {
        let at = |event: *mut c_void| state.events.get(event.addr().wrapping_sub(1));
        match (at(begin), at(end)) {
            (Some(begin), Some(end)) => give(elapsed_ms, (end - begin) as f32),
            _ => INVALID_VALUE,
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(_event: *mut c_void) -> c_uint {
    SUCCESS
}
