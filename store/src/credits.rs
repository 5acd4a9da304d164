//! Credits given to tenants: appended together with their postings, never changed.

use chrono::{DateTime, Utc};
use market::credit::Credit;
use market::ledger::Transaction;
use market::money::Money;
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder,
};

use crate::entity::column::{Moment, Text};
use crate::entity::credits::{Column, Entity, Model};
use crate::idempotency::{self, Completion};
use crate::scope::tenant_scoped;
use crate::tx::transaction;
use crate::{Conflict, StoreError, ledger};

impl From<Model> for Credit {
    fn from(row: Model) -> Self {
        Self {
            id: row.id.0,
            tenant_id: row.tenant_id.0,
            amount: Money::from_units(row.amount_units, row.currency.0),
            reason: row.reason,
            granted_by: row.granted_by.0,
            granted_at: row.granted_at.at(),
        }
    }
}

tenant_scoped!(Credits, credits, TenantCredits, AllCredits, "credits");

impl TenantCredits<'_> {
    /// Stores a credit of the tenant and posts it.
    ///
    /// Errors: [`Conflict::Exists`] when it is already stored; [`StoreError::NotFound`] when it is another
    /// tenant's; [`StoreError::Stale`] when `completion` was taken over.
    pub async fn grant(
        &self,
        credit: &Credit,
        booking: &Transaction,
        completion: Option<Completion<'_, Credit>>,
    ) -> Result<(), StoreError> {
        if credit.tenant_id != self.tenant {
            return Err(StoreError::NotFound { what: "credit" });
        }
        let row = Model {
            id: Text(credit.id),
            tenant_id: Text(credit.tenant_id),
            amount_units: credit.amount.units(),
            currency: Text(credit.amount.currency()),
            reason: credit.reason.clone(),
            granted_by: Text(credit.granted_by),
            granted_at: credit.granted_at.into(),
        };
        transaction!(self.store, |tx| {
            Entity::insert(row.clone().into_active_model())
                .exec_without_returning(tx)
                .await
                .map_err(|refusal| {
                    StoreError::from(refusal).unique(|| Conflict::Exists { what: "the credit" })
                })?;
            ledger::post(tx, std::slice::from_ref(booking), credit.granted_at).await?;
            idempotency::complete(tx, self.tenant, completion.as_ref(), credit).await
        })
    }

    /// The tenant's credits, the newest first.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn list(&self) -> Result<Vec<Credit>, StoreError> {
        let mine = Column::TenantId.eq(Text(self.tenant));
        let mut credits = find(&self.store.read, Condition::all().add(mine)).await?;
        credits.reverse();
        Ok(credits)
    }

    /// The tenant's credits given within `[from, to)`, in order.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn between(
        &self,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
    ) -> Result<Vec<Credit>, StoreError> {
        let mine = Column::TenantId.eq(Text(self.tenant));
        find(&self.store.read, within(from, to).add(mine)).await
    }
}

impl AllCredits<'_> {
    /// All tenants' credits given within `[from, to)`, in order.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn between(
        &self,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
    ) -> Result<Vec<Credit>, StoreError> {
        find(&self.store.read, within(from, to)).await
    }
}

fn within(from: DateTime<Utc>, to: DateTime<Utc>) -> Condition {
    Condition::all()
        .add(Column::GrantedAt.gte(Moment::from(from)))
        .add(Column::GrantedAt.lt(Moment::from(to)))
}

/// The credits that match, in the order in which they were given.
pub(crate) async fn find<C: ConnectionTrait>(
    db: &C,
    wanted: Condition,
) -> Result<Vec<Credit>, StoreError> {
    let rows = Entity::find()
        .filter(wanted)
        .order_by_asc(Column::Id)
        .all(db)
        .await?;
    Ok(rows.into_iter().map(Credit::from).collect())
}
