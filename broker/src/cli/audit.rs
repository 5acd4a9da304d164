//! `broker audit`: whether the audit log is what was written, and whether a plan is what its market
//! gave.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use market::ids::PlanId;

use super::database::open;
use super::record::{tell_replay, write_record};
use crate::cli::database::DatabaseArgs;
use crate::flow::decision::{StoredError, of_stored_plan};
use crate::platform::config::Config;
use crate::terminal::ending::{Ending, block_on};
use crate::terminal::table::table;
use crate::terminal::text::print_line;

#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// Walks every chain of the audit log, and says where one breaks.
    Check(CheckArgs),
    /// Searches once more for a plan, in the market as it was then.
    Replay(ReplayArgs),
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

/// Searches once more for a plan of the service, in the market as it was then; exit status 1 where
/// another one is found.
///
/// The offers come out of the history, and what else decided is kept with the plan: when it was, how
/// providers stood and what was on record of them, what was held, what the tenant had of its own.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// The plan, whosever it is; a quote and a reservation name theirs.
    #[arg(value_name = "PLAN")]
    plan: PlanId,
    /// Also writes the decision record, for `broker match --replay` on another machine.
    #[arg(long, value_name = "FILE.json")]
    record: Option<PathBuf>,
    /// One JSON object, for programs.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) fn run(command: AuditCommand) -> Result<(), Ending> {
    match command {
        AuditCommand::Check(args) => check(&args),
        AuditCommand::Replay(args) => replay(&args),
    }
}

fn replay(args: &ReplayArgs) -> Result<(), Ending> {
    let config = Config::load(args.database.data_dir.as_deref()).map_err(Ending::wrong_input)?;
    let record = block_on(async {
        let store = open(&config).await?;
        let found = of_stored_plan(&store, args.plan).await;
        found.map_err(|error| match error {
            StoredError::Unknown(_) | StoredError::OtherRelease(_) => Ending::wrong_input(error),
            broken => broken.into(),
        })
    })?;
    if let Some(file) = &args.record {
        write_record(file, &record)?;
    }
    tell_replay(&record, args.json)
}

fn check(args: &CheckArgs) -> Result<(), Ending> {
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
