//! `broker adapters read NAME --replay FILE|DIR`: the normalised offers of a recorded answer.

use std::path::PathBuf;

use adapters::{Http, registry};
use clap::Subcommand;
use market::ids::ProviderId;

use super::{Ending, block_on};
use crate::clock::{Clock as _, SystemClock};

#[derive(Debug, Subcommand)]
pub(super) enum AdaptersCommand {
    /// Prints what an adapter makes of a recorded answer: `{"offers":[…],"skipped":[…]}`.
    Read {
        /// The provider's id.
        name: String,
        /// The main price answer (a file), or all recorded calls (a directory).
        #[arg(long, value_name = "FILE|DIR")]
        replay: PathBuf,
    },
}

pub(super) fn run(command: AdaptersCommand) -> Result<(), Ending> {
    let AdaptersCommand::Read { name, replay } = command;
    let adapter =
        ProviderId::parse(&name).ok().and_then(|id| registry::by_id(&id)).ok_or_else(|| {
            let known: Vec<_> = registry::all().iter().map(|a| a.profile().id).collect();
            Ending::wrong_input(format!(
                "there is no adapter `{name}`; there are {}",
                known.join(", ")
            ))
        })?;
    let http = Http::replay(&replay).map_err(Ending::wrong_input)?;
    block_on(async {
        let reading = adapter
            .read_catalog(&http, SystemClock.now())
            .await
            .map_err(|error| Ending::wrong_input(crate::chain(&error)))?;
        let offers: Result<Vec<_>, _> = reading.offers.iter().map(|offer| offer.view(1)).collect();
        let answer = serde_json::json!({ "offers": offers?, "skipped": reading.skipped });
        println!("{answer}");
        Ok(())
    })
}
