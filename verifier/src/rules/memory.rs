//! Rules on memory: how much there is, whether it holds what is written, how fast it is.

use market::attestation::{Finding, FindingCode, Outcome, Unit};
use market::verification::VerificationOrder;

use super::{finding, not_run, number, per_gpu};
use crate::evidence::Evidence;
use crate::floors::{Calibration, Floors};

/// Share of the expected memory that must be allocatable. Units: percent.
const ALLOCATABLE_MEMORY_PERCENT: u64 = 97;
/// Width of the band above a floor in which a value is accepted with a warning. Units: percent.
const WARNING_BAND_PERCENT: u64 = 5;

pub(super) fn memory_capacity(evidence: &Evidence, order: &VerificationOrder) -> Finding {
    let code = FindingCode::MemoryCapacity;
    let Some(filled) = evidence.filled.as_ref().filter(|filled| !filled.is_empty()) else {
        return not_run(code);
    };
    let least = u64::from(order.expected.memory_mib) * ALLOCATABLE_MEMORY_PERCENT / 100;
    let problem = |allocatable_mib: u32, filled_bytes: u64| {
        if u64::from(allocatable_mib) < least {
            Some(format!(
                "only {allocatable_mib} MiB could be allocated, at least {least} must be"
            ))
        } else if filled_bytes != order.memory.pattern_bytes {
            Some(format!(
                "{filled_bytes} bytes were filled, not those that were ordered"
            ))
        } else {
            None
        }
    };
    let problems: Vec<Option<String>> = filled
        .iter()
        .map(|gpu| problem(gpu.allocatable_mib, gpu.filled_bytes))
        .collect();
    let good = "As much memory could be allocated as there should be.";
    Finding {
        unit: Some(Unit::Mib),
        measured: filled
            .iter()
            .map(|gpu| i64::from(gpu.allocatable_mib))
            .min(),
        floor: Some(number(least)),
        expected: Some(i64::from(order.expected.memory_mib)),
        samples: filled
            .iter()
            .map(|gpu| i64::from(gpu.allocatable_mib))
            .collect(),
        ..per_gpu(code, good, problems.iter().map(Option::as_ref))
    }
}

pub(super) fn memory_pattern(evidence: &Evidence) -> Finding {
    let code = FindingCode::MemoryPattern;
    let Some(memory) = evidence.memory.as_ref().filter(|memory| !memory.is_empty()) else {
        return not_run(code);
    };
    let problem = |bad_words: u64, lowest: Option<u64>| {
        let place = lowest.map(|offset| format!(", the first at byte {offset}"));
        (bad_words > 0).then(|| format!("{bad_words} bad words{}", place.unwrap_or_default()))
    };
    let problems: Vec<Option<String>> = memory
        .iter()
        .map(|gpu| problem(gpu.bad_words, gpu.lowest_bad_offset))
        .collect();
    Finding {
        unit: Some(Unit::Words),
        measured: memory.iter().map(|gpu| number(gpu.bad_words)).max(),
        floor: Some(0),
        expected: Some(0),
        samples: memory.iter().map(|gpu| number(gpu.bad_words)).collect(),
        ..per_gpu(
            code,
            "Memory reads back as written.",
            problems.iter().map(Option::as_ref),
        )
    }
}

pub(super) fn memory_proof(evidence: &Evidence) -> Finding {
    let code = FindingCode::MemoryProof;
    let Some(memory) = evidence.memory.as_ref().filter(|memory| !memory.is_empty()) else {
        return not_run(code);
    };
    let good = "The hash of memory under a fresh key is that of the pattern.";
    let found = per_gpu(code, good, memory.iter().map(|gpu| gpu.problem.as_ref()));
    // Blocks are opened with the report: before it, nothing wrong is not yet right.
    match (found.outcome, &evidence.report) {
        (Outcome::Met, None) => not_run(code),
        _ => found,
    }
}

pub(super) fn memory_bandwidth(evidence: &Evidence, order: &VerificationOrder) -> Finding {
    let code = FindingCode::MemoryBandwidth;
    let Some(report) = evidence
        .report
        .as_ref()
        .filter(|r| r.signature_problem.is_none())
    else {
        return not_run(code);
    };
    let best: Option<Vec<u64>> = report
        .copy_mb_per_s
        .iter()
        .map(|samples| samples.iter().copied().max())
        .collect();
    let Some(best) = best.filter(|best| !best.is_empty()) else {
        return not_run(code);
    };
    let Some(floor) = Floors::current().copy_rate(order.expected.gpu) else {
        return finding(code, Outcome::NotRun, "There is no floor for this GPU.");
    };
    let slowest = best.iter().copied().min().unwrap_or(0);
    let fastest = best.iter().copied().max().unwrap_or(0);
    let least = floor.floor_mb_per_s;
    let (outcome, what) = if slowest < least {
        (
            Outcome::Failed,
            "A GPU copies memory slower than its kind must",
        )
    } else if fastest > floor.ceiling_mb_per_s {
        (
            Outcome::NotRun,
            "The copy rate is beyond what the memory can do; it was not measured",
        )
    } else if slowest < least + least * WARNING_BAND_PERCENT / 100 {
        (
            Outcome::Warned,
            "A GPU copies memory barely as fast as its kind must",
        )
    } else {
        (Outcome::Met, "Memory is copied as fast as it should be")
    };
    let calibration = match floor.calibration {
        Calibration::None => "none",
        Calibration::Provisional => "provisional",
    };
    Finding {
        unit: Some(Unit::MbPerS),
        measured: Some(number(slowest)),
        floor: Some(number(least)),
        expected: floor.expected_mb_per_s.map(number),
        samples: best.into_iter().map(number).collect(),
        ..finding(
            code,
            outcome,
            format!("{what} (calibration: {calibration})."),
        )
    }
}
