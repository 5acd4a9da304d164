//! The sweep: what runs at each provider, held against the lease rows, both ways.
//!
//! A machine that carries our mark and has no living lease is ended. A machine without our mark
//! is somebody else's and never touched. A living lease that the provider does not list is looked
//! at by [`crate::fulfil`] at once. Idempotent; runs on a timer, and the next run is the retry.

use std::time::Duration;

use adapters::AdapterError;
use chrono::TimeDelta;
use market::lease::LeaseState;
use market::order::{ProviderLease, ProviderLeaseState};
use store::StoreError;
use store::leases::Lease;
use tracing::{error, warn};

use crate::app::{Broker, ProviderLink};

/// How often the providers are swept.
const INTERVAL: Duration = Duration::from_secs(300);
/// A lease so young may not be listed yet, and its answer may still be on its way.
const TOO_YOUNG: TimeDelta = TimeDelta::seconds(60);

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Machines with our mark that no living lease stands behind: ended.
    pub ended: usize,
    /// Machines of others: left alone.
    pub foreign: usize,
    /// Living leases that the provider does not list: looked at again at once.
    pub missing: usize,
    /// Providers that could not be listed; the next sweep tries again.
    pub unreadable: usize,
}

/// Sweeps every provider once; one that fails does not keep the others back.
///
/// Errors: the database's.
pub async fn sweep(broker: &Broker) -> Result<Swept, StoreError> {
    let mut swept = Swept::default();
    for link in broker.providers() {
        match link.adapter.list_leases(&link.http).await {
            Ok(listed) => sweep_one(broker, link, &listed, &mut swept).await?,
            Err(failure) => {
                swept.unreadable += 1;
                let provider = link.adapter.profile().id;
                warn!(
                    provider.id = provider, error = %crate::chain(&failure),
                    "The machines at {provider} could not be listed"
                );
            }
        }
    }
    Ok(swept)
}

/// Sweeps until the task is dropped.
pub async fn sweep_forever(broker: Broker) {
    loop {
        if let Err(failure) = sweep(&broker).await {
            error!(error = %crate::chain(&failure), "A sweep failed");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn sweep_one(
    broker: &Broker,
    link: &ProviderLink,
    listed: &[ProviderLease],
    swept: &mut Swept,
) -> Result<(), StoreError> {
    let all = broker.store().leases().across_tenants();
    for machine in listed.iter().filter(|machine| runs(machine)) {
        let Some(token) = machine.client_token() else {
            swept.foreign += 1;
            continue;
        };
        let lease = all.find(token.lease_id()).await?;
        if !lease.is_some_and(|lease| stands_behind(&lease, machine)) {
            end(link, machine, swept).await;
        }
    }
    let provider = link.adapter.profile().provider_id();
    for lease in all.live_at(&provider).await? {
        let is_listed = listed.iter().any(|machine| {
            runs(machine) && machine.client_token().as_ref() == Some(&lease.client_token)
        });
        let young = broker.now() - lease.requested_at < TOO_YOUNG;
        if !is_listed && !young && lease.accepted_at.is_some() {
            swept.missing += 1;
            broker.store().work().nudge(lease.reservation_id, broker.now()).await?;
        }
    }
    if swept.missing > 0 {
        broker.nudge();
    }
    Ok(())
}

fn runs(machine: &ProviderLease) -> bool {
    !matches!(machine.state, ProviderLeaseState::Gone | ProviderLeaseState::Ending)
}

/// Whether a living lease stands behind a machine. A second machine under one mark has none.
fn stands_behind(lease: &Lease, machine: &ProviderLease) -> bool {
    let known = lease.provider_lease_id.as_ref();
    lease.state != LeaseState::Gone && known.is_none_or(|id| *id == machine.id)
}

async fn end(link: &ProviderLink, machine: &ProviderLease, swept: &mut Swept) {
    let provider = link.adapter.profile().id;
    let ended: Result<(), AdapterError> = link.adapter.release_lease(&link.http, &machine.id).await;
    match ended {
        Ok(()) => {
            swept.ended += 1;
            error!(
                provider.id = provider, machine.id = %machine.id,
                "Ended {} at {provider}: it carried our mark and no living lease stood behind it",
                machine.id
            );
        }
        Err(failure) => {
            swept.unreadable += 1;
            error!(
                provider.id = provider, machine.id = %machine.id, error = %crate::chain(&failure),
                "{} at {provider} has no living lease and could not be ended", machine.id
            );
        }
    }
}
