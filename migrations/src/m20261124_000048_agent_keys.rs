//! Every key that an agent has committed, whichever verification it did so in: none is committed twice.

use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{boolean, string_len};

use crate::append_only;
use crate::columns::{id, moment};

const TABLE: &str = "agent_keys";

/// Where nodes of several verifications have committed one key already, it is that of the first.
const KNOWN: &str = "
    INSERT INTO agent_keys (agent_key, verification_id, recheck, committed_at)
    SELECT known.agent_key, known.verification_id, v.recheck_node IS NOT NULL, known.committed_at
    FROM (
        SELECT agent_key, MIN(verification_id) AS verification_id, MIN(started_at) AS committed_at
        FROM (
            SELECT agent_key, verification_id, started_at FROM node_sessions
            UNION ALL
            SELECT agent_key, verification_id, started_at FROM interrupted_sessions
        ) AS spoken
        GROUP BY agent_key
    ) AS known
    JOIN verifications v ON v.id = known.verification_id";

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let table = Table::create()
            .table(TABLE)
            .col(string_len("agent_key", 100).primary_key())
            .col(id("verification_id"))
            .col(boolean("recheck"))
            .col(moment("committed_at"))
            .foreign_key(
                ForeignKey::create()
                    .from(TABLE, "verification_id")
                    .to("verifications", "id"),
            )
            .to_owned();
        manager.create_table(table).await?;
        manager.get_connection().execute_unprepared(KNOWN).await?;
        append_only::protect(manager, TABLE).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager
            .drop_table(Table::drop().table(TABLE).to_owned())
            .await?;
        append_only::forget(manager, TABLE).await
    }
}
