//! Whether nodes in the tenants' hands can be reached.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{boolean, integer, text_null};

use crate::columns::{id, moment, moment_null, one_of, word_null};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const FAILURES: &[&str] = &["no_answer", "other_key", "not_public"];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::create()
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
            .foreign_key(
                ForeignKey::create()
                    .from("node_reach", "lease_id")
                    .to("leases", "id"),
            )
            .to_owned();
        manager.create_table(table).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager
            .drop_table(Table::drop().table("node_reach").to_owned())
            .await
    }
}
