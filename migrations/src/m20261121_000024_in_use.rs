//! What a reservation has in use, so that the database can sum it up.
//!
//! Rows of before, and of replicas of the last release, leave it open: what they have in use stands
//! in their lines and leases.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::big_integer_null;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const ADDED: [&str; 2] = ["gpus", "units_per_hour"];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for column in ADDED {
            let add = Table::alter()
                .table("reservations")
                .add_column(big_integer_null(column))
                .to_owned();
            manager.alter_table(add).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for column in ADDED {
            let drop = Table::alter()
                .table("reservations")
                .drop_column(column)
                .to_owned();
            manager.alter_table(drop).await?;
        }
        Ok(())
    }
}
