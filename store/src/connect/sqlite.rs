//! The embedded database: two pools on a file that only its owner reads.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sea_orm::sqlx::Connection as _;
use sea_orm::sqlx::pool::PoolOptions;
use sea_orm::sqlx::sqlite::{Sqlite, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sea_orm::{ConnectOptions, DatabaseConnection, DbErr, SqlxError};

use super::why;
use crate::StoreError;

/// How many readers the file has.
const READERS: u32 = 4;

/// The writer and the readers of a file, which is created when it is absent.
///
/// Errors: [`StoreError::Unopened`].
pub(super) async fn open(
    path: PathBuf,
) -> Result<(DatabaseConnection, DatabaseConnection), StoreError> {
    let unopened = |why: String| StoreError::Unopened {
        place: format!("the file {}", path.display()),
        why: format!("{why}; check what is there, and whether this user may write it"),
    };
    keep_private(&path).map_err(|error| unopened(error.to_string()))?;
    let refused = |error: DbErr| unopened(why(error));
    // The writer comes first: it creates the file and sets the journal mode.
    let write = sea_orm::Database::connect(options(path.clone(), false)).await;
    let write = write.map_err(refused)?;
    let read = sea_orm::Database::connect(options(path.clone(), true)).await;
    Ok((write, read.map_err(refused)?))
}

/// Makes the database readable to its owner only. SQLite gives the files that it creates beside it the same
/// permissions, so they are right before it opens the first.
fn keep_private(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    match options.open(path) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    // It opens none of them: closing one again would release the locks that this process may have on it
    // through another connection.
    for beside in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(beside);
        match tighten(file.as_ref()) {
            // A file that has disappeared needs nothing, and one of another owner is theirs to protect.
            Err(error)
                if !matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::PermissionDenied
                ) =>
            {
                return Err(error);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes all permissions on a file except its owner's.
fn tighten(file: &Path) -> io::Result<()> {
    let found = fs::metadata(file)?;
    let mut rights = found.permissions();
    if !found.is_file() || rights.mode() & 0o077 == 0 {
        return Ok(());
    }
    rights.set_mode(rights.mode() & !0o077);
    fs::set_permissions(file, rights)
}

/// One writer, because SQLite has one; readers never wait for it (WAL).
fn options(path: PathBuf, reader: bool) -> ConnectOptions {
    let mut options = ConnectOptions::new("sqlite://");
    options
        .max_connections(if reader { READERS } else { 1 })
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
        })
        .map_sqlx_sqlite_pool_opts(closing_what_is_open);
    options
}

/// A connection that is returned with an open transaction is closed, and another one replaces it.
///
/// SQLite rolls back by itself when the disk is full, and after some other failures
/// (<https://www.sqlite.org/lang_transaction.html>, section 3). Our ROLLBACK fails then, and the driver (sqlx
/// 0.9) still counts the transaction as open: the next BEGIN would become a savepoint, and no commit would
/// reach the file again.
fn closing_what_is_open(options: PoolOptions<Sqlite>) -> PoolOptions<Sqlite> {
    options.after_release(|connection, _| Box::pin(is_at_rest(connection)))
}

/// Whether the driver counts no transaction as open.
async fn is_at_rest(connection: &mut SqliteConnection) -> Result<bool, SqlxError> {
    if connection.is_in_transaction() {
        // Dropped transactions are rolled back before this is answered.
        connection.ping().await?;
    }
    Ok(!connection.is_in_transaction())
}
