//! The accept rules: from evidence to findings, from findings to a verdict.
//!
//! Each rule is one function of what was leased, what is known of the node and the floors. A rule
//! answers for itself; how much its answer counts at a level is in `data/rules.csv` ([`levels`]). A
//! check that the level demands and that was not done makes the verdict inconclusive, never a pass.

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
            // What cannot be believed is worse than what was not done: the rule says which it is.
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
        let note = "The device was pretended: nothing here is about real hardware.";
        findings.push(finding(FindingCode::DeviceSimulated, Outcome::Noted, note));
    }
    findings
}

/// What findings amount to: one failure fails, one demanded check not done leaves it open. What is
/// only tried out decides nothing.
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
    // What was not done, or is not believed, shows nothing that a remedy would help against.
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
        false => finding(code, Outcome::Failed, format!("{}.", told(&wrong))),
    }
}

/// Of a node that claims many GPUs so many are named.
const MOST_TOLD: usize = 8;

/// What is to be said of several GPUs, the first ones of many.
fn told(of_gpus: &[String]) -> String {
    told_by("; ", of_gpus)
}

/// As [`told()`], with something else between them.
fn told_by(between: &str, of_gpus: &[String]) -> String {
    let first = of_gpus[..of_gpus.len().min(MOST_TOLD)].join(between);
    match of_gpus.len().saturating_sub(MOST_TOLD) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// A number as findings carry it: no larger than canonical JSON holds.
pub(crate) fn number(value: u64) -> i64 {
    const LARGEST: u64 = (1 << 53) - 1;
    value.min(LARGEST) as i64
}

/// `value * of / whole` of any numbers, as a node may claim them; the largest where it is larger.
pub(crate) fn share(value: u64, of: u64, whole: u64) -> u64 {
    let share = u128::from(value) * u128::from(of) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// One GPU, or the node where it is no single one's.
fn gpu_words(gpu: Option<u32>) -> String {
    gpu.map_or_else(|| "The node".to_owned(), |gpu| format!("GPU {gpu}"))
}

#[cfg(test)]
mod tests;
