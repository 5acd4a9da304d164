//! How deeply the nodes of a reservation prove themselves, as it was when the capacity was set aside.
//! Nothing stands there in the rows of releases that knew one depth only.

use sea_orm_migration::prelude::*;

use crate::columns::word_null;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let add = Table::alter()
            .table("reservations")
            .add_column(word_null("verification"))
            .to_owned();
        manager.alter_table(add).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let drop = Table::alter()
            .table("reservations")
            .drop_column("verification")
            .to_owned();
        manager.alter_table(drop).await
    }
}
