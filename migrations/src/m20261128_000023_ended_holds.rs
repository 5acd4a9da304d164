//! The ended holds and cancelled orders of a tenant by their times: each hold and each confirm counts the recent
//! ones, however many reservations the tenant has had.

use sea_orm_migration::prelude::*;

use crate::tables::create_indexes;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

const BY_END_OF_HOLD: &str = "reservations_by_end_of_hold";
const BY_REQUESTED_ACTION: &str = "reservations_by_requested_action";

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let indexes = [
            (
                BY_END_OF_HOLD,
                "reservations",
                &["tenant_id", "hold_expires_at"][..],
            ),
            (
                BY_REQUESTED_ACTION,
                "reservations",
                &["tenant_id", "wish_at"][..],
            ),
        ];
        create_indexes(manager, &indexes).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for index in [BY_END_OF_HOLD, BY_REQUESTED_ACTION] {
            let drop = Index::drop().name(index).table("reservations").to_owned();
            manager.drop_index(drop).await?;
        }
        Ok(())
    }
}
