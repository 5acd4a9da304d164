//! How far the nodes of a lease are that are measured together: any replica leads them on.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::integer;

use crate::columns::{document, id, moment, moment_null, one_of, word_null};

const TABLE: &str = "gang_checks";

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::create()
            .table(TABLE)
            .col(id("verification_id").primary_key())
            .col(integer("version"))
            .col(integer("stage"))
            .col(moment("stage_began_at"))
            .col(document("state"))
            .col(word_null("verdict"))
            .col(moment("started_at"))
            .col(moment_null("ended_at"))
            .check(one_of(
                "verdict",
                &["pass", "pass_with_warnings", "fail", "inconclusive"],
            ))
            .foreign_key(
                ForeignKey::create()
                    .from(TABLE, "verification_id")
                    .to("verifications", "id"),
            )
            .to_owned();
        manager.create_table(table).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager
            .drop_table(Table::drop().table(TABLE).to_owned())
            .await
    }
}
