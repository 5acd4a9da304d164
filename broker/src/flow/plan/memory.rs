//! The plans that were made lately, and when one still answers: the one place that decides it.
//!
//! A plan is remembered under the demand that it answers. With the answer as it was sent, it is also
//! remembered under the raw bytes of the demand, so a demand answered before is not even parsed. Other
//! replicas learn its id through the coordination state and read it from the database.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use actix_web::web::Bytes;
use market::identity::TenantScope;
use market::ids::TenantId;
use moka::sync::Cache;
use store::StoreError;

use super::{PlanRecord, find};
use crate::platform::app::{Broker, SupplyMark};

/// How long a plan answers for its supply.
pub(super) const LIFE: Duration = Duration::from_secs(60);
/// How much is kept. Units: bytes of answers, and of plans by [`weight`].
const KEPT_BYTES: u64 = 96 * 1024 * 1024;
/// The size of a candidate with its lines and reasons, about: three times its text on the wire.
const CANDIDATE_BYTES: usize = 3 * 1024;

/// The question that a plan answers: a demand, the tenant, the supply, and the tenant's last hold before it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PlanKey {
    whose: TenantScope,
    supply: SupplyMark,
    holds: HoldsMark,
    demand: [u8; 32],
}

impl PlanKey {
    /// That of a demand in this text.
    pub(super) fn new(
        whose: TenantScope,
        supply: SupplyMark,
        holds: HoldsMark,
        demand: &[u8],
    ) -> Self {
        Self {
            whose,
            supply,
            holds,
            demand: *blake3::hash(demand).as_bytes(),
        }
    }

    /// The name under which other replicas find the plan; `None` where this one met capacity that was gone,
    /// of which they do not know.
    fn shared(&self) -> Option<String> {
        let Self { whose, supply, .. } = self;
        let demand = hex::encode(self.demand);
        let is_shared = self.holds.met_gone == 0;
        is_shared.then(|| format!("plan:{whose}:{supply}-{}:{demand}", self.holds.events))
    }
}

/// Distinguishes a tenant's current plans from those before it last reserved or released something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct HoldsMark {
    /// The number of its last event known here: every action of a tenant is an event.
    events: u64,
    /// How often since then it met capacity here that was gone, which no event reports.
    met_gone: u64,
}

/// A plan, and the answer in which it was sent.
#[derive(Clone)]
pub(super) struct MadePlan {
    pub(super) record: Arc<PlanRecord>,
    answer: Option<Bytes>,
}

/// The plans made recently, by the question that they answer.
pub(crate) struct PlanMemory {
    made: Cache<PlanKey, MadePlan>,
    holds: Mutex<HashMap<TenantId, HoldsMark>>,
}

impl Default for PlanMemory {
    fn default() -> Self {
        let cache = Cache::builder()
            .max_capacity(KEPT_BYTES)
            .weigher(|_: &PlanKey, made: &MadePlan| weight(made))
            .time_to_live(LIFE);
        Self {
            made: cache.build(),
            holds: Mutex::default(),
        }
    }
}

impl PlanMemory {
    /// The plan for this, where it still answers.
    pub(super) fn find(&self, broker: &Broker, key: &PlanKey) -> Option<MadePlan> {
        let known = self.made.get(key)?;
        still_answers(broker, &known.record).then_some(known)
    }

    /// The plan that another replica made for this; where it is missing, a new one serves as well.
    pub(super) async fn made_elsewhere(
        &self,
        broker: &Broker,
        key: &PlanKey,
    ) -> Option<Arc<PlanRecord>> {
        let id = broker.hot().cached(&key.shared()?).await?;
        let id = std::str::from_utf8(&id).ok()?.parse().ok()?;
        let record = Arc::new(find(broker, &key.whose, id).await.ok()?);
        if !still_answers(broker, &record) {
            return None;
        }
        self.keep(key.clone(), &record, None);
        Some(record)
    }

    /// Remembers a plan, here and for other replicas.
    pub(super) async fn share(&self, broker: &Broker, key: PlanKey, record: &Arc<PlanRecord>) {
        if let Some(shared) = key.shared() {
            let id = record.id.to_string();
            broker.hot().cache(&shared, id.as_bytes(), LIFE).await;
        }
        self.keep(key, record, None);
    }

    fn keep(&self, key: PlanKey, record: &Arc<PlanRecord>, answer: Option<Bytes>) {
        let record = Arc::clone(record);
        self.made.insert(key, MadePlan { record, answer });
    }

    /// The change of holds that a tenant's current plans reflect; `None` for a tenant that has neither
    /// planned nor held anything here.
    fn holds_of(&self, tenant: TenantId) -> Option<HoldsMark> {
        self.marks().get(&tenant).copied()
    }

    /// The tenants that planned or held something here.
    pub(crate) fn tenants(&self) -> Vec<TenantId> {
        self.marks().keys().copied().collect()
    }

    /// Invalidates the plans of tenants that did more than was known, by the numbers of their last events.
    pub(crate) fn follow(&self, happened: &[(TenantId, u64)]) {
        let mut marks = self.marks();
        for (tenant, events) in happened {
            let mark = marks.entry(*tenant).or_default();
            if *events > mark.events {
                *mark = HoldsMark {
                    events: *events,
                    met_gone: 0,
                };
            }
        }
    }

    /// Invalidates the tenant's plans: the free capacity has changed.
    pub(crate) fn met_gone(&self, tenant: TenantId) {
        self.marks().entry(tenant).or_default().met_gone += 1;
    }

    fn marks(&self) -> MutexGuard<'_, HashMap<TenantId, HoldsMark>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The current answer to a demand written like this.
///
/// Errors: the database's.
pub(crate) async fn key_of(
    broker: &Broker,
    whose: TenantScope,
    written: &[u8],
) -> Result<PlanKey, StoreError> {
    let (_, supply) = broker.supply();
    let holds = holds_of(broker, whose.tenant).await?;
    Ok(PlanKey::new(whose, supply, holds, written))
}

/// The answer that was sent to this, where its plan still answers.
pub(crate) fn answered(broker: &Broker, key: &PlanKey) -> Option<Bytes> {
    broker.memory::<PlanMemory>().find(broker, key)?.answer
}

/// Remembers the answer that a plan is sent in.
pub(crate) fn keep_answer(broker: &Broker, key: PlanKey, record: &Arc<PlanRecord>, answer: Bytes) {
    let memory = broker.memory::<PlanMemory>();
    memory.keep(key, record, Some(answer));
}

/// The change of holds that a tenant's current plans reflect.
///
/// Errors: the database's, which is asked where nothing is known yet.
pub(super) async fn holds_of(broker: &Broker, tenant: TenantId) -> Result<HoldsMark, StoreError> {
    let memory = broker.memory::<PlanMemory>();
    if let Some(known) = memory.holds_of(tenant) {
        return Ok(known);
    }
    let last = broker.store().events().of(tenant).last_sequence().await?;
    memory.follow(&[(tenant, last)]);
    Ok(memory.holds_of(tenant).unwrap_or_default())
}

/// Invalidates a tenant's plans once it reserves or releases something.
pub(crate) async fn holds_changed(broker: &Broker, tenant: TenantId) {
    let memory = broker.memory::<PlanMemory>();
    match broker.store().events().of(tenant).last_sequence().await {
        Ok(last) => memory.follow(&[(tenant, last)]),
        // It is done and stays so; only its number is not known.
        Err(_) => memory.met_gone(tenant),
    }
}

/// Whether a plan still answers its demand, as long as its supply has not changed: it does so only as long as
/// its youngest offers are fresh.
fn still_answers(broker: &Broker, known: &PlanRecord) -> bool {
    let now = broker.now();
    let age = (now - known.created_at).to_std();
    // One from the future was made by a replica whose clock is ahead.
    let is_young = age.map_or(true, |age| age < LIFE);
    is_young && known.demand.check(now).is_ok()
}

/// The size of a plan in memory, about. Units: bytes.
fn weight(made: &MadePlan) -> u32 {
    let candidates = made.record.plan.candidates.len() + 1;
    let answer = made.answer.as_ref().map_or(0, Bytes::len);
    u32::try_from(candidates * CANDIDATE_BYTES + answer).unwrap_or(u32::MAX)
}
