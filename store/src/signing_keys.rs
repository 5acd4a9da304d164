//! The service's own signing keys. The private half is sealed by the caller.

use chrono::{DateTime, Utc};
use sea_orm::sea_query::OnConflict;
use sea_orm::{ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder};
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::entity::column::Word;
use crate::entity::signing_keys;
use crate::scope::service_wide;

/// What a signing key signs.
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
    /// What it signs.
    pub purpose: KeyPurpose,
    /// The private half, sealed.
    pub sealed_private: Vec<u8>,
    /// The public half.
    pub public: Vec<u8>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
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
        }
    }
}

service_wide!(SigningKeys, signing_keys, "service's own signing keys");

impl SigningKeys<'_> {
    /// Keeps a key; the same `kid` again changes nothing.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn insert(&self, key: SigningKey) -> Result<(), StoreError> {
        let row = signing_keys::Model {
            kid: key.kid,
            purpose: Word(key.purpose),
            sealed_private: key.sealed_private,
            public: key.public,
            created_at: key.created_at.into(),
        };
        signing_keys::Entity::insert(row.into_active_model())
            .on_conflict(
                OnConflict::column(signing_keys::Column::Kid)
                    .do_nothing()
                    .to_owned(),
            )
            .exec_without_returning(&self.store.write)
            .await?;
        Ok(())
    }

    /// The keys of a purpose, the oldest first: every replica signs with the first one.
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
