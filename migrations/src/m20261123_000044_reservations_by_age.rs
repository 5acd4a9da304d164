//! Finds what a tenant placed after some moment.

use sea_orm_migration::prelude::*;

const BY_AGE: &str = "reservations_by_age";

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let index = Index::create()
            .name(BY_AGE)
            .table("reservations")
            .col("tenant_id")
            .col("created_at")
            .to_owned();
        manager.create_index(index).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let index = Index::drop().name(BY_AGE).table("reservations").to_owned();
        manager.drop_index(index).await
    }
}
