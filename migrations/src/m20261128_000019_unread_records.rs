//! A reading with some unreadable records counts for the others, so the time of a provider's last reading is
//! kept apart from that of its last complete one.

use sea_orm_migration::prelude::*;

use crate::columns::moment_null;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let mut read_at = moment_null("last_read_at");
        let add = Table::alter()
            .table("providers")
            .add_column(&mut read_at)
            .to_owned();
        manager.alter_table(add).await?;
        // Until now only complete readings counted.
        let fill = "UPDATE providers SET last_read_at = last_complete_at";
        manager.get_connection().execute_unprepared(fill).await?;
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let drop = Table::alter()
            .table("providers")
            .drop_column("last_read_at")
            .to_owned();
        manager.alter_table(drop).await
    }
}
