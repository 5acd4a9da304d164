//! The service's own signing keys. The private half is sealed by the caller.

use chrono::{DateTime, Utc};
use sea_orm::sea_query::{Expr, OnConflict};
use sea_orm::{ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder};
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::audit::{self, NewAuditEntry};
use crate::entity::column::{Moment, Word};
use crate::entity::signing_keys;
use crate::scope::service_wide;
use crate::sealed::{SealedColumn, SealedFor};
use crate::tx::{queue_writers, transaction};

/// The column of the private halves, sealed.
pub(crate) const SEALED: SealedColumn = SealedColumn {
    table: "signing_keys",
    key: "kid",
    column: "sealed_private",
    purpose: SealedFor::WordIn("purpose"),
};

/// The purpose of a signing key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyPurpose {
    /// Tokens that API keys are traded for.
    Token,
    /// Attestations.
    Attestation,
}

/// A signing key.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey {
    /// The key's id in headers and key sets.
    pub kid: String,
    /// Its purpose.
    pub purpose: KeyPurpose,
    /// The private half, sealed.
    pub sealed_private: Vec<u8>,
    /// The public half.
    pub public: Vec<u8>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it stopped signing; `None` while it signs.
    pub retired_at: Option<DateTime<Utc>>,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey")
            .field("kid", &self.kid)
            .field("purpose", &self.purpose)
            .field("sealed_private", &"***")
            .finish_non_exhaustive()
    }
}

impl From<signing_keys::Model> for SigningKey {
    fn from(row: signing_keys::Model) -> Self {
        Self {
            kid: row.kid,
            purpose: row.purpose.0,
            sealed_private: row.sealed_private,
            public: row.public,
            created_at: row.created_at.at(),
            retired_at: row.retired_at.map(Moment::at),
        }
    }
}

impl SigningKey {
    fn into_row(self) -> signing_keys::Model {
        signing_keys::Model {
            kid: self.kid,
            purpose: Word(self.purpose),
            sealed_private: self.sealed_private,
            public: self.public,
            created_at: self.created_at.into(),
            retired_at: self.retired_at.map(Moment::from),
        }
    }
}

service_wide!(SigningKeys, signing_keys, "service's own signing keys");

impl SigningKeys<'_> {
    /// Stores a key; storing the same `kid` again changes nothing.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn insert(&self, key: SigningKey) -> Result<(), StoreError> {
        signing_keys::Entity::insert(key.into_row().into_active_model())
            .on_conflict(
                OnConflict::column(signing_keys::Column::Kid)
                    .do_nothing()
                    .to_owned(),
            )
            .exec_without_returning(&self.store.write)
            .await?;
        Ok(())
    }

    /// Replaces the keys that sign for its purpose: they are retired at `now`, in one transaction with the
    /// audit entry.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn rotate(
        &self,
        key: SigningKey,
        now: DateTime<Utc>,
        entry: NewAuditEntry,
    ) -> Result<(), StoreError> {
        let purpose = key.purpose;
        let row = key.into_row();
        transaction!(self.store, |tx| {
            // Of two simultaneous rotations the second retires the key of the first.
            queue_writers(tx, "signing_keys").await?;
            signing_keys::Entity::update_many()
                .col_expr(
                    signing_keys::Column::RetiredAt,
                    Expr::value(Moment::from(now)),
                )
                .filter(signing_keys::Column::Purpose.eq(Word(purpose)))
                .filter(signing_keys::Column::RetiredAt.is_null())
                .exec(tx)
                .await?;
            signing_keys::Entity::insert(row.clone().into_active_model())
                .exec_without_returning(tx)
                .await?;
            audit::append(tx, entry.clone()).await
        })
    }

    /// The keys of a purpose, the oldest first: every replica signs with the first one that is not
    /// retired.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn list(&self, purpose: KeyPurpose) -> Result<Vec<SigningKey>, StoreError> {
        let rows = signing_keys::Entity::find()
            .filter(signing_keys::Column::Purpose.eq(Word(purpose)))
            .order_by_asc(signing_keys::Column::CreatedAt)
            .order_by_asc(signing_keys::Column::Kid)
            .all(&self.store.read)
            .await?;
        Ok(rows.into_iter().map(SigningKey::from).collect())
    }
}
