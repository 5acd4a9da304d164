//! The orders whose nodes are measured together, as far as they were sent: who their nodes are, and where
//! it is needed all that those said.

use market::ids::{LeaseId, VerificationId};
use store::StoreError;
use store::leases::Lease;
use store::verifications::{AllVerifications, EnrolledAgent, NodeSession};
use verifier::gang::Member;

use super::Orders;
use crate::app::Broker;
use crate::verify::StepRefusal;

/// An order whose nodes are measured, with all that they said.
pub(super) struct Part {
    pub(super) lease: Lease,
    /// The verification that counts.
    pub(super) id: VerificationId,
    /// In the order of the nodes' numbers.
    pub(super) sessions: Vec<NodeSession>,
}

/// The orders as far as they were sent, in the order of their nodes.
///
/// Errors: the database's.
pub(super) async fn parts(broker: &Broker, orders: &Orders) -> Result<Vec<Part>, StepRefusal> {
    let all = broker.store().verifications().across_tenants();
    let sent = sent(&all, orders).await?;
    let ids: Vec<VerificationId> = sent.iter().map(|(_, id)| *id).collect();
    let mut sessions = all.nodes_of(&ids).await?;
    let part = |(lease, id): (&Lease, VerificationId)| Part {
        lease: lease.clone(),
        id,
        sessions: sessions
            .extract_if(.., |session| session.verification_id == id)
            .collect(),
    };
    Ok(sent.into_iter().map(part).collect())
}

/// The nodes that have enrolled, in order.
///
/// Errors: the database's.
pub(super) async fn members(broker: &Broker, orders: &Orders) -> Result<Vec<Member>, StepRefusal> {
    let all = broker.store().verifications().across_tenants();
    let sent = sent(&all, orders).await?;
    let ids: Vec<VerificationId> = sent.iter().map(|(_, id)| *id).collect();
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

/// The orders that were sent, each with the verification that counts.
async fn sent<'a>(
    all: &AllVerifications<'_>,
    orders: &'a Orders,
) -> Result<Vec<(&'a Lease, VerificationId)>, StoreError> {
    let newest = all.newest_of_each(&orders.ids()).await?;
    let of = |lease: LeaseId| newest.iter().find(|(one, _)| *one == lease);
    let leases = orders.leases().iter();
    Ok(leases
        .filter_map(|lease| Some((lease, of(lease.id)?.1)))
        .collect())
}
