//! Who made an API key, who may therefore revoke it. Of keys made before, and of those made on the
//! command line, nobody is known.

use sea_orm_migration::prelude::*;

use crate::columns::id_null;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const TABLE: &str = "api_keys";
const COLUMN: &str = "made_by";

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let added = id_null(COLUMN);
        manager
            .alter_table(Table::alter().table(TABLE).add_column(added).to_owned())
            .await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager
            .alter_table(Table::alter().table(TABLE).drop_column(COLUMN).to_owned())
            .await
    }
}
