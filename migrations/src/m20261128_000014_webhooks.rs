//! Webhook endpoints of tenants, the events on their way to them, and the result of each attempt.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{
    binary_null, boolean, integer, integer_null, string_len, text, text_null,
};

use crate::columns::{document, id, id_null, moment, moment_null, one_of, word, word_null};
use crate::tables::{IndexOf, create_indexes, create_tables, create_unique, drop_tables, refers};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const INDEXES: [IndexOf; 4] = [
    (
        "webhook_endpoints_tenant",
        "webhook_endpoints",
        &["tenant_id", "id"],
    ),
    (
        "webhook_deliveries_due",
        "webhook_deliveries",
        &["state", "due_at"],
    ),
    // Finds deliveries to delete, by age and by event.
    (
        "webhook_deliveries_created",
        "webhook_deliveries",
        &["created_at"],
    ),
    (
        "webhook_deliveries_of_event",
        "webhook_deliveries",
        &["event_id"],
    ),
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        create_tables(manager, [endpoints(), deliveries(), attempts()]).await?;
        let once = (
            "webhook_deliveries_event",
            "webhook_deliveries",
            &["endpoint_id", "event_id"][..],
        );
        create_unique(manager, once).await?;
        create_indexes(manager, &INDEXES).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let tables = [
            "webhook_attempts",
            "webhook_deliveries",
            "webhook_endpoints",
        ];
        drop_tables(manager, &tables).await
    }
}

/// A deleted endpoint keeps its row, without its secrets: transactions that run at the same moment
/// may still refer to it.
fn endpoints() -> TableCreateStatement {
    Table::create()
        .table("webhook_endpoints")
        .col(id("id").primary_key())
        .col(id("tenant_id"))
        .col(text("url"))
        .col(string_len("description", 200))
        .col(document("event_types"))
        .col(boolean("enabled"))
        .col(word_null("disabled_reason"))
        .col(binary_null("sealed_secret"))
        .col(binary_null("sealed_previous_secret"))
        .col(moment_null("previous_until"))
        .col(moment_null("failing_since"))
        .col(moment("created_at"))
        .col(moment_null("deleted_at"))
        .check(one_of("disabled_reason", &["asked", "gone", "failing"]))
        .check(Expr::cust("enabled = (disabled_reason IS NULL)"))
        .check(Expr::cust(
            "(sealed_secret IS NULL) = (deleted_at IS NOT NULL)",
        ))
        .foreign_key(&mut refers("webhook_endpoints", "tenant_id", "tenants"))
        .to_owned()
}

fn deliveries() -> TableCreateStatement {
    Table::create()
        .table("webhook_deliveries")
        .col(id("id").primary_key())
        .col(id("tenant_id"))
        .col(id("endpoint_id"))
        .col(id("event_id"))
        .col(word("state"))
        .col(integer("tries"))
        .col(moment_null("due_at"))
        .col(id_null("claim_token"))
        .col(moment_null("claim_expires_at"))
        .col(moment("created_at"))
        .check(one_of("state", &["pending", "delivered", "failed"]))
        .check(Expr::cust("(state = 'pending') = (due_at IS NOT NULL)"))
        .foreign_key(&mut refers(
            "webhook_deliveries",
            "endpoint_id",
            "webhook_endpoints",
        ))
        .foreign_key(&mut refers("webhook_deliveries", "event_id", "events"))
        .to_owned()
}

fn attempts() -> TableCreateStatement {
    Table::create()
        .table("webhook_attempts")
        .col(id("delivery_id"))
        .col(integer("number"))
        .col(moment("at"))
        .col(integer("latency_ms"))
        .col(integer_null("status"))
        .col(text_null("answer"))
        .col(text_null("error"))
        .primary_key(Index::create().col("delivery_id").col("number"))
        .check(Expr::cust("status IS NOT NULL OR error IS NOT NULL"))
        .foreign_key(&mut refers(
            "webhook_attempts",
            "delivery_id",
            "webhook_deliveries",
        ))
        .to_owned()
}
