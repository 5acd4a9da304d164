//! A copy of an embedded database while it is in use.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use sea_orm::{ConnectionTrait as _, DbBackend, Statement};

use crate::{Store, StoreError};

/// Why a database could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The database is on a server, which has programs of its own for this.
    #[error("the database is on PostgreSQL, which is copied by its own pg_dump")]
    NotEmbedded,
    /// The file of the copy exists or cannot be made.
    #[error("the copy cannot be written")]
    File(#[source] io::Error),
    /// The path of the copy is not valid text.
    #[error("the path of the copy is no plain text")]
    Path,
    /// The database refused the copy.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Writes all of an SQLite database, as it stands at one moment, into a new file that only its owner may
    /// read. Writers are not held up meanwhile.
    ///
    /// Errors: [`BackupError`]; the remains of a failed copy are removed.
    pub async fn back_up_to(&self, file: &Path) -> Result<(), BackupError> {
        if self.read.get_database_backend() != DbBackend::Sqlite {
            return Err(BackupError::NotEmbedded);
        }
        let path = file.to_str().ok_or(BackupError::Path)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        // VACUUM INTO accepts an empty file and keeps its permissions.
        options.open(file).map_err(BackupError::File)?;
        let copied = self.copy_into(file, path).await;
        if copied.is_err() {
            // The error is returned already; a failure to remove the remains adds nothing.
            let _ = std::fs::remove_file(file);
        }
        copied
    }

    async fn copy_into(&self, file: &Path, path: &str) -> Result<(), BackupError> {
        let copy =
            Statement::from_sql_and_values(DbBackend::Sqlite, "VACUUM INTO ?", [path.into()]);
        self.write
            .execute_raw(copy)
            .await
            .map_err(StoreError::from)?;
        let written = File::open(file).map_err(BackupError::File)?;
        written.sync_all().map_err(BackupError::File)
    }
}
