//! How far the nodes of each order are whose nodes are measured together.

use market::attestation::Verdict;
use market::ids::VerificationId;
use market::verification::Level;
use store::leases::Lease;
use store::verifications::NodeSession;

use super::{Orders, session_of};
use crate::app::Broker;
use crate::verify::StepRefusal;

/// An order whose nodes are measured, and how far they are.
pub(super) struct Part {
    pub(super) lease: Lease,
    /// The verification that counts.
    pub(super) id: VerificationId,
    /// In the order of the nodes' numbers.
    pub(super) sessions: Vec<NodeSession>,
}

impl Part {
    /// What a node came to alone, where that was no pass.
    pub(super) fn fell_alone(&self) -> Option<Verdict> {
        let verdicts = self.sessions.iter().filter_map(|session| session.verdict);
        verdicts.into_iter().find(|verdict| !verdict.is_pass())
    }

    /// How deeply its nodes prove themselves: one has, at least.
    pub(super) fn level(&self) -> Result<Level, StepRefusal> {
        let first = self.sessions.first().ok_or(StepRefusal::UnknownAgent)?;
        Ok(session_of(first)?.opening().order.level)
    }

    /// Whether all of its nodes have passed alone.
    pub(super) fn has_passed(&self) -> bool {
        let passed = |session: &NodeSession| session.verdict.is_some_and(Verdict::is_pass);
        let all_here = u32::try_from(self.sessions.len()) == Ok(self.lease.nodes);
        all_here && self.sessions.iter().all(passed)
    }
}

/// The orders as far as they were sent, in the order of their nodes.
///
/// Errors: the database's.
pub(super) async fn parts(broker: &Broker, orders: &Orders) -> Result<Vec<Part>, StepRefusal> {
    let all = broker.store().verifications().across_tenants();
    let mut parts = Vec::new();
    for lease in orders.leases() {
        if let Some(newest) = all.newest_of(lease.id).await? {
            parts.push(Part {
                lease: lease.clone(),
                id: newest.id,
                sessions: all.nodes(newest.id).await?,
            });
        }
    }
    Ok(parts)
}
