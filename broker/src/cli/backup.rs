//! `broker backup`: a copy of the embedded database, taken while the service runs.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use store::backup::BackupError;

use super::database::open;
use crate::cli::database::DatabaseArgs;
use crate::platform::config::Config;
use crate::terminal::ending::{Ending, block_on};
use crate::terminal::text::{print_line, print_text};

/// Backs up the embedded database while the service runs.
///
/// The backup holds the state at one moment, but not the key that seals its secrets: keep that key too,
/// apart from the backup. Back up PostgreSQL with pg_dump. To restore, see docs/backup-and-upgrade.md.
#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    /// The file to write; it must not exist yet.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) fn run(args: &BackupArgs) -> Result<(), Ending> {
    let config = Config::load(args.database.data_dir.as_deref()).map_err(Ending::wrong_input)?;
    if config.database.url.is_some() {
        return Err(Ending::wrong_input(
            "the database is on PostgreSQL; back it up with: pg_dump --format=custom",
        ));
    }
    let bytes = block_on(async {
        let store = open(&config).await?;
        match store.back_up_to(&args.to).await {
            Ok(()) => Ok(std::fs::metadata(&args.to)?.len()),
            Err(failure @ (BackupError::File(_) | BackupError::Path)) => {
                Err(Ending::WrongInput(crate::chain(&failure)))
            }
            Err(failure) => Err(failure.into()),
        }
    })?;
    let key = match (&config.secrets.key, &config.secrets.key_file) {
        (Some(_), _) => "BROKER__SECRETS__KEY".to_owned(),
        (None, Some(file)) => file.display().to_string(),
        (None, None) => config.data_dir.join("secret.key").display().to_string(),
    };
    let copy = args.to.display();
    if args.json {
        let said = json!({ "file": args.to, "size_bytes": bytes, "sealing_key": key });
        return Ok(print_line(&said.to_string())?);
    }
    Ok(print_text(&format!(
        "Copied the database to {copy} ({bytes} bytes). Its secrets are sealed with {key}: keep \
         that key too, apart from the copy. Without it the secrets cannot be opened."
    ))?)
}
