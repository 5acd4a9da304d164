//! Limits on the rows of a tenant: lists are read whole, and no tenant may make them endless.

use market::ids::TenantId;
use sea_orm::sea_query::LockType;
use sea_orm::{DatabaseTransaction, EntityTrait, PaginatorTrait as _, QuerySelect as _, Select};

use crate::entity::column::Text;
use crate::entity::tenants;
use crate::{Conflict, StoreError};

/// A limit on the rows of one kind.
pub(crate) struct Room {
    /// The name of the things, in the plural.
    pub(crate) what: &'static str,
    /// The most that are allowed.
    pub(crate) most: u64,
    /// How to make room, in words.
    pub(crate) instead: &'static str,
}

impl Room {
    /// Refuses when `there` finds the most rows allowed; until the transaction ends nobody else adds one.
    ///
    /// Errors: [`Conflict::NoRoom`].
    pub(crate) async fn for_one_more<'a, E>(
        &self,
        tx: &'a DatabaseTransaction,
        tenant: TenantId,
        there: Select<E>,
    ) -> Result<(), StoreError>
    where
        E: EntityTrait,
        E::Model: Send + Sync + 'a,
    {
        if count_alone(tx, tenant, there).await? < self.most {
            return Ok(());
        }
        let (what, most, instead) = (self.what, self.most, self.instead);
        let refused = Conflict::NoRoom {
            what,
            most,
            instead,
        };
        Err(refused.into())
    }
}

/// How many of a tenant's rows `there` finds. Two simultaneous additions must not exceed a limit together, so
/// until the transaction ends nobody else counts.
///
/// Errors: [`StoreError::Database`].
pub(crate) async fn count_alone<'a, E>(
    tx: &'a DatabaseTransaction,
    tenant: TenantId,
    there: Select<E>,
) -> Result<u64, StoreError>
where
    E: EntityTrait,
    E::Model: Send + Sync + 'a,
{
    tenants::Entity::find_by_id(Text(tenant))
        .lock(LockType::NoKeyUpdate)
        .one(tx)
        .await?;
    Ok(there.count(tx).await?)
}
