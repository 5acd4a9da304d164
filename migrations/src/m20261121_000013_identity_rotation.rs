//! Keys that follow one another, and who made a reservation.
//!
//! A principal is who stands behind a credential: it stays the same when a key is rotated. Keys
//! made before are each a principal of their own.

use sea_orm_migration::prelude::*;

use crate::columns::{id_null, moment_null};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

fn added() -> [(&'static str, ColumnDef); 4] {
    [
        ("signing_keys", moment_null("retired_at")),
        ("api_keys", id_null("principal_id")),
        ("api_keys", id_null("replaced_by")),
        ("reservations", id_null("created_by")),
    ]
}

const ADDED: [(&str, &str); 4] = [
    ("signing_keys", "retired_at"),
    ("api_keys", "principal_id"),
    ("api_keys", "replaced_by"),
    ("reservations", "created_by"),
];

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        // SQLite takes one change of a table at a time.
        for (table, column) in added() {
            manager
                .alter_table(Table::alter().table(table).add_column(column).to_owned())
                .await?;
        }
        manager
            .get_connection()
            .execute_unprepared("UPDATE api_keys SET principal_id = 'prn_' || substr(id, 5)")
            .await?;
        Ok(())
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for (table, column) in ADDED {
            manager
                .alter_table(Table::alter().table(table).drop_column(column).to_owned())
                .await?;
        }
        Ok(())
    }
}
