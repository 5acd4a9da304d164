//! Finds the newest plans and quotes of a tenant, so that the surplus can be let go.

use sea_orm_migration::prelude::*;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

/// Name, table and columns.
const INDEXES: [(&str, &str, &[&str]); 2] = [
    ("plans_of_tenant", "plans", &["tenant_id", "created_at"]),
    (
        "quotes_of_tenant",
        "quotes",
        &["tenant_id", "state", "expires_at"],
    ),
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for (name, table, columns) in INDEXES {
            let mut index = Index::create();
            index.name(name).table(table);
            for column in columns {
                index.col(*column);
            }
            manager.create_index(index).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for (name, table, _) in INDEXES {
            let index = Index::drop().name(name).table(table).to_owned();
            manager.drop_index(index).await?;
        }
        Ok(())
    }
}
