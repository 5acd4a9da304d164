//! Finds lapsed quotes and old plans, so that they can be let go.

use sea_orm_migration::prelude::*;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

/// Name, table and columns. The last one is also what the database looks in for quotes of a plan
/// that is deleted.
const INDEXES: [(&str, &str, &[&str]); 3] = [
    ("quotes_expiry", "quotes", &["state", "expires_at"]),
    ("plans_age", "plans", &["created_at"]),
    ("quotes_plan", "quotes", &["plan_id"]),
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
