//! Leases that the provider accepted: coming up, proving themselves, in use, and being ended.

use adapters::{AdapterError, Release};
use chrono::{DateTime, TimeDelta, Utc};
use market::lease::{LeaseEvent, LeaseState};
use market::offer::Terms;
use market::order::{EndReason, LeaseRef, ProviderLease, ProviderLeaseId, ProviderLeaseState};
use store::StoreError;
use store::leases::{Lease, Missing};
use tracing::{error, warn};

use super::compare::mismatch;
use super::learned::{Learned, is_silence};
use super::order::as_ordered;
use crate::flow::absence::{self, Absence};
use crate::flow::reach;
use crate::flow::verify::push::is_pushed;
use crate::flow::verify::{self, LeaseVerdict, StepRefusal};
use crate::platform::app::Broker;
use crate::platform::provider_set::ProviderLink;

/// When to look again at a machine that is coming up or going away.
const LOOK_AT_CHANGE: TimeDelta = TimeDelta::seconds(15);
/// When to look again at a machine that the provider does not show, and at a provider in trouble.
pub(super) const LOOK_AT_MISSING: TimeDelta = TimeDelta::seconds(30);
/// How long at most the broker waits for a booting machine that is missing: longer than any proof by lists
/// takes. Lists of another account never prove anything.
const MOST_UNDECIDED: TimeDelta = TimeDelta::minutes(20);
/// When to look again at nodes that are proving themselves; each finished report nudges as well.
const LOOK_AT_PROOF: TimeDelta = TimeDelta::seconds(15);
/// When to look again at a machine in use: how much use goes uncharged when it is lost.
const LOOK_AT_USE: TimeDelta = TimeDelta::minutes(5);

/// Why a machine ended, as far as it is to be believed: what was bought on demand is not taken back.
fn end_reason(lease: &Lease, seen: &ProviderLease) -> Option<EndReason> {
    let is_spot = lease.offer.terms == Terms::Spot;
    seen.end_reason
        .filter(|reason| *reason != EndReason::Preempted || is_spot)
}

/// The lease at its provider.
fn lease_ref(lease: &Lease, id: &ProviderLeaseId) -> LeaseRef {
    LeaseRef {
        id: id.clone(),
        client_token: lease.client_token.clone(),
        region: lease.offer.place.region.clone(),
    }
}

/// The provider's view of a lease that it accepted; `Err` holds the findings when there is none.
async fn read(
    broker: &Broker,
    link: &ProviderLink,
    lease: &Lease,
    id: &ProviderLeaseId,
) -> Result<ProviderLease, Learned> {
    let seen = match link
        .adapter
        .read_lease(&link.http, &lease_ref(lease, id))
        .await
    {
        Ok(Some(seen)) => seen,
        // An unreadable answer proves nothing either, and the provider's list still counts.
        Ok(None) | Err(AdapterError::Unreadable { .. }) => miss(broker, link, lease).await?,
        Err(error) => {
            return Err(Learned {
                silent: is_silence(&error),
                note: Some(error.to_string()),
                ..Learned::nothing(LOOK_AT_CHANGE)
            });
        }
    };
    match seen.state {
        ProviderLeaseState::Ending | ProviderLeaseState::Gone => {
            let note = format!("the provider ended it: {}", seen.raw_status);
            let event = match (end_reason(lease, &seen), lease.state) {
                (Some(EndReason::Preempted), _) => LeaseEvent::Preempted,
                (Some(EndReason::NoCapacity), LeaseState::Booting) => LeaseEvent::NoCapacity,
                _ => LeaseEvent::Lost,
            };
            Err(Learned {
                price_per_node_hour: seen.price_per_node_hour,
                ..Learned::because(event, note)
            })
        }
        _ => Ok(seen),
    }
}

/// A lease that the provider did not show by its id: the list's entry, or the findings when there is none.
/// Its use is proved by its nodes alone meanwhile.
async fn miss(
    broker: &Broker,
    link: &ProviderLink,
    lease: &Lease,
) -> Result<ProviderLease, Learned> {
    let known_since = lease.accepted_at.unwrap_or(lease.requested_at);
    let judged = absence::judge(broker, link, lease, known_since, false).await;
    let used_until = reach::seen_until(broker, lease).await;
    let (judged, used_until) = match (judged, used_until) {
        (Ok(judged), Ok(used_until)) => (judged, used_until),
        (Err(error), _) | (_, Err(error)) => return Err(unread(&error)),
    };
    let learned = match judged {
        Absence::Listed(machine) => return Ok(machine),
        Absence::Proved(words) => Learned::because(LeaseEvent::Vanished, words),
        Absence::Open {
            missing,
            words,
            silent,
        } => Learned {
            missing,
            silent,
            note: Some(words),
            ..Learned::nothing(LOOK_AT_MISSING)
        },
    };
    Err(Learned {
        used_until,
        ..learned
    })
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
    let seen = match read(broker, link, lease, id).await {
        Ok(seen) => seen,
        // The lists decide whether it is gone; that by itself does not show how it boots.
        Err(learned) if is_undecided(broker, &learned) => return learned,
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
    .shown_by(link)
}

/// Whether a machine is missing, and it is still undecided whether it is gone.
fn is_undecided(broker: &Broker, learned: &Learned) -> bool {
    let lasts = |missing: Missing| broker.now() - missing.since < MOST_UNDECIDED;
    learned.event.is_none() && learned.missing.is_some_and(lasts)
}

/// The consequence of the state in which a booting machine was seen.
fn coming_up(lease: &Lease, seen: ProviderLease, overdue: bool) -> Learned {
    // The answer to an order may be short; the machines that the provider lists must still agree with the
    // order.
    if let Some(words) = mismatch(&as_ordered(lease), &seen) {
        return Learned::because(LeaseEvent::BootFailed, words);
    }
    let all_up = usize::try_from(lease.nodes).is_ok_and(|nodes| seen.nodes.len() == nodes);
    match seen.state {
        ProviderLeaseState::Failed => {
            let note = format!("the provider says `{}`", seen.raw_status);
            let event = match end_reason(lease, &seen) {
                Some(EndReason::NoCapacity) => LeaseEvent::NoCapacity,
                Some(EndReason::Preempted) => LeaseEvent::Preempted,
                None => LeaseEvent::BootFailed,
            };
            Learned::because(event, note)
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
        Ok(LeaseVerdict::Passed) if !is_pushed(link.adapter, &lease.offer) => {
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
    match read(broker, link, lease, id).await {
        Ok(seen) if seen.state == ProviderLeaseState::Failed => broke_down(lease, &seen),
        Ok(_) => Learned::nothing(LOOK_AT_PROOF).shown_by(link),
        Err(learned) => learned,
    }
}

/// A machine that was up and is no longer, by its provider's own report.
fn broke_down(lease: &Lease, seen: &ProviderLease) -> Learned {
    let event = match end_reason(lease, seen) {
        Some(EndReason::Preempted) => LeaseEvent::Preempted,
        Some(EndReason::NoCapacity) | None => LeaseEvent::Lost,
    };
    Learned::because(event, format!("the provider says `{}`", seen.raw_status))
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

/// The state of the proof could not be read: look at it again.
pub(super) fn unread(error: &dyn std::error::Error) -> Learned {
    Learned {
        note: Some(error.to_string()),
        ..Learned::nothing(LOOK_AT_PROOF)
    }
}

/// Handles nodes that did not prove themselves in time. If they were being measured together, the node that
/// kept the others waiting is late, and the next look finds it. A node that failed a step before it fell
/// silent has failed, and was not only late.
pub(super) async fn out_of_time(broker: &Broker, lease: &Lease, note: String) -> Learned {
    match verify::give_up(broker, lease).await {
        Ok(true) => return Learned::nothing(TimeDelta::zero()),
        Ok(false) => {}
        Err(StepRefusal::Store(error)) => return unread(&error),
        Err(error) => {
            // An unreadable row will not be readable later; meanwhile the tenant does not pay for the
            // machines.
            warn!(
                lease.id = %lease.id, error = %crate::chain(&error),
                "The joint measurements of the nodes of lease {} cannot be read", lease.id
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
            // The lease is over in any case, and no step waits for the document.
            warn!(
                lease.id = %lease.id, error = %crate::chain(&error),
                "The nodes of lease {} that stopped responding could not be judged", lease.id
            );
            Learned::because(LeaseEvent::TimedOut, note)
        }
    }
}

/// Machines that passed, or are in the tenant's hands: they must still be there.
pub(super) async fn standing(
    broker: &Broker,
    link: &ProviderLink,
    lease: &Lease,
    id: &ProviderLeaseId,
) -> Learned {
    match read(broker, link, lease, id).await {
        Ok(seen) if seen.state == ProviderLeaseState::Failed => broke_down(lease, &seen),
        Ok(_) => Learned {
            alive: true,
            ..Learned::nothing(LOOK_AT_USE).shown_by(link)
        },
        Err(learned) => learned,
    }
}

/// Follows a machine that is being ended: sends the release, repeats it if needed, and watches until its
/// absence is proved.
pub(super) async fn releasing(
    broker: &Broker,
    link: &ProviderLink,
    lease: &Lease,
    id: &ProviderLeaseId,
) -> Learned {
    let was_accepted = lease.release_accepted_at.is_some();
    let mut learned = Learned::nothing(LOOK_AT_CHANGE);
    let at_provider = lease_ref(lease, id);
    if !was_accepted && let Err(error) = tell_to_end(broker, link, &at_provider, &mut learned).await
    {
        return Learned {
            silent: is_silence(&error),
            note: Some(error.to_string()),
            ..learned
        };
    }
    let ended = was_accepted || learned.release_accepted_at.is_some();
    let seen = match link.adapter.read_lease(&link.http, &at_provider).await {
        Ok(Some(seen)) => seen,
        Ok(None) | Err(AdapterError::Unreadable { .. }) => {
            let known_since = lease.accepted_at.unwrap_or(lease.requested_at);
            match absence::judge(broker, link, lease, known_since, ended).await {
                Ok(Absence::Listed(machine)) => machine,
                Ok(Absence::Proved(words)) => {
                    if !ended {
                        tell_of_no_end(lease, &words);
                    }
                    learned.event = Some(LeaseEvent::ProviderSaysGone);
                    return learned;
                }
                Ok(Absence::Open {
                    missing,
                    words,
                    silent,
                }) => {
                    return Learned {
                        missing,
                        silent,
                        // An end that was accepted takes its time.
                        note: (!ended).then_some(words),
                        ..learned
                    };
                }
                Err(error) => {
                    learned.note = Some(error.to_string());
                    return learned;
                }
            }
        }
        Err(error) => {
            learned.silent = is_silence(&error);
            learned.note = Some(error.to_string());
            return learned;
        }
    };
    learned.price_per_node_hour = seen.price_per_node_hour;
    match seen.state {
        ProviderLeaseState::Gone => learned.event = Some(LeaseEvent::ProviderSaysGone),
        ProviderLeaseState::Ending => {}
        // The provider accepted the end, and the machine still runs: ask again.
        _ if was_accepted => {
            if let Err(error) = tell_to_end(broker, link, &at_provider, &mut learned).await {
                learned.note = Some(error.to_string());
            }
        }
        _ => {}
    }
    learned.shown_by(link)
}

/// Logs a machine that counts as gone though its provider never accepted its end: if it still runs, the
/// provider bills it, and nothing has ended it.
fn tell_of_no_end(lease: &Lease, words: &str) {
    let (id, provider) = (lease.id, &lease.offer.provider);
    error!(
        lease.id = %id, provider.id = %provider,
        "{provider} never accepted the end of the machine of lease {id}, and it counts as gone: {words}; a person should look whether it is on the bill"
    );
}

/// Asks the provider to end a machine; it bills no further from when it accepts that.
async fn tell_to_end(
    broker: &Broker,
    link: &ProviderLink,
    lease: &LeaseRef,
    learned: &mut Learned,
) -> Result<(), AdapterError> {
    match link.adapter.release_lease(&link.http, lease).await? {
        Release::Accepted => learned.release_accepted_at = Some(broker.now()),
        Release::NotShown => {}
        // Asked again with the next look; until the provider accepts the end, it bills.
        Release::NotYet => learned.note = Some("the provider does not end it yet".to_owned()),
    }
    Ok(())
}

fn has_passed(broker: &Broker, since: Option<DateTime<Utc>>, seconds: u32) -> bool {
    since.is_some_and(|since| broker.now() - since >= TimeDelta::seconds(seconds.into()))
}
