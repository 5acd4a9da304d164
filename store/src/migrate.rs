//! Applies and reverts changes of the schema.

use migrations::Migrator;
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, EntityName as _, EntityTrait as _};
use sea_orm_migration::migrator::Migration;
use sea_orm_migration::seaql_migrations::Entity;
use sea_orm_migration::{
    IntoSchemaManagerConnection, MigrationStatus as Applied, MigratorTrait, SchemaManager,
};

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
    /// Several processes may do so at once; one does it, and the others wait and find it done.
    /// Errors: [`StoreError::OlderSchema`], [`StoreError::NewerSchema`], [`StoreError::Database`].
    pub async fn migrate_up(&self) -> Result<(), StoreError> {
        transaction!(unmarked self, |tx| {
            alone(tx).await?;
            refuse_unknown(tx).await?;
            Ok(Migrator::up(tx, None).await?)
        })
    }

    /// Reverts the last `steps` changes, with the data in them.
    ///
    /// Errors: as [`Store::migrate_up`].
    pub async fn migrate_down(&self, steps: u32) -> Result<(), StoreError> {
        transaction!(unmarked self, |tx| {
            alone(tx).await?;
            refuse_unknown(tx).await?;
            Ok(Migrator::down(tx, Some(steps)).await?)
        })
    }

    /// Every change known to the program, in order. Writes nothing.
    ///
    /// Errors: as [`Store::migrate_up`].
    pub async fn migration_status(&self) -> Result<Vec<MigrationStatus>, StoreError> {
        refuse_unknown(&self.read).await?;
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

/// Refuses a database with a change that this program does not have. Writes nothing.
///
/// Names of changes begin with their date, so those before our first one belong to the schema that it
/// replaced.
///
/// Errors: [`StoreError::OlderSchema`], [`StoreError::NewerSchema`], [`StoreError::Database`].
pub(crate) async fn refuse_unknown<'c>(
    database: impl IntoSchemaManagerConnection<'c>,
) -> Result<(), StoreError> {
    let manager = SchemaManager::new(database);
    // A fresh database has no table of changes.
    if !manager.has_table(Entity.table_name()).await? {
        return Ok(());
    }
    let applied = Entity::find().all(manager.get_connection()).await?;
    let known = Migrator::get_migration_files();
    let is_known = |change: &String| known.iter().any(|ours| ours.name() == change);
    let unknown = applied.into_iter().map(|row| row.version);
    let Some(change) = unknown.filter(|change| !is_known(change)).min() else {
        return Ok(());
    };
    match known
        .first()
        .is_some_and(|first| change.as_str() < first.name())
    {
        true => Err(StoreError::OlderSchema { change }),
        false => Err(StoreError::NewerSchema { change }),
    }
}
