//! Tenants, their projects and keys, and the service's own signing keys.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{binary, string_len, text};

use crate::columns::{document, id, moment, moment_null, one_of, word};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const TABLES: [&str; 5] = [
    "ssh_keys",
    "signing_keys",
    "api_keys",
    "projects",
    "tenants",
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in [
            tenants(),
            projects(),
            api_keys(),
            signing_keys(),
            ssh_keys(),
        ] {
            manager.create_table(table).await?;
        }
        for (table, name, columns) in [
            ("projects", "projects_name", ["tenant_id", "name"]),
            (
                "ssh_keys",
                "ssh_keys_fingerprint",
                ["tenant_id", "fingerprint"],
            ),
        ] {
            let [first, second] = columns;
            let index = Index::create()
                .unique()
                .name(name)
                .table(table)
                .col(first)
                .col(second)
                .to_owned();
            manager.create_index(index).await?;
        }
        manager
            .create_index(
                Index::create()
                    .name("api_keys_tenant")
                    .table("api_keys")
                    .col("tenant_id")
                    .to_owned(),
            )
            .await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in TABLES {
            manager
                .drop_table(Table::drop().table(table).to_owned())
                .await?;
        }
        Ok(())
    }
}

fn tenants() -> TableCreateStatement {
    Table::create()
        .table("tenants")
        .col(id("id").primary_key())
        .col(string_len("name", 100).unique_key())
        .col(moment("created_at"))
        .to_owned()
}

fn projects() -> TableCreateStatement {
    Table::create()
        .table("projects")
        .col(id("id").primary_key())
        .col(id("tenant_id"))
        .col(string_len("name", 100))
        .col(moment("created_at"))
        .foreign_key(
            ForeignKey::create()
                .from("projects", "tenant_id")
                .to("tenants", "id"),
        )
        .to_owned()
}

fn api_keys() -> TableCreateStatement {
    Table::create()
        .table("api_keys")
        .col(id("id").primary_key())
        .col(id("tenant_id"))
        .col(string_len("name", 100))
        .col(word("role"))
        .col(document("scopes"))
        .col(string_len("prefix", 40))
        .col(string_len("hash", 64).unique_key())
        .col(moment("created_at"))
        .col(moment_null("expires_at"))
        .col(moment_null("last_used_at"))
        .col(moment_null("revoked_at"))
        .check(one_of(
            "role",
            &["admin", "provider", "member", "finance", "viewer"],
        ))
        .foreign_key(
            ForeignKey::create()
                .from("api_keys", "tenant_id")
                .to("tenants", "id"),
        )
        .to_owned()
}

fn signing_keys() -> TableCreateStatement {
    Table::create()
        .table("signing_keys")
        .col(string_len("kid", 64).primary_key())
        .col(word("purpose"))
        .col(binary("sealed_private"))
        .col(binary("public"))
        .col(moment("created_at"))
        .check(one_of("purpose", &["token", "attestation"]))
        .to_owned()
}

fn ssh_keys() -> TableCreateStatement {
    Table::create()
        .table("ssh_keys")
        .col(id("id").primary_key())
        .col(id("tenant_id"))
        .col(string_len("name", 100))
        .col(text("public_key"))
        .col(string_len("fingerprint", 100))
        .col(moment("created_at"))
        .foreign_key(
            ForeignKey::create()
                .from("ssh_keys", "tenant_id")
                .to("tenants", "id"),
        )
        .to_owned()
}
