//! The nodes of orders that are measured together, as far as the orders were sent: their identities and,
//! where needed, all their answers.

use market::ids::{LeaseId, VerificationId};
use store::StoreError;
use store::verifications::{AllVerifications, EnrolledAgent, NodeSession};
use verifier::gang::Member;

use super::Orders;
use crate::flow::verify::StepRefusal;
use crate::platform::app::Broker;

/// All answers of the enrolled nodes, in order.
///
/// Errors: the database's.
pub(super) async fn sessions(
    broker: &Broker,
    orders: &Orders,
) -> Result<Vec<NodeSession>, StepRefusal> {
    let all = broker.store().verifications().across_tenants();
    let ids = sent(&all, orders).await?;
    let mut sessions = all.nodes_of(&ids).await?;
    let place = |id| ids.iter().position(|one| *one == id);
    sessions.sort_by_key(|session| (place(session.verification_id), session.node_index));
    Ok(sessions)
}

/// The nodes that have enrolled, in order.
///
/// Errors: the database's.
pub(super) async fn members(broker: &Broker, orders: &Orders) -> Result<Vec<Member>, StepRefusal> {
    let all = broker.store().verifications().across_tenants();
    let ids = sent(&all, orders).await?;
    let mut agents = all.agents_of(&ids).await?;
    let place = |id| ids.iter().position(|one| *one == id);
    agents.sort_by_key(|agent| (place(agent.verification_id), agent.node_index));
    let member = |agent: EnrolledAgent| {
        Ok(Member {
            host: agent.host,
            agent_key: agent.agent_key.parse().map_err(|_| corrupt_key())?,
        })
    };
    agents.into_iter().map(member).collect()
}

fn corrupt_key() -> StepRefusal {
    StepRefusal::Store(StoreError::Corrupt {
        detail: "the key of an agent".to_owned(),
    })
}

/// The verifications that count of the orders that were sent, in the order of their nodes.
async fn sent(
    all: &AllVerifications<'_>,
    orders: &Orders,
) -> Result<Vec<VerificationId>, StoreError> {
    let newest = all.newest_of_each(&orders.ids()).await?;
    let of = |lease: LeaseId| newest.iter().find(|(one, _)| *one == lease);
    let leases = orders.leases().iter();
    Ok(leases.filter_map(|lease| Some(of(lease.id)?.1)).collect())
}
