//! How many of a thing a tenant may keep: lists are read whole, and no tenant may make them endless.

use market::ids::TenantId;
use sea_orm::sea_query::LockType;
use sea_orm::{DatabaseTransaction, EntityTrait, PaginatorTrait as _, QuerySelect as _, Select};

use crate::entity::column::Text;
use crate::entity::tenants;
use crate::{Conflict, StoreError};

/// What a tenant may keep so many of.
pub(crate) struct Room {
    /// What they are, in words.
    pub(crate) what: &'static str,
    /// How many there may be.
    pub(crate) most: u64,
    /// What makes room, in words.
    pub(crate) instead: &'static str,
}

impl Room {
    /// Refuses when `there` finds as many as there may be; until the transaction ends nobody else adds
    /// one.
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

/// How many of a tenant's rows `there` finds. Two that are added at once must not pass a limit
/// together, so until the transaction ends nobody else counts.
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
