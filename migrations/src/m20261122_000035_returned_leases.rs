//! Finds the leases of a provider that went lately.

use sea_orm_migration::prelude::*;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const NAME: &str = "leases_returned";
const TABLE: &str = "leases";

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let mut index = Index::create();
        index.name(NAME).table(TABLE);
        index.col("provider_id").col("gone_at");
        manager.create_index(index).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let index = Index::drop().name(NAME).table(TABLE).to_owned();
        manager.drop_index(index).await
    }
}
