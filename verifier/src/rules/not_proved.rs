//! The limits of an attestation's proof, in words for its reader.

use market::attestation::{Finding, FindingCode, Outcome};
use market::verification::VerificationOrder;

/// Conclusions that a reader must not draw from an attestation with these findings.
#[must_use]
pub fn not_proved(order: &VerificationOrder, findings: &[Finding], simulated: bool) -> Vec<String> {
    let mut limits = Vec::new();
    if simulated {
        limits.push("Anything about real hardware: the device was simulated.".to_owned());
    }
    limits.push(of_memory(order, findings));
    limits.extend(
        [
            "That memory of this size exists: its contents follow from what was drawn before and can be \
             computed again without having been kept, or lie in the host's memory or another GPU's and \
             be read from there in time.",
            "That a GPU did the work: the agent reports the results, and any other computation \
             gives the same ones.",
            "That names, ids, counts, error counters and temperatures are true: they are claims of \
             the node's driver.",
            "That memory, links and products are as fast as shown: the node timed them by its own \
             clock.",
            "That the answers were computed on this node: relaying them elsewhere is not detected.",
            "That every row of the products was computed: of a host that lies only the opened rows bind it.",
            "That it is no other node of its rental too: memory may be filled and proved for one after the \
             other.",
            between_nodes(findings),
        ]
        .map(str::to_owned),
    );
    if order.expected.gpus > 1 {
        let limit = "That each GPU is one of its own: the time limit of its products is not short enough yet to \
                     expose one that poses as two to four.";
        limits.push(limit.to_owned());
    }
    if order.recheck {
        let limit = "That a failure is the seller's doing: the node's tenant controls it.";
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

/// The limits of the proof on memory.
fn of_memory(order: &VerificationOrder, findings: &[Finding]) -> String {
    let mut patterns = findings
        .iter()
        .filter(|found| found.code == FindingCode::MemoryPattern);
    if patterns.all(|found| found.outcome == Outcome::NotRun) {
        return "That any memory is sound: what it holds was not checked.".to_owned();
    }
    format!(
        "That all memory is sound: at most {} of {} MiB of each GPU were filled and checked.",
        order.memory.pattern_bytes >> 20,
        order.expected.memory_mib
    )
}

/// The limits of the proof on the network between nodes.
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
