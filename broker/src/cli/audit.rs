//! `broker audit`: checks that the audit log is unchanged, and that a plan follows from its market.

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
    Check(CheckArgs),
    Replay(ReplayArgs),
}

/// Verifies every chain of the audit log, and reports where one breaks.
///
/// It prints the end of each chain. Note these ends elsewhere from time to time: only they reveal a
/// chain that was rewritten as a whole.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

/// Computes a plan again, from the market at that time.
///
/// The offers come from the history. The other inputs are stored with the plan: the time, the standing
/// and the recorded facts of providers, the holds, and the tenant's own capacity.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// The plan, of any tenant; quotes and reservations name their plan.
    #[arg(value_name = "PLAN")]
    plan: PlanId,
    /// Also writes the decision record, for `broker match --replay` on another machine.
    #[arg(long, value_name = "FILE.json")]
    record: Option<PathBuf>,
    /// Prints one JSON object.
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
