//! The nodes of a lease, or of all leases of a gang, together: each node that passed alone calls, on any
//! replica, until all of them have been measured and judged.
//!
//! `verifier::gang` defines the measurements and their judgement. Here live the row that all replicas share,
//! the real clock of each stage, and the signed results at the end.

mod members;
mod orders;

use std::time::Duration;

use market::attestation::Verdict;
use market::ids::{AttestationId, VerificationId};
use market::verification::{GangAnswer, GangCall};
use serde::{Deserialize, Serialize};
use store::leases::Lease;
use store::verifications::{GangCheck, GangResult, GangStep, NodeSession, VerificationState};
use tracing::info;
use verifier::attest::attest_together;
use verifier::challenge::{Judging, Session, StepError};
use verifier::gang::{Gang, Member, absence, rounds_of_nccl_pairs};
use verifier::order::Mode;

use members::{members, sessions};
pub(crate) use orders::Orders;

use super::clock::GangClock;
use super::commit::{level_at, mode_of};
use super::{StepRefusal, json, of_token, signed, verify_seconds};
use crate::platform::app::Broker;

/// How often a call is taken up again when other nodes were faster.
const TRIES: usize = 32;
/// How long a node that waits for others to arrive does so before it calls again.
const PAUSE: Duration = Duration::from_millis(250);
/// As [`PAUSE`], for nodes of other orders, which may have to be made first.
const PAUSE_FOR_ORDERS: Duration = Duration::from_secs(5);
/// The time that a lease gets for verification, for each node that its nodes meet. Units: seconds.
const SECONDS_A_ROUND: u32 = 15;
/// The further time: as long as the rounds of NCCL may hang, which decides nothing. After the first hang,
/// pairs are not asked again. Units: seconds.
const SECONDS_OF_NCCL: u32 = 240;
/// The time for each round in which pairs sum by NCCL: opening all GPUs and joining take most of it.
/// Units: seconds.
const SECONDS_OF_NCCL_PAIRS: u32 = 20;

/// The state kept between two calls.
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
    if !orders.are_measured() {
        return 0;
    }
    let nodes = orders.nodes();
    let of_pairs = rounds_of_nccl_pairs(nodes as usize) * SECONDS_OF_NCCL_PAIRS;
    let of_nccl = SECONDS_OF_NCCL + of_pairs;
    nodes
        .saturating_mul(SECONDS_A_ROUND)
        .saturating_add(of_nccl)
}

/// Takes the call of a node that passed alone, and returns its next action.
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

fn gather(broker: &Broker) -> GangAnswer {
    let pause = match mode_of(broker) {
        Mode::Simulation => PAUSE,
        Mode::Real => PAUSE_FOR_ORDERS,
    };
    GangAnswer::Gather {
        after_ms: pause.as_millis() as u64,
    }
}

async fn take(
    broker: &Broker,
    id: VerificationId,
    token: &str,
    call: &GangCall,
) -> Result<GangAnswer, StepRefusal> {
    let verification = of_token(broker, id, token).await?;
    // A node in use is checked alone.
    if verification.recheck_node.is_some() {
        return Err(StepRefusal::NoGang);
    }
    let all = broker.store().verifications().across_tenants();
    // Before any more is read: these calls are not counted. Nobody speaks here before the end of its own
    // conversation.
    let alone = all.verdict_of_agent(id, call.agent_key.as_str()).await?;
    if alone.is_none() {
        return Err(StepRefusal::UnknownAgent);
    }
    let lease = super::lease_of(broker, &verification).await?;
    let orders = Orders::read(broker, &lease).await?;
    let first = orders.first();
    let lead = match first.id == lease.id {
        true => Some(id),
        false => all.newest_of(first.id).await?.map(|newest| newest.id),
    };
    let check = match lead {
        Some(lead) => all.gang_check(lead).await?,
        None => None,
    };
    // The verification may be closed by the time that the last node asks how it ended.
    if let Some(verdict) = check.as_ref().and_then(|check| check.verdict) {
        return Ok(GangAnswer::Over { verdict });
    }
    if orders.have_fallen() {
        return Ok(GangAnswer::Over {
            verdict: Verdict::Inconclusive,
        });
    }
    let is_open = verification.state == VerificationState::Open;
    if is_open && !orders.are_measured() {
        return Err(StepRefusal::NoGang);
    }
    let Some(lead) = lead.filter(|_| orders.are_up()) else {
        return match is_open {
            true => Ok(gather(broker)),
            false => Err(StepRefusal::Token),
        };
    };
    let scene = Scene {
        broker,
        orders: &orders,
        lead,
    };
    if let Some(check) = check {
        let before = serde_json::from_value(check.state.clone()).map_err(StepError::Stored)?;
        if is_open && let Together::Measuring(gang) = before {
            return scene.go_on(&check, gang, call).await;
        }
        return scene.gather(&check, call, is_open).await;
    }
    let alone = all.alone(&orders.ids()).await?;
    if let Some(verdict) = alone.fell {
        return Ok(GangAnswer::Over { verdict });
    }
    if !is_open {
        return Err(StepRefusal::Token);
    }
    if orders.are_several() && alone.passed < u64::from(orders.nodes()) {
        return Ok(gather(broker));
    }
    all.begin_gang_check(lead, &json(&Together::Gathering)?, broker.now())
        .await?;
    broker.memory::<GangClock>().began(lead, 0);
    Ok(wait())
}

/// Ends the joint measurement of a lease's nodes whose time is over, and returns whether it was under way. If
/// so, there is a result by now, in which the node that kept the others waiting is late.
///
/// Errors: [`StepRefusal`].
pub(crate) async fn give_up(broker: &Broker, lease: &Lease) -> Result<bool, StepRefusal> {
    let orders = Orders::read(broker, lease).await?;
    let all = broker.store().verifications().across_tenants();
    let Some(lead) = all.newest_of(orders.first().id).await? else {
        return Ok(false);
    };
    let check = all.gang_check(lead.id).await?;
    let Some(check) = check.filter(|check| check.verdict.is_none()) else {
        return Ok(false);
    };
    let before = serde_json::from_value(check.state.clone()).map_err(StepError::Stored)?;
    let Together::Measuring(mut gang) = before else {
        return Ok(false);
    };
    let scene = Scene {
        broker,
        orders: &orders,
        lead: lead.id,
    };
    let verdict = gang.give_up();
    let results = scene.results(&gang).await?;
    let now = Together::Measuring(gang);
    match scene.keep(&check, &now, Some(verdict), results).await {
        // A node called meanwhile, and its measurement continues or has ended.
        Ok(()) | Err(StepRefusal::Raced) => Ok(true),
        Err(refusal) => Err(refusal),
    }
}

fn session_of(row: &NodeSession) -> Result<Session, StepRefusal> {
    Ok(serde_json::from_value(row.session.clone()).map_err(StepError::Stored)?)
}

/// Orders whose nodes are measured together.
struct Scene<'a> {
    broker: &'a Broker,
    orders: &'a Orders,
    /// The verification of the first order, under which all is kept.
    lead: VerificationId,
}

impl Scene<'_> {
    /// Continues while nodes are measured, each of which is known by its key.
    async fn go_on(
        &self,
        check: &GangCheck,
        before: Gang,
        call: &GangCall,
    ) -> Result<GangAnswer, StepRefusal> {
        let lasted = self.lasted(check.stage).await?;
        let mut gang = before.clone();
        let answer = match lasted > gang.stage_limit() {
            true => GangAnswer::Over {
                verdict: gang.give_up(),
            },
            false => gang.on_call(call)?,
        };
        if gang == before {
            return Ok(answer);
        }
        self.keep_measured(check, gang, &answer).await?;
        Ok(answer)
    }

    /// Waits until all nodes have passed alone, then begins.
    async fn gather(
        &self,
        check: &GangCheck,
        call: &GangCall,
        is_open: bool,
    ) -> Result<GangAnswer, StepRefusal> {
        let (broker, orders) = (self.broker, self.orders);
        let all = broker.store().verifications().across_tenants();
        let alone = all.alone(&orders.ids()).await?;
        // A node that failed alone fails the whole gang.
        if let Some(verdict) = alone.fell {
            return Ok(GangAnswer::Over { verdict });
        }
        if !is_open {
            return Err(StepRefusal::Token);
        }
        if alone.passed == u64::from(orders.nodes())
            && let Some(mut gang) = self.gang(members(broker, orders).await?)
        {
            let answer = gang.on_call(call)?;
            self.keep_measured(check, gang, &answer).await?;
            return Ok(answer);
        }
        let [lease] = orders.leases() else {
            return Ok(wait());
        };
        let level = level_at(broker, lease).await?;
        let patience = Duration::from_secs(verify_seconds(broker, level).into());
        if self.lasted(check.stage).await? <= patience {
            return Ok(wait());
        }
        let verdict = Verdict::Fail;
        let absent = self.without_the_absent().await?;
        self.keep(check, &Together::Gathering, Some(verdict), absent)
            .await?;
        Ok(GangAnswer::Over { verdict })
    }

    async fn keep_measured(
        &self,
        check: &GangCheck,
        gang: Gang,
        answer: &GangAnswer,
    ) -> Result<(), StepRefusal> {
        let (verdict, results) = match answer {
            GangAnswer::Over { verdict } => (Some(*verdict), self.results(&gang).await?),
            _ => (None, Vec::new()),
        };
        self.keep(check, &Together::Measuring(gang), verdict, results)
            .await
    }

    /// How long the present stage has lasted: by this process's own clock when it began it, else by
    /// the database's.
    async fn lasted(&self, stage: u32) -> Result<Duration, StepRefusal> {
        let id = self.lead;
        if let Some(lasted) = self.broker.memory::<GangClock>().lasted(id, stage) {
            return Ok(lasted);
        }
        let all = self.broker.store().verifications().across_tenants();
        Ok(all.gang_stage_lasted(id).await?.unwrap_or_default())
    }

    async fn keep(
        &self,
        before: &GangCheck,
        now: &Together,
        verdict: Option<Verdict>,
        attestations: Vec<GangResult>,
    ) -> Result<(), StepRefusal> {
        let (broker, id) = (self.broker, self.lead);
        let step = GangStep {
            from: before.version,
            stage: now.stage(),
            state: json(now)?,
            verdict,
            attestations,
        };
        let all = broker.store().verifications().across_tenants();
        all.keep_gang_step(id, &step, broker.now()).await?;
        if step.stage != before.stage {
            broker.memory::<GangClock>().began(id, step.stage);
        }
        if let Some(verdict) = verdict {
            broker.memory::<GangClock>().forget(id);
            broker.nudge();
            info!(
                verification.id = %id, lease.id = %self.orders.first().id, verdict = %verdict,
                "Measured {} nodes together: {verdict}", self.orders.nodes()
            );
        }
        Ok(())
    }

    /// The gang of these nodes, which have all passed alone.
    fn gang(&self, members: Vec<Member>) -> Option<Gang> {
        let orders = self.orders;
        let gang = Gang::try_new(members, mode_of(self.broker), rand::random())?;
        let gang = gang.sold_as(orders.sold_as());
        Some(gang.with_gpus_sold(orders.gpus_of_each_node()))
    }

    fn judging(&self) -> Judging {
        Judging {
            attestation_id: AttestationId::from_uuid(self.broker.new_uuid()),
            now: self.broker.now(),
        }
    }

    /// The signed results of all nodes, each with the findings about the gang.
    async fn results(&self, gang: &Gang) -> Result<Vec<GangResult>, StepRefusal> {
        let mut results = Vec::new();
        let sessions = sessions(self.broker, self.orders).await?;
        for (node, row) in sessions.iter().enumerate() {
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

    /// The signed results of the nodes of a single order that was never measured together. All nodes have
    /// enrolled, because none begins before. Where there are several orders, each waits for its own nodes.
    async fn without_the_absent(&self) -> Result<Vec<GangResult>, StepRefusal> {
        let mut results = Vec::new();
        let sessions = sessions(self.broker, self.orders).await?;
        for row in sessions.iter().filter(|row| row.verdict.is_none()) {
            let judging = self.judging();
            let over = session_of(row)?.abandon(judging);
            let Some(known) = over.attestation() else {
                continue;
            };
            let order = &over.opening().order;
            let attestation = attest_together(known, order, vec![absence()], judging);
            results.push(GangResult {
                verification_id: row.verification_id,
                node_index: row.node_index,
                attestation: signed(self.broker, &attestation).await?,
            });
        }
        Ok(results)
    }
}
