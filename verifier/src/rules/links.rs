//! Rules on the links between GPUs and on the ports to other nodes.

use market::attestation::{Finding, FindingCode, Outcome, Unit, Weight};
use market::gpu::GpuVendor;
use market::verification::{
    CollectiveAlgorithm, CollectiveOperation, CollectiveRate, Level, PairRate, PortFacts,
};

use super::rates::{Measured, against_floor};
use super::seen::{Seen, Sight, not_applicable};
use super::{finding, not_run, number, share};
use crate::board;
use crate::floors::Metric;
use crate::median;
use crate::plain::plain;

/// How far the slowest pair may lie below the fastest: without a warning, and at all. Units: thousandths.
const ODD_SPREAD_PERMILLE: u64 = 50;
const MOST_SPREAD_PERMILLE: u64 = 100;
/// The share of the median that the slowest pair must reach where all are joined alike, and should reach
/// elsewhere: pairs with a bridge, with one link or two, or on one socket reach up to four times the rate of
/// others. Divisors.
const LEAST_OF_ALIKE: u64 = 2;
const LEAST_OF_OTHERS: u64 = 4;
/// The least payload whose rate is compared with a floor: smaller ones measure the start. Bytes.
const LEAST_PAYLOAD_BYTES: u64 = 1 << 30;

pub(super) fn nvlink_active(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::NvlinkActive;
    let links = seen.spec.nvlink_links.unwrap_or(0);
    if seen.spec.vendor != GpuVendor::Nvidia || links == 0 || seen.gpus() < 2 {
        return not_applicable(code, "No NVLink belongs to this node.");
    }
    // Bridges are sold separately: a card has all of its links up, or none.
    let may_be_none = !seen.has_gpu_links();
    let found = seen.each_gpu(code, "All links between the GPUs are up.", |gpu| match gpu
        .nvlinks_active
    {
        None if may_be_none => Sight::Good,
        None => Sight::Unseen,
        Some(0) if may_be_none => Sight::Good,
        Some(active) if active == links => Sight::Good,
        Some(active) => Sight::Bad(format!("{active} of {links} links are up")),
    });
    let gpus = seen
        .facts()
        .map(|facts| facts.gpus.as_slice())
        .unwrap_or_default();
    let active: Option<Vec<i64>> = gpus
        .iter()
        .map(|gpu| gpu.nvlinks_active.map(i64::from))
        .collect();
    let samples = active.unwrap_or_default();
    Finding {
        unit: Some(Unit::Links),
        measured: samples.iter().copied().min(),
        floor: Some(i64::from(links)),
        expected: Some(i64::from(links)),
        samples,
        ..found
    }
}

/// The first unmeasured pair of those that the level asks for, a ring or every ordered one.
fn unmeasured(pairs: &[PairRate], gpus: u32, level: Level) -> Option<(u32, u32)> {
    let measured = |from: u32, to: u32| pairs.iter().any(|pair| (pair.from, pair.to) == (from, to));
    let mut all = (0..gpus).flat_map(|from| (0..gpus).map(move |to| (from, to)));
    all.find(|(from, to)| {
        let wanted = match level {
            Level::Quick => *to == (from + 1) % gpus,
            Level::Standard | Level::Deep => from != to,
        };
        wanted && !measured(*from, *to)
    })
}

pub(super) fn pair_rates(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::PairRates;
    if seen.gpus() < 2 {
        return not_applicable(code, "There is one GPU.");
    }
    let pairs = seen
        .facts()
        .and_then(|facts| facts.pairs.as_deref())
        .unwrap_or_default();
    let extremes = (
        pairs.iter().min_by_key(|pair| pair.mb_per_s),
        pairs.iter().max_by_key(|pair| pair.mb_per_s),
    );
    let (Some(slowest), Some(fastest)) = extremes else {
        return not_run(code);
    };
    let rates: Vec<u64> = pairs.iter().map(|pair| pair.mb_per_s).collect();
    if let Some((from, to)) = unmeasured(pairs, seen.order.expected.gpus, seen.order.level) {
        let note =
            format!("Not every pair of GPUs was measured, GPU {from} to GPU {to} as the first.");
        return Finding {
            unit: Some(Unit::MbPerS),
            samples: rates.iter().copied().map(number).collect(),
            ..finding(code, Outcome::NotRun, note)
        };
    }
    let slow = format!(
        "GPU {} to GPU {} is the slowest pair",
        slowest.from, slowest.to
    );
    if !seen.is_switched() {
        return beside_the_others(seen, slowest.mb_per_s, &rates, &slow);
    }
    let measured = Measured {
        code,
        metric: Metric::GpuLink,
        unit: Unit::MbPerS,
        what: "The rate between GPUs",
    };
    let held = against_floor(seen, &measured, &rates);
    if matches!(held.outcome, Outcome::Failed | Outcome::NotRun) {
        let note = format!("{} {slow}.", held.note);
        return Finding { note, ..held };
    }
    let spread = share(fastest.mb_per_s - slowest.mb_per_s, 1_000, fastest.mb_per_s);
    let outcome = if spread <= ODD_SPREAD_PERMILLE {
        return held;
    } else if spread <= MOST_SPREAD_PERMILLE {
        Outcome::Warned
    } else {
        Outcome::Failed
    };
    let note = format!("{slow}, {spread} permille below the fastest.");
    let Finding {
        outcome,
        remedy,
        note,
        ..
    } = finding(code, outcome, note);
    Finding {
        outcome,
        remedy,
        note,
        ..held
    }
}

/// Pairs of unknown rate, compared with the node's median.
fn beside_the_others(seen: &Seen<'_>, slowest: u64, rates: &[u64], slow: &str) -> Finding {
    let code = FindingCode::PairRates;
    let usual = median::upper(rates).unwrap_or(0);
    let alike = board::pairs_are_alike(seen.spec, seen.order.expected.gpus);
    let (least, behind) = match alike {
        true => (usual / LEAST_OF_ALIKE, Outcome::Failed),
        false => (usual / LEAST_OF_OTHERS, Outcome::Warned),
    };
    let found = if slowest < least {
        let note = format!("{slow}, at {slowest} MB/s where the median is {usual}.");
        finding(code, behind, note)
    } else if alike {
        finding(
            code,
            Outcome::Met,
            format!("No pair is far below the others; {slow}."),
        )
    } else {
        let note = format!("{slow}; nothing is promised between these cards.");
        finding(code, Outcome::Noted, note)
    };
    Finding {
        unit: Some(Unit::MbPerS),
        measured: Some(number(slowest)),
        floor: Some(number(least)),
        samples: rates.iter().copied().map(number).collect(),
        ..found
    }
}

/// The rate of a sum, in words.
const fn rate_of_sum(algorithm: CollectiveAlgorithm) -> &'static str {
    match algorithm {
        CollectiveAlgorithm::OwnRing => "The rate of the agent's own sum over all GPUs",
        CollectiveAlgorithm::NcclDefault => "The rate of NCCL's sum over all GPUs",
        CollectiveAlgorithm::NcclRing => "The rate of NCCL's sum round a ring of all GPUs",
    }
}

/// The operation, and the library that did it, in words.
fn whose(run: &CollectiveRate) -> String {
    let who = match run.algorithm {
        CollectiveAlgorithm::OwnRing => "the agent's own",
        CollectiveAlgorithm::NcclDefault | CollectiveAlgorithm::NcclRing => "NCCL's",
    };
    format!("{who} {}", run.operation.words())
}

/// NCCL's other operations, with the rate of each that was large enough.
fn beside_the_sum(runs: &[CollectiveRate]) -> String {
    let others = runs.iter().filter(|run| {
        let is_large = run.payload_bytes >= LEAST_PAYLOAD_BYTES;
        is_large && run.operation != CollectiveOperation::AllReduce
    });
    let told = others.map(|run| format!("{} {} MB/s", run.operation.words(), run.bus_mb_per_s));
    let told: Vec<String> = told.collect();
    match told.is_empty() {
        true => String::new(),
        false => format!(" Beside it, {}.", told.join(", ")),
    }
}

/// The first operation that `deep` asks of NCCL, where the node has it, and that it did not do.
fn undone(seen: &Seen<'_>, runs: &[CollectiveRate]) -> Option<CollectiveOperation> {
    let by_nccl = runs
        .iter()
        .filter(|run| run.algorithm == CollectiveAlgorithm::NcclDefault);
    let done: Vec<CollectiveOperation> = by_nccl.map(|run| run.operation).collect();
    if done.is_empty() || seen.order.level != Level::Deep {
        return None;
    }
    let mut wanted = CollectiveOperation::ALL.into_iter();
    wanted.find(|wanted| !done.contains(wanted))
}

pub(super) fn all_reduce(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::AllReduce;
    if seen.gpus() < 2 {
        return not_applicable(code, "There is one GPU.");
    }
    let runs = seen
        .facts()
        .map(|facts| facts.collectives.as_slice())
        .unwrap_or_default();
    if let Some(wrong) = runs.iter().find(|run| run.wrong_elements > 0) {
        let note = format!(
            "Elements of {} are wrong: {}.",
            whose(wrong),
            wrong.wrong_elements
        );
        return Finding {
            unit: Some(Unit::Events),
            measured: Some(number(wrong.wrong_elements)),
            floor: Some(0),
            ..finding(code, Outcome::Failed, note)
        };
    }
    let found = if runs.is_empty() {
        not_run(code)
    } else if !seen.is_switched() {
        not_applicable(
            code,
            "The sum is right; nothing is promised of its rate between these cards.",
        )
    } else {
        worst_sum(seen, runs)
    };
    match undone(seen, runs) {
        Some(operation) => with_undone(operation, found),
        None => found,
    }
}

/// The worst of the sums that are large enough for a comparison of rates: failed ones first, then implausible
/// ones, then those barely above the floor.
///
/// Sums by a ring that were not yet calibrated with these kernels or on this kind of machine decide nothing
/// and rank behind those that do. Nobody has measured the other operations on good nodes: only their
/// correctness is checked.
fn worst_sum(seen: &Seen<'_>, runs: &[CollectiveRate]) -> Finding {
    let code = FindingCode::AllReduce;
    let large = |run: &&CollectiveRate| {
        let is_sum = run.operation == CollectiveOperation::AllReduce;
        is_sum && run.payload_bytes >= LEAST_PAYLOAD_BYTES
    };
    let beside = beside_the_sum(runs);
    let held = runs.iter().filter(large).map(|run| {
        let measured = Measured {
            code,
            metric: Metric::of_collective(run.algorithm),
            unit: Unit::MbPerS,
            what: rate_of_sum(run.algorithm),
        };
        let found = against_floor(seen, &measured, &[run.bus_mb_per_s]);
        let (mib, gpus) = (run.payload_bytes >> 20, seen.gpus());
        // An implausible rate is implausible with any library.
        let tried_out = run.algorithm != CollectiveAlgorithm::NcclDefault
            && found.outcome != Outcome::NotRun
            && !seen.is_calibrated(measured.metric);
        Finding {
            weight: if tried_out {
                Weight::Shadow
            } else {
                found.weight
            },
            note: format!(
                "{} It was of {mib} MiB from each of {gpus} GPUs.{beside}",
                found.note
            ),
            ..found
        }
    });
    let rank = |outcome| match outcome {
        Outcome::Failed => 0,
        Outcome::NotRun => 1,
        Outcome::Warned => 2,
        Outcome::Met | Outcome::Noted => 3,
    };
    held.min_by_key(|found| (found.weight == Weight::Shadow, rank(found.outcome)))
        .unwrap_or_else(|| not_run(code))
}

/// The finding on the sums, where NCCL left out one of the requested operations. The check then counts as not
/// run, unless it failed, warned or was implausible anyway. Tried-out results do not count here.
fn with_undone(operation: CollectiveOperation, found: Finding) -> Finding {
    let note = format!("NCCL did not do its {}. {}", operation.words(), found.note);
    let is_unmet = matches!(
        found.outcome,
        Outcome::Failed | Outcome::Warned | Outcome::NotRun
    );
    if is_unmet && found.weight != Weight::Shadow {
        return Finding { note, ..found };
    }
    Finding {
        unit: found.unit,
        measured: found.measured,
        floor: found.floor,
        expected: found.expected,
        samples: found.samples,
        ..finding(found.code, Outcome::NotRun, note)
    }
}

pub(super) fn network_ports(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::NetworkPorts;
    let sold = seen
        .order
        .expected
        .internode
        .and_then(|sold| sold.gbps_per_gpu());
    let Some(per_gpu) = sold else {
        return not_applicable(code, "No network of a named rate was sold with this node.");
    };
    let Some(ports) = seen.facts().and_then(|facts| facts.host.ports.as_deref()) else {
        return not_run(code);
    };
    let carry = carrying(ports, per_gpu, seen.order.expected.gpus);
    let flaps = |port: &&PortFacts| port.downs_grown.is_some_and(|downs| downs > 0);
    let down = |port: &&PortFacts| !port.active;
    let name = |port: &PortFacts| plain(&port.name);
    let found = if let Some(port) = ports.iter().find(flaps) {
        let note = format!("Port {} went down while it was checked.", name(port));
        finding(code, Outcome::Failed, note)
    } else if carry.up < carry.wanted {
        let down = ports
            .iter()
            .find(down)
            .map(|port| format!("; {} is down", name(port)));
        let Carrying { up, wanted, gbps } = carry;
        let note = format!(
            "{up} of {wanted} ports of {gbps} Gb/s are up{}.",
            down.unwrap_or_default()
        );
        finding(code, Outcome::Failed, note)
    } else if let Some(port) = ports.iter().find(down) {
        let note = format!(
            "Port {} is down; the others carry what was sold.",
            name(port)
        );
        finding(code, Outcome::Warned, note)
    } else {
        finding(code, Outcome::Met, "Every port is up at its rate.")
    };
    Finding {
        unit: Some(Unit::Links),
        measured: Some(number(carry.up)),
        floor: Some(number(carry.wanted)),
        samples: ports
            .iter()
            .map(|port| i64::from(port.rate_gbps.unwrap_or(0)))
            .collect(),
        ..found
    }
}

/// The ports that provide the network sold with a node: how many are up, how many it needs, and their rate.
struct Carrying {
    up: u64,
    wanted: u64,
    gbps: u32,
}

/// Which ports provide the network that was sold: one at its rate or more for each GPU, or as many at the
/// most common rate as its sum needs, where adapters have two ports or several GPUs share a faster one. A
/// node usually has further ports for storage, which must not stand in for one that is down.
fn carrying(ports: &[PortFacts], per_gpu: u32, gpus: u32) -> Carrying {
    let rates = || {
        let up = ports.iter().filter(|port| port.active);
        up.filter_map(|port| port.rate_gbps.filter(|gbps| *gbps > 0))
    };
    let of_rate = |gbps| rates().filter(|other| *other == gbps).count() as u64;
    let for_each = Carrying {
        up: rates().filter(|gbps| *gbps >= per_gpu).count() as u64,
        wanted: gpus.into(),
        gbps: per_gpu,
    };
    let usual = rates().max_by_key(|gbps| (of_rate(*gbps), *gbps));
    match usual {
        Some(gbps) if for_each.up < for_each.wanted && gbps != per_gpu => {
            let wanted = (u64::from(per_gpu) * u64::from(gpus)).div_ceil(gbps.into());
            let up = of_rate(gbps);
            Carrying { up, wanted, gbps }
        }
        _ => for_each,
    }
}
