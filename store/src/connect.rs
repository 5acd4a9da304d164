//! Opening a database: two pools on SQLite, one on PostgreSQL.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use market::spending::SpendingLimits;
use sea_orm::sqlx::postgres::PgConnectOptions;
use sea_orm::sqlx::sqlite::{SqliteJournalMode, SqliteSynchronous};
use sea_orm::{ConnectOptions, DatabaseConnection, DbErr, RuntimeErr};

use crate::StoreError;
use crate::stock::StockPolicy;

/// Connections kept to PostgreSQL, and readers of an SQLite file.
const PG_CONNECTIONS: u32 = 16;
const SQLITE_READERS: u32 = 4;

/// Which database to open.
#[derive(Clone)]
pub enum Database {
    /// An SQLite file, made when it is absent.
    Sqlite {
        /// Where the file is; its folder exists.
        path: PathBuf,
    },
    /// A PostgreSQL URL such as `postgres://user:password@host/name`.
    Url(String),
}

impl fmt::Debug for Database {
    /// A URL holds a password, so it is not shown.
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
    /// Opens a database. Its schema is whatever it is: see [`Store::migrate_up`].
    ///
    /// Errors: [`StoreError::Database`] when it cannot be reached or opened.
    pub async fn connect(database: Database) -> Result<Self, StoreError> {
        match database {
            Database::Sqlite { path } => {
                // The writer comes first: it makes the file and sets the journal mode.
                let write = sea_orm::Database::connect(sqlite(path.clone(), false)).await?;
                let read = sea_orm::Database::connect(sqlite(path, true)).await?;
                Ok(Self {
                    read,
                    write,
                    stock: StockPolicy::default(),
                    limits: SpendingLimits::default(),
                    #[cfg(feature = "fixture")]
                    gate: crate::fixture::Gate::default(),
                })
            }
            Database::Url(url) => {
                check_url(&url)?;
                let mut options = ConnectOptions::new(url);
                options
                    .max_connections(PG_CONNECTIONS)
                    .test_before_acquire_if_idle_for(Duration::from_secs(30))
                    .sqlx_logging(false);
                let pool = sea_orm::Database::connect(options).await?;
                Ok(Self {
                    read: pool.clone(),
                    write: pool,
                    stock: StockPolicy::default(),
                    limits: SpendingLimits::default(),
                    #[cfg(feature = "fixture")]
                    gate: crate::fixture::Gate::default(),
                })
            }
        }
    }

    /// The same database under another rule about offers whose stock is not counted.
    #[must_use]
    pub fn with_stock_policy(mut self, stock: StockPolicy) -> Self {
        self.stock = stock;
        self
    }

    /// The same database under other limits for tenants that were given none.
    #[must_use]
    pub fn with_default_limits(mut self, limits: SpendingLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The gate before what workers save of their rounds.
    #[cfg(feature = "fixture")]
    #[must_use]
    pub fn gate(&self) -> &crate::fixture::Gate {
        &self.gate
    }

    /// Closes all connections; work under way is finished first.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn close(self) -> Result<(), StoreError> {
        self.read.close().await?;
        // On PostgreSQL this is the same pool, closed already.
        self.write.close().await?;
        Ok(())
    }

    /// Whether the database answers.
    ///
    /// Errors: [`StoreError::Database`] when it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        Ok(self.read.ping().await?)
    }
}

/// Refuses what is no PostgreSQL URL before anyone else does: their words repeat the URL, and with
/// it the password.
fn check_url(url: &str) -> Result<(), StoreError> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let readable = url.parse::<PgConnectOptions>().is_ok();
    if readable && matches!(scheme, "postgres" | "postgresql") {
        return Ok(());
    }
    let why = "its URL is not of the form postgres://user:password@host:port/name".to_owned();
    Err(DbErr::Conn(RuntimeErr::Internal(why)).into())
}

/// One writer, because SQLite has one; readers beside it never wait for it (WAL).
fn sqlite(path: PathBuf, reader: bool) -> ConnectOptions {
    let mut options = ConnectOptions::new("sqlite://");
    options
        .max_connections(if reader { SQLITE_READERS } else { 1 })
        .test_before_acquire_if_idle_for(Duration::from_secs(30))
        .sqlx_logging(false)
        .map_sqlx_sqlite_opts(move |sqlite| {
            let sqlite = sqlite
                .filename(&path)
                .create_if_missing(!reader)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Normal)
                .foreign_keys(true)
                .busy_timeout(Duration::from_secs(10));
            if reader {
                sqlite.pragma("query_only", "ON")
            } else {
                sqlite
            }
        });
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_cannot_be_used_is_refused_without_its_password() {
        for url in [
            "mysql://user:canary@host/name",
            "postgres://user:can ary@host:99999/name",
            "sqlite://file?canary",
            "canary",
        ] {
            let error = check_url(url).expect_err("no PostgreSQL URL");
            let StoreError::Database { source } = error else {
                panic!("{error:?}")
            };
            let words = source.to_string();
            assert!(
                words.contains("postgres://") && !words.contains("ary"),
                "{words}"
            );
        }
        check_url("postgres://user:password@host/name").expect("a usable URL");
    }
}
