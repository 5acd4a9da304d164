//! The message of a node's next step that was refused because many came at once: what it comes to, and when it
//! was refused first and last, by the database's own clock. Any replica may take it later.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::string_len_null;

use crate::columns::moment_null;

const TABLE: &str = "node_sessions";

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        // SQLite adds one column at a time.
        for column in [
            string_len_null("refused_digest", 64),
            moment_null("refused_first_at"),
            moment_null("refused_last_at"),
        ] {
            let add = Table::alter().table(TABLE).add_column(column).to_owned();
            manager.alter_table(add).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for column in ["refused_last_at", "refused_first_at", "refused_digest"] {
            let drop = Table::alter().table(TABLE).drop_column(column).to_owned();
            manager.alter_table(drop).await?;
        }
        Ok(())
    }
}
