//! Limits and budgets of tenants and projects, and the running sums that they are held against.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{big_integer, big_integer_null, integer, string_len};
use sea_orm_migration::sea_orm::DbBackend;

use crate::columns::{document, id, id_null, moment, one_of, word};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in [
            spent_days(),
            spent_lines(),
            spending_limits(),
            budgets(),
            budget_marks(),
        ] {
            manager.create_table(table).await?;
        }
        for (table, name, second) in [
            ("spent_days", "spent_days_tenant", "day"),
            ("budgets", "budgets_tenant", "id"),
        ] {
            let index = Index::create()
                .name(name)
                .table(table)
                .col("tenant_id")
                .col(second)
                .to_owned();
            manager.create_index(index).await?;
        }
        manager
            .alter_table(
                Table::alter()
                    .table("reservations")
                    .add_column(id_null("stopped_by"))
                    .to_owned(),
            )
            .await?;
        let sums = sum_up(manager.get_database_backend());
        manager.get_connection().execute_unprepared(&sums).await?;
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager
            .alter_table(
                Table::alter()
                    .table("reservations")
                    .drop_column("stopped_by")
                    .to_owned(),
            )
            .await?;
        for table in [
            "budget_marks",
            "budgets",
            "spending_limits",
            "spent_lines",
            "spent_days",
        ] {
            manager
                .drop_table(Table::drop().table(table).to_owned())
                .await?;
        }
        Ok(())
    }
}

/// The sums of what was charged before.
fn sum_up(backend: DbBackend) -> String {
    let day = match backend {
        DbBackend::Postgres => "to_char(from_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
        // Moments are kept as text that begins with the day, always in UTC.
        _ => "substr(from_at, 1, 10)",
    };
    format!(
        "INSERT INTO spent_days (tenant_id, project_id, day, amount_units)
         SELECT tenant_id, project_id, {day}, CAST(SUM(amount_units) AS BIGINT)
         FROM charges GROUP BY tenant_id, project_id, {day};
         INSERT INTO spent_lines (reservation_id, line, gpu_seconds)
         SELECT reservation_id, line, CAST(SUM(gpu_seconds) AS BIGINT)
         FROM charges GROUP BY reservation_id, line;"
    )
}

fn of_tenant(table: &'static str) -> ForeignKeyCreateStatement {
    ForeignKey::create()
        .from(table, "tenant_id")
        .to("tenants", "id")
        .to_owned()
}

fn of_project(table: &'static str) -> ForeignKeyCreateStatement {
    ForeignKey::create()
        .from(table, "project_id")
        .to("projects", "id")
        .to_owned()
}

/// What was charged for use that began on a day.
fn spent_days() -> TableCreateStatement {
    Table::create()
        .table("spent_days")
        .col(id("tenant_id"))
        .col(id("project_id"))
        .col(string_len("day", 10))
        .col(big_integer("amount_units"))
        .primary_key(Index::create().col("project_id").col("day"))
        .foreign_key(&mut of_tenant("spent_days"))
        .foreign_key(&mut of_project("spent_days"))
        .to_owned()
}

/// What was charged on a line of a reservation.
fn spent_lines() -> TableCreateStatement {
    Table::create()
        .table("spent_lines")
        .col(id("reservation_id"))
        .col(integer("line"))
        .col(big_integer("gpu_seconds"))
        .primary_key(Index::create().col("reservation_id").col("line"))
        .foreign_key(
            ForeignKey::create()
                .from("spent_lines", "reservation_id")
                .to("reservations", "id"),
        )
        .to_owned()
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
        .foreign_key(&mut of_tenant("spending_limits"))
        .foreign_key(&mut of_project("spending_limits"))
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
        .foreign_key(&mut of_tenant("budgets"))
        .foreign_key(&mut of_project("budgets"))
        .to_owned()
}

/// What was said and done of a budget in a period, each once.
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
        .foreign_key(
            ForeignKey::create()
                .from("budget_marks", "budget_id")
                .to("budgets", "id"),
        )
        .to_owned()
}
