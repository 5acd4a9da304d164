//! Leases that the provider accepted: coming up, proving themselves, in use, and being ended.

use chrono::{DateTime, TimeDelta, Utc};
use market::lease::LeaseEvent;
use market::order::{ProviderLease, ProviderLeaseId, ProviderLeaseState};
use store::StoreError;
use store::leases::Lease;
use tracing::warn;

use super::compare::mismatch;
use super::learned::{Learned, is_silence};
use super::order::as_ordered;
use crate::app::{Broker, ProviderLink};
use crate::verify::push::is_pushed;
use crate::verify::{self, LeaseVerdict, StepRefusal};

/// When to look again at a machine that is coming up or going away.
const LOOK_AT_CHANGE: TimeDelta = TimeDelta::seconds(15);
/// When to look again at nodes that are proving themselves; each finished report nudges as well.
const LOOK_AT_PROOF: TimeDelta = TimeDelta::seconds(15);
/// When to look again at a machine in use: how much use goes uncharged when it is lost.
const LOOK_AT_USE: TimeDelta = TimeDelta::minutes(5);

/// What the provider says of a lease it accepted: `Err` is what was learnt instead.
async fn read(link: &ProviderLink, id: &ProviderLeaseId) -> Result<ProviderLease, Learned> {
    match link.adapter.read_lease(&link.http, id).await {
        Ok(Some(seen)) => match seen.state {
            ProviderLeaseState::Ending | ProviderLeaseState::Gone => {
                let note = format!("the provider ended it: {}", seen.raw_status);
                Err(Learned {
                    price_per_node_hour: seen.price_per_node_hour,
                    ..Learned::because(LeaseEvent::Lost, note)
                })
            }
            _ => Ok(seen),
        },
        Ok(None) => Err(Learned::because(
            LeaseEvent::Lost,
            "the provider knows it no more",
        )),
        Err(error) => Err(Learned {
            silent: is_silence(&error),
            note: Some(error.to_string()),
            ..Learned::nothing(LOOK_AT_CHANGE)
        }),
    }
}

/// A machine that is coming up.
pub(super) async fn booting(
    broker: &Broker,
    link: &ProviderLink,
    lease: &Lease,
    id: &ProviderLeaseId,
) -> Learned {
    let overdue = has_passed(
        broker,
        lease.accepted_at,
        broker.config().verifier.boot_seconds,
    );
    let seen = match read(link, id).await {
        Ok(seen) => seen,
        // A provider that cannot be read does not hold a reservation up for ever.
        Err(learned) if learned.event.is_none() && overdue => {
            return Learned::because(LeaseEvent::BootFailed, "it was not seen to come up in time");
        }
        Err(learned) => return learned,
    };
    Learned {
        price_per_node_hour: seen.price_per_node_hour,
        ..coming_up(lease, seen, overdue)
    }
}

/// What follows from how a machine that is coming up was seen.
fn coming_up(lease: &Lease, seen: ProviderLease, overdue: bool) -> Learned {
    // The answer to an order may say little; what the provider lists must still be what was ordered.
    if let Some(words) = mismatch(&as_ordered(lease), &seen) {
        return Learned::because(LeaseEvent::BootFailed, words);
    }
    let all_up = usize::try_from(lease.nodes).is_ok_and(|nodes| seen.nodes.len() == nodes);
    match seen.state {
        ProviderLeaseState::Failed => {
            let note = format!("the provider says `{}`", seen.raw_status);
            Learned::because(LeaseEvent::BootFailed, note)
        }
        ProviderLeaseState::Running if all_up => Learned {
            provider_nodes: Some(seen.nodes),
            ..Learned::event(LeaseEvent::NodesUp)
        },
        _ if overdue => Learned::because(LeaseEvent::BootFailed, "it did not come up in time"),
        _ => Learned::nothing(LOOK_AT_CHANGE),
    }
}

/// Nodes that are proving themselves.
pub(super) async fn verifying(
    broker: &Broker,
    link: &ProviderLink,
    lease: &Lease,
    id: &ProviderLeaseId,
) -> Learned {
    let verdict = match verify::verdict_of(broker, lease).await {
        // Nodes that we logged in to are left first, with nothing of ours on them.
        Ok(LeaseVerdict::Passed) if !is_pushed(link.adapter.profile()) => {
            return Learned::event(LeaseEvent::Passed);
        }
        Ok(LeaseVerdict::Failed(words)) => return Learned::because(LeaseEvent::Failed, words),
        Ok(LeaseVerdict::Inconclusive(words)) => {
            return Learned::because(LeaseEvent::TimedOut, words);
        }
        Ok(verdict) => verdict,
        Err(error) => return unread(&error),
    };
    match is_out_of_time(broker, lease, &verdict).await {
        Ok(true) => {
            let note = "its nodes did not prove themselves in time";
            return out_of_time(broker, lease, note.to_owned()).await;
        }
        Ok(false) => {}
        Err(error) => return unread(&error),
    }
    match read(link, id).await {
        Ok(seen) if seen.state == ProviderLeaseState::Failed => Learned::because(
            LeaseEvent::Lost,
            format!("the provider says `{}`", seen.raw_status),
        ),
        Ok(_) => Learned::nothing(LOOK_AT_PROOF),
        Err(learned) => learned,
    }
}

/// Whether the time of a lease is over, as far as it has come: one that has passed may still have to be left,
/// for which it has as long as the last order of its gang.
///
/// Errors: the database's.
pub(super) async fn is_out_of_time(
    broker: &Broker,
    lease: &Lease,
    verdict: &LeaseVerdict,
) -> Result<bool, StoreError> {
    let until = match verdict {
        LeaseVerdict::Open { until } => *until,
        LeaseVerdict::Passed => verify::Orders::read(broker, lease).await?.until(),
        LeaseVerdict::Failed(_) | LeaseVerdict::Inconclusive(_) => None,
    };
    Ok(until.is_some_and(|until| broker.now() >= until))
}

/// What is known of the proof could not be read: it is looked at again.
pub(super) fn unread(error: &dyn std::error::Error) -> Learned {
    Learned {
        note: Some(error.to_string()),
        ..Learned::nothing(LOOK_AT_PROOF)
    }
}

/// Nodes that did not prove themselves in time. Where they were being measured together, whoever kept the
/// others waiting is late, and the next look finds it. One that failed what it answered before it fell
/// silent has failed, and was not only late.
pub(super) async fn out_of_time(broker: &Broker, lease: &Lease, note: String) -> Learned {
    match verify::give_up(broker, lease).await {
        Ok(true) => return Learned::nothing(TimeDelta::zero()),
        Ok(false) => {}
        Err(StepRefusal::Store(error)) => return unread(&error),
        Err(error) => {
            // What cannot be read now will not be later; the machines are not paid for meanwhile.
            warn!(
                lease.id = %lease.id, error = %crate::chain(&error),
                "What the nodes of lease {} measured together cannot be read", lease.id
            );
        }
    }
    match verify::judge_silent(broker, lease).await {
        Ok(Some(silence)) if silence.has_failed => {
            Learned::because(LeaseEvent::Failed, silence.words)
        }
        Ok(Some(silence)) => {
            Learned::because(LeaseEvent::TimedOut, format!("{note}; {}", silence.words))
        }
        Ok(None) => Learned::because(LeaseEvent::TimedOut, note),
        Err(error) => {
            // The lease is over all the same; nobody waits for a document.
            warn!(
                lease.id = %lease.id, error = %crate::chain(&error),
                "The nodes of lease {} that fell silent could not be judged", lease.id
            );
            Learned::because(LeaseEvent::TimedOut, note)
        }
    }
}

/// Machines that passed, or are in the tenant's hands: they must still be there.
pub(super) async fn standing(link: &ProviderLink, id: &ProviderLeaseId) -> Learned {
    match read(link, id).await {
        Ok(seen) if seen.state == ProviderLeaseState::Failed => Learned::because(
            LeaseEvent::Lost,
            format!("the provider says `{}`", seen.raw_status),
        ),
        Ok(_) => Learned {
            alive: true,
            ..Learned::nothing(LOOK_AT_USE)
        },
        Err(learned) => learned,
    }
}

/// A machine that is being ended: told to, again if need be, and watched until it is no more.
pub(super) async fn releasing(
    broker: &Broker,
    link: &ProviderLink,
    lease: &Lease,
    id: &ProviderLeaseId,
) -> Learned {
    let mut learned = Learned::nothing(LOOK_AT_CHANGE);
    if lease.release_accepted_at.is_none() {
        if let Err(error) = link.adapter.release_lease(&link.http, id).await {
            return Learned {
                silent: is_silence(&error),
                note: Some(error.to_string()),
                ..learned
            };
        }
        learned.release_accepted_at = Some(broker.now());
    }
    match link.adapter.read_lease(&link.http, id).await {
        Ok(None) => learned.event = Some(LeaseEvent::ProviderSaysGone),
        Ok(Some(seen)) => {
            learned.price_per_node_hour = seen.price_per_node_hour;
            match seen.state {
                ProviderLeaseState::Gone => learned.event = Some(LeaseEvent::ProviderSaysGone),
                ProviderLeaseState::Ending => {}
                // A provider that took the word just now and still runs it is told again next time...
                _ if learned.release_accepted_at.is_some() => learned.release_accepted_at = None,
                // ...and one that took it long ago is told again at once.
                _ => match link.adapter.release_lease(&link.http, id).await {
                    Ok(()) => learned.release_accepted_at = Some(broker.now()),
                    Err(error) => learned.note = Some(error.to_string()),
                },
            }
        }
        Err(error) => {
            learned.silent = is_silence(&error);
            learned.note = Some(error.to_string());
        }
    }
    learned
}

fn has_passed(broker: &Broker, since: Option<DateTime<Utc>>, seconds: u32) -> bool {
    since.is_some_and(|since| broker.now() - since >= TimeDelta::seconds(seconds.into()))
}
