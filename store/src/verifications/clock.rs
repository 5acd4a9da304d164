//! The time between two steps, by the clock of the database: the one clock that all replicas share.
//!
//! It is read when an answer is stored, before that answer is sent, so the measured time is never less than
//! the node had. The operator of the database can set it; a node cannot.

use std::time::Duration;

use chrono::{DateTime, Utc};
use market::ids::VerificationId;
use sea_orm::{ColumnTrait, ConnectionTrait, DbBackend, EntityTrait, QueryFilter, Statement};

use super::AllVerifications;
use crate::StoreError;
use crate::entity::column::{Moment, Text};
use crate::entity::node_sessions;

impl AllVerifications<'_> {
    /// How long ago the broker, through any replica, last answered a node; `None` where that is not known, or
    /// where the clock was set back meanwhile.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn since_answer(
        &self,
        id: VerificationId,
        agent_key: &str,
    ) -> Result<Option<Duration>, StoreError> {
        use node_sessions::Column;
        let session = node_sessions::Entity::find()
            .filter(Column::VerificationId.eq(Text(id)))
            .filter(Column::AgentKey.eq(agent_key))
            .one(&self.store.read)
            .await?;
        let Some(answered_at) = session.and_then(|session| session.answered_at) else {
            return Ok(None);
        };
        let now = database_time(&self.store.read).await?;
        Ok((now.at() - answered_at.at()).to_std().ok())
    }
}

/// The database's present time, also within a transaction that began earlier.
pub(super) async fn database_time(db: &impl ConnectionTrait) -> Result<Moment, StoreError> {
    let backend = db.get_database_backend();
    let sql = match backend {
        DbBackend::Postgres => "SELECT clock_timestamp() AS now",
        _ => "SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS now",
    };
    let row = db
        .query_one_raw(Statement::from_string(backend, sql))
        .await?
        .ok_or_else(|| StoreError::corrupt("the database does not tell the time"))?;
    let now: DateTime<Utc> = match backend {
        DbBackend::Postgres => row.try_get("", "now")?,
        _ => row
            .try_get::<String>("", "now")?
            .parse()
            .map_err(StoreError::corrupt)?,
    };
    Ok(now.into())
}

/// The database's time this long before a statement began, as an SQL expression, to be stored and compared
/// with stored times. It advances within a transaction.
pub(super) fn moment_sql(backend: DbBackend, ago: Duration) -> String {
    let milliseconds = ago.as_millis();
    match backend {
        DbBackend::Postgres => {
            format!("statement_timestamp() - INTERVAL '{milliseconds} milliseconds'")
        }
        // Text, which sorts in order of time as long as it has one format.
        _ => {
            let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
            format!("strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-{seconds}.{rest:03} seconds')")
        }
    }
}
