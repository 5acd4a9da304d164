//! What was charged on a line, by rate: the next charge goes on from it, however many there were. And
//! charges in order of time, by which all tenants' are read a page at a time.
//!
//! Replicas that know only the sums by line must be stopped before.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{big_integer, integer};
use sea_orm_migration::sea_orm::DbBackend;

use crate::columns::id;

/// The sums by line alone, which those by rate take the place of.
const LINES: &str = "spent_lines";
const RATES: &str = "spent_rates";
const BY_TIME: &str = "charges_time";

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let key = ["reservation_id", "line", "rate_units"];
        let sums = ["gpu_seconds", "amount_units"];
        change(manager, LINES, RATES, &key, &sums).await?;
        let by_time = Index::create()
            .name(BY_TIME)
            .table("charges")
            .col("from_at")
            .col("usage_id")
            .to_owned();
        manager.create_index(by_time).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let by_time = Index::drop().name(BY_TIME).table("charges").to_owned();
        manager.drop_index(by_time).await?;
        let key = ["reservation_id", "line"];
        change(manager, RATES, LINES, &key, &["gpu_seconds"]).await
    }
}

/// Puts a table of sums over the charges in the place of another one. What the key has beside the
/// reservation and the line is a column of 64 bits, and so are the sums.
async fn change(
    manager: &SchemaManager<'_>,
    old: &'static str,
    new: &'static str,
    key: &[&'static str],
    sums: &[&'static str],
) -> Result<(), DbErr> {
    if manager.get_database_backend() == DbBackend::Postgres {
        // Nothing is charged between the sums and their use. SQLite has one writer anyhow.
        let wait = "LOCK TABLE charges IN SHARE ROW EXCLUSIVE MODE";
        manager.get_connection().execute_unprepared(wait).await?;
    }
    let mut table = Table::create();
    let mut primary = Index::create();
    table.table(new);
    for column in key {
        primary.col(*column);
        match *column {
            "reservation_id" => table.col(id(column)),
            "line" => table.col(integer(*column)),
            other => table.col(big_integer(other)),
        };
    }
    for column in sums {
        table.col(big_integer(*column));
    }
    table.primary_key(&mut primary).foreign_key(
        ForeignKey::create()
            .from(new, "reservation_id")
            .to("reservations", "id"),
    );
    manager.create_table(table).await?;
    let summed = sums.iter().map(|sum| format!("CAST(SUM({sum}) AS BIGINT)"));
    let (by, sums) = (key.join(", "), sums.join(", "));
    let summed = summed.collect::<Vec<_>>().join(", ");
    let fill = format!(
        "INSERT INTO {new} ({by}, {sums}) SELECT {by}, {summed} FROM charges GROUP BY {by}"
    );
    manager.get_connection().execute_unprepared(&fill).await?;
    manager
        .drop_table(Table::drop().table(old).to_owned())
        .await
}
