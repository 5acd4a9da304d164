//! `broker verifier run`: the agent on the reference device, so that simulated nodes need no second
//! binary. Real nodes run the agent's own file.

use std::process::ExitCode;

use clap::Subcommand;
use verifier::cli::{RunArgs, run as run_agent};

#[derive(Debug, Subcommand)]
pub(super) enum VerifierCommand {
    /// Verifies this node for a broker, or checks it locally.
    Run(RunArgs),
}

pub(super) fn run(command: VerifierCommand) -> ExitCode {
    let VerifierCommand::Run(args) = command;
    ExitCode::from(run_agent(&args))
}
