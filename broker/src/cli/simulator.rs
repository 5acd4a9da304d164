//! `broker simulator run`: a simulated market in a process of its own, for several replicas.

use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::json;

use super::market::{keep_turning, start_quick};
use super::serve::Stopped;
use crate::platform::stop::Stop;
use crate::terminal::ending::{Ending, block_on};
use crate::terminal::text::print_line;

#[derive(Debug, Subcommand)]
pub(super) enum SimulatorCommand {
    Run(RunArgs),
}

/// Runs a simulated market until Ctrl-C or SIGTERM.
///
/// Prints one JSON object: `market_url` for `broker serve --market`, and the generated `credential` for
/// BROKER__SIMULATION__CREDENTIAL. Its sales are lost when it ends.
#[derive(Debug, Args)]
pub(super) struct RunArgs {}

pub(super) fn run(command: SimulatorCommand) -> Result<(), Ending> {
    let SimulatorCommand::Run(RunArgs {}) = command;
    block_on(async {
        let mut stopped = Stopped::listen()?;
        let market = Arc::new(start_quick().await?);
        let said = json!({
            "market_url": market.control_url(),
            "credential": market.control_credential(),
        });
        print_line(&said.to_string())?;
        tokio::select! {
            () = keep_turning(Arc::clone(&market), Stop::new()) => {}
            () = stopped.wait() => {}
        }
        if let Some(market) = Arc::into_inner(market) {
            market.stop().await;
        }
        Ok(())
    })
}
