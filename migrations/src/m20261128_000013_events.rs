//! Events: what happened to each tenant's things, numbered without gaps.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{big_integer, string_len};

use crate::append_only;
use crate::columns::{document, id, id_null, moment};
use crate::tables::{create_indexes, create_tables, create_unique, drop_tables, refers};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

/// Events may be deleted up to the number recorded for their tenant, and no further.
const MAY_GO: &str = "EXISTS (SELECT 1 FROM event_counters c
    WHERE c.tenant_id = OLD.tenant_id AND c.pruned_through >= OLD.sequence)";

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        create_tables(manager, [counters(), events()]).await?;
        create_unique(
            manager,
            ("events_sequence", "events", &["tenant_id", "sequence"]),
        )
        .await?;
        let by_reservation = (
            "events_reservation",
            "events",
            &["reservation_id", "sequence"][..],
        );
        create_indexes(manager, &[by_reservation]).await?;
        append_only::protect_unless(manager, "events", MAY_GO).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        drop_tables(manager, &["events", "event_counters"]).await?;
        append_only::forget(manager, "events").await
    }
}

fn counters() -> TableCreateStatement {
    Table::create()
        .table("event_counters")
        .col(id("tenant_id").primary_key())
        // The last number given to an event.
        .col(big_integer("last_sequence"))
        .col(big_integer("pruned_through").default(0))
        .check(Expr::cust("last_sequence > 0"))
        .foreign_key(&mut refers("event_counters", "tenant_id", "tenants"))
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
        .foreign_key(&mut refers("events", "tenant_id", "tenants"))
        .foreign_key(&mut refers("events", "reservation_id", "reservations"))
        .to_owned()
}
