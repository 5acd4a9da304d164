//! How a provider's lists report a lease that is missing from them, and machines that came back after their
//! lease was given up.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::string_len_null;

use crate::columns::moment_null;
use crate::tables::create_indexes;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

/// Leases that are missing now.
const MISSING: &str = "leases_missing";
/// Machines that came back.
const RETURNED: &str = "leases_came_back";

fn columns() -> [ColumnDef; 4] {
    [
        // The first of the lists in a row that lack it.
        moment_null("missing_since"),
        // The first of these lists that was neither empty nor halved.
        moment_null("lacked_since"),
        // The credential with which it was last shown, as a mark.
        string_len_null("seen_credential", 16),
        // Since when its machine has been running though the lease is gone.
        moment_null("returned_at"),
    ]
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for column in columns() {
            let add = Table::alter().table("leases").add_column(column).to_owned();
            manager.alter_table(add).await?;
        }
        let indexes = [
            (MISSING, "leases", &["state", "missing_since"][..]),
            (RETURNED, "leases", &["returned_at"][..]),
        ];
        create_indexes(manager, &indexes).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for index in [MISSING, RETURNED] {
            let drop = Index::drop().name(index).table("leases").to_owned();
            manager.drop_index(drop).await?;
        }
        for column in columns() {
            let drop = Table::alter()
                .table("leases")
                .drop_column(column.get_column_name())
                .to_owned();
            manager.alter_table(drop).await?;
        }
        Ok(())
    }
}
