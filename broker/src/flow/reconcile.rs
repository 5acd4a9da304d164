//! Reconciliation: compares the machines at each provider with the lease rows, both ways.
//!
//! A machine whose mark names one of our leases that is over is ended, and so is a second machine under one
//! mark. A machine that was in its tenant's hands, and was given up because nothing showed it, has
//! *returned*: its tenant may be at work there, so it waits for a person's decision. A machine whose mark
//! names no lease of this database belongs to another broker, because a row is written before every call: it
//! is reported and left alone. A machine without a mark is somebody else's and never touched.
//! [`crate::flow::fulfil`] looks at once at a living lease that the provider does not list; `absence` decides
//! whether it is gone. Reconciliation is idempotent and runs on a timer; the next run is the retry.

mod attachments;

use std::time::Duration;

use adapters::Release;
use chrono::{DateTime, Utc};
use futures_util::future::join_all;
use market::ids::{LeaseId, ProviderId};
use market::lease::LeaseState;
use market::order::{ClientToken, LeaseRef, ProviderLease, ProviderLeaseState};
use store::StoreError;
use store::leases::{Lease, ReturnedList};
use tokio::time::sleep;
use tracing::{error, warn};

use crate::flow::absence::Lists;
use crate::flow::{absence, meter};
use crate::platform::app::Broker;
use crate::platform::leader::keep_turns;
use crate::platform::provider_set::ProviderLink;
use crate::platform::stop::Stop;

/// How often each provider is reconciled.
const INTERVAL: Duration = Duration::from_secs(300);

/// The treatment of a machine whose mark names a lease that this database does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// It is reported, and left alone.
    Report,
    /// It is ended if its lease was made at this moment or later; older ones are reported. Only right where
    /// no other broker orders on these accounts: machines bought after the restored backup are known to
    /// nobody else.
    EndMadeSince(DateTime<Utc>),
}

impl Unknown {
    fn ends(self, lease: LeaseId) -> bool {
        match self {
            Self::Report => false,
            Self::EndMadeSince(since) => made_at(lease).is_some_and(|made| made >= since),
        }
    }
}

/// A person's decision on machines that reconciliation leaves alone by itself.
#[derive(Debug, Clone, Copy)]
pub struct Orders<'a> {
    /// The treatment of machines whose marks name unknown leases.
    pub unknown: Unknown,
    /// Leases whose machines have returned and must be ended.
    pub end_returned: &'a [LeaseId],
}

impl Orders<'_> {
    /// No decision: machines that are not plainly ours to end are reported.
    pub const NONE: Self = Self {
        unknown: Unknown::Report,
        end_returned: &[],
    };
}

/// When a lease was made, as its id records in whole milliseconds.
fn made_at(lease: LeaseId) -> Option<DateTime<Utc>> {
    let (seconds, nanos) = lease.uuid().get_timestamp()?.to_unix();
    DateTime::from_timestamp(i64::try_from(seconds).ok()?, nanos)
}

/// The result of a reconciliation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Machines of leases that are over, and unknown ones that were to be ended: ended.
    pub ended: usize,
    /// Machines with the mark of a lease that this database does not know: reported.
    pub unknown: usize,
    /// Machines of leases that were given up as gone, in their tenants' hands before: left alone until a
    /// person decides.
    pub returned: usize,
    /// Of the leases whose machines were to be ended because they had returned, those whose had.
    pub found_returned: Vec<LeaseId>,
    /// Machines of others: left alone.
    pub foreign: usize,
    /// Living leases that the provider does not list: looked at again at once.
    pub missing: usize,
    /// Scripts, keys and disks of leases that are over: removed.
    pub removed_attachments: usize,
    /// Scripts, keys and disks with the mark of a lease that this database does not know: reported.
    pub unknown_attachments: usize,
    /// Providers that could not be listed, or did not carry out a request; the next run tries again.
    pub unreadable: usize,
}

/// Reconciles every provider once, in parallel; one that hangs or fails holds up no other.
///
/// Errors: the database's.
pub async fn sweep(broker: &Broker) -> Result<Swept, StoreError> {
    sweep_with(broker, Orders::NONE).await
}

/// As [`sweep`], with a person's decision.
///
/// Errors: the database's.
pub async fn sweep_with(broker: &Broker, orders: Orders<'_>) -> Result<Swept, StoreError> {
    let links = broker.providers();
    let sweeps = links.iter().map(|link| sweep_one(broker, link, orders));
    let mut total = Swept::default();
    for swept in join_all(sweeps).await {
        let swept = swept?;
        total.ended += swept.ended;
        total.unknown += swept.unknown;
        total.returned += swept.returned;
        total.found_returned.extend(swept.found_returned);
        total.foreign += swept.foreign;
        total.missing += swept.missing;
        total.removed_attachments += swept.removed_attachments;
        total.unknown_attachments += swept.unknown_attachments;
        total.unreadable += swept.unreadable;
    }
    Ok(total)
}

/// Reconciles until stopped, while no other replica does; a run under way is dropped on stop, because the
/// next one does its work.
pub async fn keep_sweeping(broker: Broker, stop: Stop) {
    let turn = || async {
        if let Err(failure) = sweep(&broker).await {
            error!(error = %crate::chain(&failure), "A reconciliation failed");
        }
        sleep(INTERVAL).await;
    };
    keep_turns(&broker, "sweep", &stop, turn).await;
}

async fn sweep_one(
    broker: &Broker,
    link: &ProviderLink,
    orders: Orders<'_>,
) -> Result<Swept, StoreError> {
    let mut swept = Swept::default();
    let provider = link.adapter.profile().provider_id();
    let listed = match broker.memory::<Lists>().new_round(broker, link).await {
        Ok(listed) => listed,
        Err(failure) => {
            warn!(
                provider.id = %provider, error = %crate::chain(&failure),
                "The machines at {provider} could not be listed"
            );
            swept.unreadable += 1;
            return Ok(swept);
        }
    };
    let all = broker.store().leases().across_tenants();
    let mut returned = Vec::new();
    for machine in listed.machines.iter().filter(|machine| runs(machine)) {
        let Some(token) = machine.client_token() else {
            swept.foreign += 1;
            continue;
        };
        match all.find(token.lease_id()).await? {
            Some(lease) if stands_behind(&lease, machine) => {}
            Some(lease) if absence::has_returned(&lease, machine) => {
                if orders.end_returned.contains(&lease.id) {
                    swept.found_returned.push(lease.id);
                    end_returned(broker, link, &lease, machine, &mut swept).await?;
                } else {
                    returned.push(lease.id);
                }
            }
            Some(_) => {
                end(link, (machine, &token), "its lease is over", &mut swept).await;
            }
            None if orders.unknown.ends(token.lease_id()) => {
                let why = "no row knows it, and it was made since the given time";
                end(link, (machine, &token), why, &mut swept).await;
            }
            None => report_unknown(&provider, machine, &mut swept),
        }
    }
    swept.returned = returned.len();
    let lag = absence::listing_lag(link);
    let list = ReturnedList {
        shown: &returned,
        asked_at: listed.asked_at,
        doubtful: listed.is_doubtful(),
        lag,
    };
    for lease in all.note_returned(&provider, &list).await? {
        error!(
            provider.id = %provider, lease.id = %lease,
            "The machine of lease {lease} at {provider}, which was given up as gone, is running: its tenant \
             may be at work there; a person must look, and end it with `broker sweep --end-returned {lease}`"
        );
    }
    for lease in all.live_at(&provider).await? {
        let is_listed = listed.machines.iter().any(|machine| {
            runs(machine) && machine.client_token().as_ref() == Some(&lease.client_token)
        });
        let is_due = lease.accepted_at.is_some_and(|at| broker.now() - at >= lag);
        if !is_listed && is_due {
            swept.missing += 1;
            broker
                .store()
                .work()
                .nudge(lease.reservation_id, broker.now())
                .await?;
        }
    }
    if swept.missing > 0 {
        broker.nudge();
    }
    attachments::tidy(broker, link, &mut swept).await?;
    Ok(swept)
}

fn report_unknown(provider: &ProviderId, machine: &ProviderLease, swept: &mut Swept) {
    swept.unknown += 1;
    error!(
        provider.id = %provider, machine.id = %machine.id,
        "{} at {provider} carries a broker's mark and no lease row of this database: another \
         broker runs on this account, or the database was restored (docs/backup-and-upgrade.md); \
         a person must look",
        machine.id
    );
}

fn runs(machine: &ProviderLease) -> bool {
    !matches!(
        machine.state,
        ProviderLeaseState::Gone | ProviderLeaseState::Ending
    )
}

/// Whether a machine belongs to a living lease. A second machine under one mark does not.
fn stands_behind(lease: &Lease, machine: &ProviderLease) -> bool {
    let known = lease.provider_lease_id.as_ref();
    lease.state != LeaseState::Gone && known.is_none_or(|id| *id == machine.id)
}

/// Ends a machine that had returned. Its cost since its lease counted as gone is booked once its provider
/// accepted the release; until then the next run finds it again.
async fn end_returned(
    broker: &Broker,
    link: &ProviderLink,
    lease: &Lease,
    machine: &ProviderLease,
    swept: &mut Swept,
) -> Result<(), StoreError> {
    let why = "it had returned, and a person asked for its end";
    if end(link, (machine, &lease.client_token), why, swept).await != Some(Release::Accepted) {
        return Ok(());
    }
    let reservations = broker.store().reservations().across_tenants();
    let Some(reservation) = reservations.find(lease.reservation_id).await? else {
        return Ok(());
    };
    let cost = meter::returned_cost(broker, &reservation, lease).unwrap_or_else(|failure| {
        error!(
            lease.id = %lease.id, error = %crate::chain(&failure),
            "The cost of the machine of lease {} after its return could not be booked", lease.id
        );
        None
    });
    let all = broker.store().leases().across_tenants();
    all.end_returned(lease.id, cost.as_ref(), broker.now())
        .await
}

/// Asks a provider to end a machine; returns the provider's answer, if there was one.
async fn end(
    link: &ProviderLink,
    (machine, token): (&ProviderLease, &ClientToken),
    why: &str,
    swept: &mut Swept,
) -> Option<Release> {
    let provider = link.adapter.profile().id;
    let at_provider = LeaseRef {
        id: machine.id.clone(),
        client_token: token.clone(),
        region: machine.region.clone(),
    };
    match link.adapter.release_lease(&link.http, &at_provider).await {
        Ok(Release::NotYet) => {
            swept.unreadable += 1;
            warn!(
                provider.id = provider, machine.id = %machine.id,
                "{provider} does not end {} yet; the next run asks again", machine.id
            );
            Some(Release::NotYet)
        }
        // Not shown: it ended between the list and now, or the next run finds it again.
        Ok(said) => {
            swept.ended += 1;
            error!(
                provider.id = provider, machine.id = %machine.id,
                "Ended {} at {provider}: {why}",
                machine.id
            );
            Some(said)
        }
        Err(failure) => {
            swept.unreadable += 1;
            error!(
                provider.id = provider, machine.id = %machine.id, error = %crate::chain(&failure),
                "{} at {provider} has no living lease and could not be ended", machine.id
            );
            None
        }
    }
}
