//! What tenants report of nodes that they have in use: kept as it came, with what followed.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{integer, text_null};

use crate::append_only;
use crate::columns::{document, document_null, id, moment, one_of, word, word_null};

const TABLE: &str = "node_reports";

const VERDICTS: &[&str] = &["pass", "pass_with_warnings", "fail", "inconclusive"];
const FOLLOWS: &[&str] = &["repair", "nothing_failed", "gang", "already", "too_often"];

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::create()
            .table(TABLE)
            .col(id("id").primary_key())
            .col(id("tenant_id"))
            .col(id("reservation_id"))
            .col(id("lease_id"))
            .col(integer("node"))
            .col(id("reported_by"))
            .col(text_null("reason"))
            .col(word_null("verdict"))
            .col(document("failed"))
            .col(document("missing"))
            .col(document_null("result"))
            .col(word("follows"))
            .col(moment("reported_at"))
            .check(one_of("verdict", VERDICTS))
            .check(one_of("follows", FOLLOWS))
            .foreign_key(
                ForeignKey::create()
                    .from(TABLE, "reservation_id")
                    .to("reservations", "id"),
            )
            .foreign_key(
                ForeignKey::create()
                    .from(TABLE, "lease_id")
                    .to("leases", "id"),
            )
            .to_owned();
        manager.create_table(table).await?;
        for (name, column) in [
            ("node_reports_of_reservation", "reservation_id"),
            ("node_reports_of_lease", "lease_id"),
        ] {
            let index = Index::create()
                .name(name)
                .table(TABLE)
                .col(column)
                .to_owned();
            manager.create_index(index).await?;
        }
        append_only::protect(manager, TABLE).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager
            .drop_table(Table::drop().table(TABLE).to_owned())
            .await?;
        append_only::forget(manager, TABLE).await
    }
}
