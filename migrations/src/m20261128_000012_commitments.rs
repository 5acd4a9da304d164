//! Tenants' own capacity: commitments, agreed prices, and which lines of reservations use up a commitment.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{big_integer, boolean, integer, integer_null, string_len};

use crate::columns::{document, id, moment, moment_null};
use crate::tables::{IndexOf, create_indexes, create_tables, drop_tables, refers};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const INDEXES: [IndexOf; 3] = [
    ("commitments_tenant", "commitments", &["tenant_id"]),
    (
        "provider_accounts_tenant",
        "provider_accounts",
        &["tenant_id"],
    ),
    ("coverages_commitment", "coverages", &["commitment_id"]),
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let tables = [commitments(), provider_accounts(), coverages()];
        create_tables(manager, tables).await?;
        create_indexes(manager, &INDEXES).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        drop_tables(manager, &["coverages", "provider_accounts", "commitments"]).await
    }
}

/// Commitments. A withdrawn one stays: lines may name it.
fn commitments() -> TableCreateStatement {
    Table::create()
        .table("commitments")
        .col(id("id").primary_key())
        .col(id("tenant_id"))
        .col(string_len("name", 100))
        .col(id("provider_id"))
        .col(document("scope"))
        .col(integer("nodes"))
        .col(integer_null("node_hours"))
        .col(big_integer("price_units"))
        .col(moment("expires_at"))
        .col(moment("created_at"))
        .col(moment_null("withdrawn_at"))
        .check(Expr::cust("nodes > 0"))
        .check(Expr::cust("price_units >= 0"))
        .foreign_key(&mut refers("commitments", "tenant_id", "tenants"))
        .to_owned()
}

/// Price books.
fn provider_accounts() -> TableCreateStatement {
    Table::create()
        .table("provider_accounts")
        .col(id("id").primary_key())
        .col(id("tenant_id"))
        .col(string_len("name", 100))
        .col(id("provider_id"))
        .col(document("prices"))
        .col(moment("created_at"))
        .col(moment_null("withdrawn_at"))
        .foreign_key(&mut refers("provider_accounts", "tenant_id", "tenants"))
        .to_owned()
}

/// The nodes of a line that a commitment pays for, from when until when.
fn coverages() -> TableCreateStatement {
    Table::create()
        .table("coverages")
        .col(id("reservation_id"))
        .col(integer("line"))
        .col(id("commitment_id"))
        .col(integer("nodes"))
        .col(moment("from_at"))
        .col(moment("until_at"))
        .col(boolean("live"))
        .primary_key(Index::create().col("reservation_id").col("line"))
        .check(Expr::cust("nodes > 0"))
        .foreign_key(&mut refers("coverages", "reservation_id", "reservations"))
        .foreign_key(&mut refers("coverages", "commitment_id", "commitments"))
        .to_owned()
}
