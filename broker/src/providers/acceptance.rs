//! What orders at each provider came to of late.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use market::acceptance::AcceptanceRecord;
use market::ids::ProviderId;
use store::{Store, StoreError};

/// How far back orders count: long enough to see many, short enough that a provider that got better
/// is seen to be.
pub const ACCEPTANCE_WINDOW: TimeDelta = TimeDelta::days(30);

/// How the orders of the last 30 days ended, by provider; one where nothing was ordered has none.
///
/// Errors: the database's.
pub async fn acceptance_of_all(
    store: &Store,
    now: DateTime<Utc>,
) -> Result<BTreeMap<ProviderId, AcceptanceRecord>, StoreError> {
    store
        .attempts()
        .acceptance_since(now - ACCEPTANCE_WINDOW)
        .await
}
