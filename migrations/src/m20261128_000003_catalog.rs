//! Providers, the readings of their catalogues, current offers and their history.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{
    big_integer, big_integer_null, blob_null, boolean, integer, integer_null, string_len,
    string_len_null, text_null,
};

use crate::append_only;
use crate::columns::{document, id, moment, moment_null, one_of, word};
use crate::tables::{IndexOf, create_indexes, create_tables, drop_tables, refers};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const LEVELS: [&str; 6] = ["none", "low", "medium", "high", "present", "unknown"];
const TERMS: [&str; 5] = ["on_demand", "spot", "reserved", "window", "floor"];
const TENANCIES: [&str; 4] = ["bare_metal", "vm", "container", "managed"];

const INDEXES: [IndexOf; 3] = [
    ("offers_provider", "offers", &["provider_id", "withdrawn"]),
    ("offer_history_offer", "offer_history", &["offer_id", "id"]),
    (
        "readings_provider",
        "readings",
        &["provider_id", "generation"],
    ),
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let tables = [providers(), readings(), offers(), offer_history()];
        create_tables(manager, tables).await?;
        create_indexes(manager, &INDEXES).await?;
        append_only::protect(manager, "readings").await?;
        append_only::protect(manager, "offer_history").await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let tables = ["offer_history", "offers", "readings", "providers"];
        drop_tables(manager, &tables).await?;
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
        // A credential that an operator enters at run time.
        .col(blob_null("sealed_credential"))
        .col(string_len_null("credential_hint", 4))
        .col(moment_null("credential_set_at"))
        // Until it ends, nothing new is held at the provider.
        .col(text_null("quarantine_reason"))
        .col(moment_null("quarantined_at"))
        .col(moment_null("quarantined_until"))
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
        .foreign_key(&mut refers("readings", "provider_id", "providers"))
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
        .foreign_key(&mut refers("offers", "provider_id", "providers"))
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
        .foreign_key(&mut refers("offer_history", "offer_id", "offers"))
        .to_owned()
}
