//! Limits on the nodes of holds that are not confirmed, and on orders cancelled before their hand-off.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::big_integer_null;

const COLUMNS: [&str; 2] = ["held_nodes", "cancelled_orders"];

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for column in COLUMNS {
            let add = Table::alter()
                .table("spending_limits")
                .add_column(big_integer_null(column))
                .to_owned();
            manager.alter_table(add).await?;
        }
        // A tenant that already had limits of its own gets the default for new tenants.
        let first = Query::update()
            .table("spending_limits")
            .values([("held_nodes", 64.into()), ("cancelled_orders", 5.into())])
            .and_where(Expr::cust("project_id IS NULL"))
            .to_owned();
        manager.execute(first).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for column in COLUMNS {
            let take_back = Table::alter()
                .table("spending_limits")
                .drop_column(column)
                .to_owned();
            manager.alter_table(take_back).await?;
        }
        Ok(())
    }
}
