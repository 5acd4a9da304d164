//! The commands of the one binary, and their exit status.
//!
//! 0 done, 1 the answer is no (nothing matches, verification failed), 2 wrong input. Errors go to
//! stderr: one sentence, and what to do next.

mod adapters;
mod matching;
mod migrate;
mod openapi;
mod serve;
mod token;
mod verifier;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::demo;

/// A broker for GPU capacity: finds, reserves, proves and accounts.
#[derive(Debug, Parser)]
#[command(name = "broker", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Tells the whole story on a simulated market; nothing to set up.
    Demo(demo::DemoArgs),
    /// Runs the service.
    Serve(serve::ServeArgs),
    /// Ranks the offers of price lists for a demand; no server, no database.
    Match(matching::MatchArgs),
    /// Reads what an adapter makes of a recorded answer.
    Adapters {
        #[command(subcommand)]
        command: adapters::AdaptersCommand,
    },
    /// Moves the schema of the database.
    Migrate(migrate::MigrateArgs),
    /// Prints the OpenAPI document.
    Openapi,
    /// API keys, written straight to the database.
    Token {
        #[command(subcommand)]
        command: token::TokenCommand,
    },
    /// Runs the agent on the reference device, for simulated nodes.
    #[command(hide = true)]
    Verifier {
        #[command(subcommand)]
        command: verifier::VerifierCommand,
    },
}

/// Which database a command works on.
#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// Where the embedded database is kept.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// How a command ends short of success.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The answer is no: exit status 1.
    No(String),
    /// The input is wrong: exit status 2.
    WrongInput(String),
    /// Something broke: exit status 1, with its causes.
    Broken(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Ending {
    fn from(error: E) -> Self {
        Self::Broken(error.into())
    }
}

impl Ending {
    /// An ending for input that cannot be used.
    pub(crate) fn wrong_input(why: impl std::fmt::Display) -> Self {
        Self::WrongInput(why.to_string())
    }
}

/// Runs the command and says how it ended.
#[must_use]
pub fn run(cli: Cli) -> ExitCode {
    let ended = match cli.command {
        Command::Demo(args) => demo::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Match(args) => matching::run(&args),
        Command::Adapters { command } => adapters::run(command),
        Command::Migrate(args) => migrate::run(args),
        Command::Openapi => openapi::run(),
        Command::Token { command } => token::run(command),
        Command::Verifier { command } => return verifier::run(command),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Ending::No(why)) => {
            eprintln!("{why}");
            ExitCode::from(1)
        }
        Err(Ending::WrongInput(why)) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
        Err(Ending::Broken(error)) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}

/// Runs a command that talks to the database or the network.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Ending>>) -> Result<T, Ending> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}
