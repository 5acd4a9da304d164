//! Deletes old rows: idempotency keys, quotes and plans, deliveries of webhooks, events, and re-checks that
//! were passed. The age of the last three is configured (`[retention]`); `store::retention` lists the rows
//! that are never deleted.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use market::ids::TenantId;
use store::StoreError;
use store::retention::Retention;
use tokio::time::sleep;
use tracing::{error, info};

use crate::platform::app::Broker;
use crate::platform::leader::keep_turns;
use crate::platform::stop::Stop;

/// How often old rows are searched for.
const INTERVAL: Duration = Duration::from_secs(2 * 60);
/// How long the mark of a transaction stands: its outcome is asked for within seconds.
const MARKS: TimeDelta = TimeDelta::hours(1);
/// Rows that one transaction deletes.
const BATCH: u64 = 500;
/// How long a quote is kept after it lapsed.
const QUOTE_DAYS: u32 = 30;
/// How long a plan is kept after it was made, where nobody took a quote of it: anyone makes many.
const PLAN_DAYS: u32 = 2;

/// How many of a tenant's plans, and of its lapsed quotes that nobody took, are kept in any case; older
/// ones go: as many as are written in days must not fill a disk.
const KEPT_OF_TENANT: u64 = 2_000;
/// How long a plan is kept however many newer ones there are: it may just have been answered with.
const YOUNG: TimeDelta = TimeDelta::minutes(10);

/// How many rows were deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Events.
    pub events: u64,
    /// Deliveries of webhooks.
    pub deliveries: u64,
    /// Idempotency keys.
    pub idempotency_keys: u64,
    /// Marks of transactions, by which the outcome of a lost COMMIT is known.
    pub commit_marks: u64,
    /// Quotes.
    pub quotes: u64,
    /// Plans.
    pub plans: u64,
    /// Re-checks that were passed, with their documents.
    pub rechecks: u64,
    /// Keys that agents committed in re-checks.
    pub agent_keys: u64,
    /// Finished verifications of nodes in use, with the last message of each.
    pub verifications: u64,
    /// Parts that could not be deleted completely: a kind, or the events of one tenant.
    pub failures: u64,
}

/// Deletes old rows until stopped, while no other replica does.
pub async fn keep_pruning(broker: Broker, stop: Stop) {
    let turn = || async {
        let pruned = prune(&broker).await;
        if pruned != Pruned::default() {
            info!(
                events = pruned.events,
                deliveries = pruned.deliveries,
                idempotency_keys = pruned.idempotency_keys,
                commit_marks = pruned.commit_marks,
                quotes = pruned.quotes,
                plans = pruned.plans,
                rechecks = pruned.rechecks,
                agent_keys = pruned.agent_keys,
                verifications = pruned.verifications,
                failures = pruned.failures,
                "Deleted old rows"
            );
        }
        sleep(INTERVAL).await;
    };
    keep_turns(&broker, "prune", &stop, turn).await;
}

/// Deletes all old rows, a batch at a time. A failure is logged, does not stop the other deletions, and is
/// tried again the next time.
pub async fn prune(broker: &Broker) -> Pruned {
    let (store, now) = (broker.store().retention(), broker.now());
    let ages = &broker.config().retention;
    let before = |days: u32| now - TimeDelta::days(days.into());
    let mut failures = 0;
    let idempotency_keys = every_batch(&mut failures, "idempotency keys", None, || {
        store.prune_idempotency_keys(now, BATCH)
    })
    .await;
    let commit_marks = every_batch(&mut failures, "commit marks", None, || {
        store.prune_commit_marks(now - MARKS, BATCH)
    })
    .await;
    let (lapsed, made) = (before(QUOTE_DAYS), before(PLAN_DAYS));
    let mut quotes = every_batch(&mut failures, "quotes", None, || {
        store.prune_quotes(lapsed, BATCH)
    })
    .await;
    // A quote keeps its plan.
    let mut plans = every_batch(&mut failures, "plans", None, || {
        store.prune_plans(made, BATCH)
    })
    .await;
    let surplus = store.tenants_with_surplus(made, KEPT_OF_TENANT).await;
    for tenant in surplus.unwrap_or_else(|failure| {
        note(&mut failures, "surplus", None, &failure);
        Vec::new()
    }) {
        quotes += every_batch(&mut failures, "surplus quotes", Some(tenant), || {
            store.prune_surplus_quotes(tenant, now, KEPT_OF_TENANT, BATCH)
        })
        .await;
        plans += every_batch(&mut failures, "surplus plans", Some(tenant), || {
            store.prune_surplus_plans(tenant, (made, now - YOUNG), KEPT_OF_TENANT, BATCH)
        })
        .await;
    }
    let old = before(ages.webhook_deliveries_days);
    let deliveries = every_batch(&mut failures, "deliveries", None, || {
        store.prune_deliveries(old, BATCH)
    })
    .await;
    // A delivery keeps its event.
    let old = before(ages.events_days);
    let mut events = 0;
    let tenants = store.tenants_with_events().await.unwrap_or_else(|failure| {
        note(&mut failures, "events", None, &failure);
        Vec::new()
    });
    for tenant in tenants {
        events += every_batch(&mut failures, "events", Some(tenant), || {
            store.prune_events(tenant, old, BATCH)
        })
        .await;
    }
    let of_rechecks =
        prune_rechecks(&store, (before(ages.rechecks_days), now), &mut failures).await;
    Pruned {
        events,
        deliveries,
        idempotency_keys,
        commit_marks,
        quotes,
        plans,
        failures,
        ..of_rechecks
    }
}

/// Deletes the checks that nodes in use passed before `old`, in this order: documents and keys keep their
/// verification.
async fn prune_rechecks(
    store: &Retention<'_>,
    (old, now): (DateTime<Utc>, DateTime<Utc>),
    failures: &mut u64,
) -> Pruned {
    let rechecks = every_batch(failures, "re-checks", None, || {
        store.prune_rechecks((old, now), BATCH)
    })
    .await;
    let agent_keys = every_batch(failures, "keys of re-checks", None, || {
        store.prune_agent_keys(old, BATCH)
    })
    .await;
    let verifications = every_batch(failures, "verifications of re-checks", None, || {
        store.prune_recheck_verifications(old, BATCH)
    })
    .await;
    Pruned {
        rechecks,
        agent_keys,
        verifications,
        ..Pruned::default()
    }
}

/// Deletes batch after batch, to the end or the first failure; returns how many rows it deleted.
async fn every_batch<F: Future<Output = Result<u64, StoreError>>>(
    failures: &mut u64,
    what: &str,
    tenant: Option<TenantId>,
    batch: impl Fn() -> F,
) -> u64 {
    let mut sum = 0;
    loop {
        match batch().await {
            Ok(rows) => {
                sum += rows;
                if rows < BATCH {
                    return sum;
                }
            }
            Err(failure) => {
                note(failures, what, tenant, &failure);
                return sum;
            }
        }
    }
}

fn note(failures: &mut u64, what: &str, tenant: Option<TenantId>, failure: &StoreError) {
    *failures += 1;
    let causes = crate::chain(failure);
    let tenant = tenant.map(tracing::field::display);
    error!(tenant.id = tenant, error = %causes, "Old {what} could not be deleted: {causes}");
}
