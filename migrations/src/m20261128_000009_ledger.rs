//! The ledger: transactions and their postings, and the credits of tenants. Appended and never changed.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{big_integer, integer, string_len};

use crate::append_only;
use crate::columns::{id, moment, one_of, word};
use crate::tables::{create_indexes, create_tables, drop_tables, refers};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        create_tables(manager, [transactions(), postings(), credits()]).await?;
        let indexes = [
            ("postings_account", "postings", &["account"][..]),
            ("credits_tenant", "credits", &["tenant_id", "id"]),
        ];
        create_indexes(manager, &indexes).await?;
        for table in ["transactions", "postings", "credits"] {
            append_only::protect(manager, table).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let tables = ["credits", "postings", "transactions"];
        drop_tables(manager, &tables).await?;
        for table in tables {
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
        .check(one_of("kind", &["charge", "provider_cost", "credit"]))
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
        .foreign_key(&mut refers("postings", "transaction_id", "transactions"))
        .to_owned()
}

/// Credits given to tenants; a transaction books each.
fn credits() -> TableCreateStatement {
    Table::create()
        .table("credits")
        .col(id("id").primary_key())
        .col(id("tenant_id"))
        .col(big_integer("amount_units"))
        .col(word("currency"))
        .col(string_len("reason", 200))
        .col(id("granted_by"))
        .col(moment("granted_at"))
        .check(Expr::cust("amount_units > 0"))
        .foreign_key(&mut refers("credits", "tenant_id", "tenants"))
        .to_owned()
}
