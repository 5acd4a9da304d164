//! Opens the database of a command: an existing one, or a new one where that is allowed.

use std::io::ErrorKind;
use std::path::PathBuf;

use clap::Args;
use store::Store;

use crate::platform::config::Config;
use crate::platform::data_dir;
use crate::service::start;
use crate::terminal::aside::note;
use crate::terminal::ending::Ending;

/// The database of a command.
#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// The directory of the embedded database and its key, instead of `.broker`; ignored if
    /// `DATABASE_URL` names a server.
    #[arg(long, value_name = "DIR", global = true)]
    pub(super) data_dir: Option<PathBuf>,
}

/// Opens an existing database, of any schema version: reading never creates one.
///
/// Errors: wrong input if there is none.
pub(super) async fn open_any(config: &Config) -> Result<Store, Ending> {
    if config.database.url.is_none() {
        must_be_there(config)?;
    }
    let store = start::open_store(config).await;
    store.map_err(Ending::cannot_start)
}

fn must_be_there(config: &Config) -> Result<(), Ending> {
    let file = data_dir::database(&config.data_dir);
    let shown = file.display();
    match std::fs::metadata(&file) {
        Ok(found) if found.is_file() => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Ending::wrong_input(
            format!("cannot check for the database {shown}: {error}"),
        )),
        _ => Err(Ending::wrong_input(format!(
            "there is no database at {shown}; name its directory with --data-dir"
        ))),
    }
}

/// Opens an existing database that has the schema of this program.
///
/// Errors: wrong input if there is none or its schema is older.
pub(super) async fn open(config: &Config) -> Result<Store, Ending> {
    let store = open_any(config).await?;
    let changes = store.migration_status().await?;
    if changes.iter().any(|change| !change.applied) {
        return Err(Ending::wrong_input(
            "the schema of the database is older than this program; run `broker migrate up` first",
        ));
    }
    Ok(store)
}

/// Opens the database and migrates its schema. Creates the embedded one if it is missing, and reports
/// that, because it may be the wrong directory.
///
/// Errors: what [`start::open_store`] refuses.
pub(super) async fn open_or_make(config: &Config) -> Result<Store, Ending> {
    let file = data_dir::database(&config.data_dir);
    let is_new = config.database.url.is_none() && !file.exists();
    let store = start::open_store(config).await;
    let store = store.map_err(Ending::cannot_start)?;
    store.migrate_up().await?;
    if is_new {
        note(&format!(
            "created a new database at {}; --data-dir names another directory",
            data_dir::full(&file).display()
        ));
    }
    Ok(store)
}
