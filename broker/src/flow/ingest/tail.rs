//! The snapshot follows the database, on every replica, and so do the known holds of tenants.

use std::time::Duration;

use store::StoreError;
use tokio::time::timeout;
use tracing::warn;

use super::refresh_snapshot;
use crate::flow::plan::PlanMemory;
use crate::platform::app::Broker;
use crate::platform::coordination::Topic;
use crate::platform::stop::Stop;

/// How often the database is checked without a wake-up.
const TICK: Duration = Duration::from_secs(1);
/// A look that takes longer has failed.
const SILENCE: Duration = Duration::from_secs(60);

/// Keeps the snapshot up to date with the database until stopped: each second, and whenever a replica reports
/// that the supply moved.
pub async fn keep_tailing(broker: Broker, stop: Stop) {
    let mut moved = broker.hot().subscribe(Topic::Supply);
    let follow = async {
        let mut told = false;
        loop {
            broker.pulses().beat("tail", SILENCE);
            match catch_up(&broker).await {
                Ok(_) => told = false,
                // Logged once, and again after a success: many tasks report a database that is away.
                Err(failure) if !told => {
                    told = true;
                    warn!(error = %crate::chain(&failure), "The supply could not be followed");
                }
                Err(_) => {}
            }
            // A wake-up or a second later: both look again.
            let _ = timeout(TICK, moved.hear()).await;
        }
    };
    stop.run_until_cancelled(follow).await;
}

/// Reloads the snapshot if the database has changed since it was built; returns whether it did.
///
/// Errors: the database's.
pub async fn catch_up(broker: &Broker) -> Result<bool, StoreError> {
    let store = broker.store();
    let generation = store.catalog().latest_generation().await?;
    let standings = store.providers().standings().await?;
    let planning = broker.memory::<PlanMemory>().tenants();
    let events = store.events().across_tenants();
    let happened = events.last_sequences(&planning).await?;
    broker.memory::<PlanMemory>().follow(&happened);
    let own_changes = own_changes(broker).await?;
    if broker.has_supply(generation.map_or(0, |last| last.0), &standings, own_changes) {
        return Ok(false);
    }
    refresh_snapshot(broker).await?;
    Ok(true)
}

/// How often tenants changed their own capacity.
pub(super) async fn own_changes(broker: &Broker) -> Result<u64, StoreError> {
    let store = broker.store();
    let commitments = store.commitments().across_tenants().changes().await?;
    let accounts = store.provider_accounts().across_tenants().changes().await?;
    Ok(commitments + accounts)
}
