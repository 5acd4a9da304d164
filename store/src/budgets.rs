//! Budgets: caps on what a tenant or a project spends in a day or a month.
//!
//! `spending` decides whether something new may still be sold under them. [`AllBudgets::review`] sends events
//! and stops leases as a cap is spent. Each happens once in a period, because its mark is written in the same
//! transaction.

mod review;

use chrono::{DateTime, Utc};
use market::ids::{BudgetId, ProjectId, TenantId};
use market::money::Money;
use market::spending::{Budget, BudgetMode, BudgetTerms};
use sea_orm::{
    ActiveModelTrait as _, ColumnTrait, ConnectionTrait, DatabaseTransaction, EntityTrait,
    IntoActiveModel, QueryFilter, QueryOrder, QuerySelect,
};

use crate::entity::budget_marks;
use crate::entity::budgets::{Column, Entity, Model};
use crate::entity::column::{Json, Text, Word};
use crate::idempotency::{self, Completion};
use crate::scope::tenant_scoped;
use crate::tx::transaction;
use crate::{Conflict, StoreError, hold, spending};

pub use review::Reviewed;

/// How many budgets a tenant may have.
pub const MAX_BUDGETS: usize = 100;

/// A change of a budget; `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BudgetChange {
    /// The most that may be spent in one period.
    pub cap: Option<Money>,
    /// The action when it is reached.
    pub mode: Option<BudgetMode>,
    /// The shares of the cap at which an event is sent. Units: percent.
    pub thresholds_percent: Option<Vec<u16>>,
    /// How long leases keep running once the cap is spent. Units: seconds.
    pub grace_seconds: Option<u32>,
}

impl BudgetChange {
    /// The terms after the change.
    #[must_use]
    pub fn of(&self, old: &BudgetTerms) -> BudgetTerms {
        let thresholds = self.thresholds_percent.as_ref();
        BudgetTerms {
            period: old.period,
            cap: self.cap.unwrap_or(old.cap),
            mode: self.mode.unwrap_or(old.mode),
            thresholds_percent: thresholds.unwrap_or(&old.thresholds_percent).clone(),
            grace_seconds: self.grace_seconds.unwrap_or(old.grace_seconds),
        }
    }
}

impl TryFrom<Model> for Budget {
    type Error = StoreError;

    fn try_from(row: Model) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.0,
            tenant_id: row.tenant_id.0,
            project_id: row.project_id.map(|project| project.0),
            terms: BudgetTerms {
                period: row.period.0,
                cap: Money::usd_units(row.cap_units),
                mode: row.mode.0,
                thresholds_percent: row.thresholds_percent.0,
                grace_seconds: u32::try_from(row.grace_seconds).map_err(StoreError::corrupt)?,
            },
            created_at: row.created_at.at(),
        })
    }
}

fn row(budget: &Budget) -> Result<Model, StoreError> {
    let terms = &budget.terms;
    Ok(Model {
        id: Text(budget.id),
        tenant_id: Text(budget.tenant_id),
        project_id: budget.project_id.map(Text),
        period: Word(terms.period),
        cap_units: terms.cap.units(),
        mode: Word(terms.mode),
        thresholds_percent: Json(terms.thresholds_percent.clone()),
        grace_seconds: i32::try_from(terms.grace_seconds).map_err(StoreError::corrupt)?,
        created_at: budget.created_at.into(),
    })
}

tenant_scoped!(Budgets, budgets, TenantBudgets, AllBudgets, "budgets");

impl TenantBudgets<'_> {
    /// Stores a budget of the tenant, whose terms are checked.
    ///
    /// Errors: [`StoreError::NotFound`] for a project that is not the tenant's;
    /// [`Conflict::TooManyBudgets`]; [`StoreError::Stale`] when `completion` was taken over.
    pub async fn add(
        &self,
        id: BudgetId,
        project_id: Option<ProjectId>,
        terms: BudgetTerms,
        now: DateTime<Utc>,
        completion: Option<Completion<'_, Budget>>,
    ) -> Result<Budget, StoreError> {
        let tenant = self.tenant;
        let budget = Budget {
            id,
            tenant_id: tenant,
            project_id,
            terms,
            created_at: now,
        };
        let row = row(&budget)?;
        transaction!(self.store, |tx| {
            // A hold that is being placed is either checked without it and then counts for it, or is checked
            // against it.
            spending::lock(tx, tenant).await?;
            if let Some(project) = project_id {
                hold::own_project(tx, tenant, project).await?;
            }
            if of_tenant(tx, tenant).await?.len() >= MAX_BUDGETS {
                return Err(Conflict::TooManyBudgets { most: MAX_BUDGETS }.into());
            }
            Entity::insert(row.clone().into_active_model())
                .exec_without_returning(tx)
                .await?;
            idempotency::complete(tx, tenant, completion.as_ref(), &budget).await?;
            Ok(budget.clone())
        })
    }

    /// The tenant's budget with this id.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn find(&self, id: BudgetId) -> Result<Option<Budget>, StoreError> {
        let row = Entity::find_by_id(Text(id))
            .filter(Column::TenantId.eq(Text(self.tenant)))
            .one(&self.store.read)
            .await?;
        row.map(Budget::try_from).transpose()
    }

    /// The tenant's budgets, the oldest first.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn list(&self) -> Result<Vec<Budget>, StoreError> {
        of_tenant(&self.store.read, self.tenant).await
    }

    /// Changes a budget that still has the terms `old`, whose change is checked.
    ///
    /// Events of this period are not sent again. The next review withdraws an announced stop when the new cap
    /// is not spent.
    /// Errors: [`StoreError::NotFound`]; [`StoreError::Stale`] when the terms are no longer `old`,
    /// or when `completion` was taken over.
    pub async fn change(
        &self,
        id: BudgetId,
        old: &BudgetTerms,
        new: BudgetTerms,
        completion: Option<Completion<'_, Budget>>,
    ) -> Result<Budget, StoreError> {
        let tenant = self.tenant;
        transaction!(self.store, |tx| {
            spending::lock(tx, tenant).await?;
            let mut budget = Budget::try_from(lock(tx, tenant, id).await?)?;
            if budget.terms != *old {
                return Err(StoreError::Stale);
            }
            budget.terms = new.clone();
            Entity::update(row(&budget)?.into_active_model().reset_all())
                .exec_without_returning(tx)
                .await?;
            idempotency::complete(tx, tenant, completion.as_ref(), &budget).await?;
            Ok(budget)
        })
    }

    /// Deletes a budget.
    ///
    /// Errors: [`StoreError::NotFound`]; [`StoreError::Stale`] when `completion` was taken over.
    pub async fn delete(
        &self,
        id: BudgetId,
        completion: Option<Completion<'_, ()>>,
    ) -> Result<(), StoreError> {
        let tenant = self.tenant;
        transaction!(self.store, |tx| {
            spending::lock(tx, tenant).await?;
            lock(tx, tenant, id).await?;
            budget_marks::Entity::delete_many()
                .filter(budget_marks::Column::BudgetId.eq(Text(id)))
                .exec(tx)
                .await?;
            Entity::delete_by_id(Text(id)).exec(tx).await?;
            idempotency::complete(tx, tenant, completion.as_ref(), &()).await
        })
    }
}

impl AllBudgets<'_> {
    /// All tenants' budgets, the oldest first.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn list(&self) -> Result<Vec<Budget>, StoreError> {
        let rows = Entity::find()
            .order_by_asc(Column::Id)
            .all(&self.store.read)
            .await?;
        rows.into_iter().map(Budget::try_from).collect()
    }
}

/// A tenant's budgets, the oldest first.
pub(crate) async fn of_tenant<C: ConnectionTrait>(
    db: &C,
    tenant: TenantId,
) -> Result<Vec<Budget>, StoreError> {
    let rows = Entity::find()
        .filter(Column::TenantId.eq(Text(tenant)))
        .order_by_asc(Column::Id)
        .all(db)
        .await?;
    rows.into_iter().map(Budget::try_from).collect()
}

/// The tenant's budget, locked until the end of the transaction.
async fn lock(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    id: BudgetId,
) -> Result<Model, StoreError> {
    Entity::find_by_id(Text(id))
        .filter(Column::TenantId.eq(Text(tenant)))
        .lock_exclusive()
        .one(tx)
        .await?
        .ok_or(StoreError::NotFound { what: "budget" })
}
