//! The commands of the one binary, and their exit status.
//!
//! 0: done. 1: the answer is no (nothing matches, verification failed). 2: wrong input. Errors go to
//! stderr: one sentence, and what to do next.

mod adapters;
mod attestation;
mod audit;
mod backup;
mod bench;
mod candidates;
mod catalogue;
mod client;
mod database;
mod help;
mod hybrid;
mod input;
mod keys;
mod ledger;
mod market;
mod matching;
mod migrate;
mod openapi;
mod own;
mod predict;
mod providers;
mod record;
mod serve;
mod simulator;
mod sweep;
mod token;
mod verifier;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::terminal::aside::complain;
use crate::terminal::ending::Ending;
use crate::tools::demo;

/// A broker for GPU capacity: finds, reserves, verifies and bills it.
///
/// Start with `broker demo`. Exit status: 0 success, 1 negative result or failure, 2 wrong input.
#[derive(Debug, Parser)]
#[command(name = "broker", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::DemoArgs),
    Serve(serve::ServeArgs),
    Match(matching::MatchArgs),
    Gpus(catalogue::GpusArgs),
    Models(catalogue::ModelsArgs),
    /// Predicts the performance of training runs or serving tests; no server, no database.
    Predict {
        #[command(subcommand)]
        command: predict::PredictCommand,
    },
    /// Benchmarks this machine: searches, HTTP calls and plans.
    Bench {
        #[command(subcommand)]
        command: bench::BenchCommand,
    },
    /// Prints the offers that an adapter reads from a recorded reply.
    Adapters {
        #[command(subcommand)]
        command: adapters::AdaptersCommand,
    },
    /// Shows or migrates the schema of the database.
    Migrate(migrate::MigrateArgs),
    /// Prints the OpenAPI document.
    Openapi,
    /// Checks ledger balances against usage, credits and costs.
    Ledger {
        #[command(subcommand)]
        command: ledger::LedgerCommand,
    },
    /// Creates API keys, directly in the database.
    Token {
        #[command(subcommand)]
        command: token::TokenCommand,
    },
    #[command(flatten)]
    Client(Box<client::ClientCommand>),
    /// Lists, rotates or reseals the service's own keys, directly in the database.
    Keys {
        #[command(subcommand)]
        command: keys::KeysCommand,
    },
    /// Verifies a signed attestation of a node; no server, no database.
    Attestation {
        #[command(subcommand)]
        command: attestation::AttestationCommand,
    },
    /// Checks the audit log and replays plans, directly in the database.
    Audit {
        #[command(subcommand)]
        command: audit::AuditCommand,
    },
    /// Lists, connects, checks and disables providers, directly in the database.
    Providers {
        #[command(subcommand)]
        command: Box<providers::ProvidersCommand>,
    },
    Backup(backup::BackupArgs),
    Sweep(sweep::SweepArgs),
    /// Runs a simulated market that several replicas share.
    #[command(hide = true)]
    Simulator {
        #[command(subcommand)]
        command: simulator::SimulatorCommand,
    },
    /// Runs the agent on the reference device, for simulated nodes.
    #[command(hide = true)]
    Verifier {
        #[command(subcommand)]
        command: verifier::VerifierCommand,
    },
}

/// Reads the command line, runs the command, and reports how it ended.
#[must_use]
pub fn run() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => run_command(cli),
        Err(error) => help::show(&error),
    }
}

fn run_command(cli: Cli) -> ExitCode {
    let ended = match cli.command {
        Command::Demo(args) => demo::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Match(args) => matching::run(&args),
        Command::Gpus(args) => catalogue::gpus(&args),
        Command::Models(args) => catalogue::models(&args),
        Command::Predict { command } => predict::run(&command),
        Command::Bench { command } => bench::run(command),
        Command::Adapters { command } => adapters::run(command),
        Command::Migrate(args) => migrate::run(args),
        Command::Openapi => openapi::run(),
        Command::Ledger { command } => ledger::run(command),
        Command::Token { command } => token::run(command),
        Command::Keys { command } => keys::run(command),
        Command::Attestation { command } => attestation::run(command),
        Command::Audit { command } => audit::run(command),
        Command::Providers { command } => providers::run(*command),
        Command::Backup(args) => backup::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Simulator { command } => simulator::run(command),
        Command::Client(command) => client::run(*command, Cli::command),
        Command::Verifier { command } => return verifier::run(command),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Ending::No(why)) => {
            complain(&why);
            ExitCode::from(1)
        }
        Err(Ending::WrongInput(why)) => {
            complain(&why);
            ExitCode::from(2)
        }
        Err(Ending::Broken(error)) => {
            complain(&crate::chain(error.as_ref()));
            ExitCode::from(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The full names of all visible commands that have no subcommands.
    fn leaves(of: &clap::Command, before: &str, found: &mut Vec<(String, bool)>) {
        for command in of.get_subcommands() {
            if command.is_hide_set() || command.get_name() == "help" {
                continue;
            }
            let name = format!("{before} {}", command.get_name());
            if command.has_subcommands() {
                leaves(command, &name, found);
            } else {
                let has_json = command.get_arguments().any(|arg| arg.get_id() == "json");
                found.push((name, has_json));
            }
        }
    }

    #[test]
    fn the_long_help_of_a_command_has_what_its_arguments_say() {
        let mut whole = Cli::command();
        let backup = whole.find_subcommand_mut("backup").expect("a command");
        let help = backup.render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("the key that seals its secrets"), "{help}");
    }

    #[test]
    fn every_command_that_answers_answers_programs_too() {
        // It runs until stopped, prints a document of its own, or prints a script for a shell.
        const WITHOUT: [&str; 4] = [
            "broker serve",
            "broker openapi",
            "broker adapters read",
            "broker completions",
        ];
        let mut whole = Cli::command();
        whole.build();
        let mut found = Vec::new();
        leaves(&whole, "broker", &mut found);
        assert!(found.len() > 35, "{found:?}");
        for (name, has_json) in found {
            assert_ne!(has_json, WITHOUT.contains(&name.as_str()), "{name}: --json");
        }
    }
}
