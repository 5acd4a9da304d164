//! Verifications of leases, the sessions of their nodes, and the signed results.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{boolean, integer, string_len, text};

use crate::append_only;
use crate::columns::{document, id, id_null, moment, moment_null, one_of, word, word_null};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const VERDICTS: [&str; 4] = ["pass", "pass_with_warnings", "fail", "inconclusive"];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in [verifications(), node_sessions(), attestations()] {
            manager.create_table(table).await?;
        }
        let unique = Index::create()
            .unique()
            .name("node_sessions_agent")
            .table("node_sessions")
            .col("verification_id")
            .col("agent_key")
            .to_owned();
        manager.create_index(unique).await?;
        for (table, name) in [
            ("verifications", "verifications_lease"),
            ("attestations", "attestations_lease"),
        ] {
            let index = Index::create()
                .name(name)
                .table(table)
                .col("lease_id")
                .to_owned();
            manager.create_index(index).await?;
        }
        append_only::protect(manager, "attestations").await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in ["attestations", "node_sessions", "verifications"] {
            manager
                .drop_table(Table::drop().table(table).to_owned())
                .await?;
        }
        append_only::forget(manager, "attestations").await
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
        .col(word("state"))
        .col(moment("created_at"))
        .col(moment("deadline"))
        .col(moment_null("closed_at"))
        .check(one_of("state", &["open", "passed", "failed", "abandoned"]))
        .foreign_key(
            ForeignKey::create()
                .from("verifications", "lease_id")
                .to("leases", "id"),
        )
        .to_owned()
}

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
        .col(word_null("verdict"))
        .col(id_null("attestation_id"))
        .primary_key(Index::create().col("verification_id").col("node_index"))
        .check(one_of("verdict", &VERDICTS))
        .foreign_key(
            ForeignKey::create()
                .from("node_sessions", "verification_id")
                .to("verifications", "id"),
        )
        .to_owned()
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
        .foreign_key(
            ForeignKey::create()
                .from("attestations", "lease_id")
                .to("leases", "id"),
        )
        .to_owned()
}
