//! The running broker: what every stage and every handler works with.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use adapters::{Adapter, Http};
use chrono::{DateTime, Utc};
use market::ids::ProviderId;
use matcher::Snapshot;
use store::Store;
use store::settings::DatabaseMode;
use tokio::sync::Notify;
use uuid::{ContextV7, Timestamp, Uuid};

use crate::clock::Clock;
use crate::config::Config;
use crate::ingest::Doubts;
use crate::keys::Keys;
use crate::plan::PlanMemory;
use crate::verify::StepClock;

/// A provider that we read and order from.
pub struct ProviderLink {
    /// Our code for it.
    pub adapter: &'static dyn Adapter,
    /// The connection that everything said to it goes through.
    pub http: Http,
}

/// How nodes come by the agent that verifies them.
#[derive(Debug, Clone)]
pub enum AgentDelivery {
    /// Real nodes fetch the agent file from us and check its hash.
    File {
        /// Where it lies.
        path: PathBuf,
        /// Its SHA-256, in hexadecimal.
        sha256: String,
    },
    /// Pretend nodes run this executable's own agent on the reference device.
    Simulated {
        /// The broker's executable.
        executable: PathBuf,
    },
    /// No agent is configured: nothing can be verified, so nothing is handed off.
    Missing,
}

/// What a broker is put together from.
pub struct Parts {
    /// The configuration.
    pub config: Config,
    /// The database, migrated and with its mode settled.
    pub store: Store,
    /// The mode that the database was made in.
    pub mode: DatabaseMode,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The signing keys.
    pub keys: Keys,
    /// The providers that can be read and ordered from.
    pub providers: Vec<ProviderLink>,
    /// How nodes come by the agent.
    pub agent: AgentDelivery,
    /// The address under which nodes reach us, without a slash at the end.
    pub public_url: String,
}

/// The running broker. A handle: clones share everything.
#[derive(Clone)]
pub struct Broker(Arc<Inner>);

struct Inner {
    parts: Parts,
    providers: BTreeMap<ProviderId, usize>,
    snapshot: RwLock<Arc<Snapshot>>,
    plans: PlanMemory,
    work_to_do: Notify,
    step_clock: StepClock,
    doubts: Doubts,
    ids: Mutex<ContextV7>,
}

impl Broker {
    /// Puts a broker together. Its snapshot is empty until something was read.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let providers = parts
            .providers
            .iter()
            .enumerate()
            .map(|(index, link)| (link.adapter.profile().provider_id(), index))
            .collect();
        let empty = Snapshot::new(0, parts.clock.now(), Vec::new(), HashMap::new());
        Self(Arc::new(Inner {
            parts,
            providers,
            snapshot: RwLock::new(Arc::new(empty)),
            plans: PlanMemory::default(),
            work_to_do: Notify::new(),
            step_clock: StepClock::default(),
            doubts: Doubts::default(),
            ids: Mutex::new(ContextV7::new()),
        }))
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> DateTime<Utc> {
        self.0.parts.clock.now()
    }

    /// A fresh UUID, version 7, of the broker's clock.
    #[must_use]
    pub fn new_uuid(&self) -> Uuid {
        let now = self.now();
        let seconds = u64::try_from(now.timestamp()).unwrap_or(0);
        // The context counts on within a millisecond, so that ids sort in the order of making.
        let context = self.0.ids.lock().unwrap_or_else(PoisonError::into_inner);
        Uuid::new_v7(Timestamp::from_unix(
            &*context,
            seconds,
            now.timestamp_subsec_nanos(),
        ))
    }

    /// The database.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.0.parts.store
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.0.parts.config
    }

    /// The signing keys.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.0.parts.keys
    }

    /// The mode that the database was made in.
    #[must_use]
    pub fn mode(&self) -> DatabaseMode {
        self.0.parts.mode
    }

    /// How nodes come by the agent.
    #[must_use]
    pub fn agent(&self) -> &AgentDelivery {
        &self.0.parts.agent
    }

    /// The address under which nodes reach us, without a slash at the end.
    #[must_use]
    pub fn public_url(&self) -> &str {
        &self.0.parts.public_url
    }

    /// Every provider that can be read and ordered from.
    #[must_use]
    pub fn providers(&self) -> &[ProviderLink] {
        &self.0.parts.providers
    }

    /// One provider that can be ordered from.
    #[must_use]
    pub fn provider(&self, id: &ProviderId) -> Option<&ProviderLink> {
        self.0
            .providers
            .get(id)
            .map(|index| &self.0.parts.providers[*index])
    }

    /// All live offers, as of the last applied reading.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(
            &self
                .0
                .snapshot
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Puts a newer snapshot in place; an older one changes nothing.
    pub(crate) fn put_snapshot(&self, snapshot: Snapshot) {
        let mut current = self
            .0
            .snapshot
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if snapshot.generation() >= current.generation() {
            *current = Arc::new(snapshot);
        }
    }

    /// The plans that were made lately.
    pub(crate) fn plan_memory(&self) -> &PlanMemory {
        &self.0.plans
    }

    /// Readings that are not believed at once.
    pub(crate) fn doubts(&self) -> &Doubts {
        &self.0.doubts
    }

    /// The real clock between the steps of a verification.
    pub(crate) fn step_clock(&self) -> &StepClock {
        &self.0.step_clock
    }

    /// Tells the workers of this process that a reservation is due.
    pub fn nudge(&self) {
        self.0.work_to_do.notify_one();
    }

    /// Waits for a nudge.
    pub(crate) async fn nudged(&self) {
        self.0.work_to_do.notified().await;
    }
}
