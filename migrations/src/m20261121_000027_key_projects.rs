//! In which projects an API key works, and in which the key worked that a plan was made with. Keys
//! and plans made before are of the whole tenant.

use sea_orm_migration::prelude::*;

use crate::columns::document_null;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const TABLES: [&str; 2] = ["api_keys", "plans"];
const COLUMN: &str = "projects";

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in TABLES {
            let added = document_null(COLUMN);
            manager
                .alter_table(Table::alter().table(table).add_column(added).to_owned())
                .await?;
        }
        Ok(())
    }

    /// A key of some projects would be one of the whole tenant without the column, so it is revoked.
    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let revoke = "UPDATE api_keys SET revoked_at = created_at \
                      WHERE projects IS NOT NULL AND revoked_at IS NULL";
        manager.get_connection().execute_unprepared(revoke).await?;
        for table in TABLES {
            manager
                .alter_table(Table::alter().table(table).drop_column(COLUMN).to_owned())
                .await?;
        }
        Ok(())
    }
}
