//! Providers, the readings of their catalogues, offers as they are and as they were.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{
    big_integer, big_integer_null, boolean, integer, integer_null, string_len, text_null,
};

use crate::append_only;
use crate::columns::{document, id, moment, moment_null, one_of, word};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const LEVELS: [&str; 6] = ["none", "low", "medium", "high", "present", "unknown"];
const TERMS: [&str; 5] = ["on_demand", "spot", "reserved", "window", "floor"];
const TENANCIES: [&str; 4] = ["bare_metal", "vm", "container", "managed"];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in [providers(), readings(), offers(), offer_history()] {
            manager.create_table(table).await?;
        }
        for (table, name, first, second) in [
            ("offers", "offers_provider", "provider_id", "withdrawn"),
            ("offer_history", "offer_history_offer", "offer_id", "id"),
            ("readings", "readings_provider", "provider_id", "generation"),
        ] {
            let index = Index::create()
                .name(name)
                .table(table)
                .col(first)
                .col(second)
                .to_owned();
            manager.create_index(index).await?;
        }
        append_only::protect(manager, "readings").await?;
        append_only::protect(manager, "offer_history").await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in ["offer_history", "offers", "readings", "providers"] {
            manager
                .drop_table(Table::drop().table(table).to_owned())
                .await?;
        }
        append_only::forget(manager, "offer_history").await?;
        append_only::forget(manager, "readings").await
    }
}

fn providers() -> TableCreateStatement {
    Table::create()
        .table("providers")
        .col(id("id").primary_key())
        .col(boolean("enabled"))
        .col(text_null("base_url"))
        .col(moment("created_at"))
        .col(moment_null("last_attempt_at"))
        .col(moment_null("last_complete_at"))
        .col(text_null("stale_reason"))
        .col(big_integer_null("last_generation"))
        .col(integer("live_offers"))
        .col(document("skipped"))
        .to_owned()
}

fn readings() -> TableCreateStatement {
    Table::create()
        .table("readings")
        .col(big_integer("generation").primary_key())
        .col(id("provider_id"))
        .col(moment("read_at"))
        .col(moment("known_at"))
        .col(integer("offers"))
        .col(integer("added"))
        .col(integer("changed"))
        .col(integer("withdrawn"))
        .col(document("skipped_by_reason"))
        .foreign_key(
            ForeignKey::create()
                .from("readings", "provider_id")
                .to("providers", "id"),
        )
        .to_owned()
}

fn offers() -> TableCreateStatement {
    Table::create()
        .table("offers")
        .col(id("id").primary_key())
        .col(id("provider_id"))
        .col(string_len("gpu", 100))
        .col(big_integer("price_units"))
        .col(word("currency"))
        .col(word("terms"))
        .col(word("tenancy"))
        .col(boolean("orderable"))
        .col(word("level"))
        .col(integer_null("nodes"))
        .col(boolean("at_least"))
        .col(boolean("withdrawn"))
        .col(moment_null("dated_at"))
        .col(big_integer("generation"))
        .col(document("body"))
        .check(Expr::cust("price_units > 0"))
        .check(Expr::cust("nodes IS NULL OR nodes >= 0"))
        .check(one_of("level", &LEVELS))
        .check(one_of("terms", &TERMS))
        .check(one_of("tenancy", &TENANCIES))
        .foreign_key(
            ForeignKey::create()
                .from("offers", "provider_id")
                .to("providers", "id"),
        )
        .to_owned()
}

fn offer_history() -> TableCreateStatement {
    Table::create()
        .table("offer_history")
        .col(big_integer("id").primary_key().auto_increment())
        .col(id("offer_id"))
        .col(big_integer("generation"))
        .col(word("change"))
        .col(moment("observed_at"))
        .col(moment("known_at"))
        .col(document("body"))
        .check(one_of("change", &["added", "changed", "withdrawn"]))
        .foreign_key(
            ForeignKey::create()
                .from("offer_history", "generation")
                .to("readings", "generation"),
        )
        .foreign_key(
            ForeignKey::create()
                .from("offer_history", "offer_id")
                .to("offers", "id"),
        )
        .to_owned()
}
