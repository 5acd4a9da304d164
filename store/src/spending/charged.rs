//! What a tenant was charged, summed up as charges are appended: by project and day for budgets, by
//! line for what is still to be metered at one rate.

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
use crate::entity::{spent_days, spent_lines};

/// What was charged for use that began within `span`, without a look at what is open.
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
    let mut lines: BTreeMap<(ReservationId, u32), i64> = BTreeMap::new();
    for charge in charges {
        let usage = &charge.usage;
        let day = (charge.project_id, usage.from.date_naive());
        let nothing = (charge.tenant_id, Money::zero(charge.amount.currency()));
        let sum = &mut days.entry(day).or_insert(nothing).1;
        *sum = sum
            .checked_add(charge.amount)
            .map_err(StoreError::corrupt)?;
        *lines.entry((usage.reservation_id, usage.line)).or_default() += usage.gpu_seconds();
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
    for ((reservation, line), gpu_seconds) in lines {
        let row = spent_lines::Model {
            reservation_id: Text(reservation),
            line: i32::try_from(line).map_err(StoreError::corrupt)?,
            gpu_seconds,
        };
        use spent_lines::{Column, Entity};
        let same = [Column::ReservationId, Column::Line];
        let more = Expr::col((Entity, Column::GpuSeconds)).add(gpu_seconds);
        Entity::insert(row.into_active_model())
            .on_conflict(
                OnConflict::columns(same)
                    .value(Column::GpuSeconds, more)
                    .to_owned(),
            )
            .exec_without_returning(tx)
            .await?;
    }
    Ok(())
}
