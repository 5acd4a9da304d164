//! The directory of the embedded database: what lies in it, and the one service that runs on it.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::start::StartError;

/// The database.
#[must_use]
pub fn database(dir: &Path) -> PathBuf {
    dir.join("broker.db")
}

/// The key that its secrets are sealed with, where none is configured.
#[must_use]
pub fn sealing_key(dir: &Path) -> PathBuf {
    dir.join("secret.key")
}

/// Makes the directory where there is none. It holds every tenant's rows and the sealing key: nobody
/// else on this machine may read it.
///
/// Errors: [`StartError::File`].
pub(crate) fn make(dir: &Path) -> Result<(), StartError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|source| unusable("the directory", dir, source))
}

/// That no other service runs on a directory, for as long as this is kept. It ends with its process,
/// however that ends.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The lock lasts for as long as the file is open.
    _locked: File,
}

impl Claim {
    /// Claims a directory, which is made when there is none, for a service. Commands that work on its
    /// database beside the service claim nothing.
    ///
    /// Errors: [`StartError::InUse`] while another service has it, [`StartError::File`].
    pub(crate) fn take(dir: &Path) -> Result<Self, StartError> {
        make(dir)?;
        // Not the database itself: SQLite has locks of its own on that, which would end with ours.
        let path = dir.join("serve.lock");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path);
        let file = file.map_err(|source| unusable("the file", &path, source))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _locked: file }),
            Err(TryLockError::WouldBlock) => Err(StartError::InUse { dir: full(dir) }),
            Err(TryLockError::Error(source)) => Err(unusable("the file", &path, source)),
        }
    }
}

/// The path from the root, for those who read it elsewhere.
pub(crate) fn full(path: &Path) -> PathBuf {
    fs::canonicalize(path)
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
}

fn unusable(what: &str, path: &Path, source: io::Error) -> StartError {
    StartError::File {
        what: format!("{what} {}", path.display()),
        source,
    }
}
