//! This node's part of a sum by NCCL over the GPUs of several nodes.

use market::verification::{CollectiveAlgorithm, NcclSum};

use super::buffer::Argument;
use super::collective::Joined;
use super::gpu::CudaGpu;
use super::links::{bring, buffers, checksum_of_all, room, wait, wrong};
use crate::device::{DeviceError, NcclRate};
use crate::probe::links::Holding;

/// Sums with the GPUs of other nodes; waits for them without a limit.
///
/// Each GPU of all nodes contributes different words, so that a GPU that is left out or counted twice shows.
/// The contributions stay: each repeat has the same sum, and all of its words are checked.
/// Errors: the first GPU that failed, or the first one where NCCL refused.
pub(super) fn sum(gpus: &mut [CudaGpu], work: &NcclSum) -> Result<NcclRate, DeviceError> {
    let (bytes, words) = (work.bytes, work.bytes / 4);
    // All contribute equally much, so it cannot be less here.
    if room(gpus)? < bytes {
        let why = format!("no room on this node's GPUs for a sum of {bytes} bytes of each");
        return Err(gpus[0].failed(&why));
    }
    let ranks: Vec<u32> = (0..work.ranks).collect();
    let should = checksum_of_all(&mut gpus[0], ranks.iter().copied(), bytes)?;
    let joined = Joined::with_others(gpus, work).map_err(|why| gpus[0].failed(&why))?;
    let (held, summed) = (buffers(gpus, bytes)?, buffers(gpus, bytes)?);
    for ((gpu, buffer), rank) in gpus.iter_mut().zip(&held).zip(work.first_rank..) {
        gpu.enter()?;
        bring(gpu, buffer, bytes, rank)?;
    }
    wait(gpus)?;
    let sum = |gpus: &[CudaGpu]| {
        let started = joined.sum(&held, &summed, words);
        started.map_err(|why| gpus[0].failed(&why))
    };
    for _ in 0..work.warm_ups {
        sum(gpus)?;
    }
    wait(gpus)?;
    let part_bytes = bytes / gpus.len() as u64 / 16 * 16;
    // No node has so many GPUs.
    let here = gpus.len() as u32;
    let holdings: Vec<Holding> = (0..here)
        .map(|gpu| Holding {
            gpu,
            parts: 0..here,
            of: ranks.clone(),
        })
        .collect();
    let mut wrong_words = wrong(gpus, &holdings, &summed, part_bytes)?;
    let checksums = buffers(gpus, 8 * u64::from(work.repeats))?;
    let mut marks = Vec::new();
    // Nothing is waited for in between, so that no node begins a repeat later than its GPUs can.
    for repeat in 0..u64::from(work.repeats) {
        gpus[0].enter()?;
        let begin = gpus[0].mark()?;
        sum(gpus)?;
        gpus[0].enter()?;
        marks.push((begin, gpus[0].mark()?));
        for (gpu, (summed, sums)) in gpus.iter_mut().zip(summed.iter().zip(&checksums)) {
            let arguments = [
                Argument::from(summed),
                Argument::from(words),
                Argument::from(sums.address + 8 * repeat),
            ];
            gpu.enter()?;
            let grid = gpu.grid(words);
            gpu.launch("product_checksum", grid, &arguments)?;
        }
    }
    wait(gpus)?;
    gpus[0].enter()?;
    let repeat_us = |(begin, end)| Ok((gpus[0].between(begin, end)? * 1e3) as u64);
    let repeats_us: Result<Vec<u64>, DeviceError> = marks.into_iter().map(repeat_us).collect();
    let repeats_us = repeats_us?;
    for (gpu, sums) in gpus.iter().zip(&checksums) {
        gpu.enter()?;
        let sums = sums.read::<u64>(work.repeats as usize);
        let sums = sums.map_err(|error| gpu.error(error))?;
        wrong_words += sums.iter().filter(|sum| **sum != should).count() as u64;
    }
    Ok(NcclRate {
        algorithm: CollectiveAlgorithm::NcclDefault,
        repeats_us,
        wrong_words,
    })
}
