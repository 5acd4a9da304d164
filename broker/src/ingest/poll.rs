//! Reads each provider over and over, each in its own time, with jitter.

use std::time::Duration;

use rand::Rng as _;
use tracing::warn;

use super::{read_provider, refresh_snapshot};
use crate::app::Broker;

/// Reads every provider until the task is dropped.
///
/// Each has a task of its own, so that one that hangs holds up no other.
pub async fn poll_forever(broker: Broker) {
    let mut polls = tokio::task::JoinSet::new();
    for index in 0..broker.providers().len() {
        polls.spawn(poll_one(broker.clone(), index));
    }
    while let Some(ended) = polls.join_next().await {
        if let Err(error) = ended {
            warn!(%error, "The reading of a provider ended");
        }
    }
}

async fn poll_one(broker: Broker, index: usize) {
    let link = &broker.providers()[index];
    let interval = link.adapter.profile().poll_interval;
    loop {
        if let Err(error) = read_provider(&broker, link).await {
            warn!(error = %crate::chain(&error), "A provider could not be read");
        }
        if let Err(error) = refresh_snapshot(&broker).await {
            warn!(error = %crate::chain(&error), "The snapshot could not be refreshed");
        }
        tokio::time::sleep(jittered(interval)).await;
    }
}

/// The interval, a fifth more or less, so that many brokers do not call in step.
fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(rand::rng().random_range(0.8..1.2))
}
