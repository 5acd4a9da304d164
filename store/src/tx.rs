//! Write transactions: begun immediately, short, and retried when the database asks for it.

use std::time::Duration;

use sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, EntityTrait as _,
    IsolationLevel, SqliteTransactionMode, Statement, TransactionOptions, TransactionTrait,
};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::entity::commit_marks;
use crate::failure::{hides_outcome, is_passing};
use crate::{Store, StoreError};

/// How often a transaction is attempted before the caller gets the refusal.
const ATTEMPTS: u32 = 8;
/// How long, and how often, the database is asked for the outcome of a COMMIT whose answer was lost.
const INQUIRY: Duration = Duration::from_secs(5);
const INQUIRY_PAUSE: Duration = Duration::from_millis(100);

/// Runs a body in one write transaction: committed when it succeeds, else rolled back.
///
/// `transaction!(store, |tx| body)` is a `Result<T, StoreError>`, as the body is; `?` and `return`
/// in the body end the body. A serialisation failure, a deadlock or a busy database runs it again
/// from the start. It is a macro because the future of an async closure that borrows cannot be
/// shown to be `Send`.
///
/// `transaction!(unmarked store, |tx| body)` leaves no mark for a later question about its outcome: for
/// changes of the schema, and of the table of marks with it.
macro_rules! transaction {
    ($store:expr, |$tx:ident| $body:expr) => {
        transaction!(@ $store, true, |$tx| $body)
    };
    (unmarked $store:expr, |$tx:ident| $body:expr) => {
        transaction!(@ $store, false, |$tx| $body)
    };
    (@ $store:expr, $is_marked:literal, |$tx:ident| $body:expr) => {{
        let mut retry = crate::tx::Retry::default();
        loop {
            let attempt = async {
                let tx = $store.begin_write().await?;
                let $tx = &tx;
                let outcome = async { $body }.await;
                crate::tx::end($store, tx, outcome, $is_marked).await
            };
            let outcome = attempt.await;
            if !retry.pause_after(&outcome).await {
                break outcome;
            }
        }
    }};
}
pub(crate) use transaction;

/// How often a transaction was retried.
#[derive(Default)]
pub(crate) struct Retry {
    attempts: u32,
}

impl Retry {
    /// After an outcome that may be better the next time, waits up to 5, 10, 20 … ms chosen at random and
    /// returns that the caller should retry.
    pub(crate) async fn pause_after<T>(&mut self, outcome: &Result<T, StoreError>) -> bool {
        let transient = outcome.as_ref().is_err_and(StoreError::is_transient);
        if !transient || self.attempts == ATTEMPTS {
            return false;
        }
        let pause_ms = rand::random_range(0..=(5_u64 << self.attempts));
        sleep(Duration::from_millis(pause_ms)).await;
        self.attempts += 1;
        true
    }
}

/// Begins a transaction, in a task of its own that continues when the caller is dropped.
///
/// If the future is dropped during `BEGIN`, the driver for PostgreSQL (sqlx 0.9) returns the connection with
/// an open transaction that nobody ends: it counts a transaction only once it was answered. A transaction
/// that has begun and is no longer wanted is rolled back.
async fn begin(
    db: &DatabaseConnection,
    options: TransactionOptions,
) -> Result<DatabaseTransaction, StoreError> {
    let db = db.clone();
    let begun = tokio::spawn(async move { db.begin_with_options(options).await }).await;
    Ok(begun.map_err(|lost| DbErr::Custom(format!("BEGIN was lost: {lost}")))??)
}

impl Store {
    /// Begins a write transaction.
    pub(crate) async fn begin_write(&self) -> Result<DatabaseTransaction, StoreError> {
        let options = TransactionOptions {
            // A transaction that reads and then writes fails at once on a busy SQLite unless it declares at
            // the start that it will write.
            sqlite_transaction_mode: Some(SqliteTransactionMode::Immediate),
            ..TransactionOptions::default()
        };
        let begun = begin(&self.write, options).await;
        if begun.is_err() && self.write.get_database_backend() == DbBackend::Sqlite {
            // An interrupted BEGIN may have begun without the driver's knowledge. There is one connection,
            // and ROLLBACK is harmless where nothing is open.
            let _ = self.write.execute_unprepared("ROLLBACK").await;
        }
        begun
    }
}

/// Commits a success and rolls back a failure.
///
/// Errors: that of the outcome; [`StoreError::OutcomeUnknown`] when the answer to the COMMIT was lost and the
/// database cannot tell the outcome either.
pub(crate) async fn end<T>(
    store: &Store,
    tx: DatabaseTransaction,
    outcome: Result<T, StoreError>,
    is_marked: bool,
) -> Result<T, StoreError> {
    let value = match outcome {
        Ok(value) => value,
        Err(refusal) => {
            // The caller needs the refusal. A connection whose rollback failed is closed, which rolls back
            // too.
            let _ = tx.rollback().await;
            return Err(refusal);
        }
    };
    let backend = tx.get_database_backend();
    let mark = match (backend, is_marked) {
        (DbBackend::Postgres, true) => leave_mark(&tx).await?,
        _ => None,
    };
    match tx.commit().await {
        Ok(()) => Ok(value),
        Err(error) if hides_outcome(&error, backend) && !is_marked => {
            Err(StoreError::OutcomeUnknown { source: error })
        }
        Err(error) if hides_outcome(&error, backend) => match was_committed(store, mark).await {
            Some(true) => Ok(value),
            Some(false) => Err(StoreError::Unavailable { source: error }),
            None => Err(StoreError::OutcomeUnknown { source: error }),
        },
        Err(error) => Err(error.into()),
    }
}

/// Identifies a transaction after its connection is lost.
struct Mark {
    /// Its row in `commit_marks`.
    id: String,
    /// The server's number for it. After a crash another transaction may get the same.
    number: String,
}

/// Leaves a mark in a transaction that wrote something. A transaction that failed without knowing it fails
/// here: PostgreSQL would answer its COMMIT with a rollback, and no error.
async fn leave_mark(tx: &DatabaseTransaction) -> Result<Option<Mark>, StoreError> {
    let id = Uuid::now_v7().simple().to_string();
    let sql = "INSERT INTO commit_marks (id, at) SELECT $1, now() \
               WHERE pg_current_xact_id_if_assigned() IS NOT NULL \
               RETURNING pg_current_xact_id()::text AS number";
    let left = Statement::from_sql_and_values(DbBackend::Postgres, sql, [id.clone().into()]);
    let Some(row) = tx.query_one_raw(left).await? else {
        return Ok(None);
    };
    let number = row.try_get("", "number")?;
    Ok(Some(Mark { id, number }))
}

/// Whether the mark of a transaction exists once it is over; `None` when the database cannot tell for a
/// while. A transaction without a mark wrote nothing, and counts as committed.
async fn was_committed(store: &Store, mark: Option<Mark>) -> Option<bool> {
    if store.write.get_database_backend() != DbBackend::Postgres {
        return None;
    }
    let Some(mark) = mark else {
        return Some(true);
    };
    let sql = "SELECT pg_xact_status($1::text::xid8) AS status";
    let status = Statement::from_sql_and_values(DbBackend::Postgres, sql, [mark.number.into()]);
    let inquiry = async {
        loop {
            let is_over = match store.write.query_one_raw(status.clone()).await {
                Ok(row) => row
                    .and_then(|row| row.try_get::<Option<String>>("", "status").ok().flatten())
                    .is_none_or(|status| status != "in progress"),
                // A number that the server has not given out: it crashed before it stored the first one.
                Err(refusal) => !is_passing(&refusal),
            };
            let found = commit_marks::Entity::find_by_id(mark.id.clone());
            match found.one(&store.write).await {
                Ok(Some(_)) => return true,
                Ok(None) if is_over => return false,
                // It may be in progress, or the server unreachable.
                _ => sleep(INQUIRY_PAUSE).await,
            }
        }
    };
    timeout(INQUIRY, inquiry).await.ok()
}

/// Makes writers of `table` queue up until the end of the transaction.
///
/// SQLite has one writer anyhow.
pub(crate) async fn queue_writers(
    tx: &DatabaseTransaction,
    table: &'static str,
) -> Result<(), StoreError> {
    if tx.get_database_backend() == DbBackend::Postgres {
        tx.execute_unprepared(&format!("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"))
            .await?;
    }
    Ok(())
}

impl Store {
    /// Begins a read of several statements that all see the same moment. It ends when dropped.
    pub(crate) async fn snapshot(&self) -> Result<DatabaseTransaction, StoreError> {
        // On SQLite every read transaction sees one moment; PostgreSQL needs the isolation level.
        let isolation_level = (self.read.get_database_backend() == DbBackend::Postgres)
            .then_some(IsolationLevel::RepeatableRead);
        let options = TransactionOptions {
            isolation_level,
            ..TransactionOptions::default()
        };
        begin(&self.read, options).await
    }
}
