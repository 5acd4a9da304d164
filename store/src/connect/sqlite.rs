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

/// Readers of the file.
const READERS: u32 = 4;

/// The writer and the readers of a file, which is made when it is absent.
///
/// Errors: [`StoreError::Unopened`].
pub(super) async fn open(
    path: PathBuf,
) -> Result<(DatabaseConnection, DatabaseConnection), StoreError> {
    let unopened = |why: String| StoreError::Unopened {
        place: format!("the file {}", path.display()),
        why: format!("{why}; look at what is there, and whether this user may write it"),
    };
    keep_private(&path).map_err(|error| unopened(error.to_string()))?;
    let refused = |error: DbErr| unopened(why(error));
    // The writer comes first: it makes the file and sets the journal mode.
    let write = sea_orm::Database::connect(options(path.clone(), false)).await;
    let write = write.map_err(refused)?;
    let read = sea_orm::Database::connect(options(path.clone(), true)).await;
    Ok((write, read.map_err(refused)?))
}

/// Sees to it that only its owner reads the database. SQLite gives the files that it makes beside it
/// the same rights, so they are right before it opens the first.
fn keep_private(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    match options.open(path) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    // None of them is opened here: to close it again would end the locks that this process may have
    // on it by another connection.
    for beside in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(beside);
        match tighten(file.as_ref()) {
            // One that is gone meanwhile needs nothing, and one of another owner is theirs to close.
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

/// Takes from everybody but its owner what rights they have on a file.
fn tighten(file: &Path) -> io::Result<()> {
    let found = fs::metadata(file)?;
    let mut rights = found.permissions();
    if !found.is_file() || rights.mode() & 0o077 == 0 {
        return Ok(());
    }
    rights.set_mode(rights.mode() & !0o077);
    fs::set_permissions(file, rights)
}

/// One writer, because SQLite has one; readers beside it never wait for it (WAL).
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

/// A connection on which a transaction is open when it comes back is closed, and another takes its place.
///
/// SQLite rolls back by itself when the disk is full, and after some other failures
/// (<https://www.sqlite.org/lang_transaction.html>, section 3). Our ROLLBACK fails then, and the driver
/// (sqlx 0.9) goes on counting the transaction as open: the next BEGIN would become a savepoint, and no
/// commit would reach the file again.
fn closing_what_is_open(options: PoolOptions<Sqlite>) -> PoolOptions<Sqlite> {
    options.after_release(|connection, _| Box::pin(is_at_rest(connection)))
}

/// Whether the driver counts no transaction as open.
async fn is_at_rest(connection: &mut SqliteConnection) -> Result<bool, SqlxError> {
    if connection.is_in_transaction() {
        // What was dropped is rolled back before this is answered.
        connection.ping().await?;
    }
    Ok(!connection.is_in_transaction())
}
