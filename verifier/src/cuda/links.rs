//! Copies between GPUs and collective operations of all of them, by one process that opened them all.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::time::Instant;

use market::verification::{
    CollectiveAlgorithm, CollectiveOperation, CollectiveRate, Digest, PairRate,
};

use super::buffer::{Argument, Buffer};
use super::collective::Joined;
use super::gpu::CudaGpu;
use super::{DriverError, result, sys};
use crate::device::DeviceError;
use crate::prf::{Purpose, Stream};
use crate::probe::links::{
    Half, Holding, LibraryWork, LinkRates, LinkWork, TRIAL_PART, holdings, part_of, worth,
};

/// The share of free memory that a buffer may take: the links need three buffers at most.
const SHARE: u64 = 4;
/// The least amount worth measuring. Units: bytes.
const LEAST_BYTES: u64 = 4_096;
/// The most words at the beginning of each part that are compared one by one.
const CHECKED_WORDS: u64 = 1_024;
/// The seed of the GPUs' parts of the sum; it is fixed, so that measurements can be repeated.
const SECRET: Digest = Digest([0x3C; 32]);

/// Measures the links between GPUs until the deadline, and reports each rate at once. The pairs should take
/// half of the time, and may take three quarters; the sum should take one.
///
/// Errors: the first GPU that did not do its part.
pub(super) fn measure(
    gpus: &mut [CudaGpu],
    work: &LinkWork,
    until: Instant,
    told: &mut dyn FnMut(LinkRates),
) -> Result<(), DeviceError> {
    let reached = reach(gpus)?;
    let room = room(gpus)?;
    let quarter = until.saturating_duration_since(Instant::now()) / 4;
    pairs(gpus, work, room, until - quarter, told)?;
    if reached {
        let may_ms = quarter.as_secs_f64() * 1e3;
        let what = (CollectiveOperation::AllReduce, CollectiveAlgorithm::OwnRing);
        let summed = timed(gpus, what, work.ring_bytes.min(room), may_ms, sum)?;
        told(LinkRates {
            collective: Some(summed),
            ..LinkRates::default()
        });
    }
    Ok(())
}

/// Runs the requested operations of the vendor's library over all GPUs, and reports each rate at once; none
/// where the node lacks the library. Each should take its share of half of the time then left.
///
/// Errors: the first GPU that failed, or the first one where the library refused.
pub(super) fn library(
    gpus: &mut [CudaGpu],
    work: &LibraryWork,
    until: Instant,
    told: &mut dyn FnMut(CollectiveRate),
) -> Result<(), DeviceError> {
    let Some(joined) = Joined::of(gpus).map_err(|why| gpus[0].failed(&why))? else {
        return Ok(());
    };
    let room = room(gpus)?;
    for (at, (operation, bytes)) in work.operations.iter().enumerate() {
        let run = |gpus: &mut [CudaGpu], held: &[Buffer], part_bytes: u64| {
            let started = joined.start(*operation, held, part_bytes / 4);
            started.map_err(|why| gpus[0].failed(&why))
        };
        let left = until.saturating_duration_since(Instant::now());
        let more = (work.operations.len() - at) as f64;
        let may_ms = left.as_secs_f64() * 1e3 / 2.0 / more;
        let what = (*operation, work.algorithm);
        told(timed(gpus, what, (*bytes).min(room), may_ms, run)?);
    }
    Ok(())
}

/// Enables each GPU's access to the others' memory. Gives whether each reaches that of the one before it.
fn reach(gpus: &[CudaGpu]) -> Result<bool, DeviceError> {
    let mut reached = vec![false; gpus.len()];
    for (at, gpu) in gpus.iter().enumerate() {
        gpu.enter()?;
        for (other_at, other) in gpus.iter().enumerate() {
            if at == other_at {
                continue;
            }
            let reaches = can_reach(gpu, other).map_err(|error| gpu.error(error))?;
            reached[at] |= reaches && other_at == (at + gpus.len() - 1) % gpus.len();
        }
    }
    Ok(reached.into_iter().all(|reached| reached))
}

/// Enables access from one GPU, whose context is current, to the memory of another.
fn can_reach(gpu: &CudaGpu, other: &CudaGpu) -> Result<bool, DriverError> {
    let mut can: c_int = 0;
    // SAFETY: both devices are ones that the driver gave, and it writes one number.
    unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, gpu.device, other.device) }.result()?;
    if can == 0 {
        return Ok(false);
    }
    // SAFETY: the context was retained and lives until the process ends.
    let opened = unsafe { sys::cuCtxEnablePeerAccess(other.context, 0) }.result();
    match opened {
        Err(DriverError(sys::cudaError_enum::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)) => Ok(true),
        opened => opened.map(|()| true),
    }
}

/// The size of a buffer that fits on every GPU. Units: bytes.
pub(super) fn room(gpus: &[CudaGpu]) -> Result<u64, DeviceError> {
    let mut least = u64::MAX;
    for gpu in gpus {
        gpu.enter()?;
        let (free, _) = result::mem_get_info().map_err(|error| gpu.error(error))?;
        least = least.min(free as u64 / SHARE);
    }
    match gpus.first() {
        Some(gpu) if least < LEAST_BYTES => Err(gpu.failed("no memory is left for the links")),
        _ => Ok(least),
    }
}

/// A buffer on each GPU.
pub(super) fn buffers(gpus: &[CudaGpu], bytes: u64) -> Result<Vec<Buffer>, DeviceError> {
    let on = |gpu: &CudaGpu| {
        gpu.enter()?;
        gpu.zeroed(bytes)
    };
    gpus.iter().map(on).collect()
}

/// Measures the pairs one after the other, each for the same time, and stops when the time is over.
fn pairs(
    gpus: &mut [CudaGpu],
    work: &LinkWork,
    room: u64,
    until: Instant,
    told: &mut dyn FnMut(LinkRates),
) -> Result<(), DeviceError> {
    let full_bytes = work.pair_bytes.min(room) / 16 * 16;
    let (sources, targets) = (buffers(gpus, full_bytes)?, buffers(gpus, full_bytes)?);
    let pairs = work.pairs();
    let left = until.saturating_duration_since(Instant::now());
    let may_ms = left.as_secs_f64() * 1e3 * 2.0 / 3.0 / pairs.len() as f64;
    for (from, to) in pairs {
        if Instant::now() >= until {
            break;
        }
        let target = (targets[to as usize].address, gpus[to as usize].context);
        let source = sources[from as usize].address;
        let gpu = &mut gpus[from as usize];
        gpu.enter()?;
        let copy = |gpu: &mut CudaGpu, bytes: u64| {
            let stream = result::stream::null();
            // SAFETY: both buffers hold this many bytes and live until the copies have been waited for.
            let copied = unsafe {
                let (to, there, here) = (target.0, target.1, gpu.context);
                sys::cuMemcpyPeerAsync(to, there, source, here, bytes as usize, stream)
            };
            copied.result().map_err(|error| gpu.error(error))
        };
        // The first copy sets up the path, the second shows how fast it is.
        let trial_bytes = full_bytes / TRIAL_PART;
        copy(gpu, trial_bytes)?;
        let trial_ms = gpu.timed(|gpu| copy(gpu, trial_bytes))?;
        let (bytes, rounds) = worth(full_bytes, trial_ms * TRIAL_PART as f64, may_ms);
        let elapsed_ms = gpu.timed(|gpu| (0..rounds).try_for_each(|_| copy(gpu, bytes)))?;
        let mb_per_s = gpu.rate(bytes * rounds, elapsed_ms)?;
        told(LinkRates {
            pairs: vec![PairRate { from, to, mb_per_s }],
            collective: None,
        });
    }
    Ok(())
}

/// Has all GPUs do something together, with as much data and as often as fits the time, and checks that all
/// of them hold the right result. `run` does it once in place, with buffers that have one part of this many
/// bytes for each GPU.
fn timed(
    gpus: &mut [CudaGpu],
    (operation, algorithm): (CollectiveOperation, CollectiveAlgorithm),
    wanted_bytes: u64,
    may_ms: f64,
    run: impl Fn(&mut [CudaGpu], &[Buffer], u64) -> Result<(), DeviceError>,
) -> Result<CollectiveRate, DeviceError> {
    // No node has so many GPUs.
    let count = gpus.len() as u32;
    let wanted_bytes = wanted_bytes.max(16 * u64::from(count));
    let held = buffers(gpus, wanted_bytes)?;
    let each = |bytes: u64| (bytes / u64::from(count) / 16 * 16).max(16);
    // On zeros only: the first run sets up the paths, the second shows how fast they are.
    let trial = each(wanted_bytes / TRIAL_PART);
    timed_rounds(gpus, 1, |gpus| run(gpus, &held, trial))?;
    let trial_ms = timed_rounds(gpus, 1, |gpus| run(gpus, &held, trial))?;
    let (bytes, rounds) = worth(wanted_bytes, trial_ms * TRIAL_PART as f64, may_ms);
    let part_bytes = each(bytes);
    let bytes = part_bytes * u64::from(count);
    for (gpu, buffer) in gpus.iter_mut().zip(&held) {
        gpu.enter()?;
        let of = gpu.gpu;
        bring(gpu, buffer, bytes, of)?;
    }
    wait(gpus)?;
    run(gpus, &held, part_bytes)?;
    wait(gpus)?;
    let holdings = holdings(operation, count);
    let one_by_one = wrong(gpus, &holdings, &held, part_bytes)?;
    let wrong_elements = one_by_one.max(unlike(gpus, &holdings, &held, part_bytes)?);
    let elapsed_ms = timed_rounds(gpus, rounds, |gpus| run(gpus, &held, part_bytes))?;
    let once = operation.bus_bytes(bytes, count.into());
    Ok(CollectiveRate {
        operation,
        algorithm,
        payload_bytes: bytes,
        bus_mb_per_s: gpus[0].rate(once * rounds, elapsed_ms)?,
        wrong_elements,
    })
}

/// The time of this many repeats, by the clock of the slowest GPU. Units: milliseconds.
fn timed_rounds(
    gpus: &mut [CudaGpu],
    rounds: u64,
    run: impl Fn(&mut [CudaGpu]) -> Result<(), DeviceError>,
) -> Result<f64, DeviceError> {
    let mark = |gpu: &CudaGpu| {
        gpu.enter()?;
        gpu.mark()
    };
    let begun: Result<Vec<_>, DeviceError> = gpus.iter().map(mark).collect();
    let begun = begun?;
    (0..rounds).try_for_each(|_| run(gpus))?;
    let ended: Result<Vec<_>, DeviceError> = gpus.iter().map(mark).collect();
    let mut longest_ms = 0_f64;
    for (gpu, (begin, end)) in gpus.iter().zip(begun.into_iter().zip(ended?)) {
        gpu.enter()?;
        longest_ms = longest_ms.max(gpu.between(begin, end)?);
    }
    Ok(longest_ms)
}

/// A GPU's contribution to the sum.
fn brought_by(gpu: u32) -> Stream {
    Stream::derive(&SECRET, Purpose::Memory, gpu)
}

/// Fills a buffer of one GPU with a GPU's contribution to the sum.
pub(super) fn bring(
    gpu: &mut CudaGpu,
    buffer: &Buffer,
    bytes: u64,
    of: u32,
) -> Result<(), DeviceError> {
    let arguments = [
        Argument::from(buffer),
        Argument::from(bytes / 16),
        Argument::from(brought_by(of)),
        Argument::from(0_u32),
        Argument::from(0_u32),
    ];
    let grid = gpu.grid(bytes / 16);
    gpu.launch("memory_fill", grid, &arguments)
}

/// One sum: all GPUs finish a step before the next one begins.
fn sum(gpus: &mut [CudaGpu], held: &[Buffer], part_bytes: u64) -> Result<(), DeviceError> {
    let count = gpus.len() as u32;
    for (half, kernel) in [(Half::Adding, "ring_add"), (Half::Gathering, "stream_copy")] {
        for step in 0..count - 1 {
            for (at, gpu) in (0..).zip(gpus.iter_mut()) {
                let before = held[((at + count - 1) % count) as usize].address;
                let offset = u64::from(part_of(half, at, step, count)) * part_bytes;
                let arguments = [
                    Argument::from(held[at as usize].address + offset),
                    Argument::from(before + offset),
                    Argument::from(part_bytes / 16),
                    Argument::from(0_u64),
                ];
                gpu.enter()?;
                let vectors = part_bytes / 16;
                let grid = match half {
                    Half::Adding => gpu.stream_grid(vectors),
                    Half::Gathering => gpu.vector_grid(vectors),
                };
                gpu.launch(kernel, grid, &arguments)?;
            }
            wait(gpus)?;
        }
    }
    Ok(())
}

pub(super) fn wait(gpus: &[CudaGpu]) -> Result<(), DeviceError> {
    gpus.iter().try_for_each(|gpu| {
        gpu.enter()?;
        gpu.wait()
    })
}

/// How many buffers differ from the right result, by the checksum of all their words. The first GPU adds up
/// the contributions for this, in its own memory and over no link.
fn unlike(
    gpus: &mut [CudaGpu],
    holdings: &[Holding],
    held: &[Buffer],
    part_bytes: u64,
) -> Result<u64, DeviceError> {
    let bytes = part_bytes * gpus.len() as u64;
    let mut known = BTreeMap::new();
    let mut unlike = 0;
    for holding in holdings {
        let (first, end) = (holding.parts.start, holding.parts.end);
        let within = (u64::from(first) * part_bytes, u64::from(end) * part_bytes);
        let key = (within, &holding.of);
        let should = match known.get(&key) {
            Some(should) => *should,
            None => {
                let all = holding.of.iter().copied();
                let should = checksum_of(&mut gpus[0], all, bytes, within)?;
                known.insert(key, should);
                should
            }
        };
        let at = holding.gpu as usize;
        let gpu = &mut gpus[at];
        gpu.enter()?;
        let is = gpu.checksum(held[at].address + within.0, (within.1 - within.0) / 4)?;
        unlike += u64::from(is != should);
    }
    Ok(unlike)
}

/// The checksum of the sum of these contributions, added up in the memory of one GPU.
pub(super) fn checksum_of_all(
    gpu: &mut CudaGpu,
    all: impl IntoIterator<Item = u32>,
    bytes: u64,
) -> Result<u64, DeviceError> {
    checksum_of(gpu, all, bytes, (0, bytes))
}

/// As [`checksum_of_all`], over a range of bytes.
fn checksum_of(
    gpu: &mut CudaGpu,
    all: impl IntoIterator<Item = u32>,
    bytes: u64,
    (start, end): (u64, u64),
) -> Result<u64, DeviceError> {
    gpu.enter()?;
    let (total, one) = (gpu.zeroed(bytes)?, gpu.zeroed(bytes)?);
    for of in all {
        bring(gpu, &one, bytes, of)?;
        let arguments = [
            Argument::from(&total),
            Argument::from(&one),
            Argument::from(bytes / 16),
            Argument::from(0_u64),
        ];
        let grid = gpu.stream_grid(bytes / 16);
        gpu.launch("ring_add", grid, &arguments)?;
    }
    gpu.checksum(total.address + start, (end - start) / 4)
}

/// How many of the individually compared words are wrong, in buffers that have one part for each GPU here.
pub(super) fn wrong(
    gpus: &[CudaGpu],
    holdings: &[Holding],
    held: &[Buffer],
    part_bytes: u64,
) -> Result<u64, DeviceError> {
    let words = (part_bytes / 4).min(CHECKED_WORDS) as usize;
    let mut known: BTreeMap<(u64, &[u32]), Vec<u32>> = BTreeMap::new();
    let mut wrong = 0;
    for holding in holdings {
        let (gpu, buffer) = (&gpus[holding.gpu as usize], &held[holding.gpu as usize]);
        gpu.enter()?;
        for part in holding.parts.clone() {
            let offset = u64::from(part) * part_bytes;
            let should = known
                .entry((offset, &holding.of))
                .or_insert_with(|| added_up(&holding.of, offset / 4, words));
            let is = buffer.read_from::<u32>(offset, words);
            let is = is.map_err(|error| gpu.error(error))?;
            let unlike = is.iter().zip(should).filter(|(is, should)| is != should);
            wrong += unlike.count() as u64;
        }
    }
    Ok(wrong)
}

/// The sum of these contributions, from one word on.
fn added_up(all: &[u32], start: u64, words: usize) -> Vec<u32> {
    let mut sums = vec![0_u32; words];
    for of in all {
        brought_by(*of).for_words(start, words, |at, word| {
            sums[at] = sums[at].wrapping_add(word);
        });
    }
    sums
}
