//! Triggers that refuse to change or delete rows once written, on both databases.

use sea_orm_migration::SchemaManager;
use sea_orm_migration::prelude::DbErr;
use sea_orm_migration::sea_orm::{ConnectionTrait, DbBackend};

/// Makes `table` refuse every UPDATE and DELETE.
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
    execute(manager, &statements).await
}

/// Makes `table` refuse every UPDATE, and every DELETE of a row that `may_go` does not hold for.
///
/// `may_go` is a condition in SQL; `OLD` is the row in it.
pub(crate) async fn protect_unless(
    manager: &SchemaManager<'_>,
    table: &str,
    may_go: &str,
) -> Result<(), DbErr> {
    let statements = match manager.get_database_backend() {
        DbBackend::Postgres => format!(
            "CREATE FUNCTION {table}_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN RAISE EXCEPTION '{table} is append-only'; END $$;
             CREATE TRIGGER {table}_no_change BEFORE UPDATE ON {table}
             FOR EACH ROW EXECUTE FUNCTION {table}_is_append_only();
             CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table}
             FOR EACH STATEMENT EXECUTE FUNCTION {table}_is_append_only();
             CREATE FUNCTION {table}_are_let_go() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
               IF NOT ({may_go}) THEN RAISE EXCEPTION '{table} is append-only'; END IF;
               RETURN OLD;
             END $$;
             CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table}
             FOR EACH ROW EXECUTE FUNCTION {table}_are_let_go();"
        ),
        _ => format!(
            "CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table}
             BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END;
             CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table}
             WHEN NOT ({may_go})
             BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END;"
        ),
    };
    execute(manager, &statements).await
}

/// Removes what is left of the protection once the table and its triggers are dropped.
pub(crate) async fn forget(manager: &SchemaManager<'_>, table: &str) -> Result<(), DbErr> {
    if manager.get_database_backend() != DbBackend::Postgres {
        return Ok(());
    }
    let statements = format!(
        "DROP FUNCTION {table}_is_append_only(); DROP FUNCTION IF EXISTS {table}_are_let_go();"
    );
    execute(manager, &statements).await
}

async fn execute(manager: &SchemaManager<'_>, statements: &str) -> Result<(), DbErr> {
    let connection = manager.get_connection();
    connection.execute_unprepared(statements).await?;
    Ok(())
}
