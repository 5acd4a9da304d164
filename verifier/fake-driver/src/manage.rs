//! The part of `libnvidia-ml.so.1` that the agent calls. A device's handle is its number, counted
//! from one.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::neighbours::Use;
use crate::script::Card;
use crate::state::state;

const SUCCESS: c_uint = 0;
const INVALID_ARGUMENT: c_uint = 2;
const NOT_SUPPORTED: c_uint = 3;
const NOT_FOUND: c_uint = 6;
const INSUFFICIENT_SIZE: c_uint = 7;
const TIMEOUT: c_uint = 10;
const GPU_IS_LOST: c_uint = 15;

const UNCORRECTED: c_uint = 1;
/// The type of the event for a critical error.
const XID_EVENT: c_ulonglong = 8;
const MIB: u64 = 1 << 20;

#[repr(C)]
struct Memory {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[repr(C)]
struct PciInfo {
    legacy_id: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device: c_uint,
    pci_subsystem: c_uint,
    id: [c_char; 32],
}

#[repr(C)]
struct EventData {
    device: *mut c_void,
    kind: c_ulonglong,
    data: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

#[repr(C)]
struct FabricInfo {
    cluster: [u8; 16],
    status: c_uint,
    clique: c_uint,
    state: u8,
}

fn give<T>(target: *mut T, value: T) -> c_uint {
    // SAFETY: the agent's wrappers pass the address of a variable of this type.
    unsafe { target.write(value) };
    SUCCESS
}

/// Writes a zero-terminated text, when it fits.
fn give_text(target: *mut c_char, length: c_uint, text: &str) -> c_uint {
    let bytes = text.as_bytes();
    if bytes.len() >= length as usize {
        return INSUFFICIENT_SIZE;
    }
    for (at, byte) in bytes.iter().chain(&[0]).enumerate() {
        // SAFETY: the agent passes room for `length` characters, and these are fewer.
        unsafe { target.add(at).write(byte.cast_signed()) };
    }
    SUCCESS
}

/// Answers for one GPU: its card, and whether it has worked in this process.
fn of(device: *mut c_void, answer: impl FnOnce(&Card, bool) -> c_uint) -> c_uint {
    let state = state();
    let at = device.addr().wrapping_sub(1);
    let Some(card) = state.managed().get(at) else {
        return INVALID_ARGUMENT;
    };
    // A GPU that fell off the bus is reported as lost; the loss of a withdrawn one is not visible here.
    if state.gone == Some(999) && at == state.managed_as(state.gpu) {
        return GPU_IS_LOST;
    }
    answer(card, state.worked)
}

/// The other processes on a GPU.
fn others(device: *mut c_void) -> Vec<Use> {
    state().neighbours_on(device.addr().wrapping_sub(1))
}

/// A counter before the first work or after it.
fn counter<T: std::ops::Add<Output = T> + Copy>((before, more): (T, T), worked: bool) -> T {
    if worked { before + more } else { before }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> c_uint {
    state().init.0
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> c_uint {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> c_uint {
    give_text(version, length, &state().script.version)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> c_uint {
    give(version, state().script.cuda_version)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_uint {
    give(count, state().managed().len() as c_uint)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(
    bus_id: *const c_char,
    device: *mut *mut c_void,
) -> c_uint {
    // SAFETY: the agent passes a zero-terminated text.
    let bus_id = unsafe { CStr::from_ptr(bus_id) }.to_string_lossy();
    let bus = bus_id
        .strip_prefix("00000000:")
        .and_then(|rest| rest.strip_suffix(":00.0"))
        .and_then(|bus| usize::from_str_radix(bus, 16).ok());
    match bus {
        Some(bus) if (1..=state().managed().len()).contains(&bus) => {
            give(device, std::ptr::without_provenance_mut(bus))
        }
        _ => NOT_FOUND,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetName(device: *mut c_void, name: *mut c_char, length: c_uint) -> c_uint {
    of(device, |card, _| give_text(name, length, &card.name))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(device: *mut c_void, uuid: *mut c_char, length: c_uint) -> c_uint {
    of(device, |card, _| give_text(uuid, length, &card.uuid))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetSerial(
    device: *mut c_void,
    serial: *mut c_char,
    length: c_uint,
) -> c_uint {
    of(device, |card, _| give_text(serial, length, &card.serial))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: *mut c_void, memory: *mut Memory) -> c_uint {
    let others: u64 = others(device).iter().map(|other| other.bytes).sum();
    of(device, |card, _| {
        let (total, used) = (card.memory_mib * MIB, card.used_mib * MIB + others);
        give(
            memory,
            Memory {
                version: 2,
                total,
                reserved: 0,
                free: total.saturating_sub(used),
                used,
            },
        )
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPciInfo_v3(device: *mut c_void, pci: *mut PciInfo) -> c_uint {
    of(device, |card, _| {
        give(
            pci,
            PciInfo {
                legacy_id: [0; 16],
                domain: 0,
                bus: device.addr() as c_uint,
                device: 0,
                pci_device: card.pci_device,
                pci_subsystem: 0,
                id: [0; 32],
            },
        )
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigMode(
    device: *mut c_void,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> c_uint {
    of(device, |card, _| match card.mig {
        Some(on) => {
            give(pending, c_uint::from(on));
            give(current, c_uint::from(on))
        }
        None => NOT_SUPPORTED,
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetEccMode(
    device: *mut c_void,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> c_uint {
    of(device, |card, _| match card.ecc {
        Some(on) => {
            give(pending, c_uint::from(on));
            give(current, c_uint::from(on))
        }
        None => NOT_SUPPORTED,
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: *mut c_void,
    kind: c_uint,
    _counter: c_uint,
    count: *mut c_ulonglong,
) -> c_uint {
    of(device, |card, worked| {
        if card.ecc.is_none() {
            return NOT_SUPPORTED;
        }
        let errors = if kind == UNCORRECTED {
            card.ecc_uncorrected
        } else {
            card.ecc_corrected
        };
        give(count, counter(errors, worked))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetRemappedRows(
    device: *mut c_void,
    corrected: *mut c_uint,
    uncorrected: *mut c_uint,
    pending: *mut c_uint,
    failed: *mut c_uint,
) -> c_uint {
    of(device, |card, worked| match card.remapped_rows {
        Some(rows) => {
            give(corrected, 0);
            give(uncorrected, counter(rows, worked));
            give(pending, c_uint::from(card.remap_pending));
            give(failed, c_uint::from(card.remap_failed))
        }
        None => NOT_SUPPORTED,
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPcieReplayCounter(device: *mut c_void, count: *mut c_uint) -> c_uint {
    of(device, |card, worked| {
        give(count, counter(card.replays, worked))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetEnforcedPowerLimit(
    device: *mut c_void,
    milliwatts: *mut c_uint,
) -> c_uint {
    of(device, |card, _| {
        give(milliwatts, card.power_limit_w * 1_000)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTemperature(
    device: *mut c_void,
    _sensor: c_uint,
    celsius: *mut c_uint,
) -> c_uint {
    of(device, |card, _| give(celsius, card.temperature_c))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrPcieLinkGeneration(
    device: *mut c_void,
    generation: *mut c_uint,
) -> c_uint {
    of(device, |card, _| give(generation, card.host_link.0))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrPcieLinkWidth(device: *mut c_void, width: *mut c_uint) -> c_uint {
    of(device, |card, _| give(width, card.host_link.1))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkState(
    device: *mut c_void,
    link: c_uint,
    up: *mut c_uint,
) -> c_uint {
    of(device, |card, _| match card.links.get(link as usize) {
        Some(is_up) => give(up, c_uint::from(*is_up)),
        None => NOT_SUPPORTED,
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkErrorCounter(
    device: *mut c_void,
    link: c_uint,
    kind: c_uint,
    count: *mut c_ulonglong,
) -> c_uint {
    of(device, |card, worked| {
        // All of them are replays of the first link.
        let first = link == 0 && kind == 0;
        let errors = counter(card.link_errors, worked);
        give(count, if first { errors } else { 0 })
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuFabricInfo(device: *mut c_void, info: *mut FabricInfo) -> c_uint {
    of(device, |card, _| match card.fabric {
        Some(state) => give(
            info,
            FabricInfo {
                cluster: [0; 16],
                status: SUCCESS,
                clique: 0,
                state,
            },
        ),
        None => NOT_SUPPORTED,
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: *mut c_void,
    count: *mut c_uint,
    _processes: *mut c_void,
) -> c_uint {
    let others = others(device).len() as c_uint;
    of(device, |card, _| {
        let processes = card.processes + others;
        give(count, processes);
        if processes == 0 {
            SUCCESS
        } else {
            INSUFFICIENT_SIZE
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetCreate(set: *mut *mut c_void) -> c_uint {
    give(set, std::ptr::without_provenance_mut(1))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(
    device: *mut c_void,
    _kinds: c_ulonglong,
    _set: *mut c_void,
) -> c_uint {
    of(device, |card, _| {
        if card.tells_xids {
            SUCCESS
        } else {
            NOT_SUPPORTED
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetWait_v2(
    _set: *mut c_void,
    event: *mut EventData,
    _timeout_ms: c_uint,
) -> c_uint {
    let mut state = state();
    let told = state.xids_told;
    let next = state.card().xids.get(told).copied();
    let gpu = state.managed_as(state.gpu);
    match next.filter(|_| state.worked) {
        Some(xid) => {
            state.xids_told += 1;
            give(
                event,
                EventData {
                    device: std::ptr::without_provenance_mut(gpu + 1),
                    kind: XID_EVENT,
                    data: xid,
                    gpu_instance: 0,
                    compute_instance: 0,
                },
            )
        }
        None => TIMEOUT,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(_set: *mut c_void) -> c_uint {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(
    device: *mut c_void,
    reasons: *mut c_ulonglong,
) -> c_uint {
    of(device, |card, _| match card.slowed_by {
        Some(bits) => give(reasons, bits),
        None => NOT_SUPPORTED,
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPowerUsage(device: *mut c_void, milliwatts: *mut c_uint) -> c_uint {
    of(device, |card, _| give(milliwatts, card.power_w * 1_000))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetClockInfo(
    device: *mut c_void,
    _kind: c_uint,
    mhz: *mut c_uint,
) -> c_uint {
    of(device, |_, _| give(mhz, 1_755))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTemperatureThreshold(
    device: *mut c_void,
    _kind: c_uint,
    celsius: *mut c_uint,
) -> c_uint {
    of(device, |card, _| give(celsius, card.slowdown_c))
}
