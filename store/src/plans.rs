//! Plans: the candidates for a demand, stored so that any replica can quote them.

use chrono::{DateTime, Utc};
use market::demand::Demand;
use market::identity::Projects;
use market::ids::{PlanId, TenantId};
use sea_orm::sea_query::OnConflict;
use sea_orm::{ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter};
use serde_json::Value;

use crate::StoreError;
use crate::catalog::Generation;
use crate::entity::column::{Json, Text};
use crate::entity::plans::{Column, Entity, Model};
use crate::scope::tenant_scoped;

/// A plan to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NewPlan {
    /// Its id.
    pub id: PlanId,
    /// The demand.
    pub demand: Demand,
    /// The generation of the market that it was made on.
    pub generation: Generation,
    /// The candidates, in the planner's own form.
    pub candidates: Value,
    /// The rejections with their reasons, in the planner's own form.
    pub rejections: Value,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// The projects of the credential that made it.
    pub projects: Projects,
    /// Its inputs beside the offers, in the planner's own form.
    pub decided_from: Value,
}

/// A stored plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Its id.
    pub id: PlanId,
    /// The tenant.
    pub tenant_id: TenantId,
    /// The demand.
    pub demand: Demand,
    /// The generation of the market that it was made on.
    pub generation: Generation,
    /// The candidates, in the planner's own form.
    pub candidates: Value,
    /// The rejections with their reasons, in the planner's own form.
    pub rejections: Value,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// The projects of the credential that made it.
    pub projects: Projects,
    /// Its inputs beside the offers, in the planner's own form; `None` in rows of releases that did not store
    /// them.
    pub decided_from: Option<Value>,
}

impl TryFrom<Model> for Plan {
    type Error = StoreError;

    fn try_from(row: Model) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.0,
            tenant_id: row.tenant_id.0,
            demand: row.demand.0,
            generation: Generation::try_from(row.generation)?,
            candidates: row.candidates.0,
            rejections: row.rejections.0,
            created_at: row.created_at.at(),
            projects: row.projects.map(|named| named.0).into(),
            decided_from: row.decided_from.map(|from| from.0),
        })
    }
}

tenant_scoped!(Plans, plans, TenantPlans, AllPlans, "plans");

impl TenantPlans<'_> {
    /// Stores a plan; storing the same id again changes nothing.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn insert(&self, plan: NewPlan) -> Result<(), StoreError> {
        let row = Model {
            id: Text(plan.id),
            tenant_id: Text(self.tenant),
            demand: Json(plan.demand),
            generation: plan.generation.number()?,
            candidates: Json(plan.candidates),
            rejections: Json(plan.rejections),
            created_at: plan.created_at.into(),
            projects: plan.projects.named().cloned().map(Json),
            decided_from: Some(Json(plan.decided_from)),
        };
        Entity::insert(row.into_active_model())
            .on_conflict(OnConflict::column(Column::Id).do_nothing().to_owned())
            .exec_without_returning(&self.store.write)
            .await?;
        Ok(())
    }

    /// The tenant's plan with this id.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn find(&self, id: PlanId) -> Result<Option<Plan>, StoreError> {
        let row = Entity::find_by_id(Text(id))
            .filter(Column::TenantId.eq(Text(self.tenant)))
            .one(&self.store.read)
            .await?;
        row.map(Plan::try_from).transpose()
    }
}

impl AllPlans<'_> {
    /// The plan with this id, of any tenant.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn find(&self, id: PlanId) -> Result<Option<Plan>, StoreError> {
        let row = Entity::find_by_id(Text(id)).one(&self.store.read).await?;
        row.map(Plan::try_from).transpose()
    }
}
