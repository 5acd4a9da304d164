//! Bringing the schema up or down.

use migrations::Migrator;
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend};
use sea_orm_migration::migrator::Migration;
use sea_orm_migration::{MigrationStatus as Applied, MigratorTrait};

use crate::tx::transaction;
use crate::{Store, StoreError};

/// Any number that nothing else locks: "gpb" and a counter.
const ADVISORY_LOCK: i64 = 0x6770_6201;

/// Whether one change of the schema is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationStatus {
    /// The change's name.
    pub name: String,
    /// Whether the database has it.
    pub applied: bool,
}

impl Store {
    /// Applies every change that the database does not have, all or none.
    ///
    /// Several processes may do so at once; one does it, the others wait and find it done.
    /// Errors: [`StoreError::Database`].
    pub async fn migrate_up(&self) -> Result<(), StoreError> {
        transaction!(self, |tx| {
            alone(tx).await?;
            Ok(Migrator::up(tx, None).await?)
        })
    }

    /// Takes back the last `steps` changes, with the data in them.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn migrate_down(&self, steps: u32) -> Result<(), StoreError> {
        transaction!(self, |tx| {
            alone(tx).await?;
            Ok(Migrator::down(tx, Some(steps)).await?)
        })
    }

    /// Every change known to the program, in order. Writes nothing.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn migration_status(&self) -> Result<Vec<MigrationStatus>, StoreError> {
        let migrations = Migrator::get_migration_with_status_read_only(&self.read).await?;
        let status = |change: &Migration| MigrationStatus {
            name: change.name().to_owned(),
            applied: change.status() == Applied::Applied,
        };
        Ok(migrations.iter().map(status).collect())
    }
}

async fn alone(tx: &DatabaseTransaction) -> Result<(), StoreError> {
    if tx.get_database_backend() == DbBackend::Postgres {
        tx.execute_unprepared(&format!("SELECT pg_advisory_xact_lock({ADVISORY_LOCK})"))
            .await?;
    }
    Ok(())
}
