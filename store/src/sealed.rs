//! Every column with a sealed secret, and the one write that reseals all of them.
//!
//! A noun with such a column adds it to [`SEALED`]. The name of the column begins with `sealed_`;
//! a test compares the list with the schema.

use sea_orm::sea_query::{Alias, Expr, ExprTrait, Query};
use sea_orm::{ConnectionTrait, DatabaseTransaction};

use crate::audit::{self, NewAuditEntry};
use crate::scope::service_wide;
use crate::tx::transaction;
use crate::{StoreError, providers, signing_keys, verifications, webhooks};

/// The purpose that a secret was sealed for: it opens for that one only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealedFor {
    /// The word in this column of the same row.
    WordIn(&'static str),
    /// This word.
    Word(&'static str),
}

/// A column of sealed secrets; NULL means that there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedColumn {
    /// The table.
    pub table: &'static str,
    /// Its key: one column of text.
    pub key: &'static str,
    /// The column.
    pub column: &'static str,
    /// The purpose that its secrets are sealed for.
    pub purpose: SealedFor,
}

/// Every sealed column.
pub const SEALED: &[SealedColumn] = &[
    providers::SEALED,
    signing_keys::SEALED,
    verifications::SEALED,
    webhooks::SEALED[0],
    webhooks::SEALED[1],
];

/// Why nothing was resealed.
#[derive(Debug, thiserror::Error)]
pub enum ResealError<E: std::error::Error + 'static> {
    /// A secret could not be opened or sealed.
    #[error("the secret in {table}.{column} of `{key}` cannot be resealed")]
    Secret {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// The row's key.
        key: String,
        /// Why.
        #[source]
        source: E,
    },
    /// The database refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reseals a secret: from its purpose and its present bytes to its new bytes.
pub type Reseal<'a, E> = dyn Fn(&str, &[u8]) -> Result<Vec<u8>, E> + Send + Sync + 'a;

service_wide!(Sealed, sealed, "sealed secrets of all kinds");

impl Sealed<'_> {
    /// Whether any secret is sealed in this database, so that it needs the key that sealed it.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn any(&self) -> Result<bool, StoreError> {
        for of in SEALED {
            let mut query = Query::select();
            query
                .column(Alias::new(of.key))
                .from(Alias::new(of.table))
                .and_where(Expr::col(Alias::new(of.column)).is_not_null())
                .limit(1);
            if self.store.read.query_one(&query).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Replaces every sealed secret by `reseal(purpose, sealed)`, in one transaction with the audit entry;
    /// returns how many there were.
    ///
    /// Errors: [`ResealError`]; nothing is changed then.
    pub async fn reseal<E: std::error::Error + Send + 'static>(
        &self,
        reseal: &Reseal<'_, E>,
        entry: NewAuditEntry,
    ) -> Result<u64, ResealError<E>> {
        let mut refused = None;
        let done = transaction!(self.store, |tx| {
            let mut count = 0;
            for column in SEALED {
                for (key, purpose, sealed) in read(tx, column).await? {
                    match reseal(&purpose, &sealed) {
                        Ok(sealed) => write(tx, column, &key, sealed).await?,
                        Err(source) => {
                            refused = Some((column, key, source));
                            return Err(StoreError::Stale);
                        }
                    }
                    count += 1;
                }
            }
            audit::append(tx, entry.clone()).await?;
            Ok(count)
        });
        match refused {
            Some((column, key, source)) => Err(ResealError::Secret {
                table: column.table,
                column: column.column,
                key,
                source,
            }),
            None => Ok(done?),
        }
    }
}

/// Key, purpose and secret of each row, locked.
async fn read(
    tx: &DatabaseTransaction,
    of: &SealedColumn,
) -> Result<Vec<(String, String, Vec<u8>)>, StoreError> {
    let mut query = Query::select();
    query
        .columns([Alias::new(of.key), Alias::new(of.column)])
        .from(Alias::new(of.table))
        .and_where(Expr::col(Alias::new(of.column)).is_not_null())
        .lock_exclusive();
    if let SealedFor::WordIn(word) = of.purpose {
        query.column(Alias::new(word));
    }
    let rows = tx.query_all(&query).await?;
    rows.into_iter()
        .map(|row| {
            let purpose = match of.purpose {
                SealedFor::WordIn(word) => row.try_get("", word)?,
                SealedFor::Word(word) => word.to_owned(),
            };
            Ok((
                row.try_get("", of.key)?,
                purpose,
                row.try_get("", of.column)?,
            ))
        })
        .collect()
}

async fn write(
    tx: &DatabaseTransaction,
    of: &SealedColumn,
    key: &str,
    sealed: Vec<u8>,
) -> Result<(), StoreError> {
    let mut query = Query::update();
    query
        .table(Alias::new(of.table))
        .value(Alias::new(of.column), sealed)
        .and_where(Expr::col(Alias::new(of.key)).eq(key));
    tx.execute(&query).await?;
    Ok(())
}
