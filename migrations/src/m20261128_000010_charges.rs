//! Charges: usage priced at the frozen rate, appended and never changed; and running sums over them.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{big_integer, integer, string_len};

use crate::append_only;
use crate::columns::{document, id, moment, word};
use crate::tables::{IndexOf, create_indexes, create_tables, create_unique, drop_tables, refers};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const INDEXES: [IndexOf; 4] = [
    ("charges_tenant", "charges", &["tenant_id", "from_at"]),
    (
        "charges_reservation",
        "charges",
        &["reservation_id", "line"],
    ),
    // The charges of all tenants are read in order of time, a page at a time.
    ("charges_time", "charges", &["from_at", "usage_id"]),
    ("spent_days_tenant", "spent_days", &["tenant_id", "day"]),
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        create_tables(manager, [charges(), spent_days(), spent_rates()]).await?;
        // A second charge for the same start of an interval would bill the same time twice.
        let once = ("charges_lease", "charges", &["lease_id", "from_at"][..]);
        create_unique(manager, once).await?;
        create_indexes(manager, &INDEXES).await?;
        append_only::protect(manager, "charges").await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        drop_tables(manager, &["spent_rates", "spent_days", "charges"]).await?;
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
        .foreign_key(&mut refers("charges", "lease_id", "leases"))
        .to_owned()
}

/// The sum charged for use that began on a day.
fn spent_days() -> TableCreateStatement {
    Table::create()
        .table("spent_days")
        .col(id("tenant_id"))
        .col(id("project_id"))
        .col(string_len("day", 10))
        .col(big_integer("amount_units"))
        .primary_key(Index::create().col("project_id").col("day"))
        .foreign_key(&mut refers("spent_days", "tenant_id", "tenants"))
        .foreign_key(&mut refers("spent_days", "project_id", "projects"))
        .to_owned()
}

/// The sum charged on a line, by rate: the next charge continues from it, however many there were.
fn spent_rates() -> TableCreateStatement {
    Table::create()
        .table("spent_rates")
        .col(id("reservation_id"))
        .col(integer("line"))
        .col(big_integer("rate_units"))
        .col(big_integer("gpu_seconds"))
        .col(big_integer("amount_units"))
        .primary_key(
            Index::create()
                .col("reservation_id")
                .col("line")
                .col("rate_units"),
        )
        .foreign_key(&mut refers("spent_rates", "reservation_id", "reservations"))
        .to_owned()
}
