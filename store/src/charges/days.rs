//! Charges by day, for reports. The database sums them, because a machine is charged every few minutes. Use
//! over a midnight belongs to two days and is read as it is.

use chrono::{DateTime, NaiveDate, Utc};
use market::demand::DemandKind;
use market::ids::{ProjectId, ProviderId, ReservationId, TenantId};
use market::money::{Currency, Money};
use market::tags::Tags;
use market::usage::{Charge, DayCharges};
use sea_orm::sea_query::{Expr, ExprTrait, SimpleExpr};
use sea_orm::{
    ColumnTrait, Condition, DbBackend, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
};

use super::begun_within;
use crate::entity::charges::{Column, Entity};
use crate::entity::column::{Json, Moment, Text, Word};
use crate::{Store, StoreError};

/// A row of sums: day, project, reservation, provider, GPU, workload, tags, currency; GPU-seconds,
/// amount.
type Row = (
    Text<NaiveDate>,
    Text<ProjectId>,
    Text<ReservationId>,
    Text<ProviderId>,
    String,
    Word<DemandKind>,
    Json<Tags>,
    Text<Currency>,
    i64,
    i64,
);

pub(super) async fn by_day(
    store: &Store,
    tenant: Option<TenantId>,
    time: (DateTime<Utc>, DateTime<Utc>),
) -> Result<Vec<DayCharges>, StoreError> {
    let (first, last) = days_of(store);
    // The sum of 64-bit integers has a wider type on PostgreSQL.
    let sum = |column: &str| Expr::cust(format!("CAST(SUM({column}) AS BIGINT)"));
    let mut sums = Entity::find()
        .select_only()
        .column_as(first.clone(), "day")
        .filter(begun_within(tenant, time))
        .filter(first.clone().eq(last))
        .group_by(first);
    for column in [
        Column::ProjectId,
        Column::ReservationId,
        Column::ProviderId,
        Column::Gpu,
        Column::Workload,
        Column::Tags,
        Column::Currency,
    ] {
        sums = sums.column(column).group_by(column);
    }
    let rows: Vec<Row> = sums
        .column_as(sum("gpu_seconds"), "gpu_seconds")
        .column_as(sum("amount_units"), "amount_units")
        .into_tuple()
        .all(&store.read)
        .await?;
    let read = |row: Row| {
        let (
            day,
            project,
            reservation,
            provider,
            gpu,
            workload,
            tags,
            currency,
            gpu_seconds,
            units,
        ) = row;
        DayCharges {
            day: day.0,
            project_id: project.0,
            reservation_id: reservation.0,
            provider: provider.0,
            gpu,
            workload: workload.0,
            tags: tags.0,
            gpu_seconds,
            amount: Money::from_units(units, currency.0),
        }
    };
    Ok(rows.into_iter().map(read).collect())
}

pub(super) async fn over_midnight(
    store: &Store,
    tenant: Option<TenantId>,
    time: (DateTime<Utc>, DateTime<Utc>),
    after: Option<&Charge>,
    limit: u64,
) -> Result<Vec<Charge>, StoreError> {
    let (first, last) = days_of(store);
    let behind = after.map(|known| {
        let from = Moment::from(known.usage.from);
        let same_time = Condition::all()
            .add(Column::FromAt.eq(from))
            .add(Column::UsageId.gt(Text(known.usage.id)));
        // The index is searched by the first bound.
        Condition::all()
            .add(Column::FromAt.gte(from))
            .add(Condition::any().add(Column::FromAt.gt(from)).add(same_time))
    });
    let rows = Entity::find()
        .filter(begun_within(tenant, time))
        .filter(first.ne(last))
        .filter(Condition::all().add_option(behind))
        .order_by_asc(Column::FromAt)
        .order_by_asc(Column::UsageId)
        .limit(limit)
        .all(&store.read)
        .await?;
    rows.into_iter().map(Charge::try_from).collect()
}

/// The days on which use begins and ends, UTC.
fn days_of(store: &Store) -> (SimpleExpr, SimpleExpr) {
    let day = |column: &str| {
        Expr::cust(match store.read.get_database_backend() {
            DbBackend::Postgres => format!("to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD')"),
            // Moments are stored as text that begins with the day, always in UTC.
            _ => format!("substr({column}, 1, 10)"),
        })
    };
    (day("from_at"), day("to_at"))
}
