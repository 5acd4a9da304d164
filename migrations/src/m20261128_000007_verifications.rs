//! Verifications of leases, the sessions of their nodes, and the progress of gang measurements.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{
    blob_null, boolean, integer, integer_null, string_len, string_len_null,
};

use crate::append_only;
use crate::columns::{document, id, id_null, moment, moment_null, one_of, word, word_null};
use crate::tables::{IndexOf, create_indexes, create_tables, create_unique, drop_tables, refers};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const VERDICTS: [&str; 4] = ["pass", "pass_with_warnings", "fail", "inconclusive"];

const INDEXES: [IndexOf; 3] = [
    ("verifications_lease", "verifications", &["lease_id"]),
    // Finds agent keys that may be deleted, by age and by verification.
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

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let tables = [
            verifications(),
            node_sessions(),
            interrupted_sessions(),
            agent_keys(),
            gang_checks(),
        ];
        create_tables(manager, tables).await?;
        let once = (
            "node_sessions_agent",
            "node_sessions",
            &["verification_id", "agent_key"][..],
        );
        create_unique(manager, once).await?;
        create_indexes(manager, &INDEXES).await?;
        // Most verifications are not of a node in use.
        let closed = "CREATE INDEX verifications_of_rechecks ON verifications (closed_at)
                      WHERE recheck_node IS NOT NULL";
        manager.get_connection().execute_unprepared(closed).await?;
        append_only::protect(manager, "interrupted_sessions").await?;
        append_only::protect_unless(manager, "agent_keys", "OLD.recheck").await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let tables = [
            "gang_checks",
            "agent_keys",
            "interrupted_sessions",
            "node_sessions",
            "verifications",
        ];
        drop_tables(manager, &tables).await?;
        append_only::forget(manager, "agent_keys").await?;
        append_only::forget(manager, "interrupted_sessions").await
    }
}

fn verifications() -> TableCreateStatement {
    Table::create()
        .table("verifications")
        .col(id("id").primary_key())
        .col(id("lease_id"))
        .col(id("reservation_id"))
        .col(id("tenant_id"))
        .col(string_len("enrol_hash", 64).unique_key())
        .col(integer("nodes"))
        // The one node of a verification that re-checks a node in use; such a one stays open.
        .col(integer_null("recheck_node"))
        .col(word("state"))
        .col(moment("created_at"))
        .col(moment("deadline"))
        .col(moment_null("closed_at"))
        // The credential that opens the nodes to the agent that is pushed onto them over SSH; NULL once the
        // verification is closed.
        .col(blob_null("sealed_push"))
        .check(one_of("state", &["open", "passed", "failed", "abandoned"]))
        .foreign_key(&mut refers("verifications", "lease_id", "leases"))
        .to_owned()
}

/// Conversations with nodes. Any replica may take the next step of one, so `answered_at` and the times of a
/// refusal are by the database's own clock.
fn node_sessions() -> TableCreateStatement {
    Table::create()
        .table("node_sessions")
        .col(id("verification_id"))
        .col(integer("node_index"))
        .col(string_len("host", 255))
        .col(string_len("agent_key", 100))
        .col(integer("step"))
        .col(document("session"))
        .col(moment("started_at"))
        .col(moment("updated_at"))
        .col(moment_null("answered_at"))
        // The message of the next step that was refused because too many arrived at once: its digest, and
        // when it was first and last refused.
        .col(string_len_null("refused_digest", 64))
        .col(moment_null("refused_first_at"))
        .col(moment_null("refused_last_at"))
        .col(word_null("verdict"))
        .col(id_null("attestation_id"))
        .primary_key(Index::create().col("verification_id").col("node_index"))
        .check(one_of("verdict", &VERDICTS))
        .foreign_key(&mut refers(
            "node_sessions",
            "verification_id",
            "verifications",
        ))
        .to_owned()
}

/// Conversations that were interrupted on our side: the node starts each one again, and only a limited number
/// of times.
fn interrupted_sessions() -> TableCreateStatement {
    Table::create()
        .table("interrupted_sessions")
        .col(id("verification_id"))
        .col(string_len("agent_key", 100))
        .col(integer("node_index"))
        .col(integer("step"))
        .col(moment("started_at"))
        .col(moment("interrupted_at"))
        .primary_key(Index::create().col("verification_id").col("agent_key"))
        .foreign_key(&mut refers(
            "interrupted_sessions",
            "verification_id",
            "verifications",
        ))
        .to_owned()
}

/// Every key that an agent has committed, in any verification: none is committed twice. Keys of re-checks are
/// deleted in time.
fn agent_keys() -> TableCreateStatement {
    Table::create()
        .table("agent_keys")
        .col(string_len("agent_key", 100).primary_key())
        .col(id("verification_id"))
        .col(boolean("recheck"))
        .col(moment("committed_at"))
        .foreign_key(&mut refers(
            "agent_keys",
            "verification_id",
            "verifications",
        ))
        .to_owned()
}

/// The progress of nodes of a lease that are measured together: any replica can continue it.
fn gang_checks() -> TableCreateStatement {
    Table::create()
        .table("gang_checks")
        .col(id("verification_id").primary_key())
        .col(integer("version"))
        .col(integer("stage"))
        .col(moment("stage_began_at"))
        .col(document("state"))
        .col(word_null("verdict"))
        .col(moment("started_at"))
        .col(moment_null("ended_at"))
        .check(one_of("verdict", &VERDICTS))
        .foreign_key(&mut refers(
            "gang_checks",
            "verification_id",
            "verifications",
        ))
        .to_owned()
}
