//! When a node's conversation was last answered, by the database's own clock: any replica may take
//! the next step.

use sea_orm_migration::prelude::*;

use crate::columns::moment_null;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let add = Table::alter()
            .table("node_sessions")
            .add_column(moment_null("answered_at"))
            .to_owned();
        manager.alter_table(add).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let drop = Table::alter()
            .table("node_sessions")
            .drop_column("answered_at")
            .to_owned();
        manager.alter_table(drop).await
    }
}
