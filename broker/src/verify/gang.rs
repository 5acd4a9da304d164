//! The nodes of a lease together: each that passed alone calls, on whichever replica, until all of
//! them have been measured and judged.
//!
//! What is measured and how it is judged is `verifier::gang`'s. Here live the row that all replicas
//! share, the real clock of each stage, and the signed results at the end.

use std::time::Duration;

use market::attestation::Verdict;
use market::fabric::Internode;
use market::ids::{AttestationId, VerificationId};
use market::verification::{AgentKey, GangAnswer, GangCall, Level};
use serde::{Deserialize, Serialize};
use store::leases::Lease;
use store::verifications::{
    GangCheck, GangStep, NewAttestation, NodeSession, Verification, VerificationState,
};
use tracing::info;
use verifier::attest::attest_together;
use verifier::challenge::{Judging, Session, StepError, judge_silence};
use verifier::gang::{Apart, Gang, MOST_NODES, Member, absence};

use super::commit::{mode_of, opening_of};
use super::{StepRefusal, json, of_token, signed, verify_seconds};
use crate::app::Broker;

/// How often a call is taken up again when other nodes were faster.
const TRIES: usize = 32;
/// How long a node that waits for others to come does so before it calls again.
const PAUSE: Duration = Duration::from_millis(250);
/// What a lease gets to be verified for each node that its nodes meet. Units: seconds.
const SECONDS_A_ROUND: u32 = 15;

/// What is kept between two calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Together {
    /// Some nodes have not passed alone yet.
    Gathering,
    /// All have.
    Measuring(Gang),
}

impl Together {
    /// The number of the stage; each has its own limit.
    fn stage(&self) -> u32 {
        match self {
            Self::Gathering => 0,
            Self::Measuring(gang) => 1 + gang.stage(),
        }
    }
}

/// Whether the nodes of a lease are measured together: they were sold as joined, and what all of
/// them show is of a size that one row holds.
pub(super) fn measures(lease: &Lease) -> bool {
    let nodes = usize::try_from(lease.nodes).unwrap_or(usize::MAX);
    (2..=MOST_NODES).contains(&nodes) && lease.offer.internode != Internode::None
}

/// Why a node of a lease is not measured with all nodes that it was sold with; `None` where it is, or
/// was sold alone.
///
/// Errors: the database's.
pub(super) async fn apart(broker: &Broker, lease: &Lease) -> Result<Option<Apart>, StepRefusal> {
    let nodes = usize::try_from(lease.nodes).unwrap_or(usize::MAX);
    if nodes > MOST_NODES && lease.offer.internode != Internode::None {
        return Ok(Some(Apart::TooMany));
    }
    let reservations = broker.store().reservations().across_tenants();
    let reservation = reservations.find(lease.reservation_id).await?;
    if !reservation.is_some_and(|reservation| reservation.gang) {
        return Ok(None);
    }
    let leases = broker.store().leases().across_tenants();
    let all = leases.of_reservation(lease.reservation_id).await?;
    let others = |other: &Lease| other.id != lease.id && other.state.is_live();
    Ok(all.iter().any(others).then_some(Apart::OtherOrders))
}

/// How much longer the verification of a lease may take because its nodes are measured together.
pub(crate) fn gang_seconds(lease: &Lease) -> u32 {
    match measures(lease) {
        true => lease.nodes.saturating_mul(SECONDS_A_ROUND),
        false => 0,
    }
}

/// Takes the call of a node that passed alone, and says what it does next.
///
/// Errors: [`StepRefusal`]; nothing is written then.
pub async fn measure_together(
    broker: &Broker,
    id: VerificationId,
    token: &str,
    call: &GangCall,
) -> Result<GangAnswer, StepRefusal> {
    for _ in 0..TRIES {
        match take(broker, id, token, call).await {
            Err(StepRefusal::Raced) => {}
            taken => return taken,
        }
    }
    Err(StepRefusal::Crowded)
}

const fn wait() -> GangAnswer {
    GangAnswer::Wait {
        after_ms: PAUSE.as_millis() as u64,
    }
}

async fn take(
    broker: &Broker,
    id: VerificationId,
    token: &str,
    call: &GangCall,
) -> Result<GangAnswer, StepRefusal> {
    let verification = of_token(broker, id, token).await?;
    let all = broker.store().verifications().across_tenants();
    // Before all of them are read: these calls are not counted.
    if all
        .node_by_key(id, call.agent_key.as_str())
        .await?
        .is_none()
    {
        return Err(StepRefusal::UnknownAgent);
    }
    let sessions = all.nodes(id).await?;
    let alone = verdict_alone(&sessions, &call.agent_key)?;
    let check = all.gang_check(id).await?;
    // The verification may be closed by the time that the last node asks how it ended.
    if let Some(verdict) = check.as_ref().and_then(|check| check.verdict) {
        return Ok(GangAnswer::Over { verdict });
    }
    // One that fell alone takes the whole lease with it.
    if let Some(verdict) = alone {
        return Ok(GangAnswer::Over { verdict });
    }
    if verification.state != VerificationState::Open {
        return Err(StepRefusal::Token);
    }
    let lease = super::lease_of(broker, &verification).await?;
    if !measures(&lease) {
        return Err(StepRefusal::NoGang);
    }
    let check = match check {
        Some(check) => check,
        None => {
            all.begin_gang_check(id, &json(&Together::Gathering)?, broker.now())
                .await?;
            broker.gang_clock().began(id, 0);
            return Ok(wait());
        }
    };
    let scene = Scene {
        broker,
        verification: &verification,
        lease: &lease,
        sessions: &sessions,
    };
    scene.go_on(check, call).await
}

/// What a node that speaks, or another of its lease, came to alone, where that was no pass; an agent
/// that has not passed has nothing to say here.
fn verdict_alone(sessions: &[NodeSession], key: &AgentKey) -> Result<Option<Verdict>, StepRefusal> {
    let speaks = |session: &&NodeSession| session.agent_key == key.as_str();
    let speaker = sessions.iter().find(speaks);
    if speaker.is_none_or(|session| session.verdict.is_none()) {
        return Err(StepRefusal::UnknownAgent);
    }
    let verdicts = sessions.iter().filter_map(|session| session.verdict);
    Ok(verdicts.into_iter().find(|verdict| !verdict.is_pass()))
}

fn session_of(row: &NodeSession) -> Result<Session, StepRefusal> {
    Ok(serde_json::from_value(row.session.clone()).map_err(StepError::Stored)?)
}

/// A verification whose nodes are measured together.
struct Scene<'a> {
    broker: &'a Broker,
    verification: &'a Verification,
    lease: &'a Lease,
    /// In the order of the nodes' numbers.
    sessions: &'a [NodeSession],
}

impl Scene<'_> {
    async fn go_on(&self, check: GangCheck, call: &GangCall) -> Result<GangAnswer, StepRefusal> {
        let before: Together =
            serde_json::from_value(check.state.clone()).map_err(StepError::Stored)?;
        let lasted = self.lasted(check.stage).await?;
        let mut now = before.clone();
        let mut absent = None;
        let answer = match &mut now {
            Together::Measuring(gang) if lasted > gang.stage_limit() => GangAnswer::Over {
                verdict: gang.give_up(),
            },
            Together::Measuring(gang) => gang.on_call(call)?,
            Together::Gathering => match self.gang()? {
                Some(mut gang) => {
                    let answer = gang.on_call(call)?;
                    now = Together::Measuring(gang);
                    answer
                }
                None if lasted > self.patience()? => {
                    absent = Some(self.without_the_absent().await?);
                    GangAnswer::Over {
                        verdict: Verdict::Fail,
                    }
                }
                None => wait(),
            },
        };
        let verdict = match &answer {
            GangAnswer::Over { verdict } => Some(*verdict),
            _ => None,
        };
        if now == before && verdict.is_none() {
            return Ok(answer);
        }
        let attestations = match (&now, absent, verdict) {
            (_, Some(absent), _) => absent,
            (Together::Measuring(gang), None, Some(_)) => self.results(gang).await?,
            _ => Vec::new(),
        };
        let step = GangStep {
            from: check.version,
            stage: now.stage(),
            state: json(&now)?,
            verdict,
            attestations,
        };
        self.keep(&step, check.stage).await?;
        Ok(answer)
    }

    /// How long the present stage has lasted: by this process's own clock when it began it, else by
    /// the database's.
    async fn lasted(&self, stage: u32) -> Result<Duration, StepRefusal> {
        let id = self.verification.id;
        if let Some(lasted) = self.broker.gang_clock().lasted(id, stage) {
            return Ok(lasted);
        }
        let all = self.broker.store().verifications().across_tenants();
        Ok(all.gang_stage_lasted(id).await?.unwrap_or_default())
    }

    /// How long nodes that passed wait for those that are still proving themselves.
    fn patience(&self) -> Result<Duration, StepRefusal> {
        let seconds = verify_seconds(self.broker, self.level()?);
        Ok(Duration::from_secs(seconds.into()))
    }

    /// How deeply the nodes proved themselves alone: whoever calls here has.
    fn level(&self) -> Result<Level, StepRefusal> {
        let first = self.sessions.first().ok_or(StepRefusal::UnknownAgent)?;
        Ok(session_of(first)?.opening().order.level)
    }

    async fn keep(&self, step: &GangStep, stage_before: u32) -> Result<(), StepRefusal> {
        let (broker, id) = (self.broker, self.verification.id);
        let all = broker.store().verifications().across_tenants();
        all.keep_gang_step(id, step, broker.now()).await?;
        if step.stage != stage_before {
            broker.gang_clock().began(id, step.stage);
        }
        if let Some(verdict) = step.verdict {
            broker.gang_clock().forget(id);
            broker.nudge();
            info!(
                verification.id = %id, lease.id = %self.lease.id, verdict = %verdict,
                "Measured {} nodes together: {verdict}", self.lease.nodes
            );
        }
        Ok(())
    }

    /// The gang, once all of its nodes have passed alone.
    fn gang(&self) -> Result<Option<Gang>, StepRefusal> {
        let passed = |session: &NodeSession| session.verdict.is_some_and(Verdict::is_pass);
        let all_here = u32::try_from(self.sessions.len()) == Ok(self.lease.nodes);
        if !all_here || !self.sessions.iter().all(passed) {
            return Ok(None);
        }
        let member = |row: &NodeSession| {
            Ok(Member {
                host: row.host.clone(),
                agent_key: session_of(row)?.agent_key().clone(),
            })
        };
        let members: Result<Vec<Member>, StepRefusal> = self.sessions.iter().map(member).collect();
        let gang = Gang::try_new(members?, mode_of(self.broker), rand::random());
        Ok(gang.map(|gang| gang.sold_as(self.lease.offer.internode)))
    }

    fn judging(&self) -> Judging {
        Judging {
            attestation_id: AttestationId::from_uuid(self.broker.new_uuid()),
            now: self.broker.now(),
        }
    }

    /// The signed results of all nodes, each with what was found about the gang.
    async fn results(&self, gang: &Gang) -> Result<Vec<(u32, NewAttestation)>, StepRefusal> {
        let mut results = Vec::new();
        for (node, row) in self.sessions.iter().enumerate() {
            let session = session_of(row)?;
            let attestation = session
                .together(gang.findings_of(node), self.judging())
                .ok_or(StepRefusal::UnknownAgent)?;
            results.push((row.node_index, signed(self.broker, &attestation).await?));
        }
        Ok(results)
    }

    /// The signed results of the nodes that never came so far as to be measured with the others.
    async fn without_the_absent(&self) -> Result<Vec<(u32, NewAttestation)>, StepRefusal> {
        let (mut results, level) = (Vec::new(), self.level()?);
        for node_index in 0..self.lease.nodes {
            let judging = self.judging();
            let row = self
                .sessions
                .iter()
                .find(|row| row.node_index == node_index);
            if row.is_some_and(|row| row.verdict.is_some()) {
                continue;
            }
            let id = self.verification.id;
            let opening = opening_of(self.broker, id, self.lease, (node_index, level))?;
            let known = match row {
                Some(row) => session_of(row)?.abandon(judging).attestation().cloned(),
                None => None,
            };
            let known = known.unwrap_or_else(|| judge_silence(&opening, judging));
            let attestation = attest_together(&known, &opening.order, vec![absence()], judging);
            results.push((node_index, signed(self.broker, &attestation).await?));
        }
        Ok(results)
    }
}
