//! When a lease fell: what stands in for it is waited for only so long.

use sea_orm_migration::prelude::*;

use crate::columns::moment_null;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let add = Table::alter()
            .table("leases")
            .add_column(moment_null("fell_at"))
            .to_owned();
        manager.alter_table(add).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let drop = Table::alter()
            .table("leases")
            .drop_column("fell_at")
            .to_owned();
        manager.alter_table(drop).await
    }
}
