//! The begin of a conversation: binds the agent's key to a node of the lease, and sends the node its order.

use market::ids::VerificationId;
use market::lease::LeaseState;
use market::verification::{Commit, ExpectedNode, Level, Step};
use serde_json::Value;
use store::leases::Lease;
use store::settings::DatabaseMode;
use store::verifications::{NewNodeSession, NodeSession, Verification};
use store::{Conflict, StoreError};
use verifier::challenge::{Opening, Session, StepError};
use verifier::order::{Mode, expected_node, order_for, undrivable};

use super::{StepRefusal, begin, json, recheck};
use crate::platform::app::Broker;

/// Step 1: binds the agent's key to a node of the lease. If there are several, it is the node at the address
/// that the agent claims, which then waits for the others.
pub(super) async fn commit(
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
        return answer_to(&row, &commit);
    }
    begin::unless_cut_off(broker, verification.id, &commit.agent_key).await?;
    let lease = store
        .leases()
        .across_tenants()
        .find(verification.lease_id)
        .await?;
    let lease = lease
        .filter(|lease| lease.state.is_live())
        .ok_or(StepRefusal::Token)?;
    let opening = asked_at(broker, verification, &lease, &commit.host).await?;
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
    let enrolled = match enrolled {
        Err(StoreError::Conflict(Conflict::Exists { .. })) => {
            return Err(StepRefusal::UnknownHost(commit.host));
        }
        enrolled => enrolled?,
    };
    begin::note(broker, &enrolled);
    answer_to(&enrolled.node, &commit)
}

/// The order for the node at this address.
async fn asked_at(
    broker: &Broker,
    verification: &Verification,
    lease: &Lease,
    host: &str,
) -> Result<Opening, StepRefusal> {
    if let Some(node) = verification.recheck_node {
        // The node's script states the address by which we know the node, and so identifies it.
        let said = node_at(lease, host);
        return recheck::opening(broker, verification, lease, (node, said));
    }
    match lease.state {
        LeaseState::Verifying => {
            let at = (node_of(lease, host)?, level_at(broker, lease).await?);
            opening_of(broker, verification.id, lease, at)
        }
        LeaseState::Requested | LeaseState::Booting => Err(StepRefusal::NotReady),
        _ => Err(StepRefusal::Token),
    }
}

/// The answer to a node that has enrolled.
fn answer_to(row: &NodeSession, commit: &Commit) -> Result<Value, StepRefusal> {
    let session: Session =
        serde_json::from_value(row.session.clone()).map_err(StepError::Stored)?;
    let reply = session.on_commit_again(commit)?.reply;
    match row.has_begun {
        true => json(&reply),
        false => Err(StepRefusal::SiblingsNotReady),
    }
}

/// How deeply the nodes of a lease prove themselves.
pub(super) async fn level_at(broker: &Broker, lease: &Lease) -> Result<Level, StepRefusal> {
    let reservations = broker.store().reservations().across_tenants();
    let reservation = reservations.find(lease.reservation_id).await?;
    Ok(reservation.ok_or(StepRefusal::Token)?.verification)
}

/// The order for a node of the lease.
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

pub(super) fn mode_of(broker: &Broker) -> Mode {
    match broker.mode() {
        DatabaseMode::Simulation => Mode::Simulation,
        DatabaseMode::Production => Mode::Real,
    }
}

/// The expected properties of a node of the lease.
pub(super) fn expected(broker: &Broker, lease: &Lease) -> Result<ExpectedNode, StepRefusal> {
    let offer = &lease.offer;
    let on_record = broker.config().facts_of(&offer.provider);
    let gpu = offer
        .gpu
        .known()
        .ok_or(StepRefusal::Unverifiable("the GPU's form is unknown"))?;
    if let Some(why) = undrivable(gpu).filter(|_| mode_of(broker) == Mode::Real) {
        return Err(StepRefusal::Unverifiable(why));
    }
    let gpus = offer
        .gpus
        .as_whole()
        .ok_or(StepRefusal::Unverifiable("it is a slice of a GPU"))?;
    Ok(ExpectedNode {
        vcpus: offer.vcpus,
        memory_gib: offer.memory_gib,
        tenancy: Some(offer.tenancy),
        internode: Some(offer.internode),
        storage: on_record.storage_of(&offer.sku),
        ..expected_node(gpu, gpus)
    })
}
