//! Nodes in use that are looked at again: verifications that are of one node and stay open, what came of
//! each look, and GPUs in a tenant's report that were not handed over.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{boolean, integer, integer_null};

use crate::append_only;
use crate::columns::{document, document_null, id, moment, one_of, word};

const TABLE: &str = "node_rechecks";

const VERDICTS: &[&str] = &["pass", "pass_with_warnings", "fail", "inconclusive"];
const FOLLOWS: &[&str] = &["repair", "nothing_failed", "gang", "already", "too_often"];

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let add = Table::alter()
            .table("verifications")
            .add_column(integer_null("recheck_node"))
            .to_owned();
        manager.alter_table(add).await?;
        let add = Table::alter()
            .table("node_reports")
            .add_column(document_null("foreign_gpus"))
            .to_owned();
        manager.alter_table(add).await?;
        manager.create_table(rechecks()).await?;
        for (name, column) in [
            ("node_rechecks_of_reservation", "reservation_id"),
            ("node_rechecks_of_lease", "lease_id"),
        ] {
            let index = Index::create()
                .name(name)
                .table(TABLE)
                .col(column)
                .to_owned();
            manager.create_index(index).await?;
        }
        append_only::protect(manager, TABLE).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager
            .drop_table(Table::drop().table(TABLE).to_owned())
            .await?;
        append_only::forget(manager, TABLE).await?;
        for (table, column) in [
            ("node_reports", "foreign_gpus"),
            ("verifications", "recheck_node"),
        ] {
            let drop = Table::alter().table(table).drop_column(column).to_owned();
            manager.alter_table(drop).await?;
        }
        Ok(())
    }
}

fn rechecks() -> TableCreateStatement {
    Table::create()
        .table(TABLE)
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
        .check(one_of("verdict", VERDICTS))
        .check(one_of("follows", FOLLOWS))
        .foreign_key(
            ForeignKey::create()
                .from(TABLE, "attestation_id")
                .to("attestations", "id"),
        )
        .foreign_key(
            ForeignKey::create()
                .from(TABLE, "lease_id")
                .to("leases", "id"),
        )
        .to_owned()
}
