//! What a plan was found in, beside the offers, which the history has: so that it can be found again.
//! Nothing stands there in the rows of releases that kept the answer alone.

use sea_orm_migration::prelude::*;

use crate::columns::document_null;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let add = Table::alter()
            .table("plans")
            .add_column(document_null("decided_from"))
            .to_owned();
        manager.alter_table(add).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let drop = Table::alter()
            .table("plans")
            .drop_column("decided_from")
            .to_owned();
        manager.alter_table(drop).await
    }
}
