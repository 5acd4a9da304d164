//! Reservations, what they hold, their leases, and how each order went.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{
    big_integer, boolean, integer, string_len, string_len_null, text_null,
};

use crate::columns::{
    document, document_null, id, id_null, moment, moment_null, one_of, word, word_null,
};

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

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in [reservations(), holds(), leases(), attempts()] {
            manager.create_table(table).await?;
        }
        for (table, name, first, second) in [
            ("reservations", "reservations_tenant", "tenant_id", "id"),
            ("reservations", "reservations_due", "due_at", "id"),
            ("holds", "holds_offer", "offer_id", "live"),
            ("leases", "leases_offer", "offer_id", "state"),
            ("leases", "leases_provider", "provider_id", "state"),
            ("leases", "leases_reservation", "reservation_id", "line"),
            ("attempts", "attempts_at", "at", "offer_id"),
        ] {
            let index = Index::create()
                .name(name)
                .table(table)
                .col(first)
                .col(second)
                .to_owned();
            manager.create_index(index).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in ["attempts", "leases", "holds", "reservations"] {
            manager
                .drop_table(Table::drop().table(table).to_owned())
                .await?;
        }
        Ok(())
    }
}

fn reservations() -> TableCreateStatement {
    Table::create()
        .table("reservations")
        .col(id("id").primary_key())
        .col(id("tenant_id"))
        .col(id("project_id"))
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
        .col(moment_null("due_at"))
        .col(big_integer("nudges"))
        .col(id_null("claim_token"))
        .col(moment_null("claim_expires_at"))
        .col(text_null("last_error"))
        .check(one_of("kind", &KINDS))
        .check(one_of("state", &RESERVATION_STATES))
        .check(one_of("wish", &["none", "cancel", "release"]))
        .check(Expr::cust(
            "(state IN ('releasing', 'closed')) = (reason IS NOT NULL)",
        ))
        .foreign_key(
            ForeignKey::create()
                .from("reservations", "tenant_id")
                .to("tenants", "id"),
        )
        .foreign_key(
            ForeignKey::create()
                .from("reservations", "project_id")
                .to("projects", "id"),
        )
        .foreign_key(
            ForeignKey::create()
                .from("reservations", "quote_id")
                .to("quotes", "id"),
        )
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
        .foreign_key(
            ForeignKey::create()
                .from("holds", "reservation_id")
                .to("reservations", "id"),
        )
        .foreign_key(
            ForeignKey::create()
                .from("holds", "offer_id")
                .to("offers", "id"),
        )
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
        .col(word_null("fall_reason"))
        .col(text_null("fall_note"))
        .col(id_null("replaces"))
        .col(id_null("replaced_by"))
        .col(boolean("given_up"))
        .check(one_of("state", &LEASE_STATES))
        .check(Expr::cust("nodes > 0"))
        .foreign_key(
            ForeignKey::create()
                .from("leases", "reservation_id")
                .to("reservations", "id"),
        )
        .foreign_key(
            ForeignKey::create()
                .from("leases", "offer_id")
                .to("offers", "id"),
        )
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
        .foreign_key(
            ForeignKey::create()
                .from("attempts", "lease_id")
                .to("leases", "id"),
        )
        .to_owned()
}
