//! The running broker, which every stage and every handler uses.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use arc_swap::ArcSwap;
use chrono::{DateTime, Utc};
use market::ids::ProviderId;
use market::provider_facts::ProviderFacts;
use matcher::Snapshot;
use store::Store;
use store::providers::ProviderStanding;
use store::settings::DatabaseMode;
use tokio::sync::Mutex as AsyncMutex;
use uuid::{ContextV7, Timestamp, Uuid};

use crate::platform::clock::Clock;
use crate::platform::config::Config;
use crate::platform::coordination::{HotState, Topic, WakeUps};
use crate::platform::heartbeat::Heartbeats;
use crate::platform::keys::Keys;
use crate::platform::memory::Memory;
use crate::platform::oidc::Oidc;
use crate::platform::provider_set::{ProviderLink, ProviderSet};

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

/// The parts of a broker.
pub struct Parts {
    /// The configuration.
    pub config: Config,
    /// The database, migrated and with its mode settled.
    pub store: Store,
    /// The mode that the database was made in.
    pub mode: DatabaseMode,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The coordination state, which replicas share for speed.
    pub hot: Arc<dyn HotState>,
    /// The signing keys.
    pub keys: Keys,
    /// The outside issuers that are trusted.
    pub oidc: Oidc,
    /// The providers that are connected from the start on.
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
    providers: RwLock<ProviderSet>,
    replica: String,
    supply: ArcSwap<Supply>,
    work_to_do: AsyncMutex<WakeUps>,
    memory: Memory,
    pulses: Arc<Heartbeats>,
    ids: Mutex<ContextV7>,
}

/// The inputs of a snapshot.
struct Supply {
    snapshot: Arc<Snapshot>,
    standings: Vec<ProviderStanding>,
    own_changes: u64,
    mark: SupplyMark,
}

/// Identifies what a snapshot sells, on any replica: the generation of the market, a digest of the state and
/// the records of the providers, and the number of changes that tenants made to their own capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SupplyMark {
    generation: u64,
    standings: [u8; 16],
    own_changes: u64,
}

/// The records of providers, by their ids.
type OnRecord<'a> = Vec<(&'a ProviderId, ProviderFacts)>;

impl SupplyMark {
    fn of(
        generation: u64,
        standings: &[ProviderStanding],
        on_record: &OnRecord<'_>,
        own_changes: u64,
    ) -> Self {
        let text = format!("{standings:?}{on_record:?}");
        let mut digest = [0; 16];
        blake3::Hasher::new()
            .update(text.as_bytes())
            .finalize_xof()
            .fill(&mut digest);
        Self {
            generation,
            standings: digest,
            own_changes,
        }
    }
}

impl fmt::Display for SupplyMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let standings = hex::encode(self.standings);
        write!(f, "{}-{standings}-{}", self.generation, self.own_changes)
    }
}

impl Broker {
    /// Puts a broker together. Its snapshot is empty until something was read.
    #[must_use]
    pub fn new(mut parts: Parts) -> Self {
        let given = std::mem::take(&mut parts.providers);
        let providers = RwLock::new(ProviderSet::given(given));
        let empty = Snapshot::new(0, parts.clock.now(), Vec::new(), HashMap::new());
        let supply = Supply {
            snapshot: Arc::new(empty),
            standings: Vec::new(),
            own_changes: 0,
            mark: SupplyMark::of(0, &[], &Vec::new(), 0),
        };
        let work_to_do = parts.hot.subscribe(Topic::Work);
        Self(Arc::new(Inner {
            parts,
            providers,
            replica: Uuid::now_v7().simple().to_string(),
            supply: ArcSwap::from_pointee(supply),
            work_to_do: AsyncMutex::new(work_to_do),
            memory: Memory::default(),
            pulses: Arc::default(),
            ids: Mutex::new(ContextV7::new()),
        }))
    }

    /// The clock.
    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.0.parts.clock
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

    /// The outside issuers that are trusted.
    pub(crate) fn oidc(&self) -> &Oidc {
        &self.0.parts.oidc
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

    /// Every provider that is connected, by id.
    #[must_use]
    pub fn providers(&self) -> Vec<Arc<ProviderLink>> {
        self.provider_set(|set| set.links())
    }

    /// One provider that is connected.
    #[must_use]
    pub fn provider(&self, id: &ProviderId) -> Option<Arc<ProviderLink>> {
        self.provider_set(|set| set.link(id))
    }

    /// Looks at the providers that are connected, or changes them.
    pub(crate) fn provider_set<T>(&self, work: impl FnOnce(&mut ProviderSet) -> T) -> T {
        let set = self.0.providers.write();
        work(&mut set.unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a provider was switched off, as of the last look at the database.
    #[must_use]
    pub fn is_disabled(&self, id: &ProviderId) -> bool {
        let supply = self.0.supply.load();
        let mut standings = supply.standings.iter();
        standings.any(|standing| standing.id == id.as_str() && !standing.enabled)
    }

    /// All live offers, as of the last applied reading.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.supply().0
    }

    /// All live offers, and the mark of their inputs.
    pub(crate) fn supply(&self) -> (Arc<Snapshot>, SupplyMark) {
        let supply = self.0.supply.load();
        (Arc::clone(&supply.snapshot), supply.mark)
    }

    /// Whether the snapshot was built from the database's present content, by these marks.
    pub(crate) fn has_supply(
        &self,
        generation: u64,
        standings: &[ProviderStanding],
        own_changes: u64,
    ) -> bool {
        let supply = self.0.supply.load();
        supply.snapshot.generation() == generation
            && supply.standings == standings
            && supply.own_changes == own_changes
    }

    /// Replaces the snapshot with a newer one, with the state of its providers and the number of changes that
    /// tenants had made to their own capacity; an older one changes nothing. Readers never wait for it.
    pub(crate) fn put_snapshot(
        &self,
        snapshot: Snapshot,
        standings: Vec<ProviderStanding>,
        own_changes: u64,
    ) {
        let providers = self.config().providers.iter();
        let on_record: OnRecord<'_> = providers.map(|(id, known)| (id, known.facts())).collect();
        let next = Arc::new(Supply {
            mark: SupplyMark::of(snapshot.generation(), &standings, &on_record, own_changes),
            snapshot: Arc::new(snapshot),
            standings,
            own_changes,
        });
        self.0.supply.rcu(|known| {
            let newer = next.snapshot.generation() >= known.snapshot.generation();
            Arc::clone(if newer { &next } else { known })
        });
    }

    /// The memory of one stage on this replica: the value of this type, which is made on first use.
    pub(crate) fn memory<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.memory_or(T::default)
    }

    /// The same, of a value that `make` makes.
    pub(crate) fn memory_or<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        self.0.memory.of(make)
    }

    /// The heartbeats of the background tasks.
    #[must_use]
    pub fn pulses(&self) -> &Arc<Heartbeats> {
        &self.0.pulses
    }

    /// The coordination state, which replicas share for speed.
    #[must_use]
    pub fn hot(&self) -> &dyn HotState {
        &*self.0.parts.hot
    }

    /// The name of this replica among those that share work; a new one at each start.
    #[must_use]
    pub fn replica(&self) -> &str {
        &self.0.replica
    }

    /// Notifies the workers of all replicas that a reservation is due.
    pub fn nudge(&self) {
        self.hot().publish(Topic::Work);
    }

    /// Waits for a nudge.
    pub(crate) async fn nudged(&self) {
        self.0.work_to_do.lock().await.hear().await;
    }
}
