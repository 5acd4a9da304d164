//! What pretend nodes of the tests run: `verifier run` as the broker has it, and nothing else. Every node
//! reads and hashes its own program, and the broker's is ten times this size.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use verifier::cli::{RunArgs, run};

#[derive(Parser)]
enum Program {
    Verifier {
        #[command(subcommand)]
        command: Command,
    },
}

#[derive(Subcommand)]
enum Command {
    Run(RunArgs),
}

fn main() -> ExitCode {
    let Program::Verifier {
        command: Command::Run(args),
    } = Program::parse();
    ExitCode::from(run(&args))
}
