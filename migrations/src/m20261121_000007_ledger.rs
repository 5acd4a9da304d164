//! The ledger: transactions and their postings, appended and never changed.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{big_integer, integer, string_len};

use crate::append_only;
use crate::columns::{id, moment, one_of, word};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.create_table(transactions()).await?;
        manager.create_table(postings()).await?;
        let by_account = Index::create()
            .name("postings_account")
            .table("postings")
            .col("account")
            .to_owned();
        manager.create_index(by_account).await?;
        append_only::protect(manager, "transactions").await?;
        append_only::protect(manager, "postings").await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in ["postings", "transactions"] {
            manager
                .drop_table(Table::drop().table(table).to_owned())
                .await?;
            append_only::forget(manager, table).await?;
        }
        Ok(())
    }
}

fn transactions() -> TableCreateStatement {
    Table::create()
        .table("transactions")
        .col(id("id").primary_key())
        .col(string_len("idempotency_key", 255).unique_key())
        .col(word("kind"))
        .col(moment("effective_at"))
        .col(moment("posted_at"))
        .check(one_of("kind", &["charge", "provider_cost"]))
        .to_owned()
}

fn postings() -> TableCreateStatement {
    Table::create()
        .table("postings")
        .col(id("transaction_id"))
        .col(integer("leg"))
        .col(string_len("account", 100))
        .col(word("unit"))
        .col(big_integer("amount"))
        .primary_key(Index::create().col("transaction_id").col("leg"))
        .foreign_key(
            ForeignKey::create()
                .from("postings", "transaction_id")
                .to("transactions", "id"),
        )
        .to_owned()
}
