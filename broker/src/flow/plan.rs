//! The plan: candidates for a demand, with reasons, found in the snapshot as it stands.
//!
//! The same tenant, demand and supply give the same plan, from memory and without a write. Another replica
//! finds it through the coordination state. The supply is a generation of the market together with the state
//! of its providers: a disabled provider is in no plan from then on. Cool-downs and the outcomes of orders
//! are those at the time of the search; a quote checks cool-downs again. A tenant's next plan reflects what
//! it set aside itself; it reflects what others did once a plan is searched for again. A search is arithmetic
//! and runs where no other request waits for it; only so many run at once (`crate::platform::fair_queue`).
//! The next stage is [`crate::flow::quote`].

mod memory;
mod search;

use std::sync::Arc;

use chrono::{DateTime, Utc};
use market::capacity::OwnCapacity;
use market::demand::Demand;
use market::demand::check::DemandFault;
use market::identity::TenantScope;
use market::ids::{OfferId, PlanId, ProviderId, TenantId};
use matcher::{Cooling, MatchError, OfferVerdict, Plan, SearchOptions, Snapshot};
pub(crate) use memory::{PlanMemory, answered, holds_changed, keep_answer, key_of};
use moka::sync::Cache;
pub use search::Question;
use store::StoreError;
use store::catalog::Generation;
use store::plans::NewPlan;
use tokio::runtime::Handle;
use tokio::task::{JoinError, spawn_blocking};

use crate::flow::cooldown::cooling_offers;
use crate::flow::decision::{
    DecisionRecord, ReplayError, Sources, StoredError, StoredSources, of_stored_plan,
};
use crate::flow::verify::{TooDeep, level_of};
use crate::platform::app::Broker;
use crate::platform::fair_queue::{FairQueue, TooMany};
use memory::{LIFE, PlanKey, holds_of};

/// How many of the best candidates a plan keeps.
pub const CANDIDATES_KEPT: usize = 50;

/// How many candidates that can be ordered a plan keeps, however many price lists are cheaper.
pub const ORDERABLE_KEPT: usize = 10;

/// For how many of the best fleets requests are simulated.
pub const SIMULATED: usize = 3;

/// For how many plans the market is kept when a caller asks about their offers.
const DECISIONS_KEPT: u64 = 4;

/// Why no plan was made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The demand asks for impossible things.
    #[error("the demand cannot be met as it is written")]
    Faulty(Vec<DemandFault>),
    /// The demand cannot be matched at all.
    #[error(transparent)]
    Match(#[from] MatchError),
    /// As many are searched for as may be, and as many more wait.
    #[error("too many plans are being searched for")]
    Busy(#[from] TooMany),
    /// The search did not end.
    #[error("the search for the plan did not end")]
    Interrupted(#[from] JoinError),
    /// The inputs of its decision are not available.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// It cannot be searched again.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The offer was not on sale in its market.
    #[error("the offer {0} was not on sale when the plan was made")]
    NotOnSale(OfferId),
    /// There is no such plan within the tenant.
    #[error("there is no plan {0}; make one with POST /v1/plans")]
    Unknown(PlanId),
    /// The database did not answer, or holds rows that we did not write.
    #[error("the plan could not be kept")]
    Store(#[from] StoreError),
}

/// A plan as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanRecord {
    /// Its id.
    pub id: PlanId,
    /// The tenant, and the projects in which the caller works.
    pub whose: TenantScope,
    /// The demand.
    pub demand: Demand,
    /// The plan found.
    pub plan: Plan,
    /// When.
    pub created_at: DateTime<Utc>,
}

/// The fair queue for plan searches.
struct PlanQueue(FairQueue);

impl Default for PlanQueue {
    fn default() -> Self {
        Self(FairQueue::by_core())
    }
}

/// The decisions of plans with questions about their offers, with their markets.
struct DecisionMemory(Cache<PlanId, Arc<DecisionRecord>>);

impl Default for DecisionMemory {
    fn default() -> Self {
        let cache = Cache::builder().max_capacity(DECISIONS_KEPT);
        Self(cache.time_to_live(LIFE).build())
    }
}

/// Makes a plan for a demand, or finds the one that answers it already.
///
/// Errors: [`PlanError`]; nothing is written then.
pub async fn make_plan(
    broker: &Broker,
    whose: &TenantScope,
    demand: Demand,
) -> Result<Arc<PlanRecord>, PlanError> {
    let now = broker.now();
    demand.check(now).map_err(PlanError::Faulty)?;
    let (snapshot, mark) = broker.supply();
    check_providers_known(&demand, &snapshot)?;
    check_level(broker, &demand)?;
    let holds = holds_of(broker, whose.tenant).await?;
    let key = PlanKey::new(whose.clone(), mark, holds, demand_text(&demand).as_bytes());
    let memory = broker.memory::<PlanMemory>();
    if let Some(known) = memory.find(broker, &key) {
        return Ok(known.record);
    }
    if let Some(known) = memory.made_elsewhere(broker, &key).await {
        return Ok(known);
    }
    let turn = broker
        .memory::<PlanQueue>()
        .0
        .take(Some(whose.tenant))
        .await?;
    // Another caller searched for the same meanwhile and found it.
    if let Some(known) = memory.find(broker, &key) {
        return Ok(known.record);
    }
    let held = broker.store().catalog().held_nodes().await?;
    let own = Arc::new(own_capacity(broker, whose.tenant, now).await?);
    let cooling = Arc::new(cooling_offers(broker, whose.tenant).await?);
    // A search continues after its caller has gone, so its place in the queue goes with it.
    let (_turn, demand, found, sources) = spawn_blocking(move || {
        let priced = matcher::at_own_prices(&snapshot, &own, now);
        let question = Question {
            demand: &demand,
            snapshot: priced.as_ref().unwrap_or(&snapshot),
            held: &held,
            now,
            options: &options_of(own, cooling),
            orderable_kept: ORDERABLE_KEPT,
        };
        let found = question.answer();
        let sources = Sources::of(&question);
        (turn, demand, found, sources)
    })
    .await?;
    let plan = found?;
    let record = PlanRecord {
        id: PlanId::from_uuid(broker.new_uuid()),
        whose: whose.clone(),
        demand,
        plan,
        created_at: now,
    };
    broker
        .store()
        .plans()
        .of(whose.tenant)
        .insert(as_row(&record, sources))
        .await?;
    let record = Arc::new(record);
    memory.share(broker, key, &record).await;
    Ok(record)
}

/// Refuses names in a policy that no provider has: a policy that denies a misspelt provider denies none.
///
/// Errors: [`PlanError::Faulty`].
fn check_providers_known(demand: &Demand, snapshot: &Snapshot) -> Result<(), PlanError> {
    let mut shared = vec![("", demand.shared())];
    if let Demand::Hybrid(hybrid) = demand {
        shared.push(("train.", hybrid.train.shared()));
        shared.push(("serve.", hybrid.serve.shared()));
    }
    // Providers of price lists have no adapter; the snapshot knows them.
    let is_known = |name: &ProviderId| {
        adapters::registry::by_id(name).is_some() || snapshot.provider(name).is_some()
    };
    let mut faults = Vec::new();
    for (prefix, shared) in shared {
        let policy = shared.policy.into_iter();
        let lists = policy.flat_map(|policy| {
            let (allow, deny) = (&policy.allow_providers, &policy.deny_providers);
            [("allow_providers", allow), ("deny_providers", deny)]
        });
        for (list, names) in lists {
            let unknown = names.iter().filter(|name| !is_known(name));
            faults.extend(unknown.map(|name| DemandFault {
                field: format!("{prefix}policy.{list}"),
                detail: format!("names `{name}`, which is no provider here; see GET /v1/offers"),
            }));
        }
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(PlanError::Faulty(faults)),
    }
}

/// The tenant's own capacity at present: capacity that ends first is used first.
///
/// Errors: the database's.
pub(crate) async fn own_capacity(
    broker: &Broker,
    tenant: TenantId,
    now: DateTime<Utc>,
) -> Result<OwnCapacity, StoreError> {
    let store = broker.store();
    let mut commitments = store.commitments().of(tenant).list(now).await?;
    commitments.retain(|open| open.commitment.expires_at > now);
    let accounts = store.provider_accounts().of(tenant).list().await?;
    let mut own = OwnCapacity {
        commitments,
        accounts,
    };
    own.use_in_order();
    Ok(own)
}

/// Refuses a deeper verification than may be asked for, before anybody takes a quote for it.
///
/// Errors: [`PlanError::Faulty`].
fn check_level(broker: &Broker, demand: &Demand) -> Result<(), PlanError> {
    let too_deep = |error: TooDeep| DemandFault {
        field: "verification".to_owned(),
        detail: error.to_string(),
    };
    match level_of(broker, demand) {
        Ok(_) => Ok(()),
        Err(error) => Err(PlanError::Faulty(vec![too_deep(error)])),
    }
}

/// How a tenant's plans are searched.
pub(crate) fn options_of(own: Arc<OwnCapacity>, cooling: Arc<Cooling>) -> SearchOptions {
    SearchOptions {
        limit: CANDIDATES_KEPT,
        alternatives: true,
        simulated: SIMULATED,
        own,
        cooling,
        ..SearchOptions::default()
    }
}

fn demand_text(demand: &Demand) -> String {
    // A demand is plain data with text keys: it has always a JSON form.
    serde_json::to_string(demand).unwrap_or_default()
}

fn as_row(record: &PlanRecord, sources: Sources) -> NewPlan {
    // A plan is plain data with text keys: it has always a JSON form.
    let json = |value: Result<serde_json::Value, _>| value.unwrap_or_default();
    NewPlan {
        id: record.id,
        demand: record.demand.clone(),
        generation: Generation(record.plan.generation),
        candidates: json(serde_json::to_value(&record.plan)),
        rejections: json(serde_json::to_value(&record.plan.rejected)),
        created_at: record.created_at,
        projects: record.whose.projects.clone(),
        decided_from: json(serde_json::to_value(StoredSources::new(sources))),
    }
}

/// Finds a plan within reach: a plan belongs to the projects of the caller who made it.
///
/// Errors: [`PlanError::Unknown`], also for another tenant's plan.
pub async fn find(
    broker: &Broker,
    whose: &TenantScope,
    id: PlanId,
) -> Result<PlanRecord, PlanError> {
    let row = broker
        .store()
        .plans()
        .of(whose.tenant)
        .find(id)
        .await?
        .filter(|row| whose.projects.covers(&row.projects))
        .ok_or(PlanError::Unknown(id))?;
    let plan = serde_json::from_value(row.candidates).map_err(|error| {
        PlanError::Store(StoreError::Corrupt {
            detail: format!("plan {id}: {error}"),
        })
    })?;
    Ok(PlanRecord {
        id,
        whose: TenantScope {
            tenant: row.tenant_id,
            projects: row.projects,
        },
        demand: row.demand,
        plan,
        created_at: row.created_at,
    })
}

/// The outcome of an offer in a plan within reach, and why: the plan is searched for once more, in its market
/// as it was then.
///
/// Errors: [`PlanError::Unknown`], also for another tenant's plan; [`PlanError::NotOnSale`].
pub async fn ask(
    broker: &Broker,
    whose: &TenantScope,
    id: PlanId,
    offer: OfferId,
) -> Result<Vec<OfferVerdict>, PlanError> {
    find(broker, whose, id).await?;
    let turn = broker
        .memory::<PlanQueue>()
        .0
        .take(Some(whose.tenant))
        .await?;
    let known = broker.memory::<DecisionMemory>().0.get(&id);
    let (store, runtime) = (broker.store().clone(), Handle::current());
    // A market is read and made of its texts, which keeps a thread busy.
    let answered = spawn_blocking(move || {
        let _turn = turn;
        let record = match known {
            Some(known) => known,
            None => Arc::new(runtime.block_on(of_stored_plan(&store, id))?),
        };
        let told = record.ask(offer)?;
        Ok::<_, PlanError>((record, told))
    });
    let (record, told) = answered.await??;
    broker.memory::<DecisionMemory>().0.insert(id, record);
    told.ok_or(PlanError::NotOnSale(offer))
}
