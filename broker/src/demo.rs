//! `broker demo`: the main job, with nothing to set up.
//!
//! Simulated providers and a price list are read; a training run and a serving fleet are planned,
//! quoted, reserved and verified (one node fails and is replaced), handed off, metered over days
//! that the clock is turned through, released and billed. The story goes to stderr; with `--json`
//! one object goes to stdout as the last line.

mod client;
mod story;
mod summary;
mod tell;
pub mod world;

use std::path::PathBuf;

use clap::Args;

use crate::cli::{Ending, block_on};

pub use summary::{ReservationSummary, Summary, VerificationSummary};

/// How the demo is told.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// End after the story instead of serving on until Ctrl-C.
    #[arg(long)]
    exit: bool,
    /// Print one JSON object as the last line of stdout.
    #[arg(long)]
    json: bool,
    /// The simulator's ids and addresses follow from it.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Price lists to compare with, beside the bundled one.
    #[arg(long, num_args = 1.., value_name = "FILE")]
    pricesheets: Vec<PathBuf>,
    /// Where the service listens; a free port, when nothing is said.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: String,
}

pub(crate) fn run(args: DemoArgs) -> Result<(), Ending> {
    if let Some(missing) = args.pricesheets.iter().find(|file| !file.is_file()) {
        let why = format!("the price list {} is not there", missing.display());
        return Err(Ending::WrongInput(why));
    }
    block_on(async {
        let summary = story::tell(&args).await?;
        if args.json {
            println!("{}", serde_json::to_string(&summary)?);
        }
        Ok(())
    })
}
