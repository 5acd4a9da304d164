//! The nodes of one lease begin at one time: each enrols, and none gets its order before all have.
//!
//! From then on step 2 is timed for each of them, even before it fetches its answer. A machine that poses as
//! several nodes must therefore do the work of all in the time of one. The store keeps the last two from
//! waiting for each other: the last one to enrol starts them all.

use std::time::Duration;

use market::ids::VerificationId;
use market::verification::{AgentKey, Step};
use store::verifications::{Enrolment, NodeSession, Verification};

use super::StepRefusal;
use super::clock::StepClock;
use crate::platform::app::Broker;

/// How long a node that has waited for the others may take to hear that all are there: twice its longest
/// pause before it asks again. Every node gets this time, because nobody knows when it could have asked.
const ASKS_AGAIN_WITHIN: Duration = Duration::from_secs(3);

/// Notes that all nodes begin by this enrolment, where they do: the one that enrolled is answered at once, and
/// the others have to ask again.
pub(super) fn note(broker: &Broker, enrolled: &Enrolment) {
    let (clock, id) = (broker.memory::<StepClock>(), enrolled.node.verification_id);
    for begun in &enrolled.begun {
        // A key that was kept is valid.
        let Ok(key) = begun.parse() else { continue };
        match *begun == enrolled.node.agent_key {
            true => clock.answered(id, &key, Step::Commit.number()),
            false => clock.may_ask(id, &key, ASKS_AGAIN_WITHIN),
        }
    }
}

/// How much of the time since a node was answered counts, by the database's clock. It does not record who
/// enrolled last, so every node gets the time that waiting may cost.
pub(super) fn counted(verification: &Verification, step: u8, elapsed: Duration) -> Duration {
    let has_waited = verification.begins_together() && step == Step::Commit.number();
    match has_waited {
        true => elapsed.saturating_sub(ASKS_AGAIN_WITHIN),
        false => elapsed,
    }
}

/// The conversation of the node that speaks under this key, once it has begun.
///
/// Errors: [`StepRefusal::SiblingsNotReady`]; [`StepRefusal::Interrupted`] where it was cut off, by itself
/// or with the other nodes of its lease; [`StepRefusal::UnknownAgent`]; and the database's.
pub(super) async fn begun(
    broker: &Broker,
    id: VerificationId,
    key: &AgentKey,
) -> Result<NodeSession, StepRefusal> {
    let all = broker.store().verifications().across_tenants();
    match all.node_by_key(id, key.as_str()).await? {
        Some(row) if row.has_begun => Ok(row),
        Some(_) => Err(StepRefusal::SiblingsNotReady),
        None => {
            unless_cut_off(broker, id, key).await?;
            Err(StepRefusal::UnknownAgent)
        }
    }
}

/// Sends a node back to step 1 whose conversation under this key was cut off.
///
/// Errors: [`StepRefusal::Interrupted`], and the database's.
pub(super) async fn unless_cut_off(
    broker: &Broker,
    id: VerificationId,
    key: &AgentKey,
) -> Result<(), StepRefusal> {
    let all = broker.store().verifications().across_tenants();
    match all.was_cut_off(id, key.as_str()).await? {
        true => Err(StepRefusal::Interrupted),
        false => Ok(()),
    }
}
