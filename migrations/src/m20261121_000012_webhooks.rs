//! Webhook endpoints of tenants, the events on their way to them, and how each attempt went.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{
    binary_null, boolean, integer, integer_null, string_len, text, text_null,
};

use crate::columns::{document, id, id_null, moment, moment_null, one_of, word, word_null};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in [endpoints(), deliveries(), attempts()] {
            manager.create_table(table).await?;
        }
        for (table, name, first, second, unique) in [
            (
                "webhook_endpoints",
                "webhook_endpoints_tenant",
                "tenant_id",
                "id",
                false,
            ),
            (
                "webhook_deliveries",
                "webhook_deliveries_event",
                "endpoint_id",
                "event_id",
                true,
            ),
            (
                "webhook_deliveries",
                "webhook_deliveries_due",
                "state",
                "due_at",
                false,
            ),
        ] {
            let mut index = Index::create();
            index.name(name).table(table).col(first).col(second);
            if unique {
                index.unique();
            }
            manager.create_index(index).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in [
            "webhook_attempts",
            "webhook_deliveries",
            "webhook_endpoints",
        ] {
            manager
                .drop_table(Table::drop().table(table).to_owned())
                .await?;
        }
        Ok(())
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
        .foreign_key(
            ForeignKey::create()
                .from("webhook_endpoints", "tenant_id")
                .to("tenants", "id"),
        )
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
        .foreign_key(
            ForeignKey::create()
                .from("webhook_deliveries", "endpoint_id")
                .to("webhook_endpoints", "id"),
        )
        .foreign_key(
            ForeignKey::create()
                .from("webhook_deliveries", "event_id")
                .to("events", "id"),
        )
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
        .foreign_key(
            ForeignKey::create()
                .from("webhook_attempts", "delivery_id")
                .to("webhook_deliveries", "id"),
        )
        .to_owned()
}
