//! Settings of the whole database that are made once, such as its mode.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{string_len, text};

use crate::columns::moment;
use crate::tables::drop_tables;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager
            .create_table(
                Table::create()
                    .table("settings")
                    .col(string_len("name", 40).primary_key())
                    .col(text("value"))
                    .col(moment("set_at"))
                    .to_owned(),
            )
            .await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        drop_tables(manager, &["settings"]).await
    }
}
