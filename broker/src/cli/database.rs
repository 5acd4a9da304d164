//! Opening the database that a command works on: one that is there, or one that may be made.

use std::io::ErrorKind;
use std::path::PathBuf;

use clap::Args;
use store::Store;

use crate::platform::config::Config;
use crate::platform::data_dir;
use crate::service::start;
use crate::terminal::aside::note;
use crate::terminal::ending::Ending;

/// Which database a command works on.
#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// Where the embedded database and its key are kept, in place of `.broker`; without meaning
    /// where `DATABASE_URL` names a server.
    #[arg(long, value_name = "DIR", global = true)]
    pub(super) data_dir: Option<PathBuf>,
}

/// Opens a database that is there already, of whatever schema: nothing is made by looking.
///
/// Errors: wrong input, where there is none.
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
            format!("the database {shown} cannot be looked for: {error}"),
        )),
        _ => Err(Ending::wrong_input(format!(
            "there is no database at {shown}; name its directory with --data-dir"
        ))),
    }
}

/// Opens a database that is there already and has the schema of this program.
///
/// Errors: wrong input, where there is none or its schema is older.
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

/// Opens the database and brings its schema up; the embedded one is made where there is none, and
/// that is said, because it may be the wrong place.
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
            "made a new database at {}; --data-dir names another directory",
            data_dir::full(&file).display()
        ));
    }
    Ok(store)
}
