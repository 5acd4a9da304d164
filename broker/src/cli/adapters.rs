//! `broker adapters read NAME --replay FILE|DIR`: the normalised offers of a recorded reply.

use std::path::{Path, PathBuf};

use adapters::{Adapter, Http, pricesheet, registry};
use clap::Subcommand;
use market::catalog::Skipped;
use market::ids::ProviderId;
use market::offer::Offer;

use crate::platform::clock::{Clock as _, SystemClock};
use crate::terminal::ending::{Ending, block_on};
use crate::terminal::price_lists::read_sheets;
use crate::terminal::text::print_line;

/// The reader of price lists. It is no adapter: nothing can be ordered from a list.
const PRICE_SHEET: &str = "pricesheet";

#[derive(Debug, Subcommand)]
pub(super) enum AdaptersCommand {
    /// Prints the offers that an adapter reads from a recorded reply: `{"offers":[…],"skipped":[…]}`.
    Read {
        /// The provider's id, such as `lambda`; or `pricesheet`.
        name: String,
        /// The recorded reply with the prices (a file), or all recorded calls (a directory); for
        /// `pricesheet` a CSV file, or a directory of them.
        #[arg(long, value_name = "FILE|DIR")]
        replay: PathBuf,
    },
}

pub(super) fn run(command: AdaptersCommand) -> Result<(), Ending> {
    let AdaptersCommand::Read { name, replay } = command;
    let (offers, skipped) = if name == PRICE_SHEET {
        let read =
            pricesheet::read_price_sheets(&read_sheets(&sheets_of(&replay)?)?, SystemClock.now());
        (read.offers, read.skipped)
    } else {
        read_recording(adapter(&name)?, &replay)?
    };
    let offers: Result<Vec<_>, _> = offers.iter().map(|offer| offer.view(1)).collect();
    let answer = serde_json::json!({ "offers": offers?, "skipped": skipped });
    Ok(print_line(&answer.to_string())?)
}

fn adapter(name: &str) -> Result<&'static dyn Adapter, Ending> {
    ProviderId::parse(name)
        .ok()
        .and_then(|id| registry::by_id(&id))
        .ok_or_else(|| {
            let mut known: Vec<_> = registry::all().iter().map(|a| a.profile().id).collect();
            known.push(PRICE_SHEET);
            Ending::wrong_input(format!(
                "there is no adapter `{name}`; there are {}",
                known.join(", ")
            ))
        })
}

fn read_recording(
    adapter: &'static dyn Adapter,
    replay: &Path,
) -> Result<(Vec<Offer>, Vec<Skipped>), Ending> {
    let http = Http::replay(replay).map_err(Ending::wrong_input)?;
    block_on(async {
        let reading = adapter
            .read_catalog(&http, SystemClock.now())
            .await
            .map_err(|error| Ending::wrong_input(crate::chain(&error)))?;
        Ok((reading.offers, reading.skipped))
    })
}

/// The file itself, or the CSV files of a directory, sorted by name.
fn sheets_of(replay: &Path) -> Result<Vec<PathBuf>, Ending> {
    if !replay.is_dir() {
        return Ok(vec![replay.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(replay)? {
        files.push(entry?.path());
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "csv"));
    files.sort();
    if files.is_empty() {
        return Err(Ending::wrong_input(format!(
            "there is no CSV file in {}",
            replay.display()
        )));
    }
    Ok(files)
}
