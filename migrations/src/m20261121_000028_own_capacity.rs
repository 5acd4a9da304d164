//! What tenants have of their own: capacity that is paid for, prices that were agreed, and which
//! lines of reservations use up what is paid for.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{big_integer, boolean, integer, integer_null, string_len};

use crate::columns::{document, id, moment, moment_null};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in [commitments(), provider_accounts(), coverages()] {
            manager.create_table(table).await?;
        }
        for (table, name, by) in [
            ("commitments", "commitments_tenant", "tenant_id"),
            ("provider_accounts", "provider_accounts_tenant", "tenant_id"),
            ("coverages", "coverages_commitment", "commitment_id"),
        ] {
            let index = Index::create().name(name).table(table).col(by).to_owned();
            manager.create_index(index).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in ["coverages", "provider_accounts", "commitments"] {
            manager
                .drop_table(Table::drop().table(table).to_owned())
                .await?;
        }
        Ok(())
    }
}

fn of_tenant(table: &'static str) -> ForeignKeyCreateStatement {
    ForeignKey::create()
        .from(table, "tenant_id")
        .to("tenants", "id")
        .to_owned()
}

/// Capacity that is paid for. What is withdrawn stays: lines may name it.
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
        .foreign_key(&mut of_tenant("commitments"))
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
        .foreign_key(&mut of_tenant("provider_accounts"))
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
        .foreign_key(
            ForeignKey::create()
                .from("coverages", "reservation_id")
                .to("reservations", "id"),
        )
        .foreign_key(
            ForeignKey::create()
                .from("coverages", "commitment_id")
                .to("commitments", "id"),
        )
        .to_owned()
}
