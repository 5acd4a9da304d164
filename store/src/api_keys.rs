//! API keys: stored as hashes, found by hash.

use chrono::{DateTime, Utc};
use market::identity::{Projects, Role, Scopes};
use market::ids::{ApiKeyId, PrincipalId, ProviderId, TenantId};
use sea_orm::sea_query::{Expr, Func};
use sea_orm::{
    ColumnTrait, Condition, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter,
    QueryOrder, QuerySelect,
};

use crate::entity::api_keys;
use crate::entity::column::{Json, Moment, Text, Word};
use crate::idempotency::{self, Completion};
use crate::room::Room;
use crate::scope::tenant_scoped;
use crate::tx::transaction;
use crate::{Conflict, StoreError};

/// A key to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApiKey {
    /// Its id.
    pub id: ApiKeyId,
    /// The tenant's name for it.
    pub name: String,
    /// The role of its bearer.
    pub role: Role,
    /// Its scopes.
    pub scopes: Scopes,
    /// The tenant's projects that it works in.
    pub projects: Projects,
    /// The one provider that its bearer manages, for the role `provider`.
    pub provider: Option<ProviderId>,
    /// The beginning of the key, by which a person recognises it.
    pub prefix: String,
    /// The BLAKE3 hash of the whole key, in hexadecimal digits.
    pub hash: String,
    /// When it stops working; `None` for never.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// The principal that made it; `None` on the command line.
    pub made_by: Option<PrincipalId>,
}

/// The key that replaces another one, for the same principal with the same rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuccessorKey {
    /// Its id.
    pub id: ApiKeyId,
    /// The beginning of the key, by which a person recognises it.
    pub prefix: String,
    /// The BLAKE3 hash of the whole key, in hexadecimal digits.
    pub hash: String,
    /// When it stops working; `None` for never.
    pub expires_at: Option<DateTime<Utc>>,
    /// When the old key stops working, unless it does so earlier.
    pub old_until: DateTime<Utc>,
}

/// A stored key. The key itself is stored nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Its id.
    pub id: ApiKeyId,
    /// The principal behind it: the same for all keys of a rotation.
    pub principal: PrincipalId,
    /// The tenant.
    pub tenant_id: TenantId,
    /// The tenant's name for it.
    pub name: String,
    /// The role of its bearer.
    pub role: Role,
    /// Its scopes.
    pub scopes: Scopes,
    /// The tenant's projects that it works in.
    pub projects: Projects,
    /// The one provider that its bearer manages; `None` for other roles, and for a key of the role `provider`
    /// from before keys were bound.
    pub provider: Option<ProviderId>,
    /// The beginning of the key, by which a person recognises it.
    pub prefix: String,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it was last used, as far as recorded.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it was last used, as far as noted.
    pub last_used_at: Option<DateTime<Utc>>,
    /// When it was revoked.
    pub revoked_at: Option<DateTime<Utc>>,
    /// The key that follows it.
    pub replaced_by: Option<ApiKeyId>,
    /// The principal that made it; `None` where it is not known.
    pub made_by: Option<PrincipalId>,
}

impl ApiKey {
    /// Whether the key grants access at `now`.
    #[must_use]
    pub fn is_usable(&self, now: DateTime<Utc>) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

impl From<api_keys::Model> for ApiKey {
    fn from(row: api_keys::Model) -> Self {
        Self {
            id: row.id.0,
            // A process of the release before writes keys without one.
            principal: row
                .principal_id
                .map_or(PrincipalId::from_uuid(row.id.0.uuid()), |id| id.0),
            tenant_id: row.tenant_id.0,
            name: row.name,
            role: row.role.0,
            scopes: row.scopes.0,
            projects: row.projects.map(|named| named.0).into(),
            prefix: row.prefix,
            created_at: row.created_at.at(),
            expires_at: row.expires_at.map(Moment::at),
            last_used_at: row.last_used_at.map(Moment::at),
            revoked_at: row.revoked_at.map(Moment::at),
            replaced_by: row.replaced_by.map(|id| id.0),
            made_by: row.made_by.map(|id| id.0),
            provider: row.provider_id.map(|id| id.0),
        }
    }
}

/// Active keys, including the old one of a rotation while it still works.
const ROOM: Room = Room {
    what: "active API keys",
    most: 500,
    instead: "revoke one first",
};

/// How many revoked or expired keys a tenant still sees. Lists are read whole, and it is easy to make and
/// revoke keys.
pub const KEPT_WHEN_OVER: u64 = 1_000;

/// Refuses when the tenant has the most active keys allowed, and deletes the keys that ended the longest ago.
async fn make_room(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    now: Moment,
) -> Result<(), StoreError> {
    use api_keys::Column;
    let is_good = Condition::all().add(Column::RevokedAt.is_null()).add(
        Condition::any()
            .add(Column::ExpiresAt.is_null())
            .add(Column::ExpiresAt.gt(now)),
    );
    let of_tenant = || api_keys::Entity::find().filter(Column::TenantId.eq(Text(tenant)));
    ROOM.for_one_more(tx, tenant, of_tenant().filter(is_good.clone()))
        .await?;
    let last = of_tenant()
        .filter(is_good.clone().not())
        .order_by_desc(Column::Id)
        .offset(KEPT_WHEN_OVER)
        .one(tx)
        .await?;
    if let Some(last) = last {
        api_keys::Entity::delete_many()
            .filter(Column::TenantId.eq(Text(tenant)))
            .filter(is_good.not())
            .filter(Column::Id.lte(last.id))
            .exec(tx)
            .await?;
    }
    Ok(())
}

tenant_scoped!(ApiKeys, api_keys, TenantApiKeys, AllApiKeys, "API keys");

impl TenantApiKeys<'_> {
    /// Stores a new key, with a principal of its own.
    ///
    /// Errors: [`StoreError::Conflict`] when the same key exists, or the tenant has the most active keys
    /// allowed; [`StoreError::Stale`] when `completion` was taken over.
    pub async fn insert(
        &self,
        key: NewApiKey,
        completion: Option<Completion<'_, ApiKey>>,
    ) -> Result<ApiKey, StoreError> {
        let row = api_keys::Model {
            id: Text(key.id),
            tenant_id: Text(self.tenant),
            name: key.name,
            role: Word(key.role),
            scopes: Json(key.scopes),
            prefix: key.prefix,
            hash: key.hash,
            created_at: key.created_at.into(),
            expires_at: key.expires_at.map(Moment::from),
            last_used_at: None,
            revoked_at: None,
            principal_id: Some(Text(PrincipalId::from_uuid(key.id.uuid()))),
            replaced_by: None,
            projects: key.projects.named().cloned().map(Json),
            made_by: key.made_by.map(Text),
            provider_id: key.provider.map(Text),
        };
        transaction!(self.store, |tx| {
            make_room(tx, self.tenant, row.created_at).await?;
            api_keys::Entity::insert(row.clone().into_active_model())
                .exec_without_returning(tx)
                .await
                .map_err(|refusal| exists(refusal.into()))?;
            let key = ApiKey::from(row.clone());
            idempotency::complete(tx, self.tenant, completion.as_ref(), &key).await?;
            Ok(key)
        })
    }

    /// The tenant's keys, the newest first; of those that ended the newest [`KEPT_WHEN_OVER`].
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn list(&self) -> Result<Vec<ApiKey>, StoreError> {
        let rows = api_keys::Entity::find()
            .filter(api_keys::Column::TenantId.eq(Text(self.tenant)))
            .order_by_desc(api_keys::Column::Id)
            .all(&self.store.read)
            .await?;
        Ok(rows.into_iter().map(ApiKey::from).collect())
    }

    /// Replaces a key by another; the old one still works for a while. Returns the new one.
    ///
    /// Errors: [`StoreError::NotFound`]; [`Conflict::KeyNotActive`] when the old one was revoked, has expired
    /// or was already replaced; [`Conflict::NoRoom`]; [`StoreError::Stale`] when `completion` was taken over.
    pub async fn rotate(
        &self,
        old: ApiKeyId,
        new: SuccessorKey,
        now: DateTime<Utc>,
        completion: Option<Completion<'_, ApiKey>>,
    ) -> Result<ApiKey, StoreError> {
        transaction!(self.store, |tx| {
            make_room(tx, self.tenant, now.into()).await?;
            let row = api_keys::Entity::find_by_id(Text(old))
                .filter(api_keys::Column::TenantId.eq(Text(self.tenant)))
                .lock_exclusive()
                .one(tx)
                .await?
                .ok_or(StoreError::NotFound { what: "API key" })?;
            let before = ApiKey::from(row.clone());
            if !before.is_usable(now) || before.replaced_by.is_some() {
                return Err(Conflict::KeyNotActive.into());
            }
            let until = before
                .expires_at
                .map_or(new.old_until, |end| end.min(new.old_until));
            let next = api_keys::Model {
                id: Text(new.id),
                prefix: new.prefix.clone(),
                hash: new.hash.clone(),
                created_at: now.into(),
                expires_at: new.expires_at.map(Moment::from),
                last_used_at: None,
                principal_id: Some(Text(before.principal)),
                ..row
            };
            api_keys::Entity::insert(next.clone().into_active_model())
                .exec_without_returning(tx)
                .await
                .map_err(|refusal| exists(refusal.into()))?;
            api_keys::Entity::update_many()
                .col_expr(
                    api_keys::Column::ExpiresAt,
                    Expr::value(Moment::from(until)),
                )
                .col_expr(api_keys::Column::ReplacedBy, Expr::value(Text(new.id)))
                .filter(api_keys::Column::Id.eq(Text(old)))
                .exec(tx)
                .await?;
            let key = ApiKey::from(next);
            idempotency::complete(tx, self.tenant, completion.as_ref(), &key).await?;
            Ok(key)
        })
    }

    /// Revokes a key from now on; a second time changes nothing.
    ///
    /// Errors: [`StoreError::NotFound`]; [`StoreError::Stale`] when `completion` was taken over.
    pub async fn revoke(
        &self,
        id: ApiKeyId,
        now: DateTime<Utc>,
        completion: Option<Completion<'_, ()>>,
    ) -> Result<(), StoreError> {
        transaction!(self.store, |tx| {
            let revoked = api_keys::Entity::update_many()
                .col_expr(
                    api_keys::Column::RevokedAt,
                    Func::coalesce([
                        Expr::col(api_keys::Column::RevokedAt),
                        Expr::value(Moment::from(now)),
                    ])
                    .into(),
                )
                .filter(api_keys::Column::Id.eq(Text(id)))
                .filter(api_keys::Column::TenantId.eq(Text(self.tenant)))
                .exec(tx)
                .await?;
            if revoked.rows_affected == 0 {
                return Err(StoreError::NotFound { what: "API key" });
            }
            idempotency::complete(tx, self.tenant, completion.as_ref(), &()).await
        })
    }
}

impl AllApiKeys<'_> {
    /// The key with this hash, usable or not.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn find_by_hash(&self, hash: &str) -> Result<Option<ApiKey>, StoreError> {
        let row = api_keys::Entity::find()
            .filter(api_keys::Column::Hash.eq(hash))
            .one(&self.store.read)
            .await?;
        Ok(row.map(ApiKey::from))
    }

    /// The key with this id, usable or not.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn find(&self, id: ApiKeyId) -> Result<Option<ApiKey>, StoreError> {
        let row = api_keys::Entity::find_by_id(Text(id))
            .one(&self.store.read)
            .await?;
        Ok(row.map(ApiKey::from))
    }

    /// Records that a key was used.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn touch(&self, id: ApiKeyId, now: DateTime<Utc>) -> Result<(), StoreError> {
        api_keys::Entity::update_many()
            .col_expr(api_keys::Column::LastUsedAt, Expr::value(Moment::from(now)))
            .filter(api_keys::Column::Id.eq(Text(id)))
            .exec(&self.store.write)
            .await?;
        Ok(())
    }
}

fn exists(refusal: StoreError) -> StoreError {
    refusal.unique(|| crate::Conflict::Exists {
        what: "the API key",
    })
}
