//! Leases whose order is out: sent once, found again by its mark, compared with the machines made.

use adapters::{AdapterError, Disposition};
use chrono::{DateTime, TimeDelta, Utc};
use market::lease::{LeaseEvent, LeaseState};
use market::machine::MachineRequest;
use market::order::{LeaseOrder, ProviderLease, ProviderLeaseState};
use store::StoreError;
use store::leases::Lease;

use super::compare::mismatch;
use super::learned::{Learned, is_silence};
use crate::flow::absence::{self, Absence};
use crate::platform::app::Broker;
use crate::platform::metrics;
use crate::platform::provider_set::ProviderLink;

/// When to look again for an order whose outcome is unknown.
pub(super) const LOOK_AFTER_SILENCE: TimeDelta = TimeDelta::seconds(10);

/// Sends the order of a lease. Called once for each lease whose intent has just been saved.
pub(super) async fn send(broker: &Broker, link: &ProviderLink, order: &LeaseOrder) -> Learned {
    let answer = link.adapter.request_lease(&link.http, order).await;
    metrics::order_ended(&order.offer, &answer);
    match answer {
        Ok(made) => accepted(order, &made, broker.now(), broker.now()).shown_by(link),
        Err(error) => refused_or_unknown(&error),
    }
}

fn refused_or_unknown(error: &AdapterError) -> Learned {
    if error.is_outcome_unknown() {
        return Learned {
            silent: true,
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

/// Finds the outcome of an order by its mark: sent by a process that is gone, answered by silence, or no
/// longer wanted.
pub(super) async fn find(broker: &Broker, link: &ProviderLink, lease: &Lease) -> Learned {
    let unknown_because = |note: String| Learned {
        event: Some(LeaseEvent::Unknown),
        note: Some(note),
        ..Learned::nothing(LOOK_AFTER_SILENCE)
    };
    let sent_at = match sent_at(broker, lease).await {
        Ok(sent_at) => sent_at,
        Err(error) => return unknown_because(error.to_string()),
    };
    let found = link.adapter.find_lease(&link.http, &lease.client_token);
    let made = match found.await {
        Ok(Some(made)) => made,
        Ok(None) => match absence::judge(broker, link, lease, sent_at, false).await {
            Ok(Absence::Listed(made)) => made,
            Ok(Absence::Proved(words)) => {
                let words = format!("the provider made nothing of the order: {words}");
                return Learned::because(LeaseEvent::NotFound, words);
            }
            Ok(Absence::Open {
                missing,
                words,
                silent,
            }) => {
                return Learned {
                    missing,
                    silent,
                    ..unknown_because(words)
                };
            }
            Err(error) => return unknown_because(error.to_string()),
        },
        Err(error) => {
            return Learned {
                silent: is_silence(&error),
                ..unknown_because(error.to_string())
            };
        }
    };
    if made.state == ProviderLeaseState::Gone {
        return Learned {
            started_at: Some(start_of(&made, sent_at, broker.now())),
            price_per_node_hour: made.price_per_node_hour,
            ..Learned::because(LeaseEvent::NotFound, "it was made and is gone again")
        };
    }
    accepted(&as_ordered(lease), &made, sent_at, broker.now()).shown_by(link)
}

/// When the order of a lease was last sent: each sending opens a verification in the save before.
async fn sent_at(broker: &Broker, lease: &Lease) -> Result<DateTime<Utc>, StoreError> {
    let sent = broker
        .store()
        .verifications()
        .across_tenants()
        .of_lease(lease.id)
        .await?;
    Ok(sent
        .last()
        .map_or(lease.requested_at, |verification| verification.created_at))
}

/// When the provider began to bill: its stated time, but not before the order and not after now. Without a
/// stated time, it is when the order was sent, because we may be billed from then.
fn start_of(made: &ProviderLease, sent_at: DateTime<Utc>, now: DateTime<Utc>) -> DateTime<Utc> {
    made.created_at
        .map_or(sent_at, |at| at.max(sent_at).min(now))
}

fn accepted(
    order: &LeaseOrder,
    made: &ProviderLease,
    sent_at: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Learned {
    let learned = match mismatch(order, made) {
        Some(words) => Learned::because(LeaseEvent::Mismatched, words),
        None => Learned::event(LeaseEvent::Accepted),
    };
    Learned {
        provider_lease_id: Some(made.id.clone()),
        started_at: Some(start_of(made, sent_at, now)),
        price_per_node_hour: made.price_per_node_hour,
        ..learned
    }
}

/// The order of a lease as far as it can be compared: without keys and script.
pub(super) fn as_ordered(lease: &Lease) -> LeaseOrder {
    LeaseOrder {
        client_token: lease.client_token.clone(),
        offer: lease.offer.clone(),
        nodes: lease.nodes,
        machine: MachineRequest::default(),
        ssh_public_keys: Vec::new(),
        startup_script: String::new(),
    }
}

/// Whether the order of a lease has never left us.
pub(super) fn is_fresh(lease: &Lease) -> bool {
    lease.state == LeaseState::Requested && lease.attempts == 0
}
