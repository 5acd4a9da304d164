//! Limits: how much a tenant, and each project of it, may have in use at once.
//!
//! A tenant without limits of its own has those of the configuration; a project without its own has only its
//! tenant's.

use chrono::{DateTime, Utc};
use market::ids::{ProjectId, TenantId};
use market::money::Money;
use market::spending::SpendingLimits;
use sea_orm::sea_query::OnConflict;
use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, IntoActiveModel, QueryFilter};

use crate::entity::column::Text;
use crate::entity::spending_limits::{Column, Entity, Model};
use crate::idempotency::{self, Completion};
use crate::scope::tenant_scoped;
use crate::tx::transaction;
use crate::{StoreError, hold, spending};

/// The limits of a tenant or of one project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScopeLimits {
    /// The project; `None`: the tenant as a whole.
    pub project_id: Option<ProjectId>,
    /// The limits.
    pub limits: SpendingLimits,
    /// When they were set; `None` for those of the configuration.
    pub changed_at: Option<DateTime<Utc>>,
}

/// New limits: `None` leaves one unchanged, `Some(None)` removes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitsChange {
    /// GPUs that are held or leased.
    pub gpus: Option<Option<u32>>,
    /// The cost of everything held or leased. Units: US dollars per hour.
    pub usd_per_hour: Option<Option<Money>>,
    /// Holds that are not confirmed.
    pub open_holds: Option<Option<u32>>,
    /// Nodes of holds that are not confirmed.
    pub held_nodes: Option<Option<u32>>,
    /// Reservations that are not closed.
    pub reservations: Option<Option<u32>>,
    /// Orders that may be cancelled before their hand-off within 24 hours.
    pub cancelled_orders: Option<Option<u32>>,
}

impl LimitsChange {
    /// The limits after the change.
    #[must_use]
    pub fn of(self, old: SpendingLimits) -> SpendingLimits {
        SpendingLimits {
            gpus: self.gpus.unwrap_or(old.gpus),
            usd_per_hour: self.usd_per_hour.unwrap_or(old.usd_per_hour),
            open_holds: self.open_holds.unwrap_or(old.open_holds),
            held_nodes: self.held_nodes.unwrap_or(old.held_nodes),
            reservations: self.reservations.unwrap_or(old.reservations),
            cancelled_orders: self.cancelled_orders.unwrap_or(old.cancelled_orders),
        }
    }
}

impl TryFrom<Model> for ScopeLimits {
    type Error = StoreError;

    fn try_from(row: Model) -> Result<Self, StoreError> {
        let whole = |number: Option<i64>| {
            number
                .map(|number| u32::try_from(number).map_err(StoreError::corrupt))
                .transpose()
        };
        Ok(Self {
            project_id: row.project_id.map(|project| project.0),
            limits: SpendingLimits {
                gpus: whole(row.gpus)?,
                usd_per_hour: row.units_per_hour.map(Money::usd_units),
                open_holds: whole(row.open_holds)?,
                held_nodes: whole(row.held_nodes)?,
                reservations: whole(row.reservations)?,
                cancelled_orders: whole(row.cancelled_orders)?,
            },
            changed_at: Some(row.changed_at.at()),
        })
    }
}

tenant_scoped!(
    Limits,
    limits,
    TenantLimits,
    "limits on what is in use at once"
);

impl TenantLimits<'_> {
    /// The tenant's limits, and after them those of its projects that have some, the oldest
    /// project first.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn list(&self) -> Result<Vec<ScopeLimits>, StoreError> {
        let rows = Entity::find()
            .filter(Column::TenantId.eq(Text(self.tenant)))
            .all(&self.store.read)
            .await?;
        let mut all = rows
            .into_iter()
            .map(ScopeLimits::try_from)
            .collect::<Result<Vec<_>, _>>()?;
        if all.iter().all(|limits| limits.project_id.is_some()) {
            all.push(ScopeLimits {
                project_id: None,
                limits: self.store.limits,
                changed_at: None,
            });
        }
        all.sort_by_key(|limits| limits.project_id);
        Ok(all)
    }

    /// Changes the limits of the tenant or of one project. Capacity already in use stays.
    ///
    /// Errors: [`StoreError::NotFound`] for a project that is not the tenant's;
    /// [`StoreError::Stale`] when `completion` was taken over.
    pub async fn change(
        &self,
        project: Option<ProjectId>,
        change: LimitsChange,
        now: DateTime<Utc>,
        completion: Option<Completion<'_, ScopeLimits>>,
    ) -> Result<ScopeLimits, StoreError> {
        let (store, tenant) = (self.store, self.tenant);
        transaction!(store, |tx| {
            // Holds that are being placed are checked against the old or the new limits, not a mix.
            spending::lock(tx, tenant).await?;
            if let Some(project) = project {
                hold::own_project(tx, tenant, project).await?;
            }
            let limits = change.of(effective(tx, tenant, project, store.limits).await?);
            let row = row(tenant, project, limits, now);
            let changed = [
                Column::Gpus,
                Column::UnitsPerHour,
                Column::OpenHolds,
                Column::HeldNodes,
                Column::Reservations,
                Column::CancelledOrders,
                Column::ChangedAt,
            ];
            Entity::insert(row.clone().into_active_model())
                .on_conflict(
                    OnConflict::column(Column::Scope)
                        .update_columns(changed)
                        .to_owned(),
                )
                .exec_without_returning(tx)
                .await?;
            let changed = ScopeLimits::try_from(row)?;
            idempotency::complete(tx, tenant, completion.as_ref(), &changed).await?;
            Ok(changed)
        })
    }
}

fn scope(tenant: TenantId, project: Option<ProjectId>) -> String {
    project.map_or(tenant.to_string(), |project| project.to_string())
}

fn row(
    tenant: TenantId,
    project: Option<ProjectId>,
    limits: SpendingLimits,
    now: DateTime<Utc>,
) -> Model {
    Model {
        scope: scope(tenant, project),
        tenant_id: Text(tenant),
        project_id: project.map(Text),
        gpus: limits.gpus.map(i64::from),
        units_per_hour: limits.usd_per_hour.map(Money::units),
        open_holds: limits.open_holds.map(i64::from),
        held_nodes: limits.held_nodes.map(i64::from),
        reservations: limits.reservations.map(i64::from),
        cancelled_orders: limits.cancelled_orders.map(i64::from),
        changed_at: now.into(),
    }
}

/// The limits that apply to a tenant or a project.
pub(crate) async fn effective<C: ConnectionTrait>(
    db: &C,
    tenant: TenantId,
    project: Option<ProjectId>,
    defaults: SpendingLimits,
) -> Result<SpendingLimits, StoreError> {
    let row = Entity::find_by_id(scope(tenant, project))
        .filter(Column::TenantId.eq(Text(tenant)))
        .one(db)
        .await?;
    match row {
        Some(row) => Ok(ScopeLimits::try_from(row)?.limits),
        None if project.is_none() => Ok(defaults),
        None => Ok(SpendingLimits::default()),
    }
}
