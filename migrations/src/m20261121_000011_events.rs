//! Events: what happened to what each tenant has, numbered without gaps.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{big_integer, string_len};

use crate::append_only;
use crate::columns::{document, id, id_null, moment};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.create_table(counters()).await?;
        manager.create_table(events()).await?;
        let numbered = Index::create()
            .unique()
            .name("events_sequence")
            .table("events")
            .col("tenant_id")
            .col("sequence")
            .to_owned();
        manager.create_index(numbered).await?;
        let by_reservation = Index::create()
            .name("events_reservation")
            .table("events")
            .col("reservation_id")
            .col("sequence")
            .to_owned();
        manager.create_index(by_reservation).await?;
        append_only::protect(manager, "events").await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in ["events", "event_counters"] {
            manager
                .drop_table(Table::drop().table(table).to_owned())
                .await?;
        }
        append_only::forget(manager, "events").await
    }
}

/// The last number given to an event of each tenant.
fn counters() -> TableCreateStatement {
    Table::create()
        .table("event_counters")
        .col(id("tenant_id").primary_key())
        .col(big_integer("last_sequence"))
        .check(Expr::cust("last_sequence > 0"))
        .foreign_key(
            ForeignKey::create()
                .from("event_counters", "tenant_id")
                .to("tenants", "id"),
        )
        .to_owned()
}

fn events() -> TableCreateStatement {
    Table::create()
        .table("events")
        .col(id("id").primary_key())
        .col(id("tenant_id"))
        .col(big_integer("sequence"))
        .col(id_null("reservation_id"))
        // New kinds come with the program, so the set of words is closed there and not here.
        .col(string_len("kind", 40))
        .col(moment("at"))
        .col(document("data"))
        .check(Expr::cust("sequence > 0"))
        .foreign_key(
            ForeignKey::create()
                .from("events", "tenant_id")
                .to("tenants", "id"),
        )
        .foreign_key(
            ForeignKey::create()
                .from("events", "reservation_id")
                .to("reservations", "id"),
        )
        .to_owned()
}
