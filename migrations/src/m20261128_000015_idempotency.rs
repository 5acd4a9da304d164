//! Idempotency keys of tenants: the request and the answer under each.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{big_integer, integer_null, string_len, text_null};

use crate::columns::{id, moment, one_of, word};
use crate::tables::{create_indexes, drop_tables};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::create()
            .table("idempotency_keys")
            .col(id("tenant_id"))
            .col(string_len("key", 255))
            .col(string_len("method_path", 300))
            .col(string_len("body_hash", 64))
            .col(word("state"))
            .col(big_integer("attempt"))
            .col(integer_null("status"))
            .col(text_null("body"))
            .col(moment("started_at"))
            .col(moment("expires_at"))
            .primary_key(Index::create().col("tenant_id").col("key"))
            .check(one_of("state", &["running", "done"]))
            .check(Expr::cust("(state = 'done') = (status IS NOT NULL)"))
            .to_owned();
        manager.create_table(table).await?;
        let by_expiry = (
            "idempotency_keys_expiry",
            "idempotency_keys",
            &["expires_at"][..],
        );
        create_indexes(manager, &[by_expiry]).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        drop_tables(manager, &["idempotency_keys"]).await
    }
}
