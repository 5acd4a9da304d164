//! `broker audit check`: whether the audit log is what was written.

use clap::{Args, Subcommand};

use super::database::open;
use super::table::{print_line, table};
use super::{DatabaseArgs, Ending, block_on};
use crate::config::Config;

#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// Walks every chain of the audit log, and says where one breaks.
    Check(CheckArgs),
}

/// Walks every chain of the audit log; exit status 1 where one breaks.
///
/// It prints the end of each chain. Note them elsewhere from time to time: a chain that somebody
/// rewrote as a whole is found only by its end.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// One JSON object, for programs.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) fn run(command: AuditCommand) -> Result<(), Ending> {
    let AuditCommand::Check(args) = command;
    let config = Config::load(args.database.data_dir.as_deref()).map_err(Ending::wrong_input)?;
    block_on(async {
        let store = open(&config).await?;
        let ends = store
            .audit()
            .check()
            .await?
            .map_err(|broken| Ending::No(format!("{broken}; restore it from a backup")))?;
        if args.json {
            let line = serde_json::json!({ "chains": ends });
            return Ok(print_line(&line.to_string())?);
        }
        let rows = ends
            .into_iter()
            .map(|end| vec![end.chain, end.entries.to_string(), end.hash]);
        Ok(print_line(&table(
            &["chain", "entries", "hash of the last"],
            rows,
        ))?)
    })
}
