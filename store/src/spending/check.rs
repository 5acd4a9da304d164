//! The check of a tenant's spending, before more is sold to it.
//!
//! A hold and an extension take the lock of their tenant before they read and keep it until they are written.
//! So of two that fit alone but not together, one is refused. Metering takes no such lock: reservations and
//! leases are read before the sums, so that a charge in between is counted twice rather than not at all.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use market::hold_rules;
use market::ids::{ProjectId, TenantId};
use market::spending::{Budget, OpenLine, SpendingLimits};
use sea_orm::sea_query::LockType;
use sea_orm::{ColumnTrait, DatabaseTransaction, EntityTrait, QueryFilter, QuerySelect};

use super::{Spending, UsePeriod, in_use, open_reservation, read};
use crate::entity::column::Text;
use crate::entity::{leases, reservations, tenants};
use crate::{Conflict, StoreError, budgets, cancelled, limits};

/// Makes sales to a tenant queue up until the end of the transaction.
///
/// The lock still allows writes of rows that refer to the tenant. SQLite has one writer anyhow.
pub(crate) async fn lock(tx: &DatabaseTransaction, tenant: TenantId) -> Result<(), StoreError> {
    tenants::Entity::find_by_id(Text(tenant))
        .lock(LockType::NoKeyUpdate)
        .one(tx)
        .await?
        .map(|_| ())
        .ok_or(StoreError::NotFound { what: "tenant" })
}

/// Allows a reservation to be held, or refuses it: limits of the tenant and of the project, then every
/// blocking budget over them. `waiting` are its nodes if it waits for confirmation: limits on holds apply to
/// those alone.
///
/// Errors: [`StoreError::LimitExceeded`], [`StoreError::BudgetExceeded`].
pub(crate) async fn check_hold(
    tx: &DatabaseTransaction,
    defaults: SpendingLimits,
    row: &reservations::Model,
    waiting: Option<u32>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let (tenant, project) = (row.tenant_id.0, row.project_id.0);
    lock(tx, tenant).await?;
    let mut asked = open_reservation(row, &[], &HashMap::new(), now)?;
    asked.in_use.held_nodes = waiting.unwrap_or(0).into();
    asked.in_use.open_holds = waiting.is_some().into();
    let time = UsePeriod::of(&asked, now);
    for scope in [None, Some(project)] {
        let limits = limits::effective(tx, tenant, scope, defaults).await?;
        let used = in_use(tx, tenant, scope, time, None).await?;
        limits.admit(scope, used, asked.in_use)?;
    }
    if !is_capped(tx, tenant, project).await? {
        return Ok(());
    }
    let spending = read(tx, tenant, now).await?;
    check_budgets(tx, &spending, (tenant, project), &[], &asked.lines, now).await
}

/// Allows a hold to be confirmed, or refuses it: its budgets may be smaller or more used than when it was
/// placed. Other holds do not count, because they may lapse; each is checked when it is confirmed itself.
///
/// A hold that lapsed while it waited here is refused, because a hold placed since then no longer counted it.
///
/// Errors: [`StoreError::BudgetExceeded`]; [`Conflict::HoldLapsed`] for one that lapsed meanwhile;
/// [`Conflict::TooManyCancelled`].
pub(crate) async fn check_confirm(
    tx: &DatabaseTransaction,
    defaults: SpendingLimits,
    held: &reservations::Model,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let (tenant, project) = (held.tenant_id.0, held.project_id.0);
    lock(tx, tenant).await?;
    check_cancelled(tx, defaults, tenant, now).await?;
    let placed_after = reservations::Entity::find()
        .filter(reservations::Column::TenantId.eq(Text(tenant)))
        .filter(reservations::Column::CreatedAt.gte(held.hold_expires_at))
        .limit(1);
    if placed_after.one(tx).await?.is_some() {
        return Err(Conflict::HoldLapsed.into());
    }
    if !is_capped(tx, tenant, project).await? {
        return Ok(());
    }
    let mut spending = read(tx, tenant, now).await?;
    spending.open.retain(|open| open.in_use.open_holds == 0);
    let asked = open_reservation(held, &[], &HashMap::new(), now)?;
    check_budgets(tx, &spending, (tenant, project), &[], &asked.lines, now).await
}

/// Allows a scheduled reservation to be ordered, or refuses it: limits and caps may be lower than when it was
/// confirmed, and its price is settled now. `row` is scheduled and has its lines at the rates at which they are
/// ordered. It counts from its start on, so that what ends at its start does not hold it back. How many orders its
/// tenant cancelled does not matter: it was confirmed long ago.
///
/// Errors: [`StoreError::LimitExceeded`], [`StoreError::BudgetExceeded`].
pub(crate) async fn check_start(
    tx: &DatabaseTransaction,
    defaults: SpendingLimits,
    row: &reservations::Model,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let (tenant, project, id) = (row.tenant_id.0, row.project_id.0, row.id.0);
    lock(tx, tenant).await?;
    let mut asked = open_reservation(row, &[], &HashMap::new(), now)?;
    // It is one of those that are counted already.
    asked.in_use.reservations = 0;
    let time = UsePeriod::of(&asked, now);
    for scope in [None, Some(project)] {
        let limits = limits::effective(tx, tenant, scope, defaults).await?;
        let used = in_use(tx, tenant, scope, time, Some(id)).await?;
        limits.admit(scope, used, asked.in_use)?;
    }
    if !is_capped(tx, tenant, project).await? {
        return Ok(());
    }
    let mut spending = read(tx, tenant, now).await?;
    spending.open.retain(|open| open.id != id);
    check_budgets(tx, &spending, (tenant, project), &[], &asked.lines, now).await
}

/// Refuses further orders of a tenant that cancelled too many orders before their hand-off within a day.
///
/// Errors: [`Conflict::TooManyCancelled`].
async fn check_cancelled(
    tx: &DatabaseTransaction,
    defaults: SpendingLimits,
    tenant: TenantId,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let limits = limits::effective(tx, tenant, None, defaults).await?;
    let Some(most) = limits.cancelled_orders else {
        return Ok(());
    };
    let times = cancelled::lately(tx, tenant, now).await?;
    let Some(again_at) = hold_rules::confirms_again_at(&times, most, cancelled::WITHIN_HOURS)
    else {
        return Ok(());
    };
    Err(Conflict::TooManyCancelled {
        cancelled: times.len(),
        most,
        again_at,
        again_in_seconds: hold_rules::seconds_until(again_at, now),
    }
    .into())
}

/// Allows a reservation to continue for longer, or refuses it.
///
/// Errors: [`StoreError::BudgetExceeded`].
pub(crate) async fn check_extension(
    tx: &DatabaseTransaction,
    before: &reservations::Model,
    after: &reservations::Model,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let tenant = before.tenant_id.0;
    lock(tx, tenant).await?;
    let spending = read(tx, tenant, now).await?;
    let leases = leases::Entity::find()
        .filter(leases::Column::ReservationId.eq(before.id.clone()))
        .all(tx)
        .await?;
    // Earlier charges of its lines matter only to the last unit of rounding, and not at all to the additional
    // cost.
    let open = |row| open_reservation(row, &leases, &HashMap::new(), now);
    let (old, new) = (open(before)?.lines, open(after)?.lines);
    check_budgets(
        tx,
        &spending,
        (tenant, before.project_id.0),
        &old,
        &new,
        now,
    )
    .await
}

/// Whether a blocking budget is over a project: else no sums are needed.
async fn is_capped(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    project: ProjectId,
) -> Result<bool, StoreError> {
    let budgets = budgets::of_tenant(tx, tenant).await?;
    let binds = |budget: &Budget| budget.covers(project) && budget.terms.mode.blocks();
    Ok(budgets.iter().any(binds))
}

/// Checks every budget over a project against the cost of `new` lines beyond `old` ones, in every period that
/// they reach into.
async fn check_budgets(
    tx: &DatabaseTransaction,
    spending: &Spending,
    (tenant, project): (TenantId, ProjectId),
    old: &[OpenLine],
    new: &[OpenLine],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let ends = new.iter().map(|line| line.until);
    let end = ends
        .collect::<Option<Vec<_>>>()
        .and_then(|ends| ends.into_iter().max());
    let begins = new.iter().flat_map(|line| &line.running);
    let from = begins.map(|part| part.from).min();
    let from = from.map_or(now, |from| from.max(now));
    for budget in budgets::of_tenant(tx, tenant).await? {
        if !budget.covers(project) || !budget.terms.mode.blocks() {
            continue;
        }
        for span in budget.terms.period.reached(from, end) {
            let rest = |lines: &[OpenLine]| -> i128 {
                lines.iter().map(|line| line.rest_within(span)).sum()
            };
            let charged = spending.charged(budget.project_id, span);
            let committed = charged + spending.open_within(budget.project_id, span);
            budget.admit(span.start, charged, committed, rest(new) - rest(old))?;
        }
    }
    Ok(())
}
