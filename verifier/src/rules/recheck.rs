//! The weights of a re-check of a node in use, and the rule that its GPUs are those that were handed over.
//!
//! The node's tenant is working on it. So nothing is judged that this work changes: free memory, rates,
//! processes on the GPUs, and their set-up. Results that the tenant can cause without any hardware, such as a
//! late answer, leave the verdict inconclusive. The weights are in `data/rules.csv` ([`levels`]).

use market::attestation::{Finding, FindingCode, Outcome, Weight};

use super::seen::Seen;
use super::unique::is_same;
use super::{finding, levels, not_run};
use crate::plain::plain;

/// A finding of a re-check; none where the check is not part of it.
pub(super) fn weighed(found: Finding) -> Option<Finding> {
    use FindingCode as C;
    let weight = match levels::demand_of_recheck(found.code).weight()? {
        Weight::May => found.weight,
        demanded => demanded,
    };
    let may_be_its_user = matches!(
        found.code,
        C::AgentTrouble | C::StepTimedOut | C::AgentSignature | C::AgentReport
    );
    let outcome = match found.outcome {
        Outcome::Failed if may_be_its_user => Outcome::NotRun,
        outcome => outcome,
    };
    Some(Finding {
        weight,
        outcome,
        remedy: found.remedy.filter(|_| outcome == found.outcome),
        ..found
    })
}

pub(super) fn as_handed_over(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::InventoryPinned;
    let Some((pinned, inventory)) = (seen.evidence.pinned.as_ref())
        .filter(|pinned| !pinned.is_empty())
        .zip(seen.evidence.inventory.as_ref())
    else {
        return not_run(code);
    };
    let shown: Vec<&str> = inventory.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
    let foreign = shown
        .iter()
        .filter(|uuid| !pinned.iter().any(|known| is_same(known, uuid)));
    let foreign = foreign.map(|uuid| format!("{} was not handed over", plain(uuid.trim())));
    let gone = pinned
        .iter()
        .filter(|known| !shown.iter().any(|uuid| is_same(known, uuid)));
    let gone = gone.map(|known| format!("{} was, and is not shown", plain(known.trim())));
    let differs: Vec<String> = foreign.chain(gone).collect();
    match differs.is_empty() {
        true => finding(
            code,
            Outcome::Met,
            "The node shows the GPUs that were handed over with it.",
        ),
        false => finding(code, Outcome::Failed, format!("{}.", differs.join("; "))),
    }
}
