//! Nodes in use: whether they can be reached, which GPUs were seen in them, and the reports of tenants.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{boolean, integer, string_len, string_len_null, text_null};

use crate::append_only;
use crate::columns::{document, document_null, id, moment, moment_null, one_of, word, word_null};
use crate::tables::{IndexOf, create_indexes, create_tables, drop_tables, refers};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const FAILURES: &[&str] = &["no_answer", "other_key", "not_public"];
const VERDICTS: &[&str] = &["pass", "pass_with_warnings", "fail", "inconclusive"];
const FOLLOWS: &[&str] = &["repair", "nothing_failed", "gang", "already", "too_often"];

const INDEXES: [IndexOf; 4] = [
    ("gpu_sightings_by_uuid", "gpu_sightings", &["uuid"]),
    ("gpu_sightings_by_serial", "gpu_sightings", &["serial"]),
    (
        "node_reports_of_reservation",
        "node_reports",
        &["reservation_id"],
    ),
    ("node_reports_of_lease", "node_reports", &["lease_id"]),
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        create_tables(manager, [node_reach(), gpu_sightings(), node_reports()]).await?;
        create_indexes(manager, &INDEXES).await?;
        append_only::protect(manager, "node_reports").await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        drop_tables(manager, &["node_reports", "gpu_sightings", "node_reach"]).await?;
        append_only::forget(manager, "node_reports").await
    }
}

fn node_reach() -> TableCreateStatement {
    Table::create()
        .table("node_reach")
        .col(id("lease_id"))
        .col(integer("node_index"))
        .col(id("tenant_id"))
        .col(text_null("first_contact_key"))
        .col(moment("probed_at"))
        .col(moment_null("last_reachable_at"))
        .col(moment_null("unreachable_since"))
        .col(word_null("failure"))
        .col(boolean("told"))
        .primary_key(Index::create().col("lease_id").col("node_index"))
        .check(one_of("failure", FAILURES))
        .foreign_key(&mut refers("node_reach", "lease_id", "leases"))
        .to_owned()
}

/// GPUs by their ids and the serial numbers of their boards.
fn gpu_sightings() -> TableCreateStatement {
    Table::create()
        .table("gpu_sightings")
        .col(id("lease_id"))
        .col(integer("node_index"))
        .col(string_len("uuid", 128))
        .col(string_len_null("serial", 128))
        .col(string_len("name", 128))
        .col(integer("memory_mib"))
        .col(id("provider_id"))
        .col(id("offer_id"))
        .col(document("failed"))
        .col(moment("first_seen_at"))
        .col(moment("last_seen_at"))
        .primary_key(
            Index::create()
                .col("lease_id")
                .col("node_index")
                .col("uuid"),
        )
        .foreign_key(&mut refers("gpu_sightings", "lease_id", "leases"))
        .to_owned()
}

/// Reports as they arrived, with their outcome.
fn node_reports() -> TableCreateStatement {
    Table::create()
        .table("node_reports")
        .col(id("id").primary_key())
        .col(id("tenant_id"))
        .col(id("reservation_id"))
        .col(id("lease_id"))
        .col(integer("node"))
        .col(id("reported_by"))
        .col(text_null("reason"))
        .col(word_null("verdict"))
        .col(document("failed"))
        .col(document("missing"))
        // GPUs in the report that were not handed over.
        .col(document_null("foreign_gpus"))
        .col(document_null("result"))
        .col(word("follows"))
        .col(moment("reported_at"))
        .check(one_of("verdict", VERDICTS))
        .check(one_of("follows", FOLLOWS))
        .foreign_key(&mut refers(
            "node_reports",
            "reservation_id",
            "reservations",
        ))
        .foreign_key(&mut refers("node_reports", "lease_id", "leases"))
        .to_owned()
}
