//! The outcomes of recent orders at each provider.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use market::acceptance::AcceptanceRecord;
use market::ids::ProviderId;
use store::{Store, StoreError};

use crate::platform::app::Broker;

/// How far back orders count: long enough to see many, short enough that a provider's improvement shows.
const ACCEPTANCE_WINDOW: TimeDelta = TimeDelta::days(30);
/// How long the counts are good: each is a sum over all orders of a month.
const COUNTED_FOR: TimeDelta = TimeDelta::minutes(5);

type Records = BTreeMap<ProviderId, AcceptanceRecord>;

/// The last counts, and when they were made.
#[derive(Debug, Default)]
pub(crate) struct AcceptanceMemory(Mutex<Option<(DateTime<Utc>, Arc<Records>)>>);

/// How the orders of the last 30 days ended, by provider; a provider without orders has no entry. Orders of
/// other people's machines do not count for the marketplace: any of these people could spoil its record.
///
/// Errors: the database's.
pub async fn acceptance_of_all(store: &Store, now: DateTime<Utc>) -> Result<Records, StoreError> {
    let since = now - ACCEPTANCE_WINDOW;
    store.attempts().acceptance_since(since).await
}

/// The same, counted within the last five minutes.
///
/// Errors: the database's.
pub(crate) async fn counted_lately(broker: &Broker) -> Result<Arc<Records>, StoreError> {
    let now = broker.now();
    let AcceptanceMemory(memory) = &*broker.memory::<AcceptanceMemory>();
    let known = memory
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    // One from the future is of before the clock was set.
    let is_good = |at: DateTime<Utc>| at <= now && now - at < COUNTED_FOR;
    if let Some((_, records)) = known.filter(|(at, _)| is_good(*at)) {
        return Ok(records);
    }
    let records = Arc::new(acceptance_of_all(broker.store(), now).await?);
    let counted = Some((now, Arc::clone(&records)));
    *memory.lock().unwrap_or_else(PoisonError::into_inner) = counted;
    Ok(records)
}
