//! Conversations with nodes that were cut off on our side: each is a new beginning of its node,
//! and a node gets only so many.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{integer, string_len};

use crate::append_only;
use crate::columns::{id, moment};

const TABLE: &str = "interrupted_sessions";

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::create()
            .table(TABLE)
            .col(id("verification_id"))
            .col(string_len("agent_key", 100))
            .col(integer("node_index"))
            .col(integer("step"))
            .col(moment("started_at"))
            .col(moment("interrupted_at"))
            .primary_key(Index::create().col("verification_id").col("agent_key"))
            .foreign_key(
                ForeignKey::create()
                    .from(TABLE, "verification_id")
                    .to("verifications", "id"),
            )
            .to_owned();
        manager.create_table(table).await?;
        append_only::protect(manager, TABLE).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager
            .drop_table(Table::drop().table(TABLE).to_owned())
            .await?;
        append_only::forget(manager, TABLE).await
    }
}
