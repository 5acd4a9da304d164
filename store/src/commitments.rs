//! Commitments: capacity that tenants have paid for at providers, with its remainder.
//!
//! A commitment is never changed: to change it, the tenant withdraws it and registers another. A withdrawn
//! commitment is in no later plan; lines that it already covers stay covered, as quoted.

use chrono::{DateTime, Utc};
use market::capacity::{Commitment, OpenCommitment};
use market::ids::{CommitmentId, TenantId};
use market::money::Money;
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, Condition, EntityTrait, IntoActiveModel, PaginatorTrait, QueryFilter, QueryOrder,
};

use crate::entity::column::{Json, Moment, Text};
use crate::entity::commitments::{Column, Entity, Model};
use crate::idempotency::{self, Completion};
use crate::scope::tenant_scoped;
use crate::tx::transaction;
use crate::{Conflict, StoreError, coverage, spending};

/// How many commitments a tenant may have at a time.
pub const MAX_COMMITMENTS: u64 = 200;

impl TryFrom<Model> for Commitment {
    type Error = StoreError;

    fn try_from(row: Model) -> Result<Self, StoreError> {
        let whole = |number: i32| u32::try_from(number).map_err(StoreError::corrupt);
        Ok(Self {
            id: row.id.0,
            name: row.name,
            provider: row.provider_id.0,
            scope: row.scope.0,
            nodes: whole(row.nodes)?,
            node_hours: row.node_hours.map(whole).transpose()?,
            price_per_node_hour: Money::usd_units(row.price_units),
            expires_at: row.expires_at.at(),
            created_at: row.created_at.at(),
        })
    }
}

fn row(tenant: TenantId, commitment: &Commitment) -> Result<Model, StoreError> {
    let whole = |number: u32| i32::try_from(number).map_err(StoreError::corrupt);
    Ok(Model {
        id: Text(commitment.id),
        tenant_id: Text(tenant),
        name: commitment.name.clone(),
        provider_id: Text(commitment.provider.clone()),
        scope: Json(commitment.scope.clone()),
        nodes: whole(commitment.nodes)?,
        node_hours: commitment.node_hours.map(whole).transpose()?,
        price_units: commitment.price_per_node_hour.units(),
        expires_at: commitment.expires_at.into(),
        created_at: commitment.created_at.into(),
        withdrawn_at: None,
    })
}

tenant_scoped!(
    Commitments,
    commitments,
    TenantCommitments,
    AllCommitments,
    "commitments"
);

impl TenantCommitments<'_> {
    /// Stores a commitment, whose terms are checked.
    ///
    /// Errors: [`Conflict::OwnCapacityFull`]; [`StoreError::Stale`] when `completion` was taken over.
    pub async fn add(
        &self,
        commitment: Commitment,
        completion: Option<Completion<'_, OpenCommitment>>,
    ) -> Result<OpenCommitment, StoreError> {
        let row = row(self.tenant, &commitment)?;
        let now = commitment.created_at;
        let open = coverage::Used::default().leaves(commitment);
        transaction!(self.store, |tx| {
            spending::lock(tx, self.tenant).await?;
            let live = Column::ExpiresAt.gt(Moment::from(now));
            let there = Entity::find()
                .filter(standing(self.tenant))
                .filter(live)
                .count(tx)
                .await?;
            if there >= MAX_COMMITMENTS {
                let (what, most) = ("running commitments", MAX_COMMITMENTS);
                return Err(Conflict::OwnCapacityFull { what, most }.into());
            }
            Entity::insert(row.clone().into_active_model())
                .exec_without_returning(tx)
                .await?;
            idempotency::complete(tx, self.tenant, completion.as_ref(), &open).await?;
            Ok(open.clone())
        })
    }

    /// The tenant's commitments that are not withdrawn, the newest first, each with its remainder at `now`.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn list(&self, now: DateTime<Utc>) -> Result<Vec<OpenCommitment>, StoreError> {
        let tx = self.store.snapshot().await?;
        let rows = Entity::find()
            .filter(standing(self.tenant))
            .order_by_desc(Column::Id)
            .all(&tx)
            .await?;
        let mut used = coverage::used(&tx, rows.iter().map(|row| row.id.clone()), now).await?;
        rows.into_iter()
            .map(|row| {
                let of_it = used.remove(&row.id.0).unwrap_or_default();
                Ok(of_it.leaves(Commitment::try_from(row)?))
            })
            .collect()
    }

    /// The tenant's commitment with this id, unless it is withdrawn.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn find(
        &self,
        id: CommitmentId,
        now: DateTime<Utc>,
    ) -> Result<Option<OpenCommitment>, StoreError> {
        let all = self.list(now).await?;
        Ok(all.into_iter().find(|open| open.commitment.id == id))
    }

    /// Withdraws a commitment.
    ///
    /// Errors: [`StoreError::NotFound`]; [`StoreError::Stale`] when `completion` was taken over.
    pub async fn withdraw(
        &self,
        id: CommitmentId,
        now: DateTime<Utc>,
        completion: Option<Completion<'_, ()>>,
    ) -> Result<(), StoreError> {
        transaction!(self.store, |tx| {
            let withdrawn = Entity::update_many()
                .col_expr(Column::WithdrawnAt, Expr::value(Moment::from(now)))
                .filter(standing(self.tenant))
                .filter(Column::Id.eq(Text(id)))
                .exec(tx)
                .await?;
            if withdrawn.rows_affected == 0 {
                return Err(StoreError::NotFound { what: "commitment" });
            }
            idempotency::complete(tx, self.tenant, completion.as_ref(), &()).await
        })
    }
}

impl AllCommitments<'_> {
    /// How often any was registered or withdrawn: it grows with each change.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn changes(&self) -> Result<u64, StoreError> {
        let made = Entity::find().count(&self.store.read).await?;
        let withdrawn = Entity::find()
            .filter(Column::WithdrawnAt.is_not_null())
            .count(&self.store.read)
            .await?;
        Ok(made + withdrawn)
    }
}

fn standing(tenant: TenantId) -> Condition {
    Condition::all()
        .add(Column::TenantId.eq(Text(tenant)))
        .add(Column::WithdrawnAt.is_null())
}
