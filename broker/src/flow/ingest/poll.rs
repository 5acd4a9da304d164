//! Reads a provider over and over, with jitter, and sooner after a lease there is gone, because its capacity
//! is free again. One replica does it for all: the one that has the leader lease for it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use market::ids::ProviderId;
use rand::Rng as _;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::{IngestError, read_provider, refresh_snapshot};
use crate::platform::app::Broker;
use crate::platform::coordination::{Topic, WakeUps};
use crate::platform::leader::{acquire, keep_turns};
use crate::platform::provider_set::ProviderLink;
use crate::platform::stop::Stop;

/// How the tasks that read providers are called, before the id.
pub(crate) const POLL: &str = "poll:";

/// How soon a provider is read that is entered or enabled while we run.
const UNTIL_ENTERED: Duration = Duration::from_secs(1);

/// A reading never comes sooner than this part of the interval.
const SOONEST_PART: u32 = 6;
/// How long wake-ups are gathered before the database is asked for their causes.
const GATHER: Duration = Duration::from_secs(1);

/// Reads one provider until stopped, while no other replica does and while the provider is connected and
/// enabled; a reading under way is dropped on stop.
pub async fn keep_polling(broker: Broker, provider: ProviderId, stop: Stop) {
    let turn = || async {
        match broker.provider(&provider) {
            Some(link) if !broker.is_disabled(&provider) => {
                let returns = broker.hot().subscribe(Topic::Returns);
                let began = broker.now();
                read(&broker, &link).await;
                let interval = jittered(link.adapter.profile().poll_interval);
                rest(&broker, &provider, began, returns, interval).await;
            }
            _ => sleep(UNTIL_ENTERED).await,
        }
    };
    keep_turns(&broker, &lease_of(&provider), &stop, turn).await;
}

/// Pauses for the interval, or for a part of it if a lease of the provider has ended since its reading began:
/// that lease's capacity is free, and no reading shows it yet.
async fn rest(
    broker: &Broker,
    provider: &ProviderId,
    began: DateTime<Utc>,
    mut returns: WakeUps,
    interval: Duration,
) {
    let soonest = interval / SOONEST_PART;
    sleep(soonest).await;
    let returned = async {
        loop {
            let leases = broker.store().leases().across_tenants();
            match leases.any_gone_since(provider, began).await {
                Ok(true) => return,
                Ok(false) => {}
                // The interval ends the pause in any case.
                Err(error) => {
                    warn!(error = %crate::chain(&error), "The returned capacity could not be read");
                }
            }
            returns.hear().await;
            sleep(GATHER).await;
        }
    };
    // Either way it is time.
    let _ = timeout(interval - soonest, returned).await;
}

/// The lease of the reading of a provider, and the name of the task that holds it.
pub(crate) fn lease_of(provider: &ProviderId) -> String {
    format!("{POLL}{provider}")
}

/// Reads once every provider that no other replica reads, and takes the readings of others from the database.
///
/// The result names each that failed.
pub async fn read_own(broker: &Broker) -> Vec<IngestError> {
    let mut failures = Vec::new();
    for link in broker.providers() {
        let provider = link.adapter.profile().provider_id();
        if !broker.is_disabled(&provider)
            && acquire(broker, &lease_of(&provider)).await
            && let Err(failure) = read_provider(broker, &link).await
        {
            failures.push(failure);
        }
    }
    if let Err(failure) = refresh_snapshot(broker).await {
        failures.push(failure.into());
    }
    broker.hot().publish(Topic::Supply);
    failures
}

async fn read(broker: &Broker, link: &ProviderLink) {
    if let Err(error) = read_provider(broker, link).await {
        warn!(error = %crate::chain(&error), "A provider could not be read");
    }
    if let Err(error) = refresh_snapshot(broker).await {
        warn!(error = %crate::chain(&error), "The snapshot could not be refreshed");
    }
    broker.hot().publish(Topic::Supply);
}

/// The interval, a fifth more or less, so that many brokers do not call in step.
fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(rand::rng().random_range(0.8..1.2))
}
