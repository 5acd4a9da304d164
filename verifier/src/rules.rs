//! The accept rules: from evidence to findings, from findings to a verdict.
//!
//! Each rule is one function and looks at evidence only. Every check is mandatory at every level;
//! one that was not done makes the verdict inconclusive, never a pass.

use market::attestation::{Finding, FindingCode, Outcome, Unit, Verdict};
use market::gpu::{Gpu, GpuIdentity, Resolution, resolve_product_name};
use market::verification::{ExpectedNode, GpuClaim, Step, VerificationOrder};

use crate::evidence::Evidence;
use crate::floors::{Calibration, Floors};

/// Share of the expected memory that a driver must report. Units: percent.
const REPORTED_MEMORY_PERCENT: u64 = 98;
/// Share of the expected memory that must be allocatable. Units: percent.
const ALLOCATABLE_MEMORY_PERCENT: u64 = 97;
/// Width of the band above a floor in which a value is accepted with a warning. Units: percent.
const WARNING_BAND_PERCENT: u64 = 5;

/// All findings, in a fixed order.
#[must_use]
pub fn findings(evidence: &Evidence, order: &VerificationOrder, simulated: bool) -> Vec<Finding> {
    let mut findings = vec![
        gpu_count(evidence, order),
        gpu_identity(evidence, &order.expected),
        memory_capacity(evidence, order),
        memory_pattern(evidence),
        memory_proof(evidence),
        memory_bandwidth(evidence, order),
        product_repeats(evidence, order),
        product_exact(evidence),
        steps_in_time(evidence),
        report_signature(evidence),
        report_content(evidence),
    ];
    if simulated {
        let note = "The device was pretended: nothing here is about real hardware.";
        findings.push(finding(FindingCode::DeviceSimulated, Outcome::Noted, note));
    }
    findings
}

/// What findings amount to: one failure fails, one check not done leaves it open.
#[must_use]
pub fn verdict(findings: &[Finding]) -> Verdict {
    let any = |outcome| findings.iter().any(|finding| finding.outcome == outcome);
    if any(Outcome::Failed) {
        Verdict::Fail
    } else if any(Outcome::NotRun) || !findings.iter().any(|f| f.outcome == Outcome::Met) {
        Verdict::Inconclusive
    } else if any(Outcome::Warned) {
        Verdict::PassWithWarnings
    } else {
        Verdict::Pass
    }
}

fn finding(code: FindingCode, outcome: Outcome, note: impl Into<String>) -> Finding {
    let bad = matches!(outcome, Outcome::Failed | Outcome::NotRun | Outcome::Warned);
    Finding {
        code,
        outcome,
        remedy: bad.then(|| code.remedy()),
        unit: None,
        measured: None,
        floor: None,
        expected: None,
        samples: Vec::new(),
        note: note.into(),
    }
}

fn not_run(code: FindingCode) -> Finding {
    finding(code, Outcome::NotRun, "The node did not get so far.")
}

/// A finding from what is wrong with each GPU: met when nothing is.
fn per_gpu<'a>(
    code: FindingCode,
    good: &str,
    problems: impl IntoIterator<Item = Option<&'a String>>,
) -> Finding {
    let wrong: Vec<String> = problems
        .into_iter()
        .enumerate()
        .filter_map(|(gpu, problem)| Some(format!("GPU {gpu}: {}", problem?)))
        .collect();
    match wrong.is_empty() {
        true => finding(code, Outcome::Met, good),
        false => finding(code, Outcome::Failed, format!("{}.", wrong.join("; "))),
    }
}

/// A number as findings carry it.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn gpu_count(evidence: &Evidence, order: &VerificationOrder) -> Finding {
    let code = FindingCode::InventoryCount;
    if evidence.inventory.is_none() {
        return not_run(code);
    }
    let (found, leased) = (evidence.gpu_count(), order.expected.gpus);
    let (outcome, note) = match found == leased as usize {
        true => (Outcome::Met, format!("The node shows its {leased} GPUs.")),
        false => (
            Outcome::Failed,
            format!("The node shows {found} GPUs where {leased} are leased."),
        ),
    };
    Finding {
        unit: Some(Unit::Gpus),
        measured: Some(number(found as u64)),
        floor: Some(i64::from(leased)),
        expected: Some(i64::from(leased)),
        ..finding(code, outcome, note)
    }
}

/// The GPU that a driver's product name, or a reference device's canonical name, stands for.
#[must_use]
pub fn named_gpu(name: &str) -> Option<Gpu> {
    if let Ok(gpu) = Gpu::parse(name) {
        return Some(gpu);
    }
    match resolve_product_name(name) {
        Resolution::Gpu {
            identity: GpuIdentity::Known(gpu),
            ..
        } => Some(gpu),
        _ => None,
    }
}

fn gpu_identity(evidence: &Evidence, expected: &ExpectedNode) -> Finding {
    let code = FindingCode::InventoryIdentity;
    let Some(gpus) = evidence
        .inventory
        .as_ref()
        .map(|i| &i.gpus)
        .filter(|g| !g.is_empty())
    else {
        return not_run(code);
    };
    let problems: Vec<Option<String>> = gpus
        .iter()
        .map(|claim| identity_problem(claim, gpus, expected))
        .collect();
    let good = format!("Every GPU says that it is a {}.", expected.gpu);
    Finding {
        unit: Some(Unit::Mib),
        measured: gpus.iter().map(|gpu| i64::from(gpu.memory_mib)).min(),
        floor: Some(number(
            u64::from(expected.memory_mib) * REPORTED_MEMORY_PERCENT / 100,
        )),
        expected: Some(i64::from(expected.memory_mib)),
        samples: gpus.iter().map(|gpu| i64::from(gpu.memory_mib)).collect(),
        ..per_gpu(code, &good, problems.iter().map(Option::as_ref))
    }
}

fn identity_problem(claim: &GpuClaim, all: &[GpuClaim], expected: &ExpectedNode) -> Option<String> {
    let name = &claim.name;
    match named_gpu(name) {
        None => return Some(format!("`{name}` is no GPU that we know")),
        Some(gpu) if gpu != expected.gpu => {
            return Some(format!("it is a {gpu} where a {} is leased", expected.gpu));
        }
        Some(_) => {}
    }
    let least = u64::from(expected.memory_mib) * REPORTED_MEMORY_PERCENT / 100;
    if u64::from(claim.memory_mib) < least {
        return Some(format!(
            "it reports {} MiB, at least {least} belong to it",
            claim.memory_mib
        ));
    }
    if let (Some(has), Some(published)) = (claim.sm_count, expected.gpu.spec().sm_count)
        && has != published
    {
        return Some(format!(
            "it has {has} multiprocessors, {published} belong to it"
        ));
    }
    if claim.uuid.is_empty() || all.iter().filter(|other| other.uuid == claim.uuid).count() > 1 {
        return Some("its id is missing or shared with another GPU".to_owned());
    }
    None
}

fn memory_capacity(evidence: &Evidence, order: &VerificationOrder) -> Finding {
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

fn memory_pattern(evidence: &Evidence) -> Finding {
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

fn memory_proof(evidence: &Evidence) -> Finding {
    let code = FindingCode::MemoryProof;
    // Blocks are opened with the report: before it the proof is not complete.
    let (Some(memory), Some(_)) = (&evidence.memory, &evidence.report) else {
        return not_run(code);
    };
    if memory.is_empty() {
        return not_run(code);
    }
    let good = "The hash of memory under a fresh key is that of the pattern.";
    per_gpu(code, good, memory.iter().map(|gpu| gpu.problem.as_ref()))
}

fn memory_bandwidth(evidence: &Evidence, order: &VerificationOrder) -> Finding {
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

fn product_repeats(evidence: &Evidence, order: &VerificationOrder) -> Finding {
    let code = FindingCode::SdcRepeat;
    if evidence.checksums.is_empty() {
        return not_run(code);
    }
    let ordered = order.gemm.iterations as usize;
    let problems: Vec<Option<String>> = evidence
        .checksums
        .iter()
        .map(|sums| {
            if sums.len() != ordered {
                Some(format!(
                    "{} results came where {ordered} were ordered",
                    sums.len()
                ))
            } else if sums.windows(2).any(|pair| pair[0] != pair[1]) {
                Some("the same product gave different bits".to_owned())
            } else {
                None
            }
        })
        .collect();
    per_gpu(
        code,
        "The same product gave the same bits.",
        problems.iter().map(Option::as_ref),
    )
}

fn product_exact(evidence: &Evidence) -> Finding {
    let code = FindingCode::SdcExact;
    match evidence
        .products
        .as_ref()
        .filter(|products| !products.is_empty())
    {
        None => not_run(code),
        Some(products) => per_gpu(
            code,
            "The product is the true one.",
            products.iter().map(Option::as_ref),
        ),
    }
}

fn steps_in_time(evidence: &Evidence) -> Finding {
    let code = FindingCode::StepTimedOut;
    let samples = evidence
        .times
        .iter()
        .map(|time| number(time.elapsed_ms))
        .collect();
    let late = evidence.times.iter().find(|time| time.is_late());
    let answered = |step: &Step| evidence.times.iter().any(|time| time.step == *step);
    let silent = Step::ALL[1..].iter().find(|step| !answered(step));
    let with_times = |base: Finding| Finding {
        unit: Some(Unit::Ms),
        samples,
        ..base
    };
    if let Some(time) = late {
        let note = format!("Step {} came after its deadline.", time.step);
        return Finding {
            measured: Some(number(time.elapsed_ms)),
            floor: Some(number(time.deadline_ms)),
            ..with_times(finding(code, Outcome::Failed, note))
        };
    }
    match silent {
        Some(step) => {
            let note = format!("The node did not answer step {step}.");
            with_times(finding(code, Outcome::NotRun, note))
        }
        None => with_times(finding(
            code,
            Outcome::Met,
            "Every step was answered in time.",
        )),
    }
}

fn report_signature(evidence: &Evidence) -> Finding {
    let code = FindingCode::AgentSignature;
    match evidence
        .report
        .as_ref()
        .map(|report| &report.signature_problem)
    {
        None => not_run(code),
        Some(None) => finding(
            code,
            Outcome::Met,
            "The report is signed by the committed key.",
        ),
        Some(Some(problem)) => finding(code, Outcome::Failed, format!("The report: {problem}.")),
    }
}

fn report_content(evidence: &Evidence) -> Finding {
    let code = FindingCode::AgentReport;
    match &evidence.report {
        Some(report) if report.signature_problem.is_none() => match &report.content_problem {
            None => finding(
                code,
                Outcome::Met,
                "The report says what the conversation said.",
            ),
            Some(problem) => finding(code, Outcome::Failed, format!("In the report, {problem}.")),
        },
        _ => not_run(code),
    }
}

/// What a reader must not conclude from an attestation.
#[must_use]
pub fn not_proved(order: &VerificationOrder, simulated: bool) -> Vec<String> {
    let memory = &order.memory;
    let filled_mib = memory.pattern_bytes >> 20;
    let mut limits = Vec::new();
    if simulated {
        limits.push("Anything about real hardware: the device was pretended.".to_owned());
    }
    limits.push(format!(
        "That all memory is sound: {filled_mib} of {} MiB of each GPU were filled and checked.",
        order.expected.memory_mib
    ));
    limits.extend(
        [
            "That names, ids and counts are true: they are claims of the node's driver.",
            "That memory is as fast as shown: the node timed its copies by its own clock.",
            "That the answers were computed on this node: relaying them elsewhere is not detected.",
            "Anything about links between GPUs, the host link, the network, matrix speed, power, \
             temperature or error counters: they were not checked.",
            "Anything about the node after the time of this attestation.",
        ]
        .map(str::to_owned),
    );
    limits
}

#[cfg(test)]
mod tests;
