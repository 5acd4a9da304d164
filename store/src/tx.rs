//! Write transactions: begun immediately, short, and begun anew when the database asks for it.

use std::time::Duration;

use sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, IsolationLevel,
    SqliteTransactionMode, TransactionOptions, TransactionTrait,
};

use crate::{Store, StoreError};

/// How often a transaction is begun anew before the refusal goes to the caller.
const ATTEMPTS: u32 = 8;

/// Runs a body in one write transaction: committed when it succeeds, else rolled back.
///
/// `transaction!(store, |tx| body)` is a `Result<T, StoreError>`, as the body is; `?` and `return`
/// in the body end the body. A serialisation failure, a deadlock or a busy database runs it again
/// from the start. It is a macro because the future of an async closure that borrows cannot be
/// shown to be `Send`.
macro_rules! transaction {
    ($store:expr, |$tx:ident| $body:expr) => {{
        let mut retry = crate::tx::Retry::default();
        loop {
            let attempt = async {
                let tx = $store.begin_write().await?;
                let $tx = &tx;
                let outcome = async { $body }.await;
                crate::tx::end(tx, outcome).await
            };
            let outcome = attempt.await;
            if !retry.pause_after(&outcome).await {
                break outcome;
            }
        }
    }};
}
pub(crate) use transaction;

/// How often a transaction was begun anew.
#[derive(Default)]
pub(crate) struct Retry {
    attempts: u32,
}

impl Retry {
    /// After an outcome that may well be better the next time, waits up to 5, 10, 20 … ms chosen
    /// at random and says to try again.
    pub(crate) async fn pause_after<T>(&mut self, outcome: &Result<T, StoreError>) -> bool {
        let transient = outcome.as_ref().is_err_and(StoreError::is_transient);
        if !transient || self.attempts == ATTEMPTS {
            return false;
        }
        let pause_ms = rand::random_range(0..=(5_u64 << self.attempts));
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        self.attempts += 1;
        true
    }
}

/// Begins a transaction, in a task of its own that goes on when the caller is dropped.
///
/// Cut off in the middle of `BEGIN`, the driver for PostgreSQL (sqlx 0.9) puts the connection back
/// with a transaction open that nobody ends: it counts a transaction only once it was answered.
/// What is begun to the end and not wanted any more is rolled back.
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
            // A transaction that reads and then writes fails at once on a busy SQLite unless it
            // says beforehand that it will write.
            sqlite_transaction_mode: Some(SqliteTransactionMode::Immediate),
            ..TransactionOptions::default()
        };
        begin(&self.write, options).await
    }
}

/// Commits what succeeded and rolls back what did not.
pub(crate) async fn end<T>(
    tx: DatabaseTransaction,
    outcome: Result<T, StoreError>,
) -> Result<T, StoreError> {
    match outcome {
        Ok(value) => {
            tx.commit().await?;
            Ok(value)
        }
        Err(refusal) => {
            // The refusal is what the caller needs; a failed rollback ends the connection, which
            // rolls back too.
            let _ = tx.rollback().await;
            Err(refusal)
        }
    }
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
        // On SQLite every read transaction sees one moment; PostgreSQL must be told.
        let isolation_level = (self.read.get_database_backend() == DbBackend::Postgres)
            .then_some(IsolationLevel::RepeatableRead);
        let options = TransactionOptions {
            isolation_level,
            ..TransactionOptions::default()
        };
        begin(&self.read, options).await
    }
}
