//! The broker's side of the conversation with the nodes: who may speak, what is asked next, and
//! what the answers prove.
//!
//! The arithmetic and the rules are `verifier`'s. Here live the one-time token of a lease, the
//! binding of a session to a node of that lease, the real clock between two steps, and the
//! countersigned result. A step that arrives is one transaction guarded by the step it follows.

mod clock;
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
use market::lease::LeaseState;
use market::verification::{
    AgentKey, Commit, ExpectedNode, Fill, Level, MemoryRoots, Openings, ReportReply,
    ReportSubmission, Roots, Step,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use store::leases::Lease;
use store::settings::DatabaseMode;
use store::verifications::{
    NewAttestation, NewNodeSession, NodeSession, NodeStep, Verification, VerificationState,
};
use store::{Conflict, StoreError};
use tracing::info;
use verifier::attest::countersign;
use verifier::challenge::{Answered, Judging, Opening, Session, StepError};
use verifier::jws::Signer;
use verifier::order::{Mode, expected_node, is_drivable, order_for};

pub(crate) use clock::{GangClock, StepClock};
pub(crate) use gang::gang_seconds;
pub use gang::measure_together;
pub(crate) use level::{level_of, verify_seconds};
pub(crate) use recheck::{Permit, PermitError, permit};
pub use refusal::StepRefusal;
pub(crate) use script::{Enrolment, enrol};
pub(crate) use silence::judge_silent;
pub use verdict::{LeaseVerdict, verdict_of};

use crate::app::Broker;

/// How long after its verification a token still tells how that ended: it lies where the tenant reads it
/// later on.
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

/// Refuses a token that was not made for this verification; one that is over may still tell how it
/// ended.
///
/// Errors: [`StepRefusal::Token`], and the database's.
pub async fn knows(broker: &Broker, id: VerificationId, token: &str) -> Result<(), StepRefusal> {
    of_token(broker, id, token).await.map(drop)
}

/// Refuses a key under which no node of the verification speaks.
///
/// Errors: [`StepRefusal::UnknownAgent`], and the database's.
pub(crate) async fn is_enrolled(
    broker: &Broker,
    id: VerificationId,
    key: &AgentKey,
) -> Result<(), StepRefusal> {
    let all = broker.store().verifications().across_tenants();
    let row = all.node_by_key(id, key.as_str()).await?;
    row.map(drop).ok_or(StepRefusal::UnknownAgent)
}

/// Notes that a message came and was not taken because many came at once, which is not held against its
/// node.
pub(crate) fn was_refused(broker: &Broker, id: VerificationId, key: &AgentKey, step: Step) {
    let clock = broker.step_clock();
    clock.refused((id, key), step.number(), Instant::now());
}

/// When a message came that is taken now: where it was refused before, since then.
pub(crate) fn came_at(broker: &Broker, id: VerificationId, key: &AgentKey, step: Step) -> Instant {
    let clock = broker.step_clock();
    clock.first_tried((id, key), step.number(), Instant::now())
}

/// Takes one step of the conversation, whose message `arrived` whole then, and gives the broker's
/// answer to it. What the message waited for here is not held against the node.
///
/// Errors: [`StepRefusal`]; nothing is written then, but that [`StepRefusal::Interrupted`] may have
/// ended the node's conversation and kept a trace of it.
pub async fn step(
    broker: &Broker,
    id: VerificationId,
    token: &str,
    number: u8,
    (body, arrived): (Value, Instant),
) -> Result<Value, StepRefusal> {
    let all = broker.store().verifications().across_tenants();
    let verification = may_speak(broker, id, token).await?;
    let step = Step::from_number(number).ok_or(StepRefusal::NoSuchStep)?;
    if step == Step::Commit {
        return commit(broker, &verification, parse(number, body)?).await;
    }
    let key = agent_key(&body).ok_or(StepRefusal::UnknownAgent)?;
    let row = all
        .node_by_key(id, key.as_str())
        .await?
        .ok_or(StepRefusal::UnknownAgent)?;
    let session: Session =
        serde_json::from_value(row.session.clone()).map_err(StepError::Stored)?;
    let elapsed = time_of(broker, &row, &session, &key, arrived).await?;
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
            let session = beside_its_siblings(broker, &row, session).await?;
            if verification.recheck_node.is_some() {
                let session = recheck::pinned(broker, &verification, session).await?;
                let answered = aside(move || session.on_report(&report, judging, elapsed)).await?;
                return finish(broker, &verification, &row, answered).await;
            }
            let lease = lease_of(broker, &verification).await?;
            let session = session.apart(gang::apart(broker, &lease).await?);
            // What it shows is whole only with the report, and judged only once what is known of that is.
            let (session, shown, report) = aside(move || {
                let shown = match session.attestation() {
                    None => session.reported(&report)?,
                    Some(_) => session.clone(),
                };
                Ok((session, shown, report))
            })
            .await?;
            let known = history::of(broker, &verification, &shown).await?;
            let session = session.remembering(known.history());
            let answered = aside(move || session.on_report(&report, judging, elapsed)).await?;
            if !answered.replayed {
                known.tell(answered.session.attestation());
            }
            finish(broker, &verification, &row, answered).await
        }
    }
}

/// What takes a while with real orders, such as recomputing answers, beside the threads that serve calls.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StepError> + Send + 'static,
) -> Result<T, StepRefusal> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|_| StepRefusal::Interrupted)??)
}

/// The session, which knows what the other nodes of the lease have claimed so far.
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
/// The latter counts in what a restart of ours took. A node that is late by it was perhaps not: what
/// cannot be timed proves nothing, and the node may prove itself from the beginning. Not so once it was
/// told what it must open: it would draw another choice whenever the first one does not suit it, so by
/// whatever clock there is it is late.
async fn time_of(
    broker: &Broker,
    row: &NodeSession,
    session: &Session,
    key: &AgentKey,
    arrived: Instant,
) -> Result<Duration, StepRefusal> {
    let id = row.verification_id;
    let until_it_came = |elapsed: Duration| elapsed.saturating_sub(arrived.elapsed());
    if let Some(elapsed) = broker.step_clock().since_answer(id, key, row.step) {
        return Ok(until_it_came(elapsed));
    }
    let all = broker.store().verifications().across_tenants();
    let shared = all.since_answer(id, key.as_str()).await?.map(until_it_came);
    let counts = |elapsed: &Duration| {
        !session.may_begin_anew() || session.deadline().is_none_or(|limit| *elapsed <= limit)
    };
    if let Some(elapsed) = shared.filter(counts) {
        return Ok(elapsed);
    }
    // Another replica may have taken the step meanwhile: then the answer to it stands.
    match all
        .interrupt(id, key.as_str(), row.step, broker.now())
        .await?
    {
        true => Err(StepRefusal::Interrupted),
        false => Err(StepRefusal::Raced),
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

/// Step 1: binds the agent's key to a node of the lease; of several, to that at the address that it
/// claims.
async fn commit(
    broker: &Broker,
    verification: &Verification,
    commit: Commit,
) -> Result<Value, StepRefusal> {
    let store = broker.store();
    let all = store.verifications().across_tenants();
    if let Some(row) = all
        .node_by_key(verification.id, commit.agent_key.as_str())
        .await?
    {
        let session: Session =
            serde_json::from_value(row.session.clone()).map_err(StepError::Stored)?;
        return json(&session.on_commit_again(&commit)?.reply);
    }
    let lease = store
        .leases()
        .across_tenants()
        .find(verification.lease_id)
        .await?;
    let lease = lease
        .filter(|lease| lease.state.is_live())
        .ok_or(StepRefusal::Token)?;
    let opening = match verification.recheck_node {
        // Its script says by which address we know the node, so that another one is told from it.
        Some(node) => {
            let said = node_at(&lease, &commit.host);
            recheck::opening(broker, verification, &lease, (node, said))?
        }
        None => match lease.state {
            LeaseState::Verifying => {
                let node_index = node_of(&lease, &commit.host)?;
                let at = (node_index, level_at(broker, &lease).await?);
                opening_of(broker, verification.id, &lease, at)?
            }
            LeaseState::Requested | LeaseState::Booting => return Err(StepRefusal::NotReady),
            _ => return Err(StepRefusal::Token),
        },
    };
    let node_index = opening.order.node_index;
    let mut answered = Session::open(opening, commit.clone(), rand::random())?;
    if let ([node], 1) = (&lease.provider_nodes[..], lease.nodes) {
        answered.session = answered.session.known_at(&node.host);
    }
    let enrolled = all
        .enrol(
            verification.id,
            &NewNodeSession {
                node_index,
                host: commit.host.clone(),
                agent_key: commit.agent_key.to_string(),
                step: Step::Commit.number(),
                session: json(&answered.session)?,
            },
            broker.now(),
        )
        .await;
    match enrolled {
        Err(StoreError::Conflict(Conflict::Exists { .. })) => {
            Err(StepRefusal::UnknownHost(commit.host))
        }
        Err(error) => Err(error.into()),
        Ok(_) => {
            let clock = broker.step_clock();
            clock.answered(verification.id, &commit.agent_key, Step::Commit.number());
            json(&answered.reply)
        }
    }
}

/// How deeply the nodes of a lease prove themselves.
async fn level_at(broker: &Broker, lease: &Lease) -> Result<Level, StepRefusal> {
    let reservations = broker.store().reservations().across_tenants();
    let reservation = reservations.find(lease.reservation_id).await?;
    Ok(reservation.ok_or(StepRefusal::Token)?.verification)
}

/// What a node of the lease is asked to do.
fn opening_of(
    broker: &Broker,
    verification_id: VerificationId,
    lease: &Lease,
    (node_index, level): (u32, Level),
) -> Result<Opening, StepRefusal> {
    let mode = mode_of(broker);
    Ok(Opening {
        verification_id,
        lease_id: lease.id,
        mode,
        order: order_for(expected(broker, lease)?, node_index, level, mode),
    })
}

/// The number of the lease's node at this address.
///
/// A lease of one node has no other that could speak with its token: that proves who speaks, and an
/// address proves nothing. A container behind the address of its host does not even know that.
fn node_of(lease: &Lease, host: &str) -> Result<u32, StepRefusal> {
    match lease.nodes {
        1 => Ok(0),
        _ => node_at(lease, host),
    }
}

/// The number of the lease's node that has this address.
fn node_at(lease: &Lease, host: &str) -> Result<u32, StepRefusal> {
    lease
        .provider_nodes
        .iter()
        .position(|node| node.host == host || node.private_address.as_deref() == Some(host))
        .and_then(|index| u32::try_from(index).ok())
        .ok_or_else(|| StepRefusal::UnknownHost(host.to_owned()))
}

fn mode_of(broker: &Broker) -> Mode {
    match broker.mode() {
        DatabaseMode::Simulation => Mode::Simulation,
        DatabaseMode::Production => Mode::Real,
    }
}

/// What a node of the lease should be.
fn expected(broker: &Broker, lease: &Lease) -> Result<ExpectedNode, StepRefusal> {
    let offer = &lease.offer;
    let on_record = broker.config().facts_of(&offer.provider);
    let gpu = offer
        .gpu
        .known()
        .ok_or(StepRefusal::Unverifiable("the GPU's form is unknown"))?;
    if mode_of(broker) == Mode::Real && !is_drivable(gpu) {
        return Err(StepRefusal::Unverifiable("no agent drives its GPU"));
    }
    let gpus = offer
        .gpus
        .as_whole()
        .ok_or(StepRefusal::Unverifiable("it is a slice of a GPU"))?;
    Ok(ExpectedNode {
        vcpus: offer.vcpus,
        memory_gib: offer.memory_gib,
        internode: Some(offer.internode),
        storage: on_record.storage_of(&offer.sku),
        ..expected_node(gpu, gpus)
    })
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
            // Whoever has the node in use may let it show what it likes.
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
        let clock = broker.step_clock();
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

/// Step 6: countersigns the result and keeps it with the end of the session. A node that passed is
/// told whether it is now measured together with the others.
async fn finish(
    broker: &Broker,
    verification: &Verification,
    row: &NodeSession,
    answered: Answered<ReportReply>,
) -> Result<Value, StepRefusal> {
    let lease = lease_of(broker, verification).await?;
    let is_recheck = verification.recheck_node.is_some();
    let reply = json(&ReportReply {
        gang: answered.reply.verdict.is_pass() && !is_recheck && gang::measures(&lease),
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
        .step_clock()
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
