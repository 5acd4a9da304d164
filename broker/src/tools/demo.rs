//! `broker demo`: the main job, with nothing to set up.
//!
//! Simulated providers and a price list are read; a training run and a serving fleet are planned,
//! quoted, reserved and verified (one node fails and is replaced), handed off, metered over days
//! that the clock is turned through, released and billed. The story goes to stdout; with `--json`
//! one object goes there as the last line, and the story to stderr.

mod client;
mod show;
mod story;
mod summary;
mod tell;

use std::path::PathBuf;

use adapters::pricesheet;
use clap::Args;

use crate::platform::clock::{Clock as _, SystemClock};
use crate::terminal::ending::{Ending, block_on, listen_at};
use crate::terminal::price_lists::{all_readable, read_sheets};
use crate::terminal::screen::leave_stdout;
use crate::terminal::text::print_line;

pub use summary::{ReservationSummary, Summary, VerificationSummary};

/// Sells and bills on a simulated market, and tells how; nothing to set up.
///
/// Reads three simulated providers and a price list, plans a training run and a serving fleet,
/// reserves both, verifies every node (one fails and is replaced), hands off, lets days pass,
/// releases, and prints the cost report. Nothing is kept.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// End after the story instead of serving on until Ctrl-C.
    #[arg(long)]
    exit: bool,
    /// Print what happened as one JSON object, the last line of stdout.
    #[arg(long)]
    json: bool,
    /// Ids and addresses at the simulated providers follow from it.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Price lists to compare with, beside the bundled one.
    #[arg(long, num_args = 1.., value_name = "FILE.csv")]
    pricesheets: Vec<PathBuf>,
    /// Where the service listens; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS:PORT")]
    listen: String,
}

pub(crate) fn run(args: DemoArgs) -> Result<(), Ending> {
    // Wrong input is told before the story begins; both are opened again by it.
    let sheets = read_sheets(&args.pricesheets)?;
    all_readable(&pricesheet::read_price_sheets(&sheets, SystemClock.now()))?;
    drop(listen_at(&args.listen)?);
    block_on(async {
        if args.json {
            leave_stdout();
        }
        let told = story::tell(&args).await?;
        if args.json {
            print_line(&serde_json::to_string(&told.summary)?)?;
        }
        if !args.exit {
            told.serve_on().await?;
        }
        let fault = told.summary.fault();
        told.close().await;
        fault.map_or(Ok(()), |fault| {
            Err(Ending::No(format!("the demo found a fault: {fault}")))
        })
    })
}
