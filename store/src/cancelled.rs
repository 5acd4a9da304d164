//! Orders that tenants cancelled before the hand-off: machines that were created for nothing, at the
//! operator's cost.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, TimeDelta, Utc};
use market::ids::{LeaseId, ReservationId, TenantId};
use market::lease::LeaseEvent;
use market::ledger::LedgerUnit;
use market::money::Currency;
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, EntityTrait, QueryFilter, QuerySelect, QueryTrait,
};

use crate::StoreError;
use crate::entity::column::{Moment, Text, Word};
use crate::entity::{leases, postings, reservations, tenants, transactions};
use crate::reservations::RequestedAction;
use crate::scope::service_wide;

/// The period in which they count before another confirmation is refused. Units: hours.
pub const WITHIN_HOURS: i64 = 24;
/// Leases looked up at once: the databases limit the values of a statement.
const AT_ONCE: usize = 500;

/// The orders that one tenant cancelled before the hand-off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelledOrders {
    /// The tenant.
    pub tenant: TenantId,
    /// Its name.
    pub name: String,
    /// How many orders.
    pub orders: u64,
    /// What providers billed for them, as far as booked. Units: USD 1e-8.
    pub cost_units: i128,
}

service_wide!(
    Cancelled,
    cancelled_orders,
    "orders that were cancelled before the hand-off"
);

impl Cancelled<'_> {
    /// The orders that each tenant cancelled after one time and, if given, before another, the most expensive
    /// tenant first.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn by_tenant(
        &self,
        from: DateTime<Utc>,
        to: Option<DateTime<Utc>>,
    ) -> Result<Vec<CancelledOrders>, StoreError> {
        let tx = self.store.snapshot().await?;
        let orders = orders(&tx, None, from, to).await?;
        let names = tenants::Entity::find().all(&tx).await?;
        let names: HashMap<_, _> = names.into_iter().map(|row| (row.id.0, row.name)).collect();
        let mut of: BTreeMap<TenantId, CancelledOrders> = BTreeMap::new();
        for part in orders.chunks(AT_ONCE) {
            let costs = costs(&tx, part).await?;
            for order in part {
                let line = of.entry(order.tenant).or_insert_with(|| CancelledOrders {
                    tenant: order.tenant,
                    name: names.get(&order.tenant).cloned().unwrap_or_default(),
                    orders: 0,
                    cost_units: 0,
                });
                line.orders += 1;
                line.cost_units += costs.get(&order.lease).copied().unwrap_or(0);
            }
        }
        let mut lines: Vec<_> = of.into_values().collect();
        lines.sort_by_key(|line| std::cmp::Reverse((line.cost_units, line.orders)));
        Ok(lines)
    }
}

/// When a tenant's orders of the last 24 hours were cancelled, the oldest first.
pub(crate) async fn lately(
    db: &impl ConnectionTrait,
    tenant: TenantId,
    now: DateTime<Utc>,
) -> Result<Vec<DateTime<Utc>>, StoreError> {
    let since = now - TimeDelta::hours(WITHIN_HOURS);
    let orders = orders(db, Some(tenant), since, None).await?;
    let mut times: Vec<_> = orders.into_iter().map(|order| order.cancelled_at).collect();
    times.sort_unstable();
    Ok(times)
}

/// An order that its provider had accepted and its tenant cancelled.
struct Order {
    tenant: TenantId,
    lease: LeaseId,
    cancelled_at: DateTime<Utc>,
}

/// Orders cancelled after `since`. Those that a budget ended do not count, nor those that had failed before.
async fn orders(
    db: &impl ConnectionTrait,
    tenant: Option<TenantId>,
    since: DateTime<Utc>,
    before: Option<DateTime<Utc>>,
) -> Result<Vec<Order>, StoreError> {
    use leases::Column as L;
    use reservations::Column as R;
    let wished: Vec<(Text<ReservationId>, Text<TenantId>, Moment)> = reservations::Entity::find()
        .select_only()
        .columns([R::Id, R::TenantId, R::WishAt])
        .filter(R::Wish.eq(Word(RequestedAction::Cancel)))
        .filter(R::StoppedBy.is_null())
        .filter(R::WishAt.gt(Moment::from(since)))
        .apply_if(before, |query, before| {
            query.filter(R::WishAt.lt(Moment::from(before)))
        })
        .apply_if(tenant, |query, tenant| {
            query.filter(R::TenantId.eq(Text(tenant)))
        })
        .into_tuple()
        .all(db)
        .await?;
    // A lease that failed before for another reason was lost to its provider.
    let unwanted = Condition::any()
        .add(L::FallReason.is_null())
        .add(L::FallReason.eq(Word(LeaseEvent::Unwanted)));
    let mut orders = Vec::new();
    for part in wished.chunks(AT_ONCE) {
        let ids = part.iter().map(|(id, _, _)| id.clone());
        let rows: Vec<(Text<LeaseId>, Text<ReservationId>)> = leases::Entity::find()
            .select_only()
            .columns([L::Id, L::ReservationId])
            .filter(L::ReservationId.is_in(ids))
            .filter(unwanted.clone())
            .filter(L::AcceptedAt.is_not_null())
            .filter(L::HandedOffAt.is_null())
            .into_tuple()
            .all(db)
            .await?;
        let by_id: HashMap<_, _> = part.iter().map(|row| (row.0.0, row)).collect();
        for (lease, reservation) in rows {
            if let Some((_, tenant, wish_at)) = by_id.get(&reservation.0) {
                orders.push(Order {
                    tenant: tenant.0,
                    lease: lease.0,
                    cancelled_at: wish_at.at(),
                });
            }
        }
    }
    Ok(orders)
}

/// The cost booked for leases that served no tenant. Units: USD 1e-8.
async fn costs(
    db: &impl ConnectionTrait,
    orders: &[Order],
) -> Result<HashMap<LeaseId, i128>, StoreError> {
    let key = |order: &Order| format!("lease/{}/compensation", order.lease);
    let heads: Vec<(Text<market::ids::TransactionId>, String)> = transactions::Entity::find()
        .select_only()
        .columns([
            transactions::Column::Id,
            transactions::Column::IdempotencyKey,
        ])
        .filter(transactions::Column::IdempotencyKey.is_in(orders.iter().map(key)))
        .into_tuple()
        .all(db)
        .await?;
    let keys: HashMap<_, _> = orders
        .iter()
        .map(|order| (key(order), order.lease))
        .collect();
    let of: HashMap<_, _> = heads
        .into_iter()
        .filter_map(|(id, key)| Some((id.0, *keys.get(&key)?)))
        .collect();
    let legs = postings::Entity::find()
        .filter(postings::Column::TransactionId.is_in(of.keys().copied().map(Text)))
        .filter(postings::Column::Unit.eq(Text(LedgerUnit::Money(Currency::Usd))))
        .filter(postings::Column::Amount.gt(0))
        .all(db)
        .await?;
    let mut costs = HashMap::new();
    for leg in legs {
        if let Some(lease) = of.get(&leg.transaction_id.0) {
            *costs.entry(*lease).or_default() += i128::from(leg.amount);
        }
    }
    Ok(costs)
}
