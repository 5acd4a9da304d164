//! Rules on rates: memory, host link, products, and their limits.

use market::attestation::{Finding, FindingCode, Outcome, Unit};
use market::verification::{GpuFacts, GpuRates, HostLink};

use super::seen::{Seen, Sight, not_applicable, unbelievable};
use super::{finding, not_run, number, share, told_by};
use crate::floors::{Metric, lane_mb_per_s};
use crate::median;

/// Width of the band above a floor in which a value is accepted with a warning. Units: percent.
pub(super) const WARNING_BAND_PERCENT: u64 = 5;
/// The share of the node's median that the slowest GPU must reach. Units: thousandths.
const STRAGGLER_PERMILLE: u64 = 930;
/// The share of its rate alone that a GPU should reach with all others. Units: percent.
const TOGETHER_PERCENT: u64 = 50;
/// The shares of the published power limit that must be, and should be, allowed. Units: thousandths.
const LEAST_POWER_PERMILLE: u64 = 650;
const GOOD_POWER_PERMILLE: u64 = 900;
/// The share of the host link's published rate that its shape must allow. Units: thousandths.
const LEAST_SHAPE_PERMILLE: u64 = 500;

/// A measurement to compare with a floor.
pub(super) struct Measured {
    pub(super) code: FindingCode,
    pub(super) metric: Metric,
    pub(super) unit: Unit,
    /// Its subject, for notes: "The copy rate of memory".
    pub(super) what: &'static str,
}

/// Compares the slowest and the fastest of some rates with floor and ceiling.
pub(super) fn against_floor(seen: &Seen<'_>, measured: &Measured, rates: &[u64]) -> Finding {
    let &Measured {
        code,
        metric,
        unit,
        what,
    } = measured;
    let (Some(slowest), Some(fastest)) = (rates.iter().min(), rates.iter().max()) else {
        return not_run(code);
    };
    let Some(floor) = seen.floor(metric) else {
        return not_applicable(code, "There is no floor for this GPU.");
    };
    let slots = seen
        .older_slots()
        .filter(|_| metric == Metric::HostLink)
        .map_or(String::new(), |generation| {
            format!("; the slots are of the older generation {generation}")
        });
    let calibration = format!("calibration: {}{slots}", floor.calibration);
    let found = if *slowest < floor.floor {
        let note = format!("{what} is below what such a GPU must show ({calibration}).");
        finding(code, Outcome::Failed, note)
    } else if *fastest > floor.ceiling {
        unbelievable(
            code,
            format!(
                "{what} is beyond what such a GPU can do; it was not measured ({calibration})."
            ),
        )
    } else if *slowest < with_band(floor.floor) {
        let note = format!("{what} is barely what such a GPU must show ({calibration}).");
        finding(code, Outcome::Warned, note)
    } else {
        finding(
            code,
            Outcome::Met,
            format!("{what} is as it should be ({calibration})."),
        )
    };
    Finding {
        unit: Some(unit),
        measured: Some(number(*slowest)),
        floor: Some(number(floor.floor)),
        expected: floor.expected.map(number),
        samples: rates.iter().copied().map(number).collect(),
        ..found
    }
}

/// The best sample of each GPU; none where one has no sample.
fn best<'a>(samples: impl IntoIterator<Item = &'a Vec<u64>>) -> Option<Vec<u64>> {
    let best: Option<Vec<u64>> = samples
        .into_iter()
        .map(|samples| samples.iter().copied().max())
        .collect();
    best.filter(|best| !best.is_empty())
}

/// The median of the last two thirds of the samples of each GPU, when it is warm.
fn warm<'a>(samples: impl IntoIterator<Item = &'a Vec<u64>>) -> Option<Vec<u64>> {
    let warm: Option<Vec<u64>> = samples
        .into_iter()
        .map(|samples| median::upper(&samples[samples.len() / 3..]))
        .collect();
    warm.filter(|warm| !warm.is_empty())
}

/// As [`against_floor`], for one rate of each GPU: slow GPUs are named.
fn of_each_gpu(seen: &Seen<'_>, measured: &Measured, rates: &[u64]) -> Finding {
    let found = against_floor(seen, measured, rates);
    let Some(floor) = found.floor.map(i64::unsigned_abs) else {
        return found;
    };
    let least = match found.outcome {
        Outcome::Failed => floor,
        Outcome::Warned => with_band(floor),
        Outcome::Met | Outcome::NotRun | Outcome::Noted => return found,
    };
    let slow = rates.iter().enumerate().filter(|(_, rate)| **rate < least);
    let slow: Vec<String> = slow.map(|(gpu, _)| format!("GPU {gpu}")).collect();
    Finding {
        note: format!("{} So it is of {}.", found.note, told_by(", ", &slow)),
        ..found
    }
}

/// The least rate that is accepted without a warning.
const fn with_band(floor: u64) -> u64 {
    floor + floor * WARNING_BAND_PERCENT / 100
}

/// Rates of every inspected GPU.
fn rates_of<'a>(seen: &Seen<'a>, rates: fn(&'a GpuRates) -> &'a Vec<u64>) -> Vec<&'a Vec<u64>> {
    let gpus = seen
        .facts()
        .map(|facts| facts.gpus.as_slice())
        .unwrap_or_default();
    gpus.iter().map(|gpu| rates(&gpu.rates)).collect()
}

pub(super) fn memory_copy(seen: &Seen<'_>) -> Finding {
    let measured = Measured {
        code: FindingCode::MemoryBandwidth,
        metric: Metric::HbmCopy,
        unit: Unit::MbPerS,
        what: "The rate of copies within memory",
    };
    let copies = seen.report().map(|report| &report.copy_mb_per_s);
    let rates = copies.and_then(best).unwrap_or_default();
    of_each_gpu(seen, &measured, &rates)
}

pub(super) fn memory_read(seen: &Seen<'_>) -> Finding {
    let measured = Measured {
        code: FindingCode::MemoryRead,
        metric: Metric::HbmRead,
        unit: Unit::MbPerS,
        what: "The rate of reads of memory",
    };
    let rates = best(rates_of(seen, |rates| &rates.read_mb_per_s)).unwrap_or_default();
    of_each_gpu(seen, &measured, &rates)
}

pub(super) fn memory_triad(seen: &Seen<'_>) -> Finding {
    let measured = Measured {
        code: FindingCode::MemoryTriad,
        metric: Metric::HbmTriad,
        unit: Unit::MbPerS,
        what: "The rate of two arrays into a third",
    };
    let rates = best(rates_of(seen, |rates| &rates.triad_mb_per_s)).unwrap_or_default();
    of_each_gpu(seen, &measured, &rates)
}

pub(super) fn host_link_in(seen: &Seen<'_>) -> Finding {
    let measured = Measured {
        code: FindingCode::HostLinkIn,
        metric: Metric::HostLink,
        unit: Unit::MbPerS,
        what: "The rate from the host",
    };
    let rates = best(rates_of(seen, |rates| &rates.from_host_mb_per_s)).unwrap_or_default();
    of_each_gpu(seen, &measured, &rates)
}

pub(super) fn host_link_out(seen: &Seen<'_>) -> Finding {
    let measured = Measured {
        code: FindingCode::HostLinkOut,
        metric: Metric::HostLink,
        unit: Unit::MbPerS,
        what: "The rate to the host",
    };
    let rates = best(rates_of(seen, |rates| &rates.to_host_mb_per_s)).unwrap_or_default();
    of_each_gpu(seen, &measured, &rates)
}

pub(super) fn host_link_together(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::HostLinkTogether;
    if seen.gpus() < 2 {
        return not_applicable(code, "There is one GPU.");
    }
    let good = "With all others at once each GPU keeps half of its rate.";
    seen.each_gpu(code, good, |gpu| {
        let top = |rates: &Vec<u64>| rates.iter().copied().max();
        let alone = top(&gpu.rates.from_host_mb_per_s);
        match (alone, top(&gpu.rates.from_host_together_mb_per_s)) {
            (Some(alone), Some(together)) if together < share(alone, TOGETHER_PERCENT, 100) => {
                Sight::Odd(format!(
                    "{together} MB/s from the host, but {alone} when it copies alone"
                ))
            }
            (Some(_), Some(_)) => Sight::Good,
            _ => Sight::Unseen,
        }
    })
}

/// The rate that the shape of a host link allows. Units: 1e6 bytes per second.
fn shape_mb_per_s(link: HostLink) -> Option<u64> {
    Some((lane_mb_per_s(link.generation)? * f64::from(link.width)) as u64)
}

pub(super) fn host_link_shape(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::HostLinkShape;
    let full = Metric::HostLink.published(seen.spec);
    let Some(full) = full.filter(|_| seen.spec.pcie_gen.as_deref() != Some("C2C")) else {
        return not_applicable(code, "The host link of this GPU is no PCI Express.");
    };
    let least = seen.floor(Metric::HostLink).map_or(0, |floor| floor.floor);
    let fast = |gpu: &GpuFacts| {
        let rates = [&gpu.rates.from_host_mb_per_s, &gpu.rates.to_host_mb_per_s];
        rates
            .into_iter()
            .all(|rates| rates.iter().max().is_some_and(|best| *best >= least))
    };
    seen.each_gpu(
        code,
        "Every host link has its lanes and its generation.",
        |gpu| {
            let Some(link) = gpu.host_link else {
                return Sight::Unseen;
            };
            let HostLink { generation, width } = link;
            let said = format!("generation {generation} with {width} lanes");
            match shape_mb_per_s(link) {
                None => Sight::Odd(format!("{said}, which is unknown")),
                // Published rates are rounded.
                Some(has) if has + 1 >= full => Sight::Good,
                Some(_) if seen.is_in_older_slot(link) => {
                    Sight::Odd(format!("{said}, of a slot that is older than it"))
                }
                Some(_) if fast(gpu) => Sight::Odd(format!("{said}; the rate is enough")),
                Some(has) if has > full * LEAST_SHAPE_PERMILLE / 1_000 => Sight::Odd(said),
                Some(_) => Sight::Bad(said),
            }
        },
    )
}

pub(super) fn power_limit(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::PowerLimit;
    let Some(published) = seen.spec.tdp_w else {
        return not_applicable(code, "No power limit is published of this GPU.");
    };
    let permille = |limit: u32| u64::from(limit) * 1_000 / u64::from(published.max(1));
    let found = seen.each_gpu(
        code,
        "The power limits are those of such a GPU.",
        |gpu| match gpu.power_limit_w {
            None => Sight::Unseen,
            Some(limit) if permille(limit) < LEAST_POWER_PERMILLE => {
                Sight::Bad(format!("it is held at {limit} of {published} W"))
            }
            Some(limit) if permille(limit) < GOOD_POWER_PERMILLE => {
                Sight::Odd(format!("its limit is {limit} of {published} W"))
            }
            Some(_) => Sight::Good,
        },
    );
    let gpus = seen
        .facts()
        .map(|facts| facts.gpus.as_slice())
        .unwrap_or_default();
    let limits: Option<Vec<i64>> = gpus
        .iter()
        .map(|gpu| gpu.power_limit_w.map(i64::from))
        .collect();
    let samples = limits.unwrap_or_default();
    Finding {
        unit: Some(Unit::W),
        measured: samples.iter().copied().min(),
        floor: Some(number(u64::from(published) * LEAST_POWER_PERMILLE / 1_000)),
        expected: Some(i64::from(published)),
        samples,
        ..found
    }
}

pub(super) fn gemm_16bit(seen: &Seen<'_>) -> Finding {
    let measured = Measured {
        code: FindingCode::Gemm16Bit,
        metric: Metric::Gemm16Bit,
        unit: Unit::Gflops,
        what: "The rate of 16-bit products",
    };
    let rates = warm(rates_of(seen, |rates| &rates.gemm_16bit_gflops)).unwrap_or_default();
    of_each_gpu(seen, &measured, &rates)
}

pub(super) fn gemm_fp8(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::GemmFp8;
    if Metric::GemmFp8.published(seen.spec).is_none() {
        return not_applicable(code, "This GPU has no 8-bit floating-point products.");
    }
    let measured = Measured {
        code,
        metric: Metric::GemmFp8,
        unit: Unit::Gflops,
        what: "The rate of 8-bit products",
    };
    let rates = warm(rates_of(seen, |rates| &rates.gemm_fp8_gflops)).unwrap_or_default();
    of_each_gpu(seen, &measured, &rates)
}

/// The rate of each GPU at the end of the load; none where one was not loaded.
fn loaded(seen: &Seen<'_>) -> Option<Vec<u64>> {
    let gpus = seen.facts()?.gpus.iter();
    gpus.map(|gpu| Some(gpu.burn.as_ref()?.last_third_gflops))
        .collect()
}

pub(super) fn straggler(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::GemmStraggler;
    if seen.gpus() < 2 {
        return not_applicable(code, "There is one GPU.");
    }
    let products = rates_of(seen, |rates| &rates.gemm_16bit_gflops);
    // Where no such products are measured, the load compares the siblings: BF16 on the tensor units from
    // compute capability 8.0 on, 32-bit integers before.
    let rates = match products.iter().all(|samples| samples.is_empty()) {
        true => loaded(seen),
        false => warm(products),
    };
    let rates = rates.unwrap_or_default();
    let Some(middle) = median::upper(&rates).filter(|middle| *middle > 0) else {
        return not_run(code);
    };
    let least = share(middle, STRAGGLER_PERMILLE, 1_000);
    let slow: Vec<String> = rates
        .iter()
        .enumerate()
        .filter(|(_, rate)| **rate < least)
        .map(|(gpu, rate)| format!("GPU {gpu} at {} permille", share(*rate, 1_000, middle)))
        .collect();
    let found = match slow.is_empty() {
        true => finding(code, Outcome::Met, "No GPU is slower than its siblings."),
        false => {
            let note = format!("Of the node's median: {}.", slow.join(", "));
            finding(code, Outcome::Failed, note)
        }
    };
    Finding {
        unit: Some(Unit::Gflops),
        measured: rates.iter().min().copied().map(number),
        floor: Some(number(least)),
        expected: Some(number(middle)),
        samples: rates.into_iter().map(number).collect(),
        ..found
    }
}
