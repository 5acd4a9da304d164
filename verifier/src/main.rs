//! The agent's own binary: `verifier run`, and its related commands.

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

/// The exit status of a Rust process that panicked.
#[cfg(feature = "cuda")]
const CRASHED: i32 = 101;

/// Has the process of a GPU report why it panics, and end at once. cudarc panics where an old driver lacks
/// the called symbol, and no resource of this process outlives it.
#[cfg(feature = "cuda")]
fn tell_of_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let why = panic.payload_as_str().unwrap_or("it gives no reason");
        // Where the agent does not get the message, it sees the end of the process.
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
