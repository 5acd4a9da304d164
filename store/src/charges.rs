//! Charges: usage priced at the frozen rate. Appended by `work`, never changed.

mod days;

use chrono::{DateTime, Utc};
use market::ids::{ReservationId, TenantId};
use market::money::{Currency, Money, Rate};
use market::usage::{Charge, DayCharges, UsageRecord};
use sea_orm::sea_query::Order;
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DatabaseTransaction, EntityTrait, IntoActiveModel,
    QueryFilter, QueryOrder, QuerySelect,
};

use crate::entity::charges::{Column, Entity, Model};
use crate::entity::column::{Json, Moment, Text, Word};
use crate::entity::spent_rates;
use crate::scope::tenant_scoped;
use crate::{Conflict, Store, StoreError, spending};

/// The sum charged so far at one rate of a reservation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChargedSoFar {
    /// GPU-seconds.
    pub gpu_seconds: i64,
    /// Money, in units of the reservation's currency.
    pub amount_units: i64,
}

impl TryFrom<Model> for Charge {
    type Error = StoreError;

    fn try_from(row: Model) -> Result<Self, StoreError> {
        let whole = |number: i32| u32::try_from(number).map_err(StoreError::corrupt);
        let currency = row.currency.0;
        Ok(Self {
            usage: UsageRecord {
                id: row.usage_id.0,
                reservation_id: row.reservation_id.0,
                lease_id: row.lease_id.0,
                line: whole(row.line)?,
                gpus: whole(row.gpus)?,
                from: row.from_at.at(),
                to: row.to_at.at(),
            },
            tenant_id: row.tenant_id.0,
            project_id: row.project_id.0,
            provider: row.provider_id.0,
            gpu: row.gpu,
            workload: row.workload.0,
            rate: Rate::per_gpu_hour(Money::from_units(row.rate_units, currency)),
            amount: Money::from_units(row.amount_units, currency),
            tags: row.tags.0,
            attribution: row.attribution.0,
        })
    }
}

tenant_scoped!(Charges, charges, TenantCharges, AllCharges, "charges");

impl TenantCharges<'_> {
    /// The tenant's charges for use that began within `[from, to)`, in order of time.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn between(
        &self,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
    ) -> Result<Vec<Charge>, StoreError> {
        between(self.store, Some(self.tenant), from, to).await
    }

    /// When the first and the last use began that was charged to the tenant; `None` if there is none.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn time_of_use(&self) -> Result<Option<(DateTime<Utc>, DateTime<Utc>)>, StoreError> {
        time_of_use(self.store, Some(self.tenant)).await
    }

    /// The tenant's charges for use that began within `[from, to)`, summed by day; those over a midnight are
    /// [`TenantCharges::over_midnight`].
    ///
    /// Errors: [`StoreError::Database`], also for a sum that exceeds 64 bits; [`StoreError::Corrupt`].
    pub async fn by_day(
        &self,
        time: (DateTime<Utc>, DateTime<Utc>),
    ) -> Result<Vec<DayCharges>, StoreError> {
        days::by_day(self.store, Some(self.tenant), time).await
    }

    /// Up to `limit` of the tenant's charges for use that began within `[from, to)` and ended on another day,
    /// in order of time, after `after`: there may be many.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn over_midnight(
        &self,
        time: (DateTime<Utc>, DateTime<Utc>),
        after: Option<&Charge>,
        limit: u64,
    ) -> Result<Vec<Charge>, StoreError> {
        days::over_midnight(self.store, Some(self.tenant), time, after, limit).await
    }
}

impl AllCharges<'_> {
    /// All tenants' charges for use that began within `[from, to)`, in order of time.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn between(
        &self,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
    ) -> Result<Vec<Charge>, StoreError> {
        between(self.store, None, from, to).await
    }

    /// As [`TenantCharges::time_of_use`], for all tenants.
    ///
    /// Errors: as there.
    pub async fn time_of_use(&self) -> Result<Option<(DateTime<Utc>, DateTime<Utc>)>, StoreError> {
        time_of_use(self.store, None).await
    }

    /// As [`TenantCharges::by_day`], for all tenants.
    ///
    /// Errors: as there.
    pub async fn by_day(
        &self,
        time: (DateTime<Utc>, DateTime<Utc>),
    ) -> Result<Vec<DayCharges>, StoreError> {
        days::by_day(self.store, None, time).await
    }

    /// As [`TenantCharges::over_midnight`], for all tenants.
    ///
    /// Errors: as there.
    pub async fn over_midnight(
        &self,
        time: (DateTime<Utc>, DateTime<Utc>),
        after: Option<&Charge>,
        limit: u64,
    ) -> Result<Vec<Charge>, StoreError> {
        days::over_midnight(self.store, None, time, after, limit).await
    }

    /// The charges of a reservation, in order of time.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn of_reservation(&self, id: ReservationId) -> Result<Vec<Charge>, StoreError> {
        find(
            &self.store.read,
            Condition::all().add(Column::ReservationId.eq(Text(id))),
        )
        .await
    }

    /// The sum charged so far for one line of a reservation at one rate: the next charge is the difference of
    /// two running totals.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn charged_so_far(
        &self,
        id: ReservationId,
        line: u32,
        rate: Rate,
    ) -> Result<ChargedSoFar, StoreError> {
        let line = i32::try_from(line).map_err(StoreError::corrupt)?;
        let rate = rate.money_per_gpu_hour().units();
        let row = spent_rates::Entity::find_by_id((Text(id), line, rate))
            .one(&self.store.read)
            .await?;
        Ok(row.map_or_else(ChargedSoFar::default, |row| ChargedSoFar {
            gpu_seconds: row.gpu_seconds,
            amount_units: row.amount_units,
        }))
    }
}

async fn between(
    store: &Store,
    tenant: Option<TenantId>,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
) -> Result<Vec<Charge>, StoreError> {
    find(&store.read, begun_within(tenant, (from, to))).await
}

async fn time_of_use(
    store: &Store,
    tenant: Option<TenantId>,
) -> Result<Option<(DateTime<Utc>, DateTime<Utc>)>, StoreError> {
    let whose = tenant.map(|tenant| Column::TenantId.eq(Text(tenant)));
    let ends = |order| {
        let begun = Entity::find().select_only().column(Column::FromAt);
        begun
            .filter(Condition::all().add_option(whose.clone()))
            .order_by(Column::FromAt, order)
            .limit(1)
            .into_tuple::<Moment>()
            .one(&store.read)
    };
    let first = ends(Order::Asc).await?;
    let last = ends(Order::Desc).await?;
    Ok(first.map(Moment::at).zip(last.map(Moment::at)))
}

/// Use that began within `[from, to)`, of one tenant or of all.
fn begun_within(tenant: Option<TenantId>, (from, to): (DateTime<Utc>, DateTime<Utc>)) -> Condition {
    Condition::all()
        .add_option(tenant.map(|tenant| Column::TenantId.eq(Text(tenant))))
        .add(Column::FromAt.gte(Moment::from(from)))
        .add(Column::FromAt.lt(Moment::from(to)))
}

/// The charges that match, in order of time.
pub(crate) async fn find<C: ConnectionTrait>(
    db: &C,
    wanted: Condition,
) -> Result<Vec<Charge>, StoreError> {
    let rows = Entity::find()
        .filter(wanted)
        .order_by_asc(Column::FromAt)
        .order_by_asc(Column::UsageId)
        .all(db)
        .await?;
    rows.into_iter().map(Charge::try_from).collect()
}

/// Appends charges, within the transaction that meters.
///
/// Errors: [`Conflict::Exists`] when the same start of a lease's use was charged before.
pub(crate) async fn append(
    tx: &DatabaseTransaction,
    charges: &[Charge],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    for charge in charges {
        Entity::insert(row(charge, now)?.into_active_model())
            .exec_without_returning(tx)
            .await
            .map_err(|refusal| {
                StoreError::from(refusal).unique(|| Conflict::Exists { what: "the charge" })
            })?;
    }
    spending::add_charges(tx, charges).await
}

fn row(charge: &Charge, now: DateTime<Utc>) -> Result<Model, StoreError> {
    let whole = |number: u32| i32::try_from(number).map_err(StoreError::corrupt);
    let usage = &charge.usage;
    Ok(Model {
        usage_id: Text(usage.id),
        tenant_id: Text(charge.tenant_id),
        project_id: Text(charge.project_id),
        reservation_id: Text(usage.reservation_id),
        lease_id: Text(usage.lease_id),
        line: whole(usage.line)?,
        provider_id: Text(charge.provider.clone()),
        gpu: charge.gpu.clone(),
        workload: Word(charge.workload),
        gpus: whole(usage.gpus)?,
        from_at: usage.from.into(),
        to_at: usage.to.into(),
        gpu_seconds: usage.gpu_seconds(),
        rate_units: charge.rate.money_per_gpu_hour().units(),
        amount_units: charge.amount.units(),
        currency: Text(charge.amount.currency()),
        tags: Json(charge.tags.clone()),
        attribution: Json(charge.attribution.clone()),
        charged_at: now.into(),
    })
}

/// The sum charged for a reservation in all, as far as the transaction sees.
///
/// Errors: [`StoreError::Corrupt`] when the total exceeds 64 bits.
pub(crate) async fn total_of(
    tx: &DatabaseTransaction,
    id: ReservationId,
) -> Result<Money, StoreError> {
    use spent_rates::{Column, Entity};
    let amounts: Vec<i64> = Entity::find()
        .select_only()
        .column(Column::AmountUnits)
        .filter(Column::ReservationId.eq(Text(id)))
        .into_tuple()
        .all(tx)
        .await?;
    let total = amounts
        .into_iter()
        .try_fold(0_i64, i64::checked_add)
        .ok_or_else(|| StoreError::corrupt("a total of charges exceeds 64 bits"))?;
    Ok(Money::from_units(total, Currency::Usd))
}
