//! Price lists come in: each provider in them as one whole reading.
//!
//! A file is complete by itself, so nothing in it is doubted. An offer is withdrawn when no list names it any
//! more, unless it may be in a part that could not be read. A list that cannot be kept holds up no other. Its
//! offers are as old as the file: a rewritten file states all its prices again, also unchanged ones.

use std::collections::{BTreeMap, HashMap};

use adapters::pricesheet::PriceSheets;
use market::catalog::{CatalogReading, OfferDiff, Unread};
use market::ids::{OfferId, ProviderId};
use market::offer::Offer;
use tracing::{info, warn};

use super::{IngestError, diff, gate, keep, refresh_snapshot};
use crate::platform::app::Broker;

/// Applies all price lists that are configured, at once.
///
/// A connected provider's own readings count, and lists' rows about it are left out. Offers of providers that
/// are neither connected nor in any list are withdrawn.
/// Errors: the database's, of the last that failed.
pub async fn read_price_lists(broker: &Broker, sheets: &PriceSheets) -> Result<(), IngestError> {
    let mut by_provider: BTreeMap<ProviderId, Vec<Offer>> = BTreeMap::new();
    for row in broker.store().providers().list().await? {
        if broker.provider(&row.id).is_none() {
            by_provider.insert(row.id, Vec::new());
        }
    }
    let mut left_out: BTreeMap<&ProviderId, usize> = BTreeMap::new();
    for offer in &sheets.offers {
        let provider = &offer.provider;
        if broker.provider(provider).is_some() {
            *left_out.entry(provider).or_default() += 1;
            continue;
        }
        let of_provider = by_provider.entry(provider.clone()).or_default();
        of_provider.push(offer.clone());
    }
    for (provider, offers) in left_out {
        info!(
            provider.id = %provider, offers,
            "Left out the price lists' rows about {provider}: it is connected and read live"
        );
    }
    let mut outcome = Ok(());
    let unread = unread(sheets);
    for (provider, offers) in by_provider {
        if let Err(error) = apply(broker, provider.clone(), offers, &unread).await {
            warn!(provider.id = %provider, error = %crate::chain(&error), "A price list was not kept");
            outcome = Err(error);
        }
    }
    for unread in sheets.unread_files() {
        let file = unread.file.as_deref().unwrap_or("a price list");
        warn!(file, reason = %unread.reason, "{file} was not read: {}", unread.why);
    }
    for skipped in sheets
        .skipped
        .iter()
        .filter(|skipped| skipped.row.is_some())
    {
        let file = skipped.file.as_deref().unwrap_or("a price list");
        info!(file, rows = skipped.rows, reason = %skipped.reason, "Skipped: {}", skipped.why);
    }
    refresh_snapshot(broker).await?;
    outcome
}

/// Entries that could not be read, of any seller: rows by their SKU. A file that cannot be read at all may
/// hold any offer. A row without a SKU counts as no offer: many lists end in a sum.
fn unread(sheets: &PriceSheets) -> Unread {
    let mut unread = Unread::Nothing;
    for skipped in &sheets.skipped {
        let sku = skipped.sku.as_deref().map(|sku| sku.trim().to_owned());
        if skipped.row.is_none() || (skipped.is_unread() && sku.is_some()) {
            unread.note(sku);
        }
    }
    unread
}

async fn apply(
    broker: &Broker,
    provider: ProviderId,
    offers: Vec<Offer>,
    unread: &Unread,
) -> Result<(), IngestError> {
    broker
        .store()
        .providers()
        .ensure(&provider, broker.now())
        .await?;
    let known = broker.store().catalog().known_offers(&provider).await?;
    // Offers read from a provider that is no longer connected are in no list.
    let is_listed = !known.offers.iter().any(|offer| offer.orderable);
    let reading = gate::admit(CatalogReading {
        provider,
        read_at: broker.now(),
        offers,
        skipped: Vec::new(),
        unread: match is_listed {
            true => unread.clone(),
            false => Unread::Nothing,
        },
    });
    let mut diff = diff::diff(&known.offers, known.read_at, &reading);
    let redated = redated(&known.offers, &reading, &diff);
    diff.changed.extend(redated);
    if reading.offers.is_empty() && diff.is_empty() {
        return Ok(());
    }
    keep(broker, &reading, &diff, known.generation).await
}

/// Offers of which nothing changed but the date of their list.
fn redated(known: &[Offer], reading: &CatalogReading, diff: &OfferDiff) -> Vec<Offer> {
    let mut dates: HashMap<OfferId, _> = known
        .iter()
        .map(|offer| (offer.offer_id, offer.observed_at))
        .collect();
    for changed in &diff.changed {
        dates.remove(&changed.offer_id);
    }
    let is_redated = |offer: &&Offer| {
        let before = dates.get(&offer.offer_id);
        before.is_some_and(|before| *before != offer.observed_at)
    };
    reading.offers.iter().filter(is_redated).cloned().collect()
}
