//! Rules on memory: its size, and whether it holds written data.

use market::attestation::{Finding, FindingCode, Outcome, Unit};
use market::verification::Step;

use super::seen::{Seen, Sight};
use super::{finding, not_run, number, per_gpu};
use crate::memory::work_where;

/// Share of the expected memory that must be allocatable. Units: percent.
const ALLOCATABLE_MEMORY_PERCENT: u64 = 97;
/// How much may be missing of any memory, however small: the driver's reserve within the memory it reports
/// (320 to 550 MiB were seen on cards of 16 to 80 GB), and the agent's own context, which grows with the
/// multiprocessors (100 MiB on a T4, 520 on an RTX 5090). Units: MiB.
const RESERVED_MIB: u64 = 1_280;

/// The least that must be allocatable of this much memory, three quarters of the smallest. Units: MiB.
fn least_allocatable(memory_mib: u64) -> u64 {
    let without_reserve = memory_mib.saturating_sub(RESERVED_MIB);
    let share = memory_mib * ALLOCATABLE_MEMORY_PERCENT / 100;
    share.min(without_reserve.max(memory_mib / 4 * 3))
}

pub(super) fn capacity(seen: &Seen<'_>) -> Finding {
    let (evidence, order) = (seen.evidence, seen.order);
    let code = FindingCode::MemoryCapacity;
    let Some(filled) = evidence.filled.as_ref().filter(|filled| !filled.is_empty()) else {
        return not_run(code);
    };
    let ordered = order.memory.pattern_bytes;
    let due = |allocatable_mib| work_where(&order.memory, allocatable_mib).pattern_bytes;
    let least_of = |gpu: usize| least_allocatable(seen.memory_mib(gpu));
    let problem = |gpu: usize, allocatable_mib: u32, filled_bytes: u64| {
        let least = least_of(gpu);
        if u64::from(allocatable_mib) < least {
            Some(format!(
                "only {allocatable_mib} MiB could be allocated, at least {least} must be"
            ))
        } else if filled_bytes != due(allocatable_mib) {
            let due = due(allocatable_mib);
            Some(format!(
                "{filled_bytes} bytes were filled, not the {due} that were ordered and could be"
            ))
        } else {
            None
        }
    };
    let problems: Vec<Option<String>> = filled
        .iter()
        .enumerate()
        .map(|(gpu, filled)| problem(gpu, filled.allocatable_mib, filled.filled_bytes))
        .collect();
    let fewest = filled.iter().map(|gpu| gpu.filled_bytes).min();
    let good = match fewest.filter(|bytes| *bytes < ordered) {
        None => "As much memory could be allocated as there should be.".to_owned(),
        Some(bytes) => format!(
            "As much memory could be allocated as there should be; of the {} MiB that were ordered, \
             {} were filled.",
            ordered >> 20,
            bytes >> 20
        ),
    };
    Finding {
        unit: Some(Unit::Mib),
        measured: filled
            .iter()
            .map(|gpu| i64::from(gpu.allocatable_mib))
            .min(),
        floor: (0..filled.len()).map(least_of).min().map(number),
        expected: Some(i64::from(order.expected.memory_mib)),
        samples: filled
            .iter()
            .map(|gpu| i64::from(gpu.allocatable_mib))
            .collect(),
        ..per_gpu(code, &good, problems.iter().map(Option::as_ref))
    }
}

pub(super) fn pattern(seen: &Seen<'_>) -> Finding {
    let evidence = seen.evidence;
    let code = FindingCode::MemoryPattern;
    let Some(memory) = evidence.memory.as_ref().filter(|memory| !memory.is_empty()) else {
        return not_run(code);
    };
    let mut fills = evidence.times.iter().filter(|time| time.step == Step::Fill);
    let (took_ms, due_ms) = (
        fills.next().map(|time| time.elapsed_ms),
        seen.order.memory.repeated_ms,
    );
    if let Some(took_ms) = took_ms.filter(|took_ms| *took_ms < due_ms) {
        let note = format!(
            "Patterns had to be repeated for {} s, but memory was filled after {} s.",
            due_ms / 1_000,
            took_ms / 1_000
        );
        return finding(code, Outcome::Failed, note);
    }
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

pub(super) fn proof(seen: &Seen<'_>) -> Finding {
    let evidence = seen.evidence;
    let code = FindingCode::MemoryProof;
    let Some(memory) = evidence.memory.as_ref().filter(|memory| !memory.is_empty()) else {
        return not_run(code);
    };
    let good = "The hash of memory under a fresh key is that of the pattern.";
    let found = per_gpu(code, good, memory.iter().map(|gpu| gpu.problem.as_ref()));
    // Blocks are opened with the report: before it, memory without an error is not yet proved.
    let unopened = memory.iter().position(|gpu| gpu.unopened);
    match (found.outcome, &evidence.report, unopened) {
        (Outcome::Met, None, _) => not_run(code),
        (Outcome::Met, _, Some(gpu)) => {
            let note = format!("The blocks of GPU {gpu} were not opened: its process was gone.");
            finding(code, Outcome::NotRun, note)
        }
        _ => found,
    }
}

/// Memory that was held while the GPU was hot.
pub(super) fn dwell(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::MemoryDwell;
    let good = "Memory kept what it held under load.";
    seen.each_gpu(code, good, |gpu| match gpu.dwell_bad_words {
        Some(0) => Sight::Good,
        Some(words) => Sight::Bad(format!("{words} words changed under load")),
        None => Sight::Unseen,
    })
}
