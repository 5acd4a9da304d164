//! The accept rules: from evidence to findings, from findings to a verdict.
//!
//! Each rule is one function and looks at evidence only. Every check is mandatory at every level;
//! one that was not done makes the verdict inconclusive, never a pass.

mod inventory;
mod memory;

use market::attestation::{Finding, FindingCode, Outcome, Unit, Verdict};
use market::verification::{Step, VerificationOrder};

use crate::evidence::Evidence;
pub use inventory::named_gpu;
use inventory::{gpu_count, gpu_identity};
use memory::{memory_bandwidth, memory_capacity, memory_pattern, memory_proof};

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

/// A number as findings carry it: no larger than canonical JSON holds.
fn number(value: u64) -> i64 {
    const LARGEST: u64 = (1 << 53) - 1;
    value.min(LARGEST) as i64
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
            "That memory of this size exists: its contents follow from the nonce and can be computed \
             again without having been kept.",
            "That a GPU did the work: the agent reports the results, and whatever computes them gives \
             the same.",
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
