//! The nodes of a lease, or of all leases of a gang, together: each that passed alone calls, on whichever
//! replica, until all of them have been measured and judged.
//!
//! What is measured and how it is judged is `verifier::gang`'s. Here live the row that all replicas
//! share, the real clock of each stage, and the signed results at the end.

mod orders;

use std::time::Duration;

use market::attestation::Verdict;
use market::ids::{AttestationId, VerificationId};
use market::verification::{AgentKey, GangAnswer, GangCall, Level};
use serde::{Deserialize, Serialize};
use store::leases::Lease;
use store::verifications::{GangCheck, GangResult, GangStep, NodeSession, VerificationState};
use tracing::info;
use verifier::attest::attest_together;
use verifier::challenge::{Judging, Session, StepError, judge_silence};
use verifier::gang::{Gang, Member, absence};

pub(crate) use orders::Orders;

use super::commit::{mode_of, opening_of};
use super::{StepRefusal, json, of_token, signed, verify_seconds};
use crate::app::Broker;

/// How often a call is taken up again when other nodes were faster.
const TRIES: usize = 32;
/// How long a node that waits for others to come does so before it calls again.
const PAUSE: Duration = Duration::from_millis(250);
/// As [`PAUSE`], for nodes of other orders, which may have to be made first.
const PAUSE_FOR_ORDERS: Duration = Duration::from_secs(1);
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

/// How much longer the verification of a lease may take because its nodes are measured together.
pub(crate) fn gang_seconds(orders: &Orders) -> u32 {
    match orders.are_measured() {
        true => orders.nodes().saturating_mul(SECONDS_A_ROUND),
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

const fn gather() -> GangAnswer {
    GangAnswer::Gather {
        after_ms: PAUSE_FOR_ORDERS.as_millis() as u64,
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
    if !has_ended(&sessions, &call.agent_key) {
        return Err(StepRefusal::UnknownAgent);
    }
    let is_open = verification.state == VerificationState::Open;
    let lease = super::lease_of(broker, &verification).await?;
    let orders = Orders::read(broker, &lease).await?;
    let own = Part {
        lease,
        id,
        sessions,
    };
    let parts = parts(broker, &orders, own).await?;
    let check = match parts.first() {
        Some(lead) => all.gang_check(lead.id).await?,
        None => None,
    };
    // The verification may be closed by the time that the last node asks how it ended.
    if let Some(verdict) = check.as_ref().and_then(|check| check.verdict) {
        return Ok(GangAnswer::Over { verdict });
    }
    // One that fell alone takes the whole gang with it.
    if let Some(verdict) = parts.iter().find_map(Part::fell_alone) {
        return Ok(GangAnswer::Over { verdict });
    }
    if !is_open {
        return Err(StepRefusal::Token);
    }
    if !orders.are_measured() {
        return Err(StepRefusal::NoGang);
    }
    let is_whole = parts.len() == orders.leases().len();
    if orders.are_several() && !(is_whole && parts.iter().all(Part::has_passed)) {
        return Ok(gather());
    }
    let scene = Scene {
        broker,
        orders: &orders,
        parts: &parts,
    };
    let lead = scene.lead()?.id;
    let Some(check) = check else {
        all.begin_gang_check(lead, &json(&Together::Gathering)?, broker.now())
            .await?;
        broker.gang_clock().began(lead, 0);
        return Ok(wait());
    };
    scene.go_on(check, call).await
}

/// Whether an agent's conversation came to its end: others have nothing to say here.
fn has_ended(sessions: &[NodeSession], key: &AgentKey) -> bool {
    let speaks = |session: &&NodeSession| session.agent_key == key.as_str();
    let speaker = sessions.iter().find(speaks);
    speaker.is_some_and(|session| session.verdict.is_some())
}

/// An order whose nodes are measured, and how far they are.
struct Part {
    lease: Lease,
    /// The verification that counts: the order was sent with its token.
    id: VerificationId,
    /// In the order of the nodes' numbers.
    sessions: Vec<NodeSession>,
}

impl Part {
    /// What a node came to alone, where that was no pass; also where its order fell otherwise.
    fn fell_alone(&self) -> Option<Verdict> {
        let verdicts = self.sessions.iter().filter_map(|session| session.verdict);
        let bad = verdicts.into_iter().find(|verdict| !verdict.is_pass());
        bad.or_else(|| (!self.lease.state.is_standing()).then_some(Verdict::Inconclusive))
    }

    /// Whether all of its nodes have passed alone.
    fn has_passed(&self) -> bool {
        let passed = |session: &NodeSession| session.verdict.is_some_and(Verdict::is_pass);
        let all_here = u32::try_from(self.sessions.len()) == Ok(self.lease.nodes);
        all_here && self.sessions.iter().all(passed)
    }
}

/// The orders in the order of their nodes, as far as they were sent; `own` is that of whoever calls.
async fn parts(broker: &Broker, orders: &Orders, own: Part) -> Result<Vec<Part>, StepRefusal> {
    let all = broker.store().verifications().across_tenants();
    let mut parts = Vec::new();
    for lease in orders.leases().iter().filter(|one| one.id != own.lease.id) {
        if let Some(newest) = all.of_lease(lease.id).await?.pop() {
            parts.push(Part {
                lease: lease.clone(),
                id: newest.id,
                sessions: all.nodes(newest.id).await?,
            });
        }
    }
    parts.push(own);
    parts.sort_by_key(|part| part.lease.node_base);
    Ok(parts)
}

fn session_of(row: &NodeSession) -> Result<Session, StepRefusal> {
    Ok(serde_json::from_value(row.session.clone()).map_err(StepError::Stored)?)
}

/// Orders whose nodes are measured together.
struct Scene<'a> {
    broker: &'a Broker,
    orders: &'a Orders,
    /// In the order of their nodes.
    parts: &'a [Part],
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

    /// The order under whose verification all is kept: that of the first node.
    fn lead(&self) -> Result<&Part, StepRefusal> {
        self.parts.first().ok_or(StepRefusal::NoGang)
    }

    /// All nodes, in their order.
    fn sessions(&self) -> impl Iterator<Item = &NodeSession> {
        self.parts.iter().flat_map(|part| &part.sessions)
    }

    /// How long the present stage has lasted: by this process's own clock when it began it, else by
    /// the database's.
    async fn lasted(&self, stage: u32) -> Result<Duration, StepRefusal> {
        let id = self.lead()?.id;
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
        let first = self.sessions().next().ok_or(StepRefusal::UnknownAgent)?;
        Ok(session_of(first)?.opening().order.level)
    }

    async fn keep(&self, step: &GangStep, stage_before: u32) -> Result<(), StepRefusal> {
        let (broker, lead) = (self.broker, self.lead()?);
        let id = lead.id;
        let all = broker.store().verifications().across_tenants();
        all.keep_gang_step(id, step, broker.now()).await?;
        if step.stage != stage_before {
            broker.gang_clock().began(id, step.stage);
        }
        if let Some(verdict) = step.verdict {
            broker.gang_clock().forget(id);
            broker.nudge();
            info!(
                verification.id = %id, lease.id = %lead.lease.id, verdict = %verdict,
                "Measured {} nodes together: {verdict}", self.orders.nodes()
            );
        }
        Ok(())
    }

    /// The gang, once all of its nodes have passed alone.
    fn gang(&self) -> Result<Option<Gang>, StepRefusal> {
        if !self.parts.iter().all(Part::has_passed) {
            return Ok(None);
        }
        let member = |row: &NodeSession| {
            Ok(Member {
                host: row.host.clone(),
                agent_key: session_of(row)?.agent_key().clone(),
            })
        };
        let members: Result<Vec<Member>, StepRefusal> = self.sessions().map(member).collect();
        let gang = Gang::try_new(members?, mode_of(self.broker), rand::random());
        Ok(gang.map(|gang| gang.sold_as(self.orders.sold_as())))
    }

    fn judging(&self) -> Judging {
        Judging {
            attestation_id: AttestationId::from_uuid(self.broker.new_uuid()),
            now: self.broker.now(),
        }
    }

    /// The signed results of all nodes, each with what was found about the gang.
    async fn results(&self, gang: &Gang) -> Result<Vec<GangResult>, StepRefusal> {
        let mut results = Vec::new();
        for (node, row) in self.sessions().enumerate() {
            let session = session_of(row)?;
            let attestation = session
                .together(gang.findings_of(node), self.judging())
                .ok_or(StepRefusal::UnknownAgent)?;
            results.push(GangResult {
                verification_id: row.verification_id,
                node_index: row.node_index,
                attestation: signed(self.broker, &attestation).await?,
            });
        }
        Ok(results)
    }

    /// The signed results of the nodes that never came so far as to be measured with the others. Where
    /// they are of several orders, each order waits for its own.
    async fn without_the_absent(&self) -> Result<Vec<GangResult>, StepRefusal> {
        let (mut results, level) = (Vec::new(), self.level()?);
        let Part {
            lease,
            id,
            sessions,
        } = self.lead()?;
        for node_index in 0..lease.nodes {
            let judging = self.judging();
            let row = sessions.iter().find(|row| row.node_index == node_index);
            if row.is_some_and(|row| row.verdict.is_some()) {
                continue;
            }
            let opening = opening_of(self.broker, *id, lease, (node_index, level))?;
            let known = match row {
                Some(row) => session_of(row)?.abandon(judging).attestation().cloned(),
                None => None,
            };
            let known = known.unwrap_or_else(|| judge_silence(&opening, judging));
            let attestation = attest_together(&known, &opening.order, vec![absence()], judging);
            results.push(GangResult {
                verification_id: *id,
                node_index,
                attestation: signed(self.broker, &attestation).await?,
            });
        }
        Ok(results)
    }
}
