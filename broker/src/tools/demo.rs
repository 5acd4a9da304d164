//! `broker demo`: the whole sale on a simulated market, without any setup.
//!
//! It reads simulated providers and a price list. It plans, quotes, reserves and verifies a training run and
//! a serving fleet; one node fails and is replaced. It hands off, meters over simulated days, releases and
//! bills. The story goes to stdout. With `--json`, one object goes to stdout as the last line, and the story
//! to stderr.

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

/// Sells and bills on a simulated market and explains each step; needs no setup.
///
/// Reads three simulated providers and a price list, plans a training run and a serving fleet,
/// reserves both, verifies every node (one fails and is replaced), hands off, lets days pass,
/// releases, and prints the cost report. Keeps no data.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Ends after the story instead of serving until Ctrl-C.
    #[arg(long)]
    exit: bool,
    /// Prints one JSON object, the result, as the last line of stdout.
    #[arg(long)]
    json: bool,
    /// The seed of the ids and addresses at the simulated providers.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Price lists for comparison, beside the bundled one.
    #[arg(long, num_args = 1.., value_name = "FILE.csv")]
    pricesheets: Vec<PathBuf>,
    /// The address to listen at; port 0 selects a free one.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS:PORT")]
    listen: String,
}

pub(crate) fn run(args: DemoArgs) -> Result<(), Ending> {
    // Wrong input is reported before the story begins; the story opens both again.
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
