//! The agent's own binary: `verifier run`, and what goes with it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use verifier::cli::{OrderArgs, RunArgs, print_order, run_on_this_machine};

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
    /// Print the order of a level in JSON, for `run --order` with smaller sizes; larger ones need longer deadlines
    Order(OrderArgs),
    /// Serve one GPU for the agent that started this process
    #[cfg(feature = "cuda")]
    #[command(hide = true)]
    GpuWorker,
}

/// Exit status of a process that panicked, as Rust has it.
#[cfg(feature = "cuda")]
const CRASHED: i32 = 101;

/// Has the process of a GPU say why it panics, and end at once: cudarc panics where an old driver has
/// not the symbol that is called, and nothing that this process holds outlives it.
#[cfg(feature = "cuda")]
fn tell_of_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let why = panic.payload_as_str().unwrap_or("it does not say why");
        // The agent finds the end of the process where it does not get the words.
        let _ = verifier::driver::say_last_words(why, &mut std::io::stdout());
        std::process::exit(CRASHED);
    }));
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Run(args) => ExitCode::from(run_on_this_machine(&args)),
        Command::Order(args) => ExitCode::from(print_order(&args)),
        #[cfg(feature = "cuda")]
        Command::GpuWorker => {
            tell_of_panics();
            match verifier::cuda::serve() {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            }
        }
    }
}
