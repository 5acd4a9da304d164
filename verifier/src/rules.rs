//! The accept rules: from evidence to findings, from findings to a verdict.
//!
//! Each rule is one function of the lease, the evidence on the node and the floors. A rule judges by itself;
//! the weight of its finding at a level is in `data/rules.csv` ([`levels`]). A check that the level demands
//! and that was not done makes the verdict inconclusive, never a pass.

mod burn;
mod conversation;
mod diagnostic;
mod drivers;
mod health;
mod history;
mod host;
mod identity;
mod inventory;
pub mod levels;
mod links;
mod memory;
mod not_proved;
mod products;
mod quarantine;
mod rates;
mod recheck;
mod seen;
mod software;
mod storage;
mod troubles;
mod unique;

use market::attestation::{Finding, FindingCode, Outcome, Verdict, Weight};
use market::verification::VerificationOrder;

use crate::evidence::Evidence;
use crate::floors::Floors;
pub use identity::named_gpu;
pub use levels::version;
pub use not_proved::not_proved;
pub(crate) use quarantine::condemned;
use seen::Seen;

/// A rule.
type Rule = fn(&Seen<'_>) -> Finding;

/// Every rule on the node, in the order of the codes.
const RULES: &[Rule] = &[
    inventory::gpu_count,
    identity::gpu_identity,
    unique::shown_once,
    recheck::as_handed_over,
    history::known_before,
    inventory::sources,
    inventory::recount,
    software::software,
    inventory::mig,
    inventory::ecc_mode,
    inventory::residue,
    host::shape,
    host::virtualised,
    host::clock,
    troubles::gpu_lost,
    troubles::agent_trouble,
    troubles::fabric_not_ready,
    links::nvlink_active,
    memory::capacity,
    memory::pattern,
    memory::proof,
    rates::memory_copy,
    rates::memory_read,
    rates::memory_triad,
    memory::dwell,
    health::ecc,
    health::remap,
    health::growth,
    health::xid,
    health::visible,
    diagnostic::diagnostic,
    rates::host_link_shape,
    rates::host_link_in,
    rates::host_link_out,
    rates::host_link_together,
    links::pair_rates,
    links::all_reduce,
    rates::power_limit,
    rates::gemm_16bit,
    rates::gemm_fp8,
    rates::straggler,
    burn::sustained,
    burn::throttle,
    burn::power,
    burn::temperature,
    links::network_ports,
    storage::read,
    storage::write,
    products::repeat,
    products::exact,
    products::exact_on_tensor_units,
    |seen| conversation::steps_in_time(seen.evidence),
    |seen| conversation::report_signature(seen.evidence),
    |seen| conversation::report_content(seen.evidence),
];

/// All findings of the order's level, in a fixed order.
#[must_use]
pub fn findings(evidence: &Evidence, order: &VerificationOrder, simulated: bool) -> Vec<Finding> {
    findings_by(evidence, order, simulated, Floors::current())
}

/// All findings of the order's level by these floors.
#[must_use]
pub fn findings_by(
    evidence: &Evidence,
    order: &VerificationOrder,
    simulated: bool,
    floors: &Floors,
) -> Vec<Finding> {
    let seen = Seen::new(evidence, order, floors);
    let weighed = |found: Finding| {
        if order.recheck {
            return recheck::weighed(found);
        }
        let weight = match levels::demand(found.code, order.level).weight()? {
            // An implausible result is worse than a missing one: the rule decides which weight applies.
            Weight::May => found.weight,
            demanded => demanded,
        };
        Some(Finding { weight, ..found })
    };
    let mut findings: Vec<Finding> = RULES
        .iter()
        .filter_map(|rule| weighed(rule(&seen)))
        .collect();
    if simulated {
        let note = "The device was simulated: nothing here is about real hardware.";
        findings.push(finding(FindingCode::DeviceSimulated, Outcome::Noted, note));
    }
    findings
}

/// The verdict of findings: one failure fails, one demanded check that was not done leaves it inconclusive.
/// Checks that are only tried out decide nothing.
#[must_use]
pub fn verdict(findings: &[Finding]) -> Verdict {
    let counting = findings.iter().filter(|found| found.counts());
    let any = |outcome| counting.clone().any(|found| found.outcome == outcome);
    if findings.iter().any(Finding::counts_against) {
        Verdict::Fail
    } else if findings.iter().any(Finding::leaves_open) || !any(Outcome::Met) {
        Verdict::Inconclusive
    } else if any(Outcome::Warned) {
        Verdict::PassWithWarnings
    } else {
        Verdict::Pass
    }
}

pub(crate) fn finding(code: FindingCode, outcome: Outcome, note: impl Into<String>) -> Finding {
    // A check that was not done, or is not believed, shows no fault for a remedy.
    let bad = matches!(outcome, Outcome::Failed | Outcome::Warned);
    Finding {
        code,
        outcome,
        weight: Weight::May,
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
    finding(
        code,
        Outcome::NotRun,
        "The node reported no data for this check.",
    )
}

/// A finding from the problems of each GPU: met when there are none.
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
        false => finding(code, Outcome::Failed, format!("{}.", told(&wrong))),
    }
}

/// How many GPUs are named at most, since a node may claim many.
const MOST_TOLD: usize = 8;

/// A list of problems of several GPUs, limited to the first ones.
fn told(of_gpus: &[String]) -> String {
    told_by("; ", of_gpus)
}

/// As [`told()`], with another separator.
fn told_by(between: &str, of_gpus: &[String]) -> String {
    let first = of_gpus[..of_gpus.len().min(MOST_TOLD)].join(between);
    match of_gpus.len().saturating_sub(MOST_TOLD) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// A number for a finding: no larger than canonical JSON holds.
pub(crate) fn number(value: u64) -> i64 {
    const LARGEST: u64 = (1 << 53) - 1;
    value.min(LARGEST) as i64
}

/// `value * of / whole` of any numbers, as a node may claim them; the largest number on overflow.
pub(crate) fn share(value: u64, of: u64, whole: u64) -> u64 {
    let share = u128::from(value) * u128::from(of) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// One GPU, or the node where no single GPU is concerned.
fn gpu_words(gpu: Option<u32>) -> String {
    gpu.map_or_else(|| "The node".to_owned(), |gpu| format!("GPU {gpu}"))
}

#[cfg(test)]
mod tests;
