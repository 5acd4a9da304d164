//! The agent's own binary: `verifier run`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use verifier::cli::{RunArgs, run_on_this_machine};

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
    /// Measure known-good GPUs, from which floors are made
    #[cfg(feature = "cuda")]
    Calibrate(verifier::calibrate::CalibrateArgs),
    /// Serve one GPU for the agent that started this process
    #[cfg(feature = "cuda")]
    #[command(hide = true)]
    GpuWorker,
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Run(args) => ExitCode::from(run_on_this_machine(&args)),
        #[cfg(feature = "cuda")]
        Command::Calibrate(args) => ExitCode::from(verifier::calibrate::run(&args)),
        #[cfg(feature = "cuda")]
        Command::GpuWorker => match verifier::cuda::serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
    }
}
