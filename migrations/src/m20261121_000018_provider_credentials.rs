//! Credentials of providers that an operator enters at run time, sealed.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{blob_null, string_len_null};

use crate::columns::moment_null;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        // One change a statement: SQLite takes no more.
        for mut column in [
            blob_null("sealed_credential"),
            string_len_null("credential_hint", 4),
            moment_null("credential_set_at"),
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
        for column in ["credential_set_at", "credential_hint", "sealed_credential"] {
            let drop = Table::alter()
                .table("providers")
                .drop_column(column)
                .to_owned();
            manager.alter_table(drop).await?;
        }
        Ok(())
    }
}
