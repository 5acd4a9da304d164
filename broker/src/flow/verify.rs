//! The broker's side of the conversation with the nodes: authorisation, the next challenge, and the judgement
//! of the answers.
//!
//! The arithmetic and the rules are `verifier`'s. Here live the one-time token of a lease, the steps (the
//! first in `commit`), the real clock between two of them, and the countersigned result. A step that arrives
//! is one transaction guarded by the step it follows.

mod begin;
mod clock;
mod commit;
mod document;
mod gang;
mod history;
mod level;
pub(crate) mod push;
mod recheck;
mod refusal;
mod script;
mod silence;
mod verdict;

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use market::attestation::Attestation;
use market::ids::{AttestationId, VerificationId};
use market::verification::{
    AgentKey, Digest, Fill, MemoryRoots, Openings, ReportReply, ReportSubmission, Roots, Step,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use store::leases::Lease;
use store::verifications::{
    Interruption, NewAttestation, NodeSession, NodeStep, RefusedMessage, Verification,
    VerificationState,
};
use tracing::info;
use verifier::attest::countersign;
use verifier::challenge::{Answered, Judging, Session, StepError};
use verifier::jws::Signer;

use clock::AGAIN_WITHIN;
use clock::StepClock;
use commit::commit;
pub(crate) use document::read_document;
pub use gang::measure_together;
pub(crate) use gang::{Orders, gang_seconds, give_up};
pub use level::TooDeep;
pub(crate) use level::{level_at, level_of, verify_seconds};
pub(crate) use recheck::{Permit, PermitError, permit};
pub use refusal::StepRefusal;
pub(crate) use script::{Enrolment, enrol};
pub(crate) use silence::judge_silent;
pub use verdict::{LeaseVerdict, verdict_of};

use crate::platform::app::Broker;

/// How long after its verification a token still reads the outcome. After that, the tenant reads it
/// elsewhere.
const TOLD_FOR: TimeDelta = TimeDelta::minutes(10);

/// The verification that this token speaks for, while it is open.
///
/// Errors: [`StepRefusal::Token`], and the database's.
pub async fn may_speak(
    broker: &Broker,
    id: VerificationId,
    token: &str,
) -> Result<Verification, StepRefusal> {
    let verification = of_token(broker, id, token).await?;
    match verification.state {
        VerificationState::Open => Ok(verification),
        _ => Err(StepRefusal::Token),
    }
}

/// The verification that this token was made for, also when it is over.
async fn of_token(
    broker: &Broker,
    id: VerificationId,
    token: &str,
) -> Result<Verification, StepRefusal> {
    let all = broker.store().verifications().across_tenants();
    let verification = all.find(id).await?;
    let oldest = broker.now() - TOLD_FOR;
    verification
        .filter(|one| one.closed_at.is_none_or(|closed| closed > oldest))
        .filter(|one| script::is_token_of(token, one))
        .ok_or(StepRefusal::Token)
}

/// The lease of a verification.
///
/// Errors: [`StepRefusal::Token`] where there is none, and the database's.
pub(crate) async fn lease_of(
    broker: &Broker,
    verification: &Verification,
) -> Result<Lease, StepRefusal> {
    let leases = broker.store().leases().across_tenants();
    let lease = leases.find(verification.lease_id).await?;
    lease.ok_or(StepRefusal::Token)
}

/// Refuses a token that was not made for this verification; the token of a finished one may still read the
/// outcome.
///
/// Errors: [`StepRefusal::Token`], and the database's.
pub async fn knows(broker: &Broker, id: VerificationId, token: &str) -> Result<(), StepRefusal> {
    of_token(broker, id, token).await.map(drop)
}

/// Whether the conversation of the node with this key is at this step: the step is due, or it was the last
/// one, and its answer may have been lost. A report of a failure may come before its step. Returns the
/// message of the step that was refused before because too many came at once, on any replica.
///
/// Errors: [`StepRefusal`], where it is not.
pub(crate) async fn is_waited_for(
    broker: &Broker,
    id: VerificationId,
    key: &AgentKey,
    step: Step,
) -> Result<Option<RefusedMessage>, StepRefusal> {
    let row = begin::begun(broker, id, key).await?;
    let awaited = Step::from_number(row.step + 1);
    if awaited == Some(step) {
        return Ok(row.refused);
    }
    if step == Step::Report || row.step == step.number() {
        return Ok(None);
    }
    let out_of_order = |awaited| StepError::OutOfOrder { got: step, awaited };
    Err(awaited.map_or(StepError::Over, out_of_order).into())
}

/// Notes that a message with this digest was not taken because too many came at once. This does not count
/// against its node on any replica.
///
/// Errors: the database's.
pub(crate) async fn was_refused(
    broker: &Broker,
    (id, key): (VerificationId, &AgentKey),
    (step, digest): (Step, Digest),
) -> Result<(), StepRefusal> {
    let message = (step.number(), digest);
    let clock = broker.memory::<StepClock>();
    clock.refused((id, key), message, Instant::now());
    let all = broker.store().verifications().across_tenants();
    let noted = all.note_refusal((id, key.as_str()), message, AGAIN_WITHIN);
    Ok(noted.await?)
}

/// When a message with this digest came, that is taken now: where it was `refused` before, here or elsewhere,
/// since then.
///
/// Errors: the database's.
pub(crate) async fn came_at(
    broker: &Broker,
    whose: (VerificationId, &AgentKey),
    (step, digest): (Step, Digest),
    refused: Option<RefusedMessage>,
) -> Result<Instant, StepRefusal> {
    let clock = broker.memory::<StepClock>();
    let here = clock.first_tried(whose, (step.number(), digest), Instant::now());
    let same = refused.filter(|refused| refused.digest == digest);
    let anywhere = tried_since(broker, same.as_ref()).await?;
    Ok(here.min(anywhere))
}

/// Since when a node tries to send a message that was refused on any replica; now, if none was refused or the
/// node does not keep trying. The database is asked only if a message was refused.
async fn tried_since(
    broker: &Broker,
    refused: Option<&RefusedMessage>,
) -> Result<Instant, StepRefusal> {
    let mut tried = None;
    if let Some(refused) = refused {
        let all = broker.store().verifications().across_tenants();
        tried = all.tried_for(refused, AGAIN_WITHIN).await?;
    }
    // Read after the database's clock, so that a node gains nothing by the question.
    let now = Instant::now();
    Ok(tried
        .and_then(|tried| now.checked_sub(tried))
        .unwrap_or(now))
}

/// Takes one step of the conversation, whose message had `arrived` in full by then, and returns the broker's
/// answer. Time that the message waited here does not count against the node.
///
/// Errors: [`StepRefusal`]; nothing is written then, but that [`StepRefusal::Interrupted`] may have
/// ended the conversations of the node and its siblings and kept a trace of them, and that a node is enrolled
/// by [`StepRefusal::SiblingsNotReady`].
pub async fn step(
    broker: &Broker,
    id: VerificationId,
    token: &str,
    number: u8,
    (body, arrived): (Value, Instant),
) -> Result<Value, StepRefusal> {
    let verification = may_speak(broker, id, token).await?;
    let step = Step::from_number(number).ok_or(StepRefusal::NoSuchStep)?;
    if step == Step::Commit {
        return commit(broker, &verification, parse(number, body)?).await;
    }
    let key = agent_key(&body).ok_or(StepRefusal::UnknownAgent)?;
    let row = begin::begun(broker, id, &key).await?;
    let session: Session =
        serde_json::from_value(row.session.clone()).map_err(StepError::Stored)?;
    let elapsed = time_of(broker, &verification, (&row, &session), arrived).await?;
    let entropy = rand::random();
    match step {
        Step::Commit => Err(StepRefusal::NoSuchStep),
        Step::Roots => {
            let roots: Roots = parse(number, body)?;
            keep(broker, &row, session.on_roots(&roots, entropy, elapsed)?).await
        }
        Step::Fill => {
            let fill: Fill = parse(number, body)?;
            keep(broker, &row, session.on_fill(&fill, entropy, elapsed)?).await
        }
        Step::Memory => {
            let memory: MemoryRoots = parse(number, body)?;
            keep(broker, &row, session.on_memory(&memory, elapsed)?).await
        }
        Step::Openings => {
            let openings: Openings = parse(number, body)?;
            let answered = aside(move || session.on_openings(&openings, entropy, elapsed)).await?;
            keep(broker, &row, answered).await
        }
        Step::Report => {
            let report: ReportSubmission = parse(number, body)?;
            let attestation_id = AttestationId::from_uuid(broker.new_uuid());
            let judging = Judging {
                attestation_id,
                now: broker.now(),
            };
            if session.attestation().is_some() {
                let answered = aside(move || session.on_report(&report, judging, elapsed)).await?;
                return finish(broker, &verification, &row, answered).await;
            }
            // The report completes the node's evidence, and it is judged only once the facts about its GPUs
            // are known. A refused message is refused here, before anything is read for it.
            let (session, shown, report) = aside(move || {
                let shown = session.reported(&report)?;
                Ok((session, shown, report))
            })
            .await?;
            let session = match verification.begins_together() {
                true => beside_its_siblings(broker, &row, session).await?,
                false => session,
            };
            if verification.recheck_node.is_some() {
                let session = recheck::pinned(broker, &verification, session).await?;
                let answered = aside(move || session.on_report(&report, judging, elapsed)).await?;
                return finish(broker, &verification, &row, answered).await;
            }
            let lease = lease_of(broker, &verification).await?;
            let session = session.apart(Orders::read(broker, &lease).await?.apart());
            let known = history::of(broker, &verification, &shown).await?;
            let session = session.remembering(known.history());
            let answered = aside(move || session.on_report(&report, judging, elapsed)).await?;
            let result = answered.session.attestation().cloned();
            let is_new = !answered.replayed;
            let reply = finish(broker, &verification, &row, answered).await?;
            // Once it is kept: of two replicas that judge the same report, one does not keep it.
            if is_new {
                known.tell(result.as_ref());
            }
            Ok(reply)
        }
    }
}

/// Runs the long steps of real orders, such as recomputing answers, beside the threads that serve calls.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StepError> + Send + 'static,
) -> Result<T, StepRefusal> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|_| StepRefusal::Interrupted)??)
}

/// The session, which knows the claims of the lease's other nodes so far.
async fn beside_its_siblings(
    broker: &Broker,
    row: &NodeSession,
    session: Session,
) -> Result<Session, StepRefusal> {
    let all = broker.store().verifications().across_tenants();
    let rows = all.nodes(row.verification_id).await?;
    let others = rows
        .into_iter()
        .filter(|other| other.node_index != row.node_index)
        .map(|other| serde_json::from_value(other.session))
        .collect::<Result<Vec<Session>, _>>()
        .map_err(StepError::Stored)?;
    Ok(session.beside(&others))
}

/// The time from the broker's answer before until a message arrived, by this process's own clock when it
/// gave that answer, else by the database's.
///
/// The database's clock also counts the time of our own restart. A node that is late by it may not have been
/// late: a step that cannot be timed proves nothing, so the node may start again, with all others of its
/// lease. This does not apply once the node knows its challenge: it would draw another challenge whenever the
/// first one does not suit it. Nor does it apply once one of the others has answered step 2 or has its
/// result: the node would start alone. In these cases it is late by either clock.
async fn time_of(
    broker: &Broker,
    verification: &Verification,
    (row, session): (&NodeSession, &Session),
    arrived: Instant,
) -> Result<Duration, StepRefusal> {
    let (id, key) = (row.verification_id, session.agent_key());
    let clock = broker.memory::<StepClock>();
    if let Some(elapsed) = clock.answered_for(id, key, (row.step, arrived)) {
        return Ok(elapsed);
    }
    let all = broker.store().verifications().across_tenants();
    let shared = all.since_answer(id, key.as_str()).await?;
    let shared = shared.map(|elapsed| elapsed.saturating_sub(arrived.elapsed()));
    let shared = shared.map(|elapsed| begin::counted(verification, row.step, elapsed));
    let counts = |elapsed: &Duration| {
        !session.may_begin_anew() || session.deadline().is_none_or(|limit| *elapsed <= limit)
    };
    if let Some(elapsed) = shared.filter(counts) {
        return Ok(elapsed);
    }
    let interrupted = all.interrupt(id, key.as_str(), row.step, broker.now());
    match interrupted.await? {
        Interruption::Ended => Err(StepRefusal::Interrupted),
        // Another replica may have taken the step meanwhile: then the answer to it stands.
        Interruption::HasMoved => Err(StepRefusal::Raced),
        // If the clock was set back, it will be right again later.
        Interruption::Stays => shared.ok_or(StepRefusal::Raced),
    }
}

fn parse<T: DeserializeOwned>(step: u8, body: Value) -> Result<T, StepRefusal> {
    serde_json::from_value(body).map_err(|error| StepRefusal::Body {
        step,
        why: error.to_string(),
    })
}

/// The key under which a message is sent.
pub(crate) fn agent_key(body: &Value) -> Option<AgentKey> {
    body.get("agent_key")?.as_str()?.parse().ok()
}

fn json(reply: &impl Serialize) -> Result<Value, StepRefusal> {
    serde_json::to_value(reply).map_err(|error| StepError::Stored(error).into())
}

fn next_step(
    row: &NodeSession,
    session: &Session,
    attestation: Option<NewAttestation>,
) -> Result<NodeStep, StepRefusal> {
    Ok(NodeStep {
        agent_key: row.agent_key.clone(),
        from: row.step,
        to: row.step + 1,
        session: json(session)?,
        recheck: None,
        sightings: match session.awaited() {
            // The tenant who uses the node can make it show anything.
            _ if session.opening().order.recheck => Vec::new(),
            // Known from step 2 on, so that of two that show one GPU at once each finds the other.
            Some(Step::Fill) | None => history::shown_by(session),
            Some(_) => Vec::new(),
        },
        attestation,
    })
}

/// Keeps the session after a step and gives the reply; a replayed one changes nothing.
async fn keep<R: Serialize>(
    broker: &Broker,
    row: &NodeSession,
    answered: Answered<R>,
) -> Result<Value, StepRefusal> {
    if !answered.replayed {
        let next = next_step(row, &answered.session, None)?;
        let all = broker.store().verifications().across_tenants();
        all.advance(row.verification_id, row.node_index, &next, broker.now())
            .await?;
        let clock = broker.memory::<StepClock>();
        clock.answered(row.verification_id, answered.session.agent_key(), next.to);
    }
    json(&answered.reply)
}

/// Countersigns a result with the broker's key of the day.
async fn signed(broker: &Broker, attestation: &Attestation) -> Result<NewAttestation, StepRefusal> {
    broker.keys().refresh(broker.now()).await;
    let key = broker.keys().attestation();
    let signer = Signer::from_seed(&key.signing().to_bytes());
    Ok(NewAttestation {
        id: attestation.id,
        verdict: attestation.verdict,
        simulated: attestation.simulated,
        jws: countersign(attestation, key.kid(), &signer)?,
    })
}

/// Step 6: countersigns the result and keeps it with the end of the session. The answer tells a node that
/// passed whether it is now measured together with the others.
async fn finish(
    broker: &Broker,
    verification: &Verification,
    row: &NodeSession,
    answered: Answered<ReportReply>,
) -> Result<Value, StepRefusal> {
    let lease = lease_of(broker, verification).await?;
    let is_recheck = verification.recheck_node.is_some();
    let is_together = answered.reply.verdict.is_pass()
        && !is_recheck
        && Orders::read(broker, &lease).await?.are_measured();
    let reply = json(&ReportReply {
        gang: is_together,
        ..answered.reply
    });
    let Some(attestation) = answered.session.attestation() else {
        return reply;
    };
    if answered.replayed {
        return reply;
    }
    let new = signed(broker, attestation).await?;
    let verdict = attestation.verdict;
    let last = NodeStep {
        recheck: is_recheck.then(|| recheck::outcome(attestation, lease.node_base)),
        ..next_step(row, &answered.session, Some(new))?
    };
    let all = broker.store().verifications().across_tenants();
    all.advance(row.verification_id, row.node_index, &last, broker.now())
        .await?;
    broker
        .memory::<StepClock>()
        .forget(row.verification_id, answered.session.agent_key());
    broker.nudge();
    if is_recheck {
        recheck::tell(broker, &lease, attestation);
        return reply;
    }
    info!(
        verification.id = %verification.id, lease.id = %verification.lease_id,
        node = row.node_index, verdict = %verdict,
        "Verified a node: {verdict}"
    );
    reply
}
