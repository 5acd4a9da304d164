//! The client: commands that speak to a running service over its API, never to its database.
//!
//! One file a noun. Bodies are read as JSON values: their types stand beside the handlers, and a
//! client must not break over a field that it does not know.

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
mod stream;
mod watch;

use clap::Subcommand;

pub(super) use self::login::NewProfile;
pub(super) use self::profile::parse_name;
use crate::terminal::ending::{Ending, block_on};

/// The commands of the client.
#[derive(Debug, Subcommand)]
pub(super) enum ClientCommand {
    /// Checks an API key against a service, and keeps both as a profile.
    Login(login::LoginArgs),
    /// Forgets a profile and its key.
    Logout(login::LogoutArgs),
    /// Shows which service is spoken to, and what the key allows.
    Whoami(login::WhoamiArgs),
    /// Lists what is sold right now.
    Offers(offers::OffersArgs),
    /// Finds what satisfies a demand, best first, and says why the rest does not.
    Plan(plan::PlanArgs),
    /// Freezes the price of a plan's candidate.
    Quote(quote::QuoteArgs),
    /// Sets capacity aside: from a quote, or in one call from a demand.
    Reserve(reserve::ReserveArgs),
    /// Lists reservations, the newest first.
    Reservations(reservations::ReservationsArgs),
    /// Shows a reservation, quote, plan or offer.
    Show(show::ShowArgs),
    /// Confirms a hold; from the hand-off on it costs money.
    Confirm(change::ConfirmArgs),
    /// Cancels before the hand-off, free of charge.
    Cancel(change::CancelArgs),
    /// Ends what is in use; the charge ends with it.
    Release(change::ReleaseArgs),
    /// Moves the end of an active reservation out, at the same rate.
    Extend(change::ExtendArgs),
    /// Follows a reservation live until it is active or closed.
    Watch(watch::WatchArgs),
    /// Shows how to reach the nodes of a reservation.
    Access(access::AccessArgs),
    /// Lists, adds and deletes the public SSH keys that machines get.
    SshKeys {
        #[command(subcommand)]
        command: ssh_keys::SshKeysCommand,
    },
    /// Lists and makes what reservations and costs are parted into.
    Projects {
        #[command(subcommand)]
        command: projects::ProjectsCommand,
    },
    /// Lists, adds and removes capacity that is paid for already.
    Commitments {
        #[command(subcommand)]
        command: commitments::CommitmentsCommand,
    },
    /// Reports what was charged, and nodes that fail.
    Report {
        #[command(subcommand)]
        command: report::ReportCommand,
    },
    /// Prints the script by which a node in use is looked at again, once or on a timer.
    Recheck(recheck::RecheckArgs),
    /// Prints how a node gets the agent, to check itself by `verifier run`.
    Agent(agent::AgentArgs),
    /// Prints what a shell needs to complete these commands.
    Completions(completions::CompletionsArgs),
}

/// Runs one; `whole` is the whole command line, for the shells to complete.
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
            C::Reserve(args) => reserve::run(args).await,
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
