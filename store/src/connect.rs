//! Opens a database: two pools on SQLite, one on PostgreSQL.

mod postgres;
mod sqlite;

use std::fmt;
use std::path::PathBuf;

use market::spending::SpendingLimits;
use sea_orm::{DatabaseConnection, DbErr, RuntimeErr, SqlxError};

use crate::StoreError;
use crate::migrate::refuse_unknown;
use crate::stock::StockPolicy;

/// Which database to open.
#[derive(Clone)]
pub enum Database {
    /// An SQLite file, created when it is absent; only its owner reads it.
    Sqlite {
        /// The path of the file; its folder exists.
        path: PathBuf,
    },
    /// A PostgreSQL URL such as `postgres://user:password@host/name`.
    Url(String),
}

impl fmt::Debug for Database {
    /// A URL contains a password, so it is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite { path } => f.debug_struct("Sqlite").field("path", path).finish(),
            Self::Url(_) => f.write_str("Url(***)"),
        }
    }
}

/// The open database. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) read: DatabaseConnection,
    pub(crate) write: DatabaseConnection,
    pub(crate) stock: StockPolicy,
    pub(crate) limits: SpendingLimits,
    #[cfg(feature = "fixture")]
    pub(crate) gate: crate::fixture::Gate,
}

impl Store {
    /// Opens a database. Its schema may lack changes: see [`Store::migrate_up`].
    ///
    /// Errors: [`StoreError::Unopened`] when it cannot be reached or opened,
    /// [`StoreError::NoPostgresUrl`]; [`StoreError::OlderSchema`] and [`StoreError::NewerSchema`]
    /// when it has a change that this program does not know.
    pub async fn connect(database: Database) -> Result<Self, StoreError> {
        let (write, read) = match database {
            Database::Sqlite { path } => sqlite::open(path).await?,
            Database::Url(url) => {
                let pool = postgres::open(url).await?;
                (pool.clone(), pool)
            }
        };
        if let Err(refusal) = refuse_unknown(&read).await {
            // Only the refusal matters.
            let _ = (read.close().await, write.close().await);
            return Err(refusal);
        }
        #[cfg(feature = "fixture")]
        let (write, read) = (crate::fixture::heard(write), crate::fixture::heard(read));
        Ok(Self {
            read,
            write,
            stock: StockPolicy::default(),
            limits: SpendingLimits::default(),
            #[cfg(feature = "fixture")]
            gate: crate::fixture::Gate::default(),
        })
    }

    /// The same database with another policy for offers without a stock count.
    #[must_use]
    pub fn with_stock_policy(mut self, stock: StockPolicy) -> Self {
        self.stock = stock;
        self
    }

    /// The same database with other limits for tenants without limits of their own.
    #[must_use]
    pub fn with_default_limits(mut self, limits: SpendingLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The gate in front of the saves of workers.
    #[cfg(feature = "fixture")]
    #[must_use]
    pub fn gate(&self) -> &crate::fixture::Gate {
        &self.gate
    }

    /// Closes all connections after the work in progress is finished.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn close(self) -> Result<(), StoreError> {
        self.read.close().await?;
        // On PostgreSQL this is the same pool, which is already closed.
        self.write.close().await?;
        Ok(())
    }
}

/// The reason why a database could not be opened, once: each layer repeats the one below it.
fn why(error: DbErr) -> String {
    match error {
        DbErr::Conn(RuntimeErr::SqlxError(cause))
        | DbErr::Exec(RuntimeErr::SqlxError(cause))
        | DbErr::Query(RuntimeErr::SqlxError(cause)) => words(&cause),
        other => other.to_string(),
    }
}

fn words(error: &SqlxError) -> String {
    match error {
        SqlxError::Database(refusal) => refusal.message().to_owned(),
        SqlxError::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}
