//! The agent's own binary: `verifier run`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use verifier::cli::{RunArgs, run};

/// Verifies the GPUs of this machine
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Verify this node with a broker, or check it on its own
    Run(RunArgs),
}

fn main() -> ExitCode {
    let Command::Run(args) = Arguments::parse().command;
    ExitCode::from(run(&args))
}
