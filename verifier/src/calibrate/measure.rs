//! What is done on one GPU.

use std::time::{Duration, Instant};

use market::verification::{Digest, Pattern};

use super::{GpuCalibration, Pass, Size, TensorCalibration};
use crate::device::{Device, DeviceError, PatternCheck, Rate};
use crate::gemm::GemmInputs;
use crate::memory::Contents;
use crate::prf::{Purpose, Stream};
use crate::probe::burn::BurnWork;
use crate::tensor::{Format, TensorWork};

/// How long each part may take by the host's clock.
pub(super) const PATIENCE: Duration = Duration::from_secs(1_800);

/// Of the memory that can be had, what is filled: comparing and hashing it needs a little more.
const FILLED_PERMILLE: u64 = 975;

pub(super) fn measure_gpu(
    gpu: u32,
    device: &mut dyn Device,
    size: &Size,
) -> Result<GpuCalibration, DeviceError> {
    device.set_deadline(Instant::now() + PATIENCE);
    // Nobody has to guess these inputs: whoever measures again gets the same checksums.
    let secret = Digest([0x5A; 32]);
    let claim = device.claim();
    let facts = device.observe()?;
    let allocatable_mib = device.allocatable_mib()?;
    let block = u64::from(size.block_bytes);
    let most = (u64::from(allocatable_mib) << 20) / 1_000 * FILLED_PERMILLE;
    let bytes = most.min(size.memory_bytes) / block * block;
    let mut passes = Vec::new();
    let mut digest_ms = 0;
    for pattern in [
        Pattern::Prf,
        Pattern::Complement,
        Pattern::Address,
        Pattern::MovingInversion,
        Pattern::Slow,
    ] {
        let contents = Contents::derive(&secret, gpu, pattern);
        let (fill_ms, turned) = taking(|| fill(device, &contents, bytes))?;
        let (compare_ms, check) = taking(|| device.compare(&contents))?;
        (digest_ms, _) = taking(|| device.digest_blocks(size.block_bytes, &secret))?;
        passes.push(Pass {
            pattern,
            fill_ms,
            compare_ms,
            bad_words: turned.and(check).bad_words,
        });
    }
    let copy = (0..size.samples).map(|sample| device.copy_mb_per_s(sample));
    let copy_mb_per_s = copy.collect::<Result<_, _>>()?;
    let mut rate = |rate| -> Result<Vec<u64>, DeviceError> {
        let samples = (0..size.samples).map(|sample| device.rate_mb_per_s(rate, sample));
        Ok(samples
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .flatten()
            .collect())
    };
    let driver_copy_mb_per_s = rate(Rate::DriverCopy)?;
    let read_mb_per_s = rate(Rate::Read)?;
    let triad_mb_per_s = rate(Rate::Triad)?;
    let from_host_mb_per_s = rate(Rate::FromHost)?;
    let to_host_mb_per_s = rate(Rate::ToHost)?;

    let inputs = GemmInputs {
        n: size.n,
        k: size.n,
        left: Stream::derive(&secret, Purpose::GemmLeft, gpu),
        right: Stream::derive(&secret, Purpose::GemmRight, gpu),
    };
    let exact = (0..size.samples).map(|_| device.multiply(&inputs));
    let exact = exact.collect::<Result<_, _>>()?;
    let mut tensor = Vec::new();
    for format in Format::ALL {
        tensor.extend(tensor_products(device, inputs, format, size)?);
    }
    let collective_library = device.collective_library()?;
    device.set_deadline(Instant::now() + PATIENCE + size.burn);
    let burned = device.burn(&BurnWork {
        inputs,
        contents: Contents::derive(&secret, gpu, Pattern::Prf),
        held_bytes: bytes / 2 / 16 * 16,
        lasts: size.burn,
    })?;
    Ok(GpuCalibration {
        claim,
        facts,
        allocatable_mib,
        passes,
        digest_ms,
        copy_mb_per_s,
        driver_copy_mb_per_s,
        read_mb_per_s,
        triad_mb_per_s,
        from_host_mb_per_s,
        to_host_mb_per_s,
        exact,
        tensor,
        collective_library,
        burned,
    })
}

/// Fills memory, and turns it both ways where the pattern wants it.
fn fill(
    device: &mut dyn Device,
    contents: &Contents,
    bytes: u64,
) -> Result<PatternCheck, DeviceError> {
    device.fill(contents, bytes)?;
    if contents.pattern != Pattern::MovingInversion {
        return Ok(PatternCheck::default());
    }
    let up = device.invert(contents, false)?;
    Ok(up.and(device.invert(&contents.turned(), true)?))
}

/// The products of a format, where the device has such.
fn tensor_products(
    device: &mut dyn Device,
    inputs: GemmInputs,
    format: Format,
    size: &Size,
) -> Result<Option<TensorCalibration>, DeviceError> {
    let work = TensorWork {
        inputs,
        format,
        timed: size.timed,
        checked: size.checked,
    };
    let (mut gflops, mut checksums, mut library) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..size.samples {
        let Some(run) = device.tensor_products(&work)? else {
            return Ok(None);
        };
        gflops.push(run.gflops);
        checksums.extend(run.checksums);
        // In turns, so that both meet the same heat.
        library.push(device.library_products(&work)?);
    }
    let checksum = checksums.first().copied();
    let different = checksums
        .iter()
        .filter(|sum| Some(**sum) != checksum)
        .count();
    Ok(Some(TensorCalibration {
        format,
        gflops,
        checked: checksums.len() as u64,
        checksum,
        different: different as u64,
        library,
    }))
}

/// How long it took, ms, and what came of it.
fn taking<T>(work: impl FnOnce() -> Result<T, DeviceError>) -> Result<(u64, T), DeviceError> {
    let began = Instant::now();
    let result = work()?;
    Ok((began.elapsed().as_millis() as u64, result))
}
