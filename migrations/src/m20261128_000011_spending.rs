//! Spending limits and budgets of tenants and projects.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{big_integer, big_integer_null, integer, string_len};

use crate::columns::{document, id, id_null, moment, one_of, word};
use crate::tables::{create_indexes, create_tables, drop_tables, refers};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        create_tables(manager, [spending_limits(), budgets(), budget_marks()]).await?;
        create_indexes(
            manager,
            &[("budgets_tenant", "budgets", &["tenant_id", "id"])],
        )
        .await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        drop_tables(manager, &["budget_marks", "budgets", "spending_limits"]).await
    }
}

/// A row for each tenant or project with limits of its own; `scope` is the id of either.
fn spending_limits() -> TableCreateStatement {
    Table::create()
        .table("spending_limits")
        .col(id("scope").primary_key())
        .col(id("tenant_id"))
        .col(id_null("project_id"))
        .col(big_integer_null("gpus"))
        .col(big_integer_null("units_per_hour"))
        .col(big_integer_null("open_holds"))
        .col(big_integer_null("reservations"))
        .col(moment("changed_at"))
        .foreign_key(&mut refers("spending_limits", "tenant_id", "tenants"))
        .foreign_key(&mut refers("spending_limits", "project_id", "projects"))
        .to_owned()
}

fn budgets() -> TableCreateStatement {
    Table::create()
        .table("budgets")
        .col(id("id").primary_key())
        .col(id("tenant_id"))
        .col(id_null("project_id"))
        .col(word("period"))
        .col(big_integer("cap_units"))
        .col(word("mode"))
        .col(document("thresholds_percent"))
        .col(integer("grace_seconds"))
        .col(moment("created_at"))
        .check(one_of("period", &["day", "month"]))
        .check(one_of("mode", &["notify", "block_new", "stop_running"]))
        .check(Expr::cust("cap_units > 0"))
        .foreign_key(&mut refers("budgets", "tenant_id", "tenants"))
        .foreign_key(&mut refers("budgets", "project_id", "projects"))
        .to_owned()
}

/// The notices and actions of a budget in a period, each once.
fn budget_marks() -> TableCreateStatement {
    Table::create()
        .table("budget_marks")
        .col(id("budget_id"))
        .col(string_len("period_start", 10))
        .col(word("mark"))
        .col(moment("at"))
        .primary_key(
            Index::create()
                .col("budget_id")
                .col("period_start")
                .col("mark"),
        )
        .foreign_key(&mut refers("budget_marks", "budget_id", "budgets"))
        .to_owned()
}
