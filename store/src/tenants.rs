//! Tenants and their projects.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use market::ids::{ProjectId, TenantId};
use market::tags::{AttributionField, RequiredTags};
use sea_orm::sea_query::{Expr, LockType, OnConflict};
use sea_orm::{
    ColumnTrait, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder,
    QuerySelect,
};

use crate::entity::column::{Json, Text};
use crate::entity::{projects, tenants};
use crate::idempotency::{self, Completion};
use crate::room::Room;
use crate::scope::service_wide;
use crate::tx::transaction;
use crate::{Conflict, StoreError};

/// The name of the project that every tenant begins with.
pub const DEFAULT_PROJECT: &str = "default";

/// A tenant: who buys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its id.
    pub id: TenantId,
    /// Its name, which no other tenant has.
    pub name: String,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

/// A project within a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Its id.
    pub id: ProjectId,
    /// The tenant.
    pub tenant_id: TenantId,
    /// Its name, which no other project of the tenant has.
    pub name: String,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

impl From<tenants::Model> for Tenant {
    fn from(row: tenants::Model) -> Self {
        Self {
            id: row.id.0,
            name: row.name,
            created_at: row.created_at.at(),
        }
    }
}

impl From<projects::Model> for Project {
    fn from(row: projects::Model) -> Self {
        Self {
            id: row.id.0,
            tenant_id: row.tenant_id.0,
            name: row.name,
            created_at: row.created_at.at(),
        }
    }
}

/// Projects are kept for good: charges name them.
const ROOM: Room = Room {
    what: "projects",
    most: 1_000,
    instead: "use one of them",
};

service_wide!(Tenants, tenants, "tenants and their projects");

impl Tenants<'_> {
    /// The tenant with this name; created, with its first project, when there is none.
    ///
    /// The ids are used only when it is created. Errors: [`StoreError::Database`].
    pub async fn ensure(
        &self,
        name: &str,
        id_if_new: TenantId,
        project_id_if_new: ProjectId,
        now: DateTime<Utc>,
    ) -> Result<Tenant, StoreError> {
        transaction!(self.store, |tx| {
            let row = tenants::Model {
                id: Text(id_if_new),
                name: name.to_owned(),
                created_at: now.into(),
                required_tags: None,
            };
            let made = tenants::Entity::insert(row.into_active_model())
                .on_conflict(
                    OnConflict::column(tenants::Column::Name)
                        .do_nothing()
                        .to_owned(),
                )
                .exec_without_returning(tx)
                .await?;
            if made == 1 {
                add_project(tx, id_if_new, DEFAULT_PROJECT, project_id_if_new, now).await?;
            }
            tenants::Entity::find()
                .filter(tenants::Column::Name.eq(name))
                .one(tx)
                .await?
                .map(Tenant::from)
                .ok_or(StoreError::NotFound { what: "tenant" })
        })
    }

    /// The tenant with this id.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn find(&self, id: TenantId) -> Result<Option<Tenant>, StoreError> {
        let row = tenants::Entity::find_by_id(Text(id))
            .one(&self.store.read)
            .await?;
        Ok(row.map(Tenant::from))
    }

    /// The tenant with this name.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn find_named(&self, name: &str) -> Result<Option<Tenant>, StoreError> {
        let row = tenants::Entity::find()
            .filter(tenants::Column::Name.eq(name))
            .one(&self.store.read)
            .await?;
        Ok(row.map(Tenant::from))
    }

    /// The tags that every reservation of the tenant must have.
    ///
    /// Errors: [`StoreError::NotFound`].
    pub async fn required_tags(&self, id: TenantId) -> Result<RequiredTags, StoreError> {
        let row = tenants::Entity::find_by_id(Text(id))
            .one(&self.store.read)
            .await?
            .ok_or(StoreError::NotFound { what: "tenant" })?;
        Ok(row.required_tags.map(|json| json.0).unwrap_or_default())
    }

    /// Changes the tags that every reservation of the tenant must have from now on; `None` leaves a field
    /// unchanged.
    ///
    /// Errors: [`StoreError::NotFound`]; [`StoreError::Stale`] when `completion` was taken over.
    pub async fn require_tags(
        &self,
        id: TenantId,
        tags: Option<BTreeSet<String>>,
        fields: Option<BTreeSet<AttributionField>>,
        completion: Option<Completion<'_, RequiredTags>>,
    ) -> Result<RequiredTags, StoreError> {
        transaction!(self.store, |tx| {
            let row = tenants::Entity::find_by_id(Text(id))
                .lock(LockType::NoKeyUpdate)
                .one(tx)
                .await?
                .ok_or(StoreError::NotFound { what: "tenant" })?;
            let old = row.required_tags.map(|json| json.0).unwrap_or_default();
            let required = RequiredTags {
                tags: tags.clone().unwrap_or(old.tags),
                fields: fields.clone().unwrap_or(old.fields),
            };
            tenants::Entity::update_many()
                .col_expr(
                    tenants::Column::RequiredTags,
                    Expr::value(Json(required.clone())),
                )
                .filter(tenants::Column::Id.eq(Text(id)))
                .exec(tx)
                .await?;
            idempotency::complete(tx, id, completion.as_ref(), &required).await?;
            Ok(required)
        })
    }

    /// Every tenant, by name.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn list(&self) -> Result<Vec<Tenant>, StoreError> {
        let rows = tenants::Entity::find()
            .order_by_asc(tenants::Column::Name)
            .all(&self.store.read)
            .await?;
        Ok(rows.into_iter().map(Tenant::from).collect())
    }

    /// Creates a project of the tenant.
    ///
    /// Errors: [`StoreError::Conflict`] when the tenant has one with this name, or the most allowed;
    /// [`StoreError::Stale`] when `completion` was taken over.
    pub async fn add_project(
        &self,
        tenant: TenantId,
        name: &str,
        id: ProjectId,
        now: DateTime<Utc>,
        completion: Option<Completion<'_, Project>>,
    ) -> Result<Project, StoreError> {
        let row = projects::Model {
            id: Text(id),
            tenant_id: Text(tenant),
            name: name.to_owned(),
            created_at: now.into(),
        };
        transaction!(self.store, |tx| {
            let there =
                projects::Entity::find().filter(projects::Column::TenantId.eq(Text(tenant)));
            ROOM.for_one_more(tx, tenant, there).await?;
            projects::Entity::insert(row.clone().into_active_model())
                .exec_without_returning(tx)
                .await
                .map_err(|refusal| {
                    StoreError::from(refusal).unique(|| Conflict::Exists {
                        what: "a project of this name",
                    })
                })?;
            let project = Project::from(row.clone());
            idempotency::complete(tx, tenant, completion.as_ref(), &project).await?;
            Ok(project)
        })
    }

    /// The tenant's projects, by name.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn projects(&self, tenant: TenantId) -> Result<Vec<Project>, StoreError> {
        let rows = projects::Entity::find()
            .filter(projects::Column::TenantId.eq(Text(tenant)))
            .order_by_asc(projects::Column::Name)
            .all(&self.store.read)
            .await?;
        Ok(rows.into_iter().map(Project::from).collect())
    }
}

async fn add_project(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    name: &str,
    id: ProjectId,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let row = projects::Model {
        id: Text(id),
        tenant_id: Text(tenant),
        name: name.to_owned(),
        created_at: now.into(),
    };
    let same = [projects::Column::TenantId, projects::Column::Name];
    projects::Entity::insert(row.into_active_model())
        .on_conflict(OnConflict::columns(same).do_nothing().to_owned())
        .exec_without_returning(tx)
        .await?;
    Ok(())
}
