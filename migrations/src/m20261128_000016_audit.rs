//! The audit log: one chain for each tenant and one for the service, appended and never changed.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{
    big_integer, integer_null, string_len, string_len_null, text_null,
};

use crate::append_only;
use crate::columns::{id_null, moment, one_of, word, word_null};
use crate::tables::{IndexOf, create_indexes, create_tables, drop_tables};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const INDEXES: [IndexOf; 2] = [
    ("audit_entries_at", "audit_entries", &["at"]),
    (
        "audit_entries_principal_id",
        "audit_entries",
        &["principal_id"],
    ),
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        create_tables(manager, [entries(), heads()]).await?;
        create_indexes(manager, &INDEXES).await?;
        append_only::protect(manager, "audit_entries").await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        drop_tables(manager, &["audit_heads", "audit_entries"]).await?;
        append_only::forget(manager, "audit_entries").await
    }
}

fn entries() -> TableCreateStatement {
    Table::create()
        .table("audit_entries")
        .col(string_len("chain", 40))
        .col(big_integer("seq"))
        .col(moment("at"))
        .col(id_null("principal_id"))
        .col(id_null("own_tenant_id"))
        .col(word_null("role"))
        .col(word("credential"))
        .col(string_len_null("key_prefix", 40))
        .col(text_null("issuer"))
        .col(text_null("subject"))
        .col(string_len("operation", 100))
        .col(text_null("target"))
        .col(word("outcome"))
        .col(integer_null("status"))
        .col(string_len_null("code", 100))
        .col(string_len_null("peer", 64))
        .col(string_len_null("request_id", 64))
        .col(string_len("previous", 64))
        .col(string_len("hash", 64))
        .primary_key(Index::create().col("chain").col("seq"))
        .check(one_of(
            "credential",
            &["api_key", "token", "oidc", "command_line"],
        ))
        .check(one_of("outcome", &["done", "refused", "failed"]))
        .to_owned()
}

/// The end of each chain: an append waits here for the one before.
fn heads() -> TableCreateStatement {
    Table::create()
        .table("audit_heads")
        .col(string_len("chain", 40).primary_key())
        .col(big_integer("seq"))
        .col(string_len("hash", 64))
        .to_owned()
}
