//! Triggers that refuse to change or delete what was written, on both databases.

use sea_orm_migration::SchemaManager;
use sea_orm_migration::prelude::DbErr;
use sea_orm_migration::sea_orm::{ConnectionTrait, DbBackend};

/// Makes `table` refuse every UPDATE and DELETE from now on.
pub(crate) async fn protect(manager: &SchemaManager<'_>, table: &str) -> Result<(), DbErr> {
    let statements = match manager.get_database_backend() {
        DbBackend::Postgres => format!(
            "CREATE FUNCTION {table}_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN RAISE EXCEPTION '{table} is append-only'; END $$;
             CREATE TRIGGER {table}_no_change BEFORE UPDATE OR DELETE ON {table}
             FOR EACH ROW EXECUTE FUNCTION {table}_is_append_only();
             CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table}
             FOR EACH STATEMENT EXECUTE FUNCTION {table}_is_append_only();"
        ),
        _ => format!(
            "CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table}
             BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END;
             CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table}
             BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END;"
        ),
    };
    manager
        .get_connection()
        .execute_unprepared(&statements)
        .await?;
    Ok(())
}

/// Lets `table` be changed again, until it is protected anew: for a change of the schema that has
/// to move its rows.
pub(crate) async fn lift(manager: &SchemaManager<'_>, table: &str) -> Result<(), DbErr> {
    let statements = match manager.get_database_backend() {
        DbBackend::Postgres => format!(
            "DROP TRIGGER {table}_no_change ON {table};
             DROP TRIGGER {table}_no_truncate ON {table};
             DROP FUNCTION {table}_is_append_only();"
        ),
        _ => format!("DROP TRIGGER {table}_no_update; DROP TRIGGER {table}_no_delete;"),
    };
    manager
        .get_connection()
        .execute_unprepared(&statements)
        .await?;
    Ok(())
}

/// Removes what is left of [`protect`] once the table and its triggers are dropped.
pub(crate) async fn forget(manager: &SchemaManager<'_>, table: &str) -> Result<(), DbErr> {
    if manager.get_database_backend() == DbBackend::Postgres {
        let statement = format!("DROP FUNCTION {table}_is_append_only()");
        manager
            .get_connection()
            .execute_unprepared(&statement)
            .await?;
    }
    Ok(())
}
