//! Charges: usage priced at the frozen rate, appended and never changed.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{big_integer, integer, string_len};

use crate::append_only;
use crate::columns::{document, id, moment, word};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.create_table(charges()).await?;
        // A second charge for the same start of an interval would bill the same time twice.
        let once = Index::create()
            .unique()
            .name("charges_lease")
            .table("charges")
            .col("lease_id")
            .col("from_at")
            .to_owned();
        manager.create_index(once).await?;
        for (name, first, second) in [
            ("charges_tenant", "tenant_id", "from_at"),
            ("charges_reservation", "reservation_id", "line"),
        ] {
            let index = Index::create()
                .name(name)
                .table("charges")
                .col(first)
                .col(second)
                .to_owned();
            manager.create_index(index).await?;
        }
        append_only::protect(manager, "charges").await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager
            .drop_table(Table::drop().table("charges").to_owned())
            .await?;
        append_only::forget(manager, "charges").await
    }
}

fn charges() -> TableCreateStatement {
    Table::create()
        .table("charges")
        .col(id("usage_id").primary_key())
        .col(id("tenant_id"))
        .col(id("project_id"))
        .col(id("reservation_id"))
        .col(id("lease_id"))
        .col(integer("line"))
        .col(id("provider_id"))
        .col(string_len("gpu", 100))
        .col(word("workload"))
        .col(integer("gpus"))
        .col(moment("from_at"))
        .col(moment("to_at"))
        .col(big_integer("gpu_seconds"))
        .col(big_integer("rate_units"))
        .col(big_integer("amount_units"))
        .col(word("currency"))
        .col(document("tags"))
        .col(document("attribution"))
        .col(moment("charged_at"))
        .check(Expr::cust("gpu_seconds >= 0"))
        .foreign_key(
            ForeignKey::create()
                .from("charges", "lease_id")
                .to("leases", "id"),
        )
        .to_owned()
}
