//! Whether the database answers, and whether it stores what is written to it.

use chrono::{DateTime, Utc};
use sea_orm::sea_query::ExprTrait as _;
use sea_orm::{
    ColumnTrait as _, ConnectionTrait, DbBackend, EntityTrait as _, QueryFilter as _, Statement,
};

use crate::entity::write_probe::{Column, Entity};
use crate::tx::transaction;
use crate::{Store, StoreError};

/// The one row of the table.
const ROW: i32 = 1;

impl Store {
    /// Whether the database answers.
    ///
    /// Errors: [`StoreError::Unavailable`] when it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        Ok(self.read.ping().await?)
    }

    /// The clock of the database's server; `None` where that is this machine's own clock: for the embedded
    /// database, and for a server reached by a socket or a loopback address.
    ///
    /// Errors: [`StoreError::Unavailable`], [`StoreError::Database`].
    pub async fn server_time(&self) -> Result<Option<DateTime<Utc>>, StoreError> {
        if self.read.get_database_backend() != DbBackend::Postgres {
            return Ok(None);
        }
        let sql = "SELECT CASE WHEN inet_server_addr() IS NULL \
                   OR inet_server_addr() <<= '127.0.0.0/8' OR inet_server_addr() = '::1' \
                   THEN NULL ELSE clock_timestamp() END AS at";
        let asked = Statement::from_string(DbBackend::Postgres, sql);
        let row = self.read.query_one_raw(asked).await?;
        let at = row.map(|row| row.try_get("", "at")).transpose()?;
        Ok(at.flatten())
    }

    /// Checks that a write arrives: commits one through the writer and reads it back through a reader.
    ///
    /// Errors: [`StoreError::Unavailable`], [`StoreError::Database`]; [`StoreError::Corrupt`] when the
    /// committed write is missing.
    pub async fn prove_writes(&self) -> Result<(), StoreError> {
        let written = transaction!(self, |tx| {
            Entity::update_many()
                .col_expr(Column::Writes, Column::Writes.into_expr().add(1))
                .filter(Column::Id.eq(ROW))
                .exec(tx)
                .await?;
            writes(tx).await
        })?;
        // Other replicas write too, and none decrements the count.
        if writes(&self.read).await? >= written {
            return Ok(());
        }
        Err(StoreError::corrupt(
            "a write that was committed cannot be read",
        ))
    }
}

async fn writes(database: &impl ConnectionTrait) -> Result<i64, StoreError> {
    let row = Entity::find_by_id(ROW).one(database).await?;
    row.map(|row| row.writes)
        .ok_or_else(|| StoreError::corrupt("the row that proves writes is gone"))
}
