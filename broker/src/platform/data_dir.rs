//! The directory of the embedded database: its files, their permissions, and the one service that runs on it.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::platform::secrets::refuse_writable;
use crate::platform::start_error::StartError;

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

/// Makes the directory if it is missing. It holds every tenant's rows and the sealing key: nobody else on
/// this machine may read it. If others could write the directory, they could replace the data.
///
/// Errors: [`StartError::File`], [`StartError::Config`].
pub(crate) fn make(dir: &Path) -> Result<(), StartError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|source| unusable("the directory", dir, source))?;
    Ok(refuse_writable(dir)?)
}

/// Refuses a database that others can write, that is cut short, or that is empty beside the key that
/// sealed its secrets: SQLite would begin a new one in its place.
///
/// It reads the file, so it comes before this process opens the database: to close the file again ends
/// the locks that SQLite has on it.
///
/// Errors: [`StartError::Damaged`], [`StartError::Config`], [`StartError::File`].
pub(crate) fn check(dir: &Path) -> Result<(), StartError> {
    let path = database(dir);
    let log = dir.join("broker.db-wal");
    for file in [&path, &log, &sealing_key(dir)] {
        refuse_writable(file)?;
    }
    let length = |path: &Path| {
        fs::metadata(path)
            .ok()
            .filter(fs::Metadata::is_file)
            .map(|found| found.len())
    };
    let Some(found) = length(&path) else {
        return Ok(());
    };
    let damaged = |what| StartError::Damaged {
        path: full(&path),
        what,
    };
    if found == 0 {
        return match sealing_key(dir).exists() {
            true => Err(damaged("is empty, and its sealing key lies beside it")),
            // A first start that ended at once.
            false => Ok(()),
        };
    }
    if found < HEADER {
        return Err(damaged("is cut short"));
    }
    // The last write, and the length it gave the file, are in the log until that is empty.
    if length(&log).is_some_and(|log| log > 0) {
        return Ok(());
    }
    let mut header = Vec::new();
    File::open(&path)
        .and_then(|file| file.take(HEADER).read_to_end(&mut header))
        .map_err(|source| unusable("the database", &path, source))?;
    match whole_length(&header) {
        // Another process may have written meanwhile.
        Some(whole) if length(&path).is_some_and(|found| found < whole) => {
            Err(damaged("is cut short"))
        }
        _ => Ok(()),
    }
}

/// The header of an SQLite file. Units: bytes.
const HEADER: u64 = 100;

/// The least length of the file with this header; `None` when the header does not state one. Units: bytes.
///
/// Source: SQLite's file format, 1.3: page size at 16, change counter at 24, pages at 28, and at 92
/// the change counter for which that number of pages holds.
fn whole_length(header: &[u8]) -> Option<u64> {
    let number = |at: usize| {
        let bytes = header.get(at..at + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    };
    let page = match number(16)? >> 16 {
        1 => 65_536,
        bytes => bytes,
    };
    let holds = header.starts_with(b"SQLite format 3\0") && number(24)? == number(92)?;
    holds.then_some(u64::from(page) * u64::from(number(28)?))
}

/// That no other service runs on a directory, for as long as this is kept. It ends with its process,
/// however that ends.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The lock lasts for as long as the file is open.
    _locked: File,
}

impl Claim {
    /// Claims a directory, which is made if it is missing, for a service. Commands that work on its database
    /// beside the service claim nothing.
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
