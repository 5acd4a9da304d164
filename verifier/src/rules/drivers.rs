//! The driver's libraries as NVIDIA published them: `data/driver_libraries.csv`.
//!
//! The table comes from distribution packages and never from nodes (`driver-libraries.sh`). Packages of
//! several distributions contain the same files, so a version has one of each.

use std::sync::LazyLock;

use market::table;
use market::verification::{Digest, LibraryFacts};
use serde::Deserialize;

const TABLE: &str = include_str!("../../data/driver_libraries.csv");

/// A published library.
#[derive(Debug, Deserialize)]
pub(super) struct Row {
    /// The driver's version, such as `550.163.01`.
    pub(super) version: String,
    /// The name of its file before `.so`.
    pub(super) library: String,
    /// The SHA-256 of the file for x86-64.
    pub(super) sha256: Digest,
}

/// The result of looking up a library that an agent loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Published {
    /// It is the published file.
    Same,
    /// It is another file.
    Another,
    /// The table lacks that version, or the file could not be read.
    Unknown,
}

pub(super) fn rows() -> &'static [Row] {
    static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| table::rows(TABLE));
    &ROWS
}

/// Compares a library with the published one of its version. That is the version in the file's name, since a
/// container may bring a newer library than the kernel's driver, or else the driver's.
pub(super) fn published(loaded: &LibraryFacts, driver: &str) -> Published {
    let name = loaded.path.rsplit('/').next().unwrap_or_default();
    let (library, version) = match name.split_once(".so.") {
        Some((library, version)) if version.contains('.') => (library, version),
        Some((library, _)) => (library, driver),
        None => (name.trim_end_matches(".so"), driver),
    };
    let mut of_version = rows()
        .iter()
        .filter(|row| row.version == version && row.library == library);
    match (of_version.next(), loaded.sha256) {
        (Some(row), Some(sha256)) if row.sha256 == sha256 => Published::Same,
        (Some(_), Some(_)) => Published::Another,
        (None, _) | (_, None) => Published::Unknown,
    }
}
