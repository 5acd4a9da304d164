//! What opens the nodes of a lease to the agent that is pushed onto them over SSH, sealed, for as long
//! as its verification is open.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::blob_null;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let add = Table::alter()
            .table("verifications")
            .add_column(blob_null("sealed_push"))
            .to_owned();
        manager.alter_table(add).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let drop = Table::alter()
            .table("verifications")
            .drop_column("sealed_push")
            .to_owned();
        manager.alter_table(drop).await
    }
}
