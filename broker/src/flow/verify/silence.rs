//! Nodes that began the conversation and stopped responding in it: when their time is over, they are judged
//! by their earlier answers.

use std::time::Duration;

use market::attestation::FindingCode;
use market::ids::AttestationId;
use market::verification::Step;
use store::StoreError;
use store::leases::Lease;
use store::verifications::{CutOff, NodeSession, NodeStep, Verification, VerificationState};
use tracing::info;
use verifier::challenge::{Judging, Session, StepError};

use super::clock::StepClock;
use super::{StepRefusal, beside_its_siblings, history, json, signed, tried_since};
use crate::platform::app::Broker;

/// A node that stopped responding, judged.
struct Silent {
    node: u32,
    step: Step,
    attestation: AttestationId,
    /// The checks it failed before it stopped responding.
    failed: Vec<FindingCode>,
}

/// The outcome of the answers of nodes that stopped responding.
pub(crate) struct Silence {
    /// Whether one of them had failed before.
    pub(crate) has_failed: bool,
    /// Which nodes stopped responding and where, which never called, and which only waited for these, in
    /// words.
    pub(crate) words: String,
}

/// Judges the nodes of a lease that began to prove themselves and did not finish; `None` when there are none,
/// and none that never enrolled. A node that only waited for others is not judged, because it was asked
/// nothing. A node that answers just now continues as if this had not happened.
///
/// Errors: [`StepRefusal`].
pub(crate) async fn judge_silent(
    broker: &Broker,
    lease: &Lease,
) -> Result<Option<Silence>, StepRefusal> {
    let all = broker.store().verifications().across_tenants();
    let newest = all.newest_of(lease.id).await?;
    let Some(verification) = newest.filter(|one| one.state == VerificationState::Open) else {
        return Ok(None);
    };
    let rows = all.nodes(verification.id).await?;
    let mut judged = Vec::new();
    for row in &rows {
        // A node that only waits for the others was asked nothing.
        if row.verdict.is_none() && row.has_begun {
            judged.extend(judge(broker, &verification, row).await?);
        }
    }
    let words = |silent: &Silent| {
        let Silent {
            node,
            step,
            attestation,
            failed,
        } = silent;
        let failed: Vec<&str> = failed.iter().map(|code| code.as_str()).collect();
        let before = match failed.is_empty() {
            true => String::new(),
            false => format!(", after it had failed {}", failed.join(", ")),
        };
        format!(
            "node {node} of the lease stopped responding in step {step}{before} (attestation {attestation})"
        )
    };
    let mut words: Vec<String> = judged.iter().map(words).collect();
    words.extend(absent(
        &rows,
        &all.cut_off(verification.id).await?,
        lease.nodes,
    ));
    Ok((!words.is_empty()).then(|| Silence {
        has_failed: judged.iter().any(|silent| !silent.failed.is_empty()),
        words: words.join("; "),
    }))
}

/// Which nodes of a lease kept the others from beginning, and which only waited for these.
fn absent(rows: &[NodeSession], cut_off: &[CutOff], nodes: u32) -> Vec<String> {
    let is_there = |node: &u32| rows.iter().any(|row| row.node_index == *node);
    let had_enrolled = |node: &u32| cut_off.iter().any(|one| one.node_index == *node);
    let missing = (0..nodes).filter(|node| !is_there(node));
    let (lost, unheard): (Vec<u32>, Vec<u32>) = missing.partition(had_enrolled);
    let waiting = rows.iter().filter(|row| !row.has_begun);
    let waiting: Vec<u32> = waiting.map(|row| row.node_index).collect();
    let said = [
        (unheard, "never called"),
        (lost, "did not begin again after an interruption"),
        (waiting, "only waited for that"),
    ];
    said.into_iter()
        .filter_map(|(nodes, what)| Some(format!("{} {what}", named(&nodes)?)))
        .collect()
}

/// These nodes of a lease in words; `None` when there are none.
fn named(nodes: &[u32]) -> Option<String> {
    let numbers: Vec<String> = nodes.iter().map(u32::to_string).collect();
    match &numbers[..] {
        [] => None,
        [one] => Some(format!("node {one} of the lease")),
        several => Some(format!("nodes {} of the lease", several.join(", "))),
    }
}

async fn judge(
    broker: &Broker,
    verification: &Verification,
    row: &NodeSession,
) -> Result<Option<Silent>, StepRefusal> {
    let session: Session =
        serde_json::from_value(row.session.clone()).map_err(StepError::Stored)?;
    let Some(step) = session.awaited() else {
        return Ok(None);
    };
    // Uses only this process's own clock: any other also counts the time we were down, which counts against
    // no node.
    let clock = broker.memory::<StepClock>();
    let until = tried_since(broker, row.refused.as_ref()).await?;
    let whose = (row.verification_id, session.agent_key());
    let since = clock.silent_since_answer(whose, (row.step, until));
    let session = beside_its_siblings(broker, row, session).await?;
    let known = history::of(broker, verification, &session).await?;
    let judging = Judging {
        attestation_id: AttestationId::from_uuid(broker.new_uuid()),
        now: broker.now(),
    };
    let over = session
        .remembering(known.history())
        .fell_silent(since.unwrap_or(Duration::ZERO), judging);
    let Some(result) = over.attestation() else {
        return Ok(None);
    };
    let last = NodeStep {
        agent_key: row.agent_key.clone(),
        from: row.step,
        to: row.step,
        session: json(&over)?,
        recheck: None,
        sightings: history::shown_by(&over),
        attestation: Some(signed(broker, result).await?),
    };
    let all = broker.store().verifications().across_tenants();
    let now = broker.now();
    match all
        .advance(row.verification_id, row.node_index, &last, now)
        .await
    {
        Ok(()) => {}
        // It answered meanwhile.
        Err(StoreError::Stale) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    clock.forget(row.verification_id, over.agent_key());
    known.tell(Some(result));
    info!(
        verification.id = %verification.id, lease.id = %verification.lease_id,
        node = row.node_index, verdict = %result.verdict,
        "A node stopped responding in step {step}: {}", result.verdict
    );
    let failed = result
        .findings
        .iter()
        .filter(|found| found.counts_against() && found.code != FindingCode::StepTimedOut);
    Ok(Some(Silent {
        node: row.node_index,
        step,
        attestation: result.id,
        failed: failed.map(|found| found.code).collect(),
    }))
}
