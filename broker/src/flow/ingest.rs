//! The supply: a provider is read, the reading passes the gate, changes are appended to the ledger of prices
//! and availability, and the snapshot moves on.
//!
//! A record that cannot be read holds back its own offers and no other: the readable records are applied, and
//! offers that may be among the unread keep their age. A reading without an offer changes nothing and marks
//! its provider stale. A provider that fails, lies or hangs affects only its own offers. The next stage is
//! [`crate::flow::plan`].

pub mod diff;
pub mod gate;
mod poll;
mod price_lists;
mod shrink_guard;
mod tail;

use std::collections::{HashMap, HashSet};

use adapters::AdapterError;
use market::catalog::{CatalogReading, OfferDiff, Skipped};
use market::ids::ProviderId;
use market::offer::{MachineOperator, Offer};
use matcher::{ProviderView, Quarantine};
use store::StoreError;
use store::catalog::Generation;
use store::settings::DatabaseMode;
use tracing::{Instrument as _, debug_span, info, warn};

pub(crate) use poll::{POLL, lease_of};
pub use poll::{keep_polling, read_own};
pub use price_lists::read_price_lists;
pub(crate) use shrink_guard::ShrinkGuard;
pub use tail::{catch_up, keep_tailing};

use crate::flow::providers;
use crate::platform::app::Broker;
use crate::platform::metrics;
use crate::platform::provider_set::ProviderLink;

/// Below so many offers a listing that halves is everyday business.
const FEWEST_TO_DOUBT: usize = 4;

/// Why a provider could not be read.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The provider did not answer, or broke its interface.
    #[error("{provider} could not be read")]
    Adapter {
        /// The provider.
        provider: ProviderId,
        /// The cause.
        #[source]
        source: AdapterError,
    },
    /// The answer held nothing to sell, or shrank beyond belief.
    #[error("{provider} answered with {what}; its known offers stay")]
    Incomplete {
        /// The provider.
        provider: ProviderId,
        /// In words.
        what: &'static str,
    },
    /// The database did not take it.
    #[error("the reading could not be kept")]
    Store(#[from] StoreError),
}

/// Reads one provider and applies the reading.
///
/// Errors: [`IngestError`]; the provider is then marked stale with the reason.
pub async fn read_provider(broker: &Broker, link: &ProviderLink) -> Result<(), IngestError> {
    let provider = link.adapter.profile().provider_id();
    let span = debug_span!("read_provider", provider.id = %provider);
    let ended = read_and_apply(broker, link).instrument(span).await;
    metrics::reading_ended(&provider, outcome(&ended));
    ended
}

/// The metrics' word for the end of a reading.
fn outcome(ended: &Result<(), IngestError>) -> &'static str {
    match ended {
        Ok(()) => "ok",
        Err(IngestError::Incomplete { .. }) => "partial",
        Err(IngestError::Adapter { .. }) => "failed",
        Err(IngestError::Store(_)) => "not_kept",
    }
}

async fn read_and_apply(broker: &Broker, link: &ProviderLink) -> Result<(), IngestError> {
    let provider = link.adapter.profile().provider_id();
    let read = link.adapter.read_catalog(&link.http, broker.now()).await;
    let reading = match read {
        Ok(reading) => reading,
        Err(source) => {
            mark_stale(broker, &provider, &source.to_string()).await?;
            return Err(IngestError::Adapter { provider, source });
        }
    };
    apply(broker, reading).await
}

/// Applies a reading: gate, diff, ledger. The caller refreshes the snapshot.
///
/// Errors: [`IngestError::Incomplete`] for a reading that proves nothing; the provider is then
/// marked stale.
pub async fn apply(broker: &Broker, reading: CatalogReading) -> Result<(), IngestError> {
    let provider = reading.provider.clone();
    if reading.offers.is_empty() {
        let what = "an empty listing";
        let unread = reading.unread_records().next();
        let reason = unread.map_or(what.to_owned(), |one| format!("{what}: {}", in_words(one)));
        mark_stale(broker, &provider, &reason).await?;
        return Err(IngestError::Incomplete { provider, what });
    }
    let mut reading = gate::admit(reading);
    if broker.mode() == DatabaseMode::Production {
        gate::order_only_what_can_be_proved(&mut reading);
    }
    if reading.offers.is_empty() {
        let what = "a listing in which nothing can be meant";
        mark_stale(broker, &provider, what).await?;
        return Err(IngestError::Incomplete { provider, what });
    }
    let catalog = broker.store().catalog();
    let known = catalog.known_offers(&provider).await?;
    let diff = diff::diff(&known.offers, known.read_at, &reading);
    // Offers from a price list, from before the provider was connected, give way at once.
    let was_live = |offer: &&Offer| offer.orderable;
    let live: HashSet<_> = known
        .offers
        .iter()
        .filter(was_live)
        .map(|o| o.offer_id)
        .collect();
    let mut lost = diff.withdrawn.clone();
    lost.retain(|id| live.contains(id));
    if !shrank(live.len(), lost.len()) {
        broker.memory::<ShrinkGuard>().forget(&provider);
    } else if !broker
        .memory::<ShrinkGuard>()
        .confirm_or_remember(&provider, &lost)
    {
        let what = "a listing that shrank by half or more, which the next one must confirm";
        mark_stale(broker, &provider, what).await?;
        return Err(IngestError::Incomplete { provider, what });
    }
    keep(broker, &reading, &diff, known.generation).await
}

/// Appends a trusted reading to the ledger; a reading as recent, applied meanwhile, takes precedence.
async fn keep(
    broker: &Broker,
    reading: &CatalogReading,
    diff: &OfferDiff,
    base: Option<Generation>,
) -> Result<(), IngestError> {
    let catalog = broker.store().catalog();
    let provider = &reading.provider;
    let applied = catalog.apply_reading(reading, diff, base, broker.now());
    let generation = match applied.await {
        Ok(generation) => generation,
        Err(StoreError::Stale) => {
            // Two readings crossed: nothing is amiss, and the provider is not stale for it.
            info!(provider.id = %provider, "A reading of {provider} was kept meanwhile; this one is dropped");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    info!(
        provider.id = %provider, generation = generation.0, offers = reading.offers.len(),
        added = diff.added.len(), changed = diff.changed.len(),
        withdrawn = diff.withdrawn.len(), skipped = reading.skipped.len(),
        "Read the catalogue of {provider}"
    );
    if let Some(first) = reading.unread_records().next() {
        warn!(
            provider.id = %provider, records = reading.unread_records().count(),
            "Not all of the catalogue of {provider} could be read; first {}", in_words(first)
        );
    }
    Ok(())
}

/// A record that could not be read, and why.
fn in_words(unread: &Skipped) -> String {
    let sku = unread.sku.as_deref().unwrap_or("a record without a SKU");
    format!("{sku}: {}", unread.why)
}

/// Whether a reading withdraws so much that it may have been cut short without notice: the full answer of
/// some providers has no page numbers to check.
fn shrank(known: usize, lost: usize) -> bool {
    known >= FEWEST_TO_DOUBT && lost * 2 >= known
}

async fn mark_stale(
    broker: &Broker,
    provider: &ProviderId,
    reason: &str,
) -> Result<(), StoreError> {
    warn!(provider.id = %provider, reason, "Marked {provider} stale");
    broker
        .store()
        .providers()
        .record_failure(provider, reason, broker.now())
        .await
}

/// Reads every provider once; one that fails does not keep the others back.
///
/// The result names each that failed.
pub async fn read_all(broker: &Broker) -> Vec<IngestError> {
    let mut failures = Vec::new();
    for link in broker.providers() {
        if !broker.is_disabled(&link.adapter.profile().provider_id())
            && let Err(error) = read_provider(broker, &link).await
        {
            failures.push(error);
        }
    }
    if let Err(error) = refresh_snapshot(broker).await {
        failures.push(error.into());
    }
    failures
}

/// Updates the snapshot from the database: unchanged parts are shared with the one before.
///
/// Errors: the database's.
pub async fn refresh_snapshot(broker: &Broker) -> Result<(), StoreError> {
    let store = broker.store();
    // Read first: a change from here on is noticed and read again.
    let own_changes = tail::own_changes(broker).await?;
    let standings = store.providers().standings().await?;
    providers::take_up(broker, &standings).await?;
    let live = store.catalog().live_offers().await?;
    let acceptance = providers::counted_lately(broker).await?;
    let mut views = HashMap::new();
    for row in store.providers().list().await? {
        // Providers that are not read live are in price lists: facts of their day, not a live market.
        let limit = broker
            .provider(&row.id)
            .map(|link| link.adapter.profile().freshness_limit.as_secs());
        let view = ProviderView {
            freshness_limit_seconds: limit,
            stale: row.stale_reason.clone(),
            quarantine: row.quarantine.map(|one| Quarantine {
                reason: one.reason,
                until: one.until,
            }),
            facts: broker.config().facts_of(&row.id),
            acceptance: acceptance.get(&row.id).copied().unwrap_or_default(),
        };
        views.insert(row.id, view);
    }
    // An operator may run machines that others sell without selling any here.
    for offer in &live.offers {
        if let MachineOperator::Cloud(id) = &offer.particulars.operator
            && !views.contains_key(id)
        {
            let facts = broker.config().facts_of(id);
            let view = ProviderView {
                facts,
                ..ProviderView::default()
            };
            views.insert(id.clone(), view);
        }
    }
    let generation = live.generation.map_or(0, |generation| generation.0);
    let known = broker.snapshot();
    let snapshot = known.advanced(generation, broker.now(), live.offers, views);
    broker.put_snapshot(snapshot, standings, own_changes);
    Ok(())
}
