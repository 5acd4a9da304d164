//! Provider accounts: the prices that tenants agreed with providers.
//!
//! An account is never changed: to change it, the tenant withdraws it and registers another.

use chrono::{DateTime, Utc};
use market::capacity::ProviderAccount;
use market::ids::{ProviderAccountId, TenantId};
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, Condition, EntityTrait, IntoActiveModel, PaginatorTrait, QueryFilter, QueryOrder,
};

use crate::entity::column::{Json, Moment, Text};
use crate::entity::provider_accounts::{Column, Entity, Model};
use crate::idempotency::{self, Completion};
use crate::scope::tenant_scoped;
use crate::tx::transaction;
use crate::{Conflict, StoreError, spending};

/// How many accounts a tenant may have.
pub const MAX_ACCOUNTS: u64 = 50;

impl From<Model> for ProviderAccount {
    fn from(row: Model) -> Self {
        Self {
            id: row.id.0,
            name: row.name,
            provider: row.provider_id.0,
            prices: row.prices.0,
            created_at: row.created_at.at(),
        }
    }
}

tenant_scoped!(
    ProviderAccounts,
    provider_accounts,
    TenantProviderAccounts,
    AllProviderAccounts,
    "provider accounts"
);

impl TenantProviderAccounts<'_> {
    /// Stores an account, whose prices are checked.
    ///
    /// Errors: [`Conflict::OwnCapacityFull`]; [`StoreError::Stale`] when `completion` was taken over.
    pub async fn add(
        &self,
        account: ProviderAccount,
        completion: Option<Completion<'_, ProviderAccount>>,
    ) -> Result<ProviderAccount, StoreError> {
        let row = Model {
            id: Text(account.id),
            tenant_id: Text(self.tenant),
            name: account.name.clone(),
            provider_id: Text(account.provider.clone()),
            prices: Json(account.prices.clone()),
            created_at: account.created_at.into(),
            withdrawn_at: None,
        };
        transaction!(self.store, |tx| {
            spending::lock(tx, self.tenant).await?;
            let there = Entity::find()
                .filter(standing(self.tenant))
                .count(tx)
                .await?;
            if there >= MAX_ACCOUNTS {
                let (what, most) = ("provider accounts", MAX_ACCOUNTS);
                return Err(Conflict::OwnCapacityFull { what, most }.into());
            }
            Entity::insert(row.clone().into_active_model())
                .exec_without_returning(tx)
                .await?;
            idempotency::complete(tx, self.tenant, completion.as_ref(), &account).await?;
            Ok(account.clone())
        })
    }

    /// The tenant's accounts that are not withdrawn, the newest first.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn list(&self) -> Result<Vec<ProviderAccount>, StoreError> {
        let rows = Entity::find()
            .filter(standing(self.tenant))
            .order_by_desc(Column::Id)
            .all(&self.store.read)
            .await?;
        Ok(rows.into_iter().map(ProviderAccount::from).collect())
    }

    /// The tenant's account with this id, unless it is withdrawn.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn find(&self, id: ProviderAccountId) -> Result<Option<ProviderAccount>, StoreError> {
        let row = Entity::find_by_id(Text(id))
            .filter(standing(self.tenant))
            .one(&self.store.read)
            .await?;
        Ok(row.map(ProviderAccount::from))
    }

    /// Withdraws an account.
    ///
    /// Errors: [`StoreError::NotFound`]; [`StoreError::Stale`] when `completion` was taken over.
    pub async fn withdraw(
        &self,
        id: ProviderAccountId,
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
                let what = "provider account";
                return Err(StoreError::NotFound { what });
            }
            idempotency::complete(tx, self.tenant, completion.as_ref(), &()).await
        })
    }
}

impl AllProviderAccounts<'_> {
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
