//! The accept rules: from evidence to findings, from findings to a verdict.
//!
//! Each rule is one function of what was leased, what is known of the node and the floors. A rule
//! answers for itself; how much its answer counts at a level is in `data/rules.csv` ([`levels`]). A
//! check that the level demands and that was not done makes the verdict inconclusive, never a pass.

mod burn;
mod diagnostic;
mod health;
mod history;
mod host;
mod inventory;
pub mod levels;
mod links;
mod memory;
mod products;
mod rates;
mod recheck;
mod seen;
mod storage;
mod troubles;
mod unique;

use market::attestation::{Finding, FindingCode, Outcome, Unit, Verdict, Weight};
use market::verification::{Step, Trouble, TroubleKind, VerificationOrder};

use crate::evidence::Evidence;
use crate::floors::Floors;
pub(crate) use history::condemned;
pub use inventory::named_gpu;
use seen::Seen;
pub(crate) use seen::plain;

/// A rule.
type Rule = fn(&Seen<'_>) -> Finding;

/// Every rule on the node, in the order of the codes.
const RULES: &[Rule] = &[
    inventory::gpu_count,
    inventory::gpu_identity,
    unique::shown_once,
    recheck::as_handed_over,
    history::known_before,
    inventory::sources,
    inventory::recount,
    inventory::software,
    inventory::mig,
    inventory::ecc_mode,
    inventory::residue,
    inventory::host_shape,
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
    |seen| steps_in_time(seen.evidence),
    |seen| report_signature(seen.evidence),
    |seen| report_content(seen.evidence),
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
    let counts = |finding: &&Finding| finding.weight != Weight::Shadow;
    let any = |outcome| {
        findings
            .iter()
            .filter(counts)
            .any(|found| found.outcome == outcome)
    };
    let undone = |found: &Finding| found.weight == Weight::Must && found.outcome == Outcome::NotRun;
    if any(Outcome::Failed) {
        Verdict::Fail
    } else if findings.iter().any(undone) || !any(Outcome::Met) {
        Verdict::Inconclusive
    } else if any(Outcome::Warned) {
        Verdict::PassWithWarnings
    } else {
        Verdict::Pass
    }
}

/// What is not proved of the network between nodes.
fn between_nodes(findings: &[Finding]) -> &'static str {
    let found = |code| findings.iter().find(|finding| finding.code == code);
    let is_done = |finding: &&Finding| finding.outcome != Outcome::NotRun;
    let fabric = found(FindingCode::NetworkFabric);
    let by_nccl = found(FindingCode::NetworkCollective).is_some_and(|sum| sum.measured.is_some());
    match (found(FindingCode::NetworkPairs).filter(is_done), fabric) {
        (None, _) => "Anything about the network between nodes under load (net.fabric).",
        (Some(_), Some(fabric)) if is_done(&fabric) && by_nccl => {
            "That the fabric between nodes carries what was sold (net.fabric): pairs were measured over TCP, one \
             rail after the other, over adapters that the nodes name, and by which way NCCL summed \
             (net.collective), with remote direct memory access or without, is its own choice and not shown."
        }
        (Some(_), Some(fabric)) if is_done(&fabric) => {
            "That the fabric between nodes carries what was sold (net.fabric): it was measured over TCP, \
             one rail after the other, over adapters that the nodes name."
        }
        (Some(_), Some(_)) if by_nccl => {
            "That what was measured is the fabric between nodes that was sold (net.fabric): between some of them \
             only the hosts' usual network was measured over TCP, and by which way NCCL summed \
             (net.collective) is its own choice and not shown."
        }
        (Some(_), Some(_)) => {
            "Anything about the fabric between nodes that was sold (net.fabric): only the hosts' usual network was \
             measured between some of them, over TCP."
        }
        (Some(_), None) if by_nccl => {
            "That the network between nodes carries what was sold (net.fabric): pairs were measured over TCP \
             alone, and by which way NCCL summed (net.collective) is its own choice and not shown."
        }
        (Some(_), None) => {
            "That the network between nodes carries what was sold (net.fabric): it was measured over TCP \
             alone."
        }
    }
}

pub(crate) fn finding(code: FindingCode, outcome: Outcome, note: impl Into<String>) -> Finding {
    let bad = matches!(outcome, Outcome::Failed | Outcome::NotRun | Outcome::Warned);
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
        false => finding(code, Outcome::Failed, format!("{}.", wrong.join("; "))),
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

fn steps_in_time(evidence: &Evidence) -> Finding {
    let code = FindingCode::StepTimedOut;
    let samples = evidence
        .times
        .iter()
        .map(|time| number(time.elapsed_ms))
        .collect();
    let late = evidence.times.iter().find(|time| time.is_late());
    let hung = signed_troubles(evidence).find(|trouble| trouble.kind == TroubleKind::TimedOut);
    let answered = |step: &Step| evidence.times.iter().any(|time| time.step == *step);
    let silent = Step::ALL[1..].iter().find(|step| !answered(step));
    let with_times = |base: Finding| Finding {
        unit: Some(Unit::Ms),
        samples,
        ..base
    };
    if let Some(time) = late {
        let note = format!("Step {} was not answered by its deadline.", time.step);
        return Finding {
            measured: Some(number(time.elapsed_ms)),
            floor: Some(number(time.deadline_ms)),
            ..with_times(finding(code, Outcome::Failed, note))
        };
    }
    if let Some(trouble) = hung {
        let note = format!(
            "{} did not end its work of step {} in time.",
            gpu_words(trouble.gpu),
            trouble.step
        );
        return with_times(finding(code, Outcome::Failed, note));
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

/// What the agent says that kept it from going on, where the report is its own.
fn signed_troubles(evidence: &Evidence) -> impl Iterator<Item = &Trouble> {
    let report = evidence.report.as_ref().filter(|report| report.is_signed());
    report.into_iter().flat_map(|report| &report.troubles)
}

/// One GPU, or the node where it is no single one's.
fn gpu_words(gpu: Option<u32>) -> String {
    gpu.map_or_else(|| "The node".to_owned(), |gpu| format!("GPU {gpu}"))
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

/// What a reader must not conclude from an attestation with these findings.
#[must_use]
pub fn not_proved(order: &VerificationOrder, findings: &[Finding], simulated: bool) -> Vec<String> {
    let filled_mib = order.memory.pattern_bytes >> 20;
    let mut limits = Vec::new();
    if simulated {
        limits.push("Anything about real hardware: the device was pretended.".to_owned());
    }
    limits.push(format!(
        "That all memory is sound: at most {filled_mib} of {} MiB of each GPU were filled and checked.",
        order.expected.memory_mib
    ));
    limits.extend(
        [
            "That memory of this size exists: its contents follow from the nonce and can be computed \
             again without having been kept, or lie in the host's memory or another GPU's and be read \
             from there in time.",
            "That a GPU did the work: the agent reports the results, and whatever computes them gives \
             the same.",
            "That names, ids, counts, error counters and temperatures are true: they are claims of \
             the node's driver.",
            "That memory, links and products are as fast as shown: the node timed them by its own \
             clock.",
            "That the answers were computed on this node: relaying them elsewhere is not detected.",
            "That every row of the product was computed: of a host that lies only the opened rows bind it.",
            between_nodes(findings),
        ]
        .map(str::to_owned),
    );
    if order.recheck {
        let limit = "That what failed is its seller's doing: whoever uses the node has it in hand.";
        limits.push(limit.to_owned());
    }
    let undone = findings
        .iter()
        .filter(|found| found.outcome == Outcome::NotRun);
    let undone: Vec<&str> = undone.map(|found| found.code.as_str()).collect();
    if !undone.is_empty() {
        let codes = undone.join(", ");
        limits.push(format!(
            "Anything that these checks look for, which were not done: {codes}."
        ));
    }
    limits.push("Anything about the node after the time of this attestation.".to_owned());
    limits
}

#[cfg(test)]
mod tests;
