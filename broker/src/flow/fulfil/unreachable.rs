//! Leases in use whose nodes cannot be reached, where the demand or the service counts them as lost.

use market::demand::OnUnreachable;
use market::lease::{LeaseEvent, LeaseState};
use store::leases::Lease;
use store::reservations::Reservation;

use super::FulfilError;
use super::learned::Learned;
use crate::platform::app::Broker;

/// The consequence of a lease's silence; `None` when it answers, or its silence is only reported.
pub(super) async fn given_up(
    broker: &Broker,
    reservation: &Reservation,
    lease: &Lease,
) -> Result<Option<Learned>, FulfilError> {
    let said = reservation.demand.shared().policy;
    let policy = said.and_then(|policy| policy.on_unreachable);
    let policy = policy.unwrap_or(broker.config().reach.on_unreachable);
    if lease.state != LeaseState::HandedOff || policy == OnUnreachable::Event {
        return Ok(None);
    }
    let nodes = broker.store().reach().across_tenants();
    let nodes = nodes.of_lease(lease.id).await?;
    let silent = nodes.iter().find(|node| node.told);
    Ok(silent.map(|node| {
        let number = lease.node_base + node.node_index;
        let since = node.unreachable_since.unwrap_or(node.probed_at);
        let note = format!("node {number} could not be reached since {since}");
        Learned::because(LeaseEvent::Lost, note)
    }))
}
