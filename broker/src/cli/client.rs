//! The client: commands that call a running service over its API, never its database.
//!
//! One file for each noun. Bodies are read as JSON values: their types live beside the handlers, and a
//! client must not fail on an unknown field.

mod access;
mod agent;
mod api;
mod argument;
mod change;
mod commitments;
mod completions;
mod connection;
mod covered;
mod demand;
mod identity;
mod login;
mod offers;
mod plan;
mod problem;
mod profile;
mod projects;
mod quote;
mod recheck;
mod report;
mod reservations;
mod reserve;
mod route;
mod session;
mod sheet;
mod show;
mod ssh_keys;
mod start;
mod stream;
mod watch;

use clap::Subcommand;

pub(super) use self::login::NewProfile;
pub(super) use self::profile::parse_name;
use crate::terminal::ending::{Ending, block_on};

/// The commands of the client.
#[derive(Debug, Subcommand)]
pub(super) enum ClientCommand {
    Login(login::LoginArgs),
    /// Deletes a profile and its key.
    Logout(login::LogoutArgs),
    /// Shows the service in use, and the rights of the key.
    Whoami(login::WhoamiArgs),
    Offers(offers::OffersArgs),
    Plan(plan::PlanArgs),
    Quote(quote::QuoteArgs),
    Reserve(Box<reserve::ReserveArgs>),
    /// Lists reservations, newest first.
    Reservations(reservations::ReservationsArgs),
    Show(show::ShowArgs),
    Confirm(change::ConfirmArgs),
    /// Cancels a reservation before the hand-off, free of charge.
    Cancel(change::CancelArgs),
    /// Releases a reservation in use; billing stops now.
    Release(change::ReleaseArgs),
    /// Extends an active reservation, at the same rate.
    Extend(change::ExtendArgs),
    Watch(watch::WatchArgs),
    Access(access::AccessArgs),
    /// Lists, adds and deletes the public SSH keys to install on machines.
    SshKeys {
        #[command(subcommand)]
        command: ssh_keys::SshKeysCommand,
    },
    /// Lists and creates projects.
    Projects {
        #[command(subcommand)]
        command: projects::ProjectsCommand,
    },
    /// Lists, adds and removes commitments: capacity that you have already paid for.
    Commitments {
        #[command(subcommand)]
        command: commitments::CommitmentsCommand,
    },
    /// Reports costs, and nodes that fail.
    Report {
        #[command(subcommand)]
        command: report::ReportCommand,
    },
    /// Prints a script that rechecks a node in use, once or on a timer.
    Recheck(recheck::RecheckArgs),
    /// Prints the commands that install the verifier on a node.
    Agent(agent::AgentArgs),
    /// Prints the completion script of a shell.
    Completions(completions::CompletionsArgs),
}

/// Runs one command. `whole` is the complete command line, for shell completion.
pub(super) fn run(command: ClientCommand, whole: fn() -> clap::Command) -> Result<(), Ending> {
    use ClientCommand as C;
    block_on(async {
        match command {
            C::Login(args) => login::login(args).await,
            C::Logout(args) => login::logout(&args),
            C::Whoami(args) => login::whoami(args).await,
            C::Offers(args) => offers::run(args).await,
            C::Plan(args) => plan::run(args).await,
            C::Quote(args) => quote::run(args).await,
            C::Reserve(args) => reserve::run(*args).await,
            C::Reservations(args) => reservations::run(args).await,
            C::Show(args) => show::run(args).await,
            C::Confirm(args) => change::confirm(args).await,
            C::Cancel(args) => change::cancel(args).await,
            C::Release(args) => change::release(args).await,
            C::Extend(args) => change::extend(args).await,
            C::Watch(args) => watch::run(args).await,
            C::Access(args) => access::run(args).await,
            C::SshKeys { command } => ssh_keys::run(command).await,
            C::Projects { command } => projects::run(command).await,
            C::Commitments { command } => commitments::run(command).await,
            C::Report { command } => report::run(command).await,
            C::Recheck(args) => recheck::run(args).await,
            C::Agent(args) => agent::run(args).await,
            C::Completions(args) => completions::run(&args, whole()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_client_stands_in_its_guide_with_an_example() {
        let guide = include_str!("../../../docs/client.md");
        let commands = ClientCommand::augment_subcommands(clap::Command::new("broker"));
        let mut names = Vec::new();
        for command in commands.get_subcommands() {
            let name = command.get_name();
            let within = command
                .get_subcommands()
                .map(|sub| format!("{name} {}", sub.get_name()));
            let before = names.len();
            names.extend(within);
            if names.len() == before {
                names.push(name.to_owned());
            }
        }
        assert!(names.len() >= 20, "{names:?}");
        for name in names {
            let typed = format!("\nbroker {name}");
            assert!(
                guide.contains(&typed),
                "`broker {name}` is not in docs/client.md"
            );
        }
    }
}
