//! What a provider says that it bills for a lease, beside what was quoted for it.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::big_integer_null;

use crate::columns::word_null;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        // One change a statement: SQLite takes no more.
        for mut column in [big_integer_null("price_units"), word_null("price_currency")] {
            let add = Table::alter()
                .table("leases")
                .add_column(&mut column)
                .to_owned();
            manager.alter_table(add).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for column in ["price_currency", "price_units"] {
            let drop = Table::alter()
                .table("leases")
                .drop_column(column)
                .to_owned();
            manager.alter_table(drop).await?;
        }
        Ok(())
    }
}
