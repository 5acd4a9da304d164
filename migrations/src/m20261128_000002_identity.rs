//! Tenants, their projects and keys, and the service's own signing keys.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{binary, string_len, text};

use crate::columns::{document, document_null, id, id_null, moment, moment_null, one_of, word};
use crate::tables::{create_indexes, create_tables, create_unique, drop_tables, refers};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let tables = [
            tenants(),
            projects(),
            api_keys(),
            signing_keys(),
            ssh_keys(),
        ];
        create_tables(manager, tables).await?;
        create_unique(
            manager,
            ("projects_name", "projects", &["tenant_id", "name"]),
        )
        .await?;
        let of_key = (
            "ssh_keys_fingerprint",
            "ssh_keys",
            &["tenant_id", "fingerprint"][..],
        );
        create_unique(manager, of_key).await?;
        create_indexes(manager, &[("api_keys_tenant", "api_keys", &["tenant_id"])]).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let tables = [
            "ssh_keys",
            "signing_keys",
            "api_keys",
            "projects",
            "tenants",
        ];
        drop_tables(manager, &tables).await
    }
}

fn tenants() -> TableCreateStatement {
    Table::create()
        .table("tenants")
        .col(id("id").primary_key())
        .col(string_len("name", 100).unique_key())
        // The tags and fields that every reservation must carry; NULL: none.
        .col(document_null("required_tags"))
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
        .foreign_key(&mut refers("projects", "tenant_id", "tenants"))
        .to_owned()
}

fn api_keys() -> TableCreateStatement {
    Table::create()
        .table("api_keys")
        .col(id("id").primary_key())
        .col(id("tenant_id"))
        // The principal behind the key: it stays the same when the key is rotated.
        .col(id_null("principal_id"))
        // The principal that made the key, and may therefore revoke it. NULL: the command line made it.
        .col(id_null("made_by"))
        .col(string_len("name", 100))
        .col(word("role"))
        .col(document("scopes"))
        // The projects that the key works in; NULL: all of the tenant's.
        .col(document_null("projects"))
        .col(string_len("prefix", 40))
        .col(string_len("hash", 64).unique_key())
        .col(moment("created_at"))
        .col(moment_null("expires_at"))
        .col(moment_null("last_used_at"))
        .col(moment_null("revoked_at"))
        .col(id_null("replaced_by"))
        .check(one_of(
            "role",
            &["admin", "provider", "member", "finance", "viewer"],
        ))
        .foreign_key(&mut refers("api_keys", "tenant_id", "tenants"))
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
        .col(moment_null("retired_at"))
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
        .foreign_key(&mut refers("ssh_keys", "tenant_id", "tenants"))
        .to_owned()
}
