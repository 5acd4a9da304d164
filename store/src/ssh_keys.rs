//! Public SSH keys of tenants.

use chrono::{DateTime, Utc};
use market::ids::{SshKeyId, TenantId};
use sea_orm::{ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder};

use crate::entity::column::Text;
use crate::entity::ssh_keys;
use crate::idempotency::{self, Completion};
use crate::room::Room;
use crate::scope::tenant_scoped;
use crate::tx::transaction;
use crate::{Conflict, StoreError};

/// A public SSH key of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshKey {
    /// Its id.
    pub id: SshKeyId,
    /// The tenant.
    pub tenant_id: TenantId,
    /// The tenant's name for it.
    pub name: String,
    /// The key in OpenSSH form.
    pub public_key: String,
    /// Its fingerprint (`SHA256:…`); a tenant has each key once.
    pub fingerprint: String,
    /// When it was added.
    pub created_at: DateTime<Utc>,
}

/// A public SSH key to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSshKey {
    /// Its id.
    pub id: SshKeyId,
    /// The tenant's name for it.
    pub name: String,
    /// The key in OpenSSH form.
    pub public_key: String,
    /// Its fingerprint (`SHA256:…`).
    pub fingerprint: String,
}

impl From<ssh_keys::Model> for SshKey {
    fn from(row: ssh_keys::Model) -> Self {
        Self {
            id: row.id.0,
            tenant_id: row.tenant_id.0,
            name: row.name,
            public_key: row.public_key,
            fingerprint: row.fingerprint,
            created_at: row.created_at.at(),
        }
    }
}

/// Every machine carries all of them.
const ROOM: Room = Room {
    what: "SSH keys",
    most: 100,
    instead: "delete one first",
};

tenant_scoped!(SshKeys, ssh_keys, TenantSshKeys, "SSH keys");

impl TenantSshKeys<'_> {
    /// Stores a new key.
    ///
    /// Errors: [`StoreError::Conflict`] when the tenant has it already or has the most allowed;
    /// [`StoreError::Stale`] when `completion` was taken over.
    pub async fn add(
        &self,
        key: NewSshKey,
        now: DateTime<Utc>,
        completion: Option<Completion<'_, SshKey>>,
    ) -> Result<SshKey, StoreError> {
        let row = ssh_keys::Model {
            id: Text(key.id),
            tenant_id: Text(self.tenant),
            name: key.name,
            public_key: key.public_key,
            fingerprint: key.fingerprint,
            created_at: now.into(),
        };
        transaction!(self.store, |tx| {
            let there =
                ssh_keys::Entity::find().filter(ssh_keys::Column::TenantId.eq(Text(self.tenant)));
            ROOM.for_one_more(tx, self.tenant, there).await?;
            ssh_keys::Entity::insert(row.clone().into_active_model())
                .exec_without_returning(tx)
                .await
                .map_err(|refusal| {
                    StoreError::from(refusal).unique(|| Conflict::Exists {
                        what: "this SSH key",
                    })
                })?;
            let key = SshKey::from(row.clone());
            idempotency::complete(tx, self.tenant, completion.as_ref(), &key).await?;
            Ok(key)
        })
    }

    /// The tenant's keys, the newest first.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn list(&self) -> Result<Vec<SshKey>, StoreError> {
        let rows = ssh_keys::Entity::find()
            .filter(ssh_keys::Column::TenantId.eq(Text(self.tenant)))
            .order_by_desc(ssh_keys::Column::Id)
            .all(&self.store.read)
            .await?;
        Ok(rows.into_iter().map(SshKey::from).collect())
    }

    /// The tenant's key with this id.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn find(&self, id: SshKeyId) -> Result<Option<SshKey>, StoreError> {
        let row = ssh_keys::Entity::find_by_id(Text(id))
            .filter(ssh_keys::Column::TenantId.eq(Text(self.tenant)))
            .one(&self.store.read)
            .await?;
        Ok(row.map(SshKey::from))
    }

    /// Deletes a key. Machines that already carry it keep it.
    ///
    /// Errors: [`StoreError::NotFound`]; [`StoreError::Stale`] when `completion` was taken over.
    pub async fn delete(
        &self,
        id: SshKeyId,
        completion: Option<Completion<'_, ()>>,
    ) -> Result<(), StoreError> {
        transaction!(self.store, |tx| {
            let deleted = ssh_keys::Entity::delete_many()
                .filter(ssh_keys::Column::Id.eq(Text(id)))
                .filter(ssh_keys::Column::TenantId.eq(Text(self.tenant)))
                .exec(tx)
                .await?;
            if deleted.rows_affected == 0 {
                return Err(StoreError::NotFound { what: "SSH key" });
            }
            idempotency::complete(tx, self.tenant, completion.as_ref(), &()).await
        })
    }
}
