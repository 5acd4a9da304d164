//! Which GPUs were seen in which leases, by their ids and the serial numbers of their boards.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{integer, string_len, string_len_null};

use crate::columns::{document, id, moment};

const TABLE: &str = "gpu_sightings";

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::create()
            .table(TABLE)
            .col(id("lease_id"))
            .col(integer("node_index"))
            .col(string_len("uuid", 128))
            .col(string_len_null("serial", 128))
            .col(string_len("name", 128))
            .col(integer("memory_mib"))
            .col(id("provider_id"))
            .col(id("offer_id"))
            .col(document("failed"))
            .col(moment("first_seen_at"))
            .col(moment("last_seen_at"))
            .primary_key(
                Index::create()
                    .col("lease_id")
                    .col("node_index")
                    .col("uuid"),
            )
            .foreign_key(
                ForeignKey::create()
                    .from(TABLE, "lease_id")
                    .to("leases", "id"),
            )
            .to_owned();
        manager.create_table(table).await?;
        for (name, column) in [
            ("gpu_sightings_by_uuid", "uuid"),
            ("gpu_sightings_by_serial", "serial"),
        ] {
            let index = Index::create()
                .name(name)
                .table(TABLE)
                .col(column)
                .to_owned();
            manager.create_index(index).await?;
        }
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager
            .drop_table(Table::drop().table(TABLE).to_owned())
            .await
    }
}
