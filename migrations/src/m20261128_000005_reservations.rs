//! Reservations, their holds and leases, and the result of each order.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{
    big_integer, big_integer_null, boolean, integer, string_len, string_len_null, text_null,
};

use crate::columns::{
    document, document_null, id, id_null, moment, moment_null, one_of, word, word_null,
};
use crate::tables::{IndexOf, create_indexes, create_tables, drop_tables, refers};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const KINDS: [&str; 5] = ["gpus", "train", "serve_realtime", "serve_batch", "hybrid"];
const RESERVATION_STATES: [&str; 9] = [
    "held",
    "confirmed",
    "provisioning",
    "replacing",
    "handing_off",
    "active",
    "repairing",
    "releasing",
    "closed",
];
const LEASE_STATES: [&str; 8] = [
    "requested",
    "withdrawn",
    "booting",
    "verifying",
    "passed",
    "handed_off",
    "releasing",
    "gone",
];

const INDEXES: [IndexOf; 9] = [
    ("reservations_tenant", "reservations", &["tenant_id", "id"]),
    (
        "reservations_by_age",
        "reservations",
        &["tenant_id", "created_at"],
    ),
    ("reservations_due", "reservations", &["due_at", "id"]),
    ("holds_offer", "holds", &["offer_id", "live"]),
    ("leases_offer", "leases", &["offer_id", "state"]),
    ("leases_provider", "leases", &["provider_id", "state"]),
    // Leases of a provider that ended recently.
    ("leases_returned", "leases", &["provider_id", "gone_at"]),
    ("leases_reservation", "leases", &["reservation_id", "line"]),
    ("attempts_at", "attempts", &["at", "offer_id"]),
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let tables = [reservations(), holds(), leases(), attempts()];
        create_tables(manager, tables).await?;
        create_indexes(manager, &INDEXES).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        drop_tables(manager, &["attempts", "leases", "holds", "reservations"]).await
    }
}

fn reservations() -> TableCreateStatement {
    Table::create()
        .table("reservations")
        .col(id("id").primary_key())
        .col(id("tenant_id"))
        .col(id("project_id"))
        // The principal that made it.
        .col(id_null("created_by"))
        .col(string_len("name", 100))
        .col(word("kind"))
        .col(word("state"))
        .col(word_null("reason"))
        .col(big_integer("version"))
        .col(document("demand"))
        .col(id("plan_id"))
        .col(id("quote_id").unique_key())
        .col(document("lines"))
        .col(boolean("gang"))
        // The verification level of its nodes, as it was when the hold was placed.
        .col(word_null("verification"))
        .col(document_null("ceiling"))
        .col(document("ssh_public_keys"))
        .col(document("tags"))
        .col(document("attribution"))
        .col(moment_null("window_end"))
        .col(moment("hold_expires_at"))
        .col(moment("created_at"))
        .col(moment_null("confirmed_at"))
        .col(moment_null("active_at"))
        .col(moment_null("closed_at"))
        .col(word("wish"))
        .col(moment_null("wish_at"))
        // The budget that stopped it.
        .col(id_null("stopped_by"))
        .col(moment_null("due_at"))
        .col(big_integer("nudges"))
        .col(id_null("claim_token"))
        .col(moment_null("claim_expires_at"))
        .col(text_null("last_error"))
        // GPUs in use, so that the database can sum them. NULL: they follow from its lines and leases.
        .col(big_integer_null("gpus"))
        .col(big_integer_null("units_per_hour"))
        .check(one_of("kind", &KINDS))
        .check(one_of("state", &RESERVATION_STATES))
        .check(one_of("wish", &["none", "cancel", "release"]))
        .check(Expr::cust(
            "(state IN ('releasing', 'closed')) = (reason IS NOT NULL)",
        ))
        .foreign_key(&mut refers("reservations", "tenant_id", "tenants"))
        .foreign_key(&mut refers("reservations", "project_id", "projects"))
        .foreign_key(&mut refers("reservations", "quote_id", "quotes"))
        .to_owned()
}

fn holds() -> TableCreateStatement {
    Table::create()
        .table("holds")
        .col(id("reservation_id"))
        .col(integer("line"))
        .col(id("offer_id"))
        .col(integer("nodes"))
        .col(boolean("live"))
        .primary_key(Index::create().col("reservation_id").col("line"))
        .check(Expr::cust("nodes > 0"))
        .foreign_key(&mut refers("holds", "reservation_id", "reservations"))
        .foreign_key(&mut refers("holds", "offer_id", "offers"))
        .to_owned()
}

fn leases() -> TableCreateStatement {
    Table::create()
        .table("leases")
        .col(id("id").primary_key())
        .col(id("reservation_id"))
        .col(id("tenant_id"))
        .col(integer("line"))
        .col(id("provider_id"))
        .col(id("offer_id"))
        .col(document("offer"))
        .col(integer("nodes"))
        .col(integer("node_base"))
        .col(word("state"))
        .col(id("client_token").unique_key())
        .col(string_len_null("provider_lease_id", 200))
        .col(document("provider_nodes"))
        // The price that the provider reports, beside the quoted one.
        .col(big_integer_null("price_units"))
        .col(word_null("price_currency"))
        .col(integer("attempts"))
        .col(moment("requested_at"))
        .col(moment_null("accepted_at"))
        .col(moment_null("started_at"))
        .col(moment_null("up_at"))
        .col(moment_null("verify_deadline"))
        .col(moment_null("handed_off_at"))
        .col(moment_null("metered_to"))
        .col(moment_null("release_accepted_at"))
        .col(moment_null("gone_at"))
        // When the lease failed: we wait only so long for its replacement.
        .col(moment_null("fell_at"))
        .col(word_null("fall_reason"))
        .col(text_null("fall_note"))
        .col(id_null("replaces"))
        .col(id_null("replaced_by"))
        .col(boolean("given_up"))
        .check(one_of("state", &LEASE_STATES))
        .check(Expr::cust("nodes > 0"))
        .foreign_key(&mut refers("leases", "reservation_id", "reservations"))
        .foreign_key(&mut refers("leases", "offer_id", "offers"))
        .to_owned()
}

fn attempts() -> TableCreateStatement {
    Table::create()
        .table("attempts")
        .col(big_integer("id").primary_key().auto_increment())
        .col(id("offer_id"))
        .col(id("provider_id"))
        .col(id("lease_id"))
        .col(word("outcome"))
        .col(text_null("note"))
        .col(moment("at"))
        .foreign_key(&mut refers("attempts", "lease_id", "leases"))
        .to_owned()
}
