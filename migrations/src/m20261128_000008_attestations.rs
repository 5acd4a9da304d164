//! Signed results of verifications, re-checks of nodes in use, and the remains of old re-checks.
//!
//! Re-checks that passed are deleted in time, and one short row of each stays. The database refuses to delete
//! anything else of this history: no re-check that did not pass, none that is the last of its node, and no
//! document of a handoff.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{boolean, integer, text};
use sea_orm_migration::sea_orm::DbBackend;

use crate::append_only;
use crate::columns::{document, id, moment, one_of, word};
use crate::tables::{IndexOf, create_indexes, create_tables, drop_tables, refers};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const VERDICTS: [&str; 4] = ["pass", "pass_with_warnings", "fail", "inconclusive"];
const FOLLOWS: [&str; 5] = ["repair", "nothing_failed", "gang", "already", "too_often"];

/// Tables whose rows may be deleted once `let_go_rechecks` has a short row for them, each with its column of
/// the attestation's id.
const DELETED_IN_TIME: [(&str, &str); 2] =
    [("attestations", "id"), ("node_rechecks", "attestation_id")];

/// The condition for deleting a re-check: it passed, and is not the last of its node.
const IS_PASSED: &str = "EXISTS (SELECT 1 FROM node_rechecks r JOIN node_rechecks n
    ON n.lease_id = r.lease_id AND n.node_index = r.node_index AND n.attestation_id > r.attestation_id
    WHERE r.attestation_id = NEW.attestation_id AND r.verdict IN ('pass', 'pass_with_warnings'))";

const INDEXES: [IndexOf; 5] = [
    ("attestations_lease", "attestations", &["lease_id"]),
    (
        "node_rechecks_of_reservation",
        "node_rechecks",
        &["reservation_id"],
    ),
    ("node_rechecks_of_lease", "node_rechecks", &["lease_id"]),
    // Finds those that may be deleted, by age and by node.
    ("node_rechecks_by_age", "node_rechecks", &["checked_at"]),
    (
        "node_rechecks_of_node",
        "node_rechecks",
        &["lease_id", "node_index", "attestation_id"],
    ),
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let tables = [attestations(), node_rechecks(), let_go_rechecks()];
        create_tables(manager, tables).await?;
        create_indexes(manager, &INDEXES).await?;
        append_only::protect(manager, "let_go_rechecks").await?;
        let passed_alone = passed_alone(manager.get_database_backend());
        let connection = manager.get_connection();
        connection.execute_unprepared(&passed_alone).await?;
        for (table, column) in DELETED_IN_TIME {
            let may_go = format!(
                "EXISTS (SELECT 1 FROM let_go_rechecks l WHERE l.attestation_id = OLD.{column})"
            );
            append_only::protect_unless(manager, table, &may_go).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let tables = ["let_go_rechecks", "node_rechecks", "attestations"];
        drop_tables(manager, &tables).await?;
        for table in tables {
            append_only::forget(manager, table).await?;
        }
        if manager.get_database_backend() == DbBackend::Postgres {
            let function = "DROP FUNCTION let_go_rechecks_are_passed()";
            let connection = manager.get_connection();
            connection.execute_unprepared(function).await?;
        }
        Ok(())
    }
}

fn attestations() -> TableCreateStatement {
    Table::create()
        .table("attestations")
        .col(id("id").primary_key())
        .col(id("verification_id"))
        .col(id("tenant_id"))
        .col(id("lease_id"))
        .col(integer("node_index"))
        .col(word("verdict"))
        .col(boolean("simulated"))
        .col(text("jws"))
        .col(moment("created_at"))
        .check(one_of("verdict", &VERDICTS))
        .foreign_key(&mut refers("attestations", "lease_id", "leases"))
        .to_owned()
}

fn node_rechecks() -> TableCreateStatement {
    Table::create()
        .table("node_rechecks")
        .col(id("attestation_id").primary_key())
        .col(id("tenant_id"))
        .col(id("reservation_id"))
        .col(id("lease_id"))
        .col(integer("node_index"))
        .col(integer("node"))
        .col(word("verdict"))
        .col(document("failed"))
        .col(boolean("pinned_set_changed"))
        .col(word("follows"))
        .col(moment("checked_at"))
        .check(one_of("verdict", &VERDICTS))
        .check(one_of("follows", &FOLLOWS))
        .foreign_key(&mut refers(
            "node_rechecks",
            "attestation_id",
            "attestations",
        ))
        .foreign_key(&mut refers("node_rechecks", "lease_id", "leases"))
        .to_owned()
}

fn let_go_rechecks() -> TableCreateStatement {
    Table::create()
        .table("let_go_rechecks")
        .col(id("attestation_id").primary_key())
        .col(id("tenant_id"))
        .col(id("lease_id"))
        .col(integer("node_index"))
        .col(word("verdict"))
        .col(moment("checked_at"))
        .col(moment("let_go_at"))
        .check(one_of("verdict", &["pass", "pass_with_warnings"]))
        .foreign_key(&mut refers("let_go_rechecks", "lease_id", "leases"))
        .to_owned()
}

/// Makes `let_go_rechecks` refuse every row except those of re-checks that may be deleted.
fn passed_alone(backend: DbBackend) -> String {
    match backend {
        DbBackend::Postgres => format!(
            "CREATE FUNCTION let_go_rechecks_are_passed() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
               IF NOT ({IS_PASSED}) THEN RAISE EXCEPTION 'only a re-check that passed may be deleted'; END IF;
               RETURN NEW;
             END $$;
             CREATE TRIGGER let_go_rechecks_are_passed BEFORE INSERT ON let_go_rechecks
             FOR EACH ROW EXECUTE FUNCTION let_go_rechecks_are_passed();"
        ),
        _ => format!(
            "CREATE TRIGGER let_go_rechecks_are_passed BEFORE INSERT ON let_go_rechecks
             WHEN NOT ({IS_PASSED})
             BEGIN SELECT RAISE(ABORT, 'only a re-check that passed may be deleted'); END;"
        ),
    }
}
