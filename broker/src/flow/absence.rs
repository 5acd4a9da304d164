//! Decides whether a machine that its provider does not show is gone. Nothing else decides it.
//!
//! No single answer proves that a machine is gone: a provider's front end breaks, lists are truncated, reads
//! lag, and a credential may belong to another account. `lists` fetches the lists, once a round for every
//! caller; `proof` weighs them. A machine whose node shows its host key is not gone, even if the lists lack
//! it. Until the question is decided the broker replaces nothing and alerts a person.

mod lists;
mod proof;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use market::ids::{LeaseId, ProviderId};
use market::lease::{LeaseEvent, LeaseState};
use market::order::ProviderLease;
use store::StoreError;
use store::leases::{Lease, Missing};
use tracing::warn;

pub(crate) use lists::{List, Lists, Unlisted};

use crate::flow::reach;
use crate::platform::app::Broker;
use crate::platform::provider_set::ProviderLink;

/// The evidence about a lease whose record its provider did not show.
pub(crate) enum Absence {
    /// The list shows it.
    Listed(ProviderLease),
    /// It is proved that the provider has it no more; how, in words.
    Proved(String),
    /// It is not shown, and it is not proved that it is gone.
    Open {
        /// The part of the lists' answer to keep.
        missing: Option<Missing>,
        /// The evidence, in words.
        words: String,
        /// Whether the list is missing because the provider gave no answer.
        silent: bool,
    },
}

/// Judges a lease whose record its provider did not show just now.
///
/// `known_since`: when the provider could first list it. `ended`: whether it accepted its end.
/// Errors: the database's.
pub(crate) async fn judge(
    broker: &Broker,
    link: &ProviderLink,
    lease: &Lease,
    known_since: DateTime<Utc>,
    ended: bool,
) -> Result<Absence, StoreError> {
    let open = |missing, words: String| Absence::Open {
        missing,
        words,
        silent: false,
    };
    let list = match broker.memory::<Lists>().of_this_round(broker, link).await {
        Ok(list) => list,
        Err(Unlisted { words, silent }) => {
            return Ok(Absence::Open {
                missing: lease.missing,
                words: format!("it is not shown, and there is no list: {words}"),
                silent,
            });
        }
    };
    if let Some(machine) = list.shows(lease) {
        return Ok(Absence::Listed(machine.clone()));
    }
    let lag = listing_lag(link);
    if !ended && list.asked_at - known_since < lag {
        let words = format!(
            "no list shows it yet; that may take {} s",
            lag.num_seconds()
        );
        return Ok(open(lease.missing, words));
    }
    let provider = &lease.offer.provider;
    let leases = broker.store().leases().across_tenants();
    let living = leases.live_at(provider).await?;
    let others = Others::of(&living, lease.id, &list, lag);
    let evidence = proof::Evidence {
        asked_at: list.asked_at,
        seen_at: match ended {
            // Lists from before the provider accepted its end do not count.
            true => lease.release_accepted_at.or(Some(list.asked_at)),
            false => reach::last_seen(broker, lease).await?,
        },
        // A lease that no list has shown yet may be looked up in any list.
        same_credential: lease
            .seen_credential
            .as_ref()
            .is_none_or(|seen| *seen == list.credential),
        doubtful: list.is_doubtful() || others.are_halved(lease),
        together: others.are_missing_with(lease, list.asked_at),
        stands: lease.state.is_accepted(),
        ended,
        lag,
    };
    if evidence.stands && !evidence.same_credential {
        warn!(
            lease.id = %lease.id, provider.id = %provider,
            "The list of {provider} lacks the machine of lease {}, and was read with another credential than \
             it was last shown with: is it of another account?",
            lease.id
        );
    }
    let found = proof::weigh(&evidence, lease.missing);
    if !found.proved {
        return Ok(open(found.missing, found.words));
    }
    if !ended && reach::answers(broker, lease).await? {
        let words = "no list shows it, but its node answers";
        return Ok(open(found.missing, words.to_owned()));
    }
    Ok(Absence::Proved(found.words))
}

/// For how long leases that are missing keep new orders from their provider.
const TROUBLE: TimeDelta = proof::REPEATED;

/// The listing lag of a provider.
pub(crate) fn listing_lag(link: &ProviderLink) -> TimeDelta {
    TimeDelta::from_std(link.adapter.profile().listing_lag).unwrap_or(TimeDelta::MAX)
}

/// Providers that do not show all expected machines: nothing is ordered there.
///
/// Errors: the database's.
pub(crate) async fn troubled(broker: &Broker) -> Result<BTreeSet<ProviderId>, StoreError> {
    let leases = broker.store().leases().across_tenants();
    let mut since: BTreeMap<ProviderId, Vec<DateTime<Utc>>> = BTreeMap::new();
    let now = broker.now();
    for lease in leases.missing().await? {
        let times = since.entry(lease.offer.provider).or_default();
        // Longer, and each is judged by itself: its provider is not closed for one that stays open.
        let lately = |since: &DateTime<Utc>| now - *since <= TROUBLE;
        times.extend(lease.missing.map(|missing| missing.since).filter(lately));
    }
    let mut troubled = BTreeSet::new();
    for (provider, times) in since {
        let living = leases.live_at(&provider).await?;
        let living = living.iter().filter(|lease| lease.state.is_accepted());
        if proof::is_of_the_provider(&times, living.count()) {
            troubled.insert(provider);
        }
    }
    Ok(troubled)
}

/// The other leases at a provider that a list should show, and those that it does show.
struct Others {
    /// How many they are.
    count: usize,
    /// Since when those are missing that the list lacks; of which that was not known, since it was
    /// asked for.
    missing_since: Vec<DateTime<Utc>>,
}

impl Others {
    fn of(living: &[Lease], this: LeaseId, list: &List, lag: TimeDelta) -> Self {
        let is_old = |lease: &Lease| {
            let accepted_at = lease.accepted_at;
            accepted_at.is_some_and(|at| list.asked_at - at >= lag)
        };
        let expected =
            |lease: &&Lease| lease.id != this && lease.state.is_accepted() && is_old(lease);
        let others: Vec<&Lease> = living.iter().filter(expected).collect();
        let lacked = others.iter().filter(|lease| list.shows(lease).is_none());
        let since = |lease: &&Lease| lease.missing.map_or(list.asked_at, |missing| missing.since);
        Self {
            count: others.len(),
            missing_since: lacked.map(since).collect(),
        }
    }

    /// Whether the list lacks half of the expected machines, or more, this lease with them.
    fn are_halved(&self, this: &Lease) -> bool {
        let counts = usize::from(this.state.is_accepted());
        let (expected, lacked) = (self.count + counts, self.missing_since.len() + counts);
        expected > 0 && lacked * 2 >= expected
    }

    /// Whether so much is missing with this lease that the cause is at the provider.
    fn are_missing_with(&self, this: &Lease, now: DateTime<Utc>) -> bool {
        if !this.state.is_accepted() {
            return false;
        }
        let mut all = self.missing_since.clone();
        all.push(this.missing.map_or(now, |missing| missing.since));
        proof::is_of_the_provider(&all, self.count + 1)
    }
}

/// Whether the machine of a closed lease waits for a person's decision: it was in its tenant's hands, the
/// broker gave it up because nothing showed it, and nobody asked its provider to end it.
pub(crate) fn has_returned(lease: &Lease, machine: &ProviderLease) -> bool {
    lease.state == LeaseState::Gone
        && lease.fall_reason == Some(LeaseEvent::Vanished)
        && lease.handed_off_at.is_some()
        && lease.release_accepted_at.is_none()
        && lease.provider_lease_id.as_ref() == Some(&machine.id)
}
