//! Running sums of a tenant's charges, updated as charges are appended: by project and day for budgets, by
//! line and rate for later metering.

use std::collections::BTreeMap;

use chrono::NaiveDate;
use market::ids::{ProjectId, ReservationId, TenantId};
use market::money::Money;
use market::spending::Span;
use market::usage::Charge;
use sea_orm::sea_query::{Expr, ExprTrait, OnConflict};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter,
};

use crate::StoreError;
use crate::entity::column::Text;
use crate::entity::{spent_days, spent_rates};

/// The sum charged for use that began within `span`, without open reservations.
pub(crate) async fn charged_within<C: ConnectionTrait>(
    db: &C,
    tenant: TenantId,
    project: Option<ProjectId>,
    span: Span,
) -> Result<i128, StoreError> {
    let mut wanted = spent_days::Entity::find()
        .filter(spent_days::Column::TenantId.eq(Text(tenant)))
        .filter(spent_days::Column::Day.gte(Text(span.start.date_naive())))
        .filter(spent_days::Column::Day.lt(Text(span.end.date_naive())));
    if let Some(project) = project {
        wanted = wanted.filter(spent_days::Column::ProjectId.eq(Text(project)));
    }
    let days = wanted.all(db).await?;
    Ok(days.iter().map(|day| i128::from(day.amount_units)).sum())
}

/// Adds charges to the running sums, in the transaction that appends them.
pub(crate) async fn add_charges(
    tx: &DatabaseTransaction,
    charges: &[Charge],
) -> Result<(), StoreError> {
    let mut days: BTreeMap<(ProjectId, NaiveDate), (TenantId, Money)> = BTreeMap::new();
    let mut rates: BTreeMap<(ReservationId, u32, i64), (i64, i64)> = BTreeMap::new();
    for charge in charges {
        let usage = &charge.usage;
        let day = (charge.project_id, usage.from.date_naive());
        let nothing = (charge.tenant_id, Money::zero(charge.amount.currency()));
        let sum = &mut days.entry(day).or_insert(nothing).1;
        *sum = sum
            .checked_add(charge.amount)
            .map_err(StoreError::corrupt)?;
        let rate = charge.rate.money_per_gpu_hour().units();
        let at_rate = (usage.reservation_id, usage.line, rate);
        let (gpu_seconds, amount) = rates.entry(at_rate).or_default();
        *gpu_seconds += usage.gpu_seconds();
        *amount += charge.amount.units();
    }
    for ((project, day), (tenant, amount)) in days {
        let row = spent_days::Model {
            tenant_id: Text(tenant),
            project_id: Text(project),
            day: Text(day),
            amount_units: amount.units(),
        };
        use spent_days::{Column, Entity};
        let same = [Column::ProjectId, Column::Day];
        let more = Expr::col((Entity, Column::AmountUnits)).add(amount.units());
        Entity::insert(row.into_active_model())
            .on_conflict(
                OnConflict::columns(same)
                    .value(Column::AmountUnits, more)
                    .to_owned(),
            )
            .exec_without_returning(tx)
            .await?;
    }
    for ((reservation, line, rate_units), (gpu_seconds, amount_units)) in rates {
        let row = spent_rates::Model {
            reservation_id: Text(reservation),
            line: i32::try_from(line).map_err(StoreError::corrupt)?,
            rate_units,
            gpu_seconds,
            amount_units,
        };
        use spent_rates::{Column, Entity};
        let same = [Column::ReservationId, Column::Line, Column::RateUnits];
        let more = |sum: Column, by: i64| (sum, Expr::col((Entity, sum)).add(by));
        Entity::insert(row.into_active_model())
            .on_conflict(
                OnConflict::columns(same)
                    .values([
                        more(Column::GpuSeconds, gpu_seconds),
                        more(Column::AmountUnits, amount_units),
                    ])
                    .to_owned(),
            )
            .exec_without_returning(tx)
            .await?;
    }
    Ok(())
}
