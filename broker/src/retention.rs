//! What is let go in time: events, deliveries of webhooks, idempotency keys. How old each may grow is
//! configured (`[retention]`); what is never let go is in `store::retention`.

use std::time::Duration;

use chrono::TimeDelta;
use store::StoreError;
use tokio::time::sleep;
use tracing::{error, info};

use crate::app::Broker;
use crate::background::Stop;
use crate::hot::turn::keep_turns;

/// How often what is old is looked for.
const INTERVAL: Duration = Duration::from_secs(10 * 60);
/// Rows that one transaction lets go.
const BATCH: u64 = 500;

/// How many rows were let go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Events.
    pub events: u64,
    /// Deliveries of webhooks.
    pub deliveries: u64,
    /// Idempotency keys.
    pub idempotency_keys: u64,
}

/// Lets go what is old until it is told to stop, while no other replica does.
pub async fn keep_pruning(broker: Broker, stop: Stop) {
    let turn = || async {
        match prune(&broker).await {
            Ok(pruned) if pruned == Pruned::default() => {}
            Ok(pruned) => info!(
                events = pruned.events,
                deliveries = pruned.deliveries,
                idempotency_keys = pruned.idempotency_keys,
                "Let go what is old"
            ),
            // What is left is let go the next time.
            Err(failure) => {
                error!(error = %crate::chain(&failure), "What is old could not be let go");
            }
        }
        sleep(INTERVAL).await;
    };
    keep_turns(&broker, "prune", &stop, turn).await;
}

/// Lets go everything that is old, a batch at a time.
///
/// Errors: the database's; what was let go before stays so.
pub async fn prune(broker: &Broker) -> Result<Pruned, StoreError> {
    let (store, now) = (broker.store().retention(), broker.now());
    let ages = &broker.config().retention;
    let before = |days: u32| now - TimeDelta::days(days.into());
    let mut pruned = Pruned::default();
    // A delivery keeps its event.
    let deliveries = before(ages.webhook_deliveries_days);
    while add(
        &mut pruned.deliveries,
        store.prune_deliveries(deliveries, BATCH).await?,
    ) {}
    let events = before(ages.events_days);
    for tenant in store.tenants_with_events().await? {
        while add(
            &mut pruned.events,
            store.prune_events(tenant, events, BATCH).await?,
        ) {}
    }
    while add(
        &mut pruned.idempotency_keys,
        store.prune_idempotency_keys(now, BATCH).await?,
    ) {}
    Ok(pruned)
}

/// Counts a batch; says whether there may be another.
fn add(sum: &mut u64, batch: u64) -> bool {
    *sum += batch;
    batch == BATCH
}
