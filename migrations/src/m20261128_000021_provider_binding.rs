//! The one provider that an API key of the role `provider` is bound to.

use sea_orm_migration::prelude::*;

use crate::columns::id_null;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let add = Table::alter()
            .table("api_keys")
            .add_column(id_null("provider_id"))
            .to_owned();
        manager.alter_table(add).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let drop = Table::alter()
            .table("api_keys")
            .drop_column("provider_id")
            .to_owned();
        manager.alter_table(drop).await
    }
}
