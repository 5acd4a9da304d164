//! Leases whose order is out: sent once, found again by its mark, compared with what was made.

use adapters::{AdapterError, Disposition};
use chrono::TimeDelta;
use market::lease::{LeaseEvent, LeaseState};
use market::order::{LeaseOrder, ProviderLease, ProviderLeaseState};
use store::leases::Lease;

use super::compare::mismatch;
use super::learned::Learned;
use crate::app::{Broker, ProviderLink};

/// How long a provider may take to list what it just made: only then does absence say that
/// nothing was made.
const LISTING_LAG: TimeDelta = TimeDelta::seconds(60);
/// When to look again for an order whose outcome is unknown.
const LOOK_AFTER_SILENCE: TimeDelta = TimeDelta::seconds(10);

/// Sends the order of a lease. Called once for each lease whose intent has just been saved.
pub(super) async fn send(broker: &Broker, link: &ProviderLink, order: &LeaseOrder) -> Learned {
    match link.adapter.request_lease(&link.http, order).await {
        Ok(made) => accepted(broker, order, &made),
        Err(error) => refused_or_unknown(&error),
    }
}

fn refused_or_unknown(error: &AdapterError) -> Learned {
    if error.is_outcome_unknown() {
        return Learned {
            note: Some(error.to_string()),
            look_in: LOOK_AFTER_SILENCE,
            ..Learned::event(LeaseEvent::Unknown)
        };
    }
    match error.disposition() {
        // Certainly nothing was made: the same order may go out again later.
        Disposition::Retry { after } => Learned {
            note: Some(error.to_string()),
            not_sent: true,
            look_in: TimeDelta::from_std(after).unwrap_or(LOOK_AFTER_SILENCE),
            ..Learned::default()
        },
        _ => Learned::because(LeaseEvent::Refused, error.to_string()),
    }
}

/// Finds out by its mark what became of an order: sent by a process that is gone, answered by
/// silence, or no longer wanted.
pub(super) async fn find(broker: &Broker, link: &ProviderLink, lease: &Lease) -> Learned {
    match link.adapter.find_lease(&link.http, &lease.client_token).await {
        Ok(Some(made)) if made.state == ProviderLeaseState::Gone => {
            Learned::because(LeaseEvent::NotFound, "it was made and is gone again")
        }
        Ok(Some(made)) => accepted(broker, &as_ordered(lease), &made),
        Ok(None) if broker.now() - lease.requested_at < LISTING_LAG => {
            let event = Some(LeaseEvent::Unknown);
            Learned { event, ..Learned::nothing(LOOK_AFTER_SILENCE) }
        }
        Ok(None) => Learned::because(LeaseEvent::NotFound, "the provider made nothing of the order"),
        Err(error) => Learned {
            event: Some(LeaseEvent::Unknown),
            note: Some(error.to_string()),
            ..Learned::nothing(LOOK_AFTER_SILENCE)
        },
    }
}

fn accepted(broker: &Broker, order: &LeaseOrder, made: &ProviderLease) -> Learned {
    let learned = match mismatch(order, made) {
        Some(words) => Learned::because(LeaseEvent::Mismatched, words),
        None => Learned::event(LeaseEvent::Accepted),
    };
    Learned {
        provider_lease_id: Some(made.id.clone()),
        started_at: Some(made.created_at.unwrap_or_else(|| broker.now())),
        ..learned
    }
}

/// The order of a lease as far as it can be compared: without keys and script.
pub(super) fn as_ordered(lease: &Lease) -> LeaseOrder {
    LeaseOrder {
        client_token: lease.client_token.clone(),
        offer: lease.offer.clone(),
        nodes: lease.nodes,
        ssh_public_keys: Vec::new(),
        startup_script: String::new(),
    }
}

/// Whether the order of a lease has never left us.
pub(super) fn is_fresh(lease: &Lease) -> bool {
    lease.state == LeaseState::Requested && lease.attempts == 0
}
