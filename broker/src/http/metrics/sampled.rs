//! The metrics read on request: the state of the supply, the queues and this process.
//!
//! Each look has a recorder of its own, so that a provider or a task that is gone leaves no series
//! behind, and several brokers in one process do not mix.

use std::collections::BTreeMap;

use ::metrics::{gauge, with_local_recorder};
use chrono::{DateTime, Utc};
use market::catalog::SkipReason;
use market::reservation::ReservationState;
use metrics_exporter_prometheus::PrometheusBuilder;
use store::StoreError;
use store::catalog::Generation;
use store::measures::{Behind, QueueDepth};
use store::providers::Provider;
use tracing::warn;

use crate::platform::app::Broker;
use crate::platform::metrics::seconds;
use crate::platform::metrics::table::{self, *};

/// The gauges as Prometheus reads them. Gauges that the database gives no value for are left out.
pub(super) async fn render(broker: &Broker) -> String {
    let stored = match Stored::read(broker).await {
        Ok(stored) => Some(stored),
        Err(failure) => {
            let causes = crate::chain(&failure);
            warn!(error = %causes, "Metrics of the database could not be read");
            None
        }
    };
    let recorder = PrometheusBuilder::new().build_recorder();
    with_local_recorder(&recorder, || {
        table::describe(METRICS.iter().filter(|metric| metric.sampled));
        process(broker);
        gauge!(DATABASE_UP.name).set(flag(stored.is_some()));
        if let Some(stored) = &stored {
            stored.set();
        }
    });
    recorder.handle().render()
}

/// The state that this process knows by itself.
fn process(broker: &Broker) {
    for (task, life) in broker.pulses().lives() {
        gauge!(TASK_ALIVE.name, "task" => task).set(flag(life.is_alive()));
    }
    gauge!(HOT_STATE_LOST.name).set(flag(broker.hot().is_lost()));
    for pool in broker.store().pools() {
        let state = |word| gauge!(CONNECTIONS.name, "pool" => pool.pool, "state" => word);
        state("busy").set(pool.busy);
        state("idle").set(pool.idle);
        gauge!(CONNECTIONS_MOST.name, "pool" => pool.pool).set(pool.most);
    }
    for link in broker.providers() {
        let profile = link.adapter.profile();
        let provider = profile.provider_id().to_string();
        gauge!(FRESHNESS_LIMIT.name, "provider" => provider)
            .set(profile.freshness_limit.as_secs_f64());
    }
}

/// The database's state, read before anything is set: a recorder is in place for one thread only.
struct Stored {
    now: DateTime<Utc>,
    providers: Vec<Provider>,
    skipped: Vec<(String, &'static str, u64)>,
    behind: Behind,
    work: QueueDepth,
    webhooks: QueueDepth,
    reservations: BTreeMap<String, u64>,
}

impl Stored {
    async fn read(broker: &Broker) -> Result<Self, StoreError> {
        let (store, now) = (broker.store(), broker.now());
        let measures = store.measures();
        let skipped = measures.skipped().await?.into_iter();
        Ok(Self {
            now,
            providers: store.providers().list().await?,
            skipped: skipped
                .flat_map(|(provider, reasons)| {
                    let provider = provider.to_string();
                    let each = move |(reason, records): (SkipReason, u64)| {
                        (provider.clone(), reason.as_str(), records)
                    };
                    reasons.into_iter().map(each)
                })
                .collect(),
            behind: measures
                .behind(Generation(broker.snapshot().generation()))
                .await?,
            work: measures.work(now).await?,
            webhooks: measures.webhooks(now).await?,
            reservations: measures.open_reservations().await?,
        })
    }

    fn set(&self) {
        for provider in &self.providers {
            let name = provider.id.to_string();
            if let Some(at) = provider.last_complete_at {
                gauge!(READING_AGE.name, "provider" => name.clone()).set(self.age(Some(at)));
            }
            gauge!(LIVE_OFFERS.name, "provider" => name).set(provider.live_offers);
        }
        for (provider, reason, records) in &self.skipped {
            gauge!(SKIPPED.name, "provider" => provider.clone(), "reason" => *reason)
                .set(*records as f64);
        }
        let behind = &self.behind;
        gauge!(SNAPSHOT_BEHIND.name).set(behind.generations as f64);
        gauge!(SNAPSHOT_LAG.name).set(self.age(behind.since));
        gauge!(WORK_WAITING.name).set(self.work.waiting as f64);
        gauge!(WORK_DUE.name).set(self.work.due as f64);
        gauge!(WORK_CLAIMED.name).set(self.work.claimed as f64);
        gauge!(WORK_OLDEST.name).set(self.age(self.work.oldest_due_at));
        gauge!(WEBHOOKS_WAITING.name).set(self.webhooks.waiting as f64);
        gauge!(WEBHOOKS_DUE.name).set(self.webhooks.due as f64);
        gauge!(WEBHOOKS_OLDEST.name).set(self.age(self.webhooks.oldest_due_at));
        // A state without reservations is exported too, so that its series drops to 0 and does not end.
        let open = ReservationState::all().into_iter();
        for state in open.filter(|state| !state.is_closed()) {
            let state = state.as_str();
            let number = self.reservations.get(state).copied().unwrap_or_default();
            gauge!(RESERVATIONS.name, "state" => state).set(number as f64);
        }
    }

    /// How long ago something was; 0 for nothing.
    fn age(&self, at: Option<DateTime<Utc>>) -> f64 {
        at.map_or(0.0, |at| seconds(self.now - at))
    }
}

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}
