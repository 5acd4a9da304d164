//! Re-checks that nodes in use passed are let go in time. What stays of each is one short row, and the
//! database lets nothing else of this history go: no look that was not passed, none that is the last at its
//! node, and no document of a hand-off.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::integer;
use sea_orm_migration::sea_orm::DbBackend;

use crate::append_only;
use crate::columns::{id, moment, one_of, word};

const TABLE: &str = "let_go_rechecks";

/// Tables that were append-only altogether, each with what one of its rows must be to be deleted.
const LET_GO: [(&str, &str); 3] = [
    (
        "attestations",
        "EXISTS (SELECT 1 FROM let_go_rechecks l WHERE l.attestation_id = OLD.id)",
    ),
    (
        "node_rechecks",
        "EXISTS (SELECT 1 FROM let_go_rechecks l WHERE l.attestation_id = OLD.attestation_id)",
    ),
    ("agent_keys", "OLD.recheck"),
];

/// What a look must be to be let go: passed, and not the last at its node.
const IS_PASSED: &str = "EXISTS (SELECT 1 FROM node_rechecks r JOIN node_rechecks n
    ON n.lease_id = r.lease_id AND n.node_index = r.node_index AND n.attestation_id > r.attestation_id
    WHERE r.attestation_id = NEW.attestation_id AND r.verdict IN ('pass', 'pass_with_warnings'))";

/// By which rows are found that may go, each index with its table.
const INDEXES: [(&str, &str, &[&str]); 4] = [
    ("node_rechecks_by_age", "node_rechecks", &["checked_at"]),
    (
        "node_rechecks_of_node",
        "node_rechecks",
        &["lease_id", "node_index", "attestation_id"],
    ),
    (
        "agent_keys_by_age",
        "agent_keys",
        &["recheck", "committed_at"],
    ),
    (
        "agent_keys_of_verification",
        "agent_keys",
        &["verification_id"],
    ),
];

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.create_table(let_go()).await?;
        append_only::protect(manager, TABLE).await?;
        for (name, table, columns) in INDEXES {
            let mut index = Index::create().name(name).table(table).to_owned();
            for column in columns {
                index.col(*column);
            }
            manager.create_index(index).await?;
        }
        // Most verifications are of no node in use.
        let closed = "CREATE INDEX verifications_of_rechecks ON verifications (closed_at)
                      WHERE recheck_node IS NOT NULL";
        let connection = manager.get_connection();
        connection.execute_unprepared(closed).await?;
        let backend = manager.get_database_backend();
        connection
            .execute_unprepared(&passed_alone(backend))
            .await?;
        for (table, is_let_go) in LET_GO {
            let statements = with_exception(backend, table, is_let_go);
            connection.execute_unprepared(&statements).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let connection = manager.get_connection();
        for (table, _) in LET_GO {
            if manager.get_database_backend() == DbBackend::Postgres {
                let statements = format!(
                    "DROP TRIGGER {table}_no_delete ON {table}; DROP FUNCTION {table}_are_let_go();"
                );
                connection.execute_unprepared(&statements).await?;
            }
            append_only::lift(manager, table).await?;
            append_only::protect(manager, table).await?;
        }
        for (name, table, _) in INDEXES {
            let index = Index::drop().name(name).table(table).to_owned();
            manager.drop_index(index).await?;
        }
        let index = Index::drop()
            .name("verifications_of_rechecks")
            .table("verifications")
            .to_owned();
        manager.drop_index(index).await?;
        manager
            .drop_table(Table::drop().table(TABLE).to_owned())
            .await?;
        if manager.get_database_backend() == DbBackend::Postgres {
            let function = "DROP FUNCTION let_go_rechecks_are_passed()";
            connection.execute_unprepared(function).await?;
        }
        append_only::forget(manager, TABLE).await
    }
}

fn let_go() -> TableCreateStatement {
    Table::create()
        .table(TABLE)
        .col(id("attestation_id").primary_key())
        .col(id("tenant_id"))
        .col(id("lease_id"))
        .col(integer("node_index"))
        .col(word("verdict"))
        .col(moment("checked_at"))
        .col(moment("let_go_at"))
        .check(one_of("verdict", &["pass", "pass_with_warnings"]))
        .foreign_key(
            ForeignKey::create()
                .from(TABLE, "lease_id")
                .to("leases", "id"),
        )
        .to_owned()
}

/// Nothing comes into the table but what may go.
fn passed_alone(backend: DbBackend) -> String {
    match backend {
        DbBackend::Postgres => format!(
            "CREATE FUNCTION let_go_rechecks_are_passed() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
               IF NOT ({IS_PASSED}) THEN RAISE EXCEPTION 'only what was passed is let go'; END IF;
               RETURN NEW;
             END $$;
             CREATE TRIGGER let_go_rechecks_are_passed BEFORE INSERT ON let_go_rechecks
             FOR EACH ROW EXECUTE FUNCTION let_go_rechecks_are_passed();"
        ),
        _ => format!(
            "CREATE TRIGGER let_go_rechecks_are_passed BEFORE INSERT ON let_go_rechecks
             WHEN NOT ({IS_PASSED})
             BEGIN SELECT RAISE(ABORT, 'only what was passed is let go'); END;"
        ),
    }
}

/// Lets rows of an append-only table be deleted that are let go, and no others.
fn with_exception(backend: DbBackend, table: &str, is_let_go: &str) -> String {
    match backend {
        DbBackend::Postgres => format!(
            "DROP TRIGGER {table}_no_change ON {table};
             CREATE TRIGGER {table}_no_change BEFORE UPDATE ON {table}
             FOR EACH ROW EXECUTE FUNCTION {table}_is_append_only();
             CREATE FUNCTION {table}_are_let_go() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
               IF NOT ({is_let_go}) THEN RAISE EXCEPTION '{table} is append-only'; END IF;
               RETURN OLD;
             END $$;
             CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table}
             FOR EACH ROW EXECUTE FUNCTION {table}_are_let_go();"
        ),
        _ => format!(
            "DROP TRIGGER {table}_no_delete;
             CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table}
             WHEN NOT ({is_let_go})
             BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END;"
        ),
    }
}
