//! What is done on one GPU.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use market::verification::{Digest, GemmWork, Pattern, Word64};

use super::{ChainTimes, GpuCalibration, Pass, ProofTimes, Size, TensorCalibration};
use crate::device::{Device, DeviceError, PatternCheck, Rate};
use crate::gemm::GemmInputs;
use crate::memory::Contents;
use crate::order::SLOW_BLOCK;
use crate::prf::{Purpose, Stream};
use crate::probe;
use crate::probe::burn::BurnWork;
use crate::tensor::{Format, LibraryRun, TensorWork};
use crate::vectors::all;

/// How long each part may take by the host's clock.
pub(super) const PATIENCE: Duration = Duration::from_secs(1_800);

/// Of the memory that can be had, what is filled: comparing and hashing it needs a little more.
const FILLED_PERMILLE: u64 = 975;

/// Measures a GPU part by part, from where it came before; `keep` is given what is known after each. One
/// that does not do its work is given up, and says why. `link` is whose turn it is on the host link; `threads` are
/// those of the host for one GPU.
pub(super) fn measure_gpu(
    (gpu, device): (u32, &mut dyn Device),
    (size, link, threads): (&Size, &Mutex<()>, usize),
    mut shown: GpuCalibration,
    keep: &dyn Fn(&GpuCalibration),
) {
    let work = Work {
        gpu,
        size,
        link,
        threads,
        // Nobody has to guess these inputs: whoever measures again gets the same checksums.
        secret: Digest([0x5A; 32]),
    };
    shown.stopped = None;
    while let Some(part) = PARTS.get(shown.parts as usize) {
        work.allow(device);
        if let Err(error) = part(&work, device, &mut shown) {
            shown.stopped = Some(error.what);
            break;
        }
        shown.parts += 1;
        keep(&shown);
    }
    keep(&shown);
}

/// Whether all parts of the work on a GPU came to their end.
pub(super) fn is_through(shown: &GpuCalibration) -> bool {
    shown.stopped.is_none() && shown.parts as usize == PARTS.len()
}

/// What the parts have in common.
struct Work<'a> {
    gpu: u32,
    size: &'a Size,
    link: &'a Mutex<()>,
    threads: usize,
    secret: Digest,
}

type Part = fn(&Work<'_>, &mut dyn Device, &mut GpuCalibration) -> Result<(), DeviceError>;

/// All parts, in their order: the load heats the card, so that it comes last. Each begins anew, whatever
/// it came to before.
const PARTS: [Part; 12] = [
    |_, device, shown| {
        shown.facts = Some(device.observe()?);
        shown.allocatable_mib = device.allocatable_mib()?;
        Ok(())
    },
    passes,
    proof,
    rates,
    host_link,
    |_, device, shown| {
        shown.vectors.clear();
        for vector in all() {
            shown.vectors.extend(device.play(&vector)?);
        }
        Ok(())
    },
    |work, device, shown| {
        shown.exact.clear();
        for _ in 0..work.size.samples {
            shown.exact.push(device.multiply(&work.inputs())?);
        }
        Ok(())
    },
    chain,
    |work, device, shown| {
        shown.tensor.clear();
        for format in Format::ALL {
            let Some(of_format) = tensor_products(device, work.inputs(), format, work.size)? else {
                continue;
            };
            let integers = match format {
                Format::Bf16 => shown.exact.first().copied(),
                Format::Fp8 => small_integers(device, work.inputs(), format.most())?,
            };
            shown.tensor.push(TensorCalibration {
                integers,
                ..of_format
            });
        }
        Ok(())
    },
    |_, device, shown| {
        shown.collective_library = device.collective_library()?;
        Ok(())
    },
    |work, device, shown| {
        // The products left memory empty.
        let bytes = work.size.memory_bytes / 2;
        shown.framework = Some(device.framework_copies(bytes, work.size.samples));
        Ok(())
    },
    load,
];

impl Work<'_> {
    /// Allows a part its time.
    fn allow(&self, device: &mut dyn Device) {
        device.set_deadline(Instant::now() + PATIENCE + self.size.burn);
    }

    /// Fills memory with what the rates stream through.
    fn fill(&self, device: &mut dyn Device, shown: &GpuCalibration) -> Result<(), DeviceError> {
        let contents = Contents::derive(&self.secret, self.gpu, Pattern::Prf);
        device.fill(&contents, self.filled_bytes(shown)).map(|_| ())
    }

    fn inputs(&self) -> GemmInputs {
        GemmInputs {
            n: self.size.n,
            k: self.size.n,
            left: Stream::derive(&self.secret, Purpose::GemmLeft, self.gpu),
            right: Stream::derive(&self.secret, Purpose::GemmRight, self.gpu),
        }
    }

    /// How much memory is filled. Units: bytes.
    fn filled_bytes(&self, shown: &GpuCalibration) -> u64 {
        let block = u64::from(self.size.block_bytes);
        let most = (u64::from(shown.allocatable_mib) << 20) / 1_000 * FILLED_PERMILLE;
        most.min(self.size.memory_bytes) / block * block
    }
}

fn passes(
    work: &Work<'_>,
    device: &mut dyn Device,
    shown: &mut GpuCalibration,
) -> Result<(), DeviceError> {
    let bytes = work.filled_bytes(shown);
    shown.passes.clear();
    for pattern in [
        Pattern::Prf,
        Pattern::Complement,
        Pattern::Address,
        Pattern::MovingInversion,
        Pattern::WalkingOne,
        Pattern::WalkingZero,
        Pattern::Slow,
    ] {
        let contents = Contents::derive(&work.secret, work.gpu, pattern);
        let (fill_ms, turned) = taking(|| fill(device, &contents, bytes))?;
        let (compare_ms, check) = taking(|| device.compare(&contents))?;
        let digests = || device.digest_blocks(work.size.block_bytes, &work.secret);
        (shown.digest_ms, _) = taking(digests)?;
        shown.passes.push(Pass {
            pattern,
            fill_ms,
            compare_ms,
            bad_words: turned.and(check).bad_words,
        });
    }
    Ok(())
}

/// What a run does between the key of its memory and its answer.
fn proof(
    work: &Work<'_>,
    device: &mut dyn Device,
    shown: &mut GpuCalibration,
) -> Result<(), DeviceError> {
    work.fill(device, shown)?;
    let mut elapsed_us = Vec::new();
    for _ in 0..work.size.samples {
        let began = Instant::now();
        device.prove(SLOW_BLOCK, &work.secret, work.threads)?;
        elapsed_us.push(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    shown.proof = Some(ProofTimes {
        bytes: work.filled_bytes(shown),
        block_bytes: SLOW_BLOCK,
        threads: work.threads,
        elapsed_us,
    });
    Ok(())
}

/// Chains of exact products, as a run commits to them.
fn chain(
    work: &Work<'_>,
    device: &mut dyn Device,
    shown: &mut GpuCalibration,
) -> Result<(), DeviceError> {
    let chained = GemmWork {
        n: work.size.n,
        k: work.size.n,
        links: work.size.timed,
        // The first product, which the chain begins with.
        iterations: 1,
        opened_rows: 0,
    };
    let mut elapsed_us = Vec::new();
    for _ in 0..work.size.samples {
        let began = Instant::now();
        probe::gemm::commit(device, &work.secret, work.gpu, &chained)?;
        elapsed_us.push(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    shown.chain = Some(ChainTimes {
        n: chained.n,
        links: chained.links,
        elapsed_us,
    });
    Ok(())
}

/// The rates of memory.
fn rates(
    work: &Work<'_>,
    device: &mut dyn Device,
    shown: &mut GpuCalibration,
) -> Result<(), DeviceError> {
    work.fill(device, shown)?;
    device.room_for_streams()?;
    shown.copy_mb_per_s.clear();
    for sample in 0..work.size.samples {
        shown.copy_mb_per_s.push(device.copy_mb_per_s(sample)?);
    }
    for (rate, samples) in [
        (Rate::DriverCopy, &mut shown.driver_copy_mb_per_s),
        (Rate::Read, &mut shown.read_mb_per_s),
        (Rate::Triad, &mut shown.triad_mb_per_s),
    ] {
        sampled(work, device, rate, samples)?;
    }
    Ok(())
}

/// The rates of the host link, while no other GPU measures its own.
fn host_link(
    work: &Work<'_>,
    device: &mut dyn Device,
    shown: &mut GpuCalibration,
) -> Result<(), DeviceError> {
    work.fill(device, shown)?;
    let _turn = work.link.lock().unwrap_or_else(PoisonError::into_inner);
    // The others took their time.
    work.allow(device);
    for (rate, samples) in [
        (Rate::FromHost, &mut shown.from_host_mb_per_s),
        (Rate::ToHost, &mut shown.to_host_mb_per_s),
    ] {
        sampled(work, device, rate, samples)?;
    }
    Ok(())
}

fn sampled(
    work: &Work<'_>,
    device: &mut dyn Device,
    rate: Rate,
    samples: &mut Vec<u64>,
) -> Result<(), DeviceError> {
    samples.clear();
    for sample in 0..work.size.samples {
        samples.extend(device.rate_mb_per_s(rate, sample)?);
    }
    Ok(())
}

fn load(
    work: &Work<'_>,
    device: &mut dyn Device,
    shown: &mut GpuCalibration,
) -> Result<(), DeviceError> {
    shown.burned = device.burn(&BurnWork {
        inputs: work.inputs(),
        contents: Contents::derive(&work.secret, work.gpu, Pattern::Prf),
        held_bytes: work.filled_bytes(shown) / 2 / 16 * 16,
        lasts: work.size.burn,
    })?;
    Ok(())
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

/// The checksum of the product of entries up to `most` as BF16, where the device has such: what that gives was
/// held against the integer units.
fn small_integers(
    device: &mut dyn Device,
    inputs: GemmInputs,
    most: u8,
) -> Result<Option<Word64>, DeviceError> {
    let work = TensorWork {
        inputs,
        format: Format::Bf16,
        most,
        timed: 1,
        checked: 1,
    };
    let run = device.tensor_products(&work)?;
    Ok(run.and_then(|run| run.checksums.first().copied()))
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
        most: format.most(),
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
        // In turns, so that both meet the same heat; what failed once is not waited for again.
        if !matches!(library.last(), Some(LibraryRun::Failed { .. })) {
            library.push(device.library_products(&work)?);
        }
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
        integers: None,
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
