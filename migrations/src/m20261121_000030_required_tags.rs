//! The tags and fields that every reservation of a tenant must carry. A tenant of before requires none.

use sea_orm_migration::prelude::*;

use crate::columns::document_null;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let add = Table::alter()
            .table("tenants")
            .add_column(document_null("required_tags"))
            .to_owned();
        manager.alter_table(add).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let drop = Table::alter()
            .table("tenants")
            .drop_column("required_tags")
            .to_owned();
        manager.alter_table(drop).await
    }
}
