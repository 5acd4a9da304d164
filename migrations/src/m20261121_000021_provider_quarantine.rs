//! Providers that are kept from new holds for a while, and why.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::text_null;

use crate::columns::moment_null;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        // One change a statement: SQLite takes no more.
        for mut column in [
            text_null("quarantine_reason"),
            moment_null("quarantined_at"),
            moment_null("quarantined_until"),
        ] {
            let add = Table::alter()
                .table("providers")
                .add_column(&mut column)
                .to_owned();
            manager.alter_table(add).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for column in ["quarantined_until", "quarantined_at", "quarantine_reason"] {
            let drop = Table::alter()
                .table("providers")
                .drop_column(column)
                .to_owned();
            manager.alter_table(drop).await?;
        }
        Ok(())
    }
}
