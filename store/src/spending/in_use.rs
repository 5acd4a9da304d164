//! How much is in use in a period, summed by the database.

use chrono::{DateTime, Utc};
use market::ids::{ProjectId, ReservationId, TenantId};
use market::reservation::ReservationState;
use market::spending::InUse;
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, EntityTrait, QueryFilter, QuerySelect, QueryTrait,
};

use super::{OpenReservation, read};
use crate::StoreError;
use crate::entity::column::{Moment, Text};
use crate::entity::{holds, reservations};

/// The period in which a reservation uses its machines. What surely ends before it or starts after it does not
/// count; what may overlap does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct UsePeriod {
    /// When it is asked.
    pub(super) now: DateTime<Utc>,
    /// When the use begins: now, or later.
    from: DateTime<Utc>,
    /// When it ends at the latest; `None`: it is open.
    until: Option<DateTime<Utc>>,
}

impl UsePeriod {
    /// The present moment.
    pub(super) const fn at(now: DateTime<Utc>) -> Self {
        Self {
            now,
            from: now,
            until: Some(now),
        }
    }

    /// The time of a reservation that is asked for.
    pub(super) fn of(asked: &OpenReservation, now: DateTime<Utc>) -> Self {
        Self {
            now,
            from: asked.starts_at.map_or(now, |start| start.max(now)),
            until: asked.ends_at,
        }
    }

    pub(super) fn overlaps(self, open: &OpenReservation) -> bool {
        let begins_after = |until| open.starts_at.is_some_and(|start| start >= until);
        // At present what is past its end may still run.
        let ends_before = self.from > self.now && open.ends_at.is_some_and(|end| end <= self.from);
        !ends_before && !self.until.is_some_and(begins_after)
    }
}

/// How much is in use, summed by the database: GPUs and dollars of what overlaps in time, and of everything
/// else how many there are. `but` is left out. Where rows lack the columns, it reads their lines and leases.
pub(super) async fn in_use<C: ConnectionTrait>(
    db: &C,
    tenant: TenantId,
    project: Option<ProjectId>,
    time: UsePeriod,
    but: Option<ReservationId>,
) -> Result<InUse, StoreError> {
    use reservations::Column;
    let now = time.now;
    // The sum of 64-bit integers has a wider type on PostgreSQL.
    let sum = |what: &str| Expr::cust(format!("CAST(COALESCE(SUM({what}), 0) AS BIGINT)"));
    let stands = Condition::any()
        .add(Column::State.ne("held"))
        .add(Column::HoldExpiresAt.gt(Moment::from(now)));
    let open = reservations::Entity::find()
        .select_only()
        .filter(Column::TenantId.eq(Text(tenant)))
        .filter(Column::State.ne("closed"))
        .filter(stands)
        .apply_if(project, |query, project| {
            query.filter(Column::ProjectId.eq(Text(project)))
        })
        .apply_if(but, |query, but| query.filter(Column::Id.ne(Text(but))));
    let counts: Option<(i64, i64, i64)> = open
        .clone()
        .column_as(Column::Id.count(), "reservations")
        .column_as(Column::Gpus.count(), "counted")
        .column_as(
            sum("CASE WHEN state = 'held' THEN 1 ELSE 0 END"),
            "open_holds",
        )
        .into_tuple()
        .one(db)
        .await?;
    let (all, counted, open_holds) = counts.unwrap_or_default();
    if counted < all {
        let mut spending = read(db, tenant, now).await?;
        spending.open.retain(|open| Some(open.id) != but);
        return Ok(spending.in_use_within(project, time));
    }
    // Only what is not ordered yet can begin later.
    let begins_after = |until| {
        Condition::all()
            .add(Column::State.is_in(NOT_ORDERED))
            .add(Column::StartsAt.is_not_null())
            .add(Column::StartsAt.gte(Moment::from(until)))
    };
    // In two parts: bounds are the tenant's own numbers, and the sum of a few may exceed 64 bits.
    let sums: Option<(i64, i64, i64)> = open
        .column_as(sum("gpus"), "gpus")
        .column_as(sum(&format!("units_per_hour / {PART}")), "parts")
        .column_as(sum(&format!("units_per_hour % {PART}")), "rest")
        .apply_if(time.until, |query, until| {
            query.filter(begins_after(until).not())
        })
        .apply_if((time.from > now).then_some(time.from), |query, from| {
            query.filter(
                Condition::any()
                    .add(Column::EndsAt.is_null())
                    .add(Column::EndsAt.gt(Moment::from(from))),
            )
        })
        .into_tuple()
        .one(db)
        .await?;
    let (gpus, parts, rest) = sums.unwrap_or_default();
    let units_per_hour = i128::from(parts) * i128::from(PART) + i128::from(rest);
    let whole = |sum: i64| u64::try_from(sum).map_err(StoreError::corrupt);
    Ok(InUse {
        gpus: whole(gpus)?,
        units_per_hour,
        open_holds: whole(open_holds)?,
        held_nodes: held_nodes(db, tenant, project, now).await?,
        reservations: whole(all)?,
    })
}

/// A part of a sum. Units: USD 1e-8 per hour.
const PART: i64 = 1_000_000_000;

/// The states, in words, in which nothing is ordered.
const NOT_ORDERED: [&str; 2] = ["held", "scheduled"];

/// Nodes of holds that are not confirmed and have not lapsed.
async fn held_nodes<C: ConnectionTrait>(
    db: &C,
    tenant: TenantId,
    project: Option<ProjectId>,
    now: DateTime<Utc>,
) -> Result<u64, StoreError> {
    use reservations::Column;
    let waiting = reservations::Entity::find()
        .select_only()
        .column(Column::Id)
        .filter(Column::TenantId.eq(Text(tenant)))
        .filter(Column::State.eq(ReservationState::Held.as_str()))
        .filter(Column::HoldExpiresAt.gt(Moment::from(now)))
        .apply_if(project, |query, project| {
            query.filter(Column::ProjectId.eq(Text(project)))
        });
    let sum: Option<Option<i64>> = holds::Entity::find()
        .select_only()
        .column_as(holds::Column::Nodes.sum(), "nodes")
        .filter(holds::Column::Live.eq(true))
        .filter(holds::Column::ReservationId.in_subquery(waiting.into_query()))
        .into_tuple()
        .one(db)
        .await?;
    u64::try_from(sum.flatten().unwrap_or(0)).map_err(StoreError::corrupt)
}
