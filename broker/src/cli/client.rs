//! The client: commands that speak to a running service over its API, never to its database.
//!
//! One file a noun. Bodies are read as JSON values: their types stand beside the handlers, and a
//! client must not break over a field that it does not know.

mod access;
mod agent;
mod api;
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
mod sheet;
mod show;
mod ssh_keys;
mod stream;
mod watch;

use std::num::NonZeroU32;

use clap::Subcommand;
use market::demand::check::LONGEST_HOURS;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::api::{Api, Document};
use self::connection::ServiceArgs;
pub(super) use self::login::NewProfile;
pub(super) use self::profile::parse_name;
use super::text::print_line;
use super::{Ending, block_on};

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

pub(super) fn run(command: ClientCommand) -> Result<(), Ending> {
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
            C::Completions(args) => completions::run(&args),
        }
    })
}

/// A service to speak to, and the form in which its answers are shown.
struct Session {
    api: Api,
    json: bool,
    /// Shows nothing: the command prints what it has to say by itself.
    is_silent: bool,
}

impl Session {
    fn open(args: &ServiceArgs) -> Result<Self, Ending> {
        let connection = connection::settle(args)?;
        Ok(Self {
            api: Api::new(&connection, args.tenant)?,
            json: args.json,
            is_silent: false,
        })
    }

    /// Shows an answer: the API's JSON for programs, else what people read.
    fn show(
        &self,
        answer: &Document,
        people: impl FnOnce(&Value) -> Result<(), Ending>,
    ) -> Result<(), Ending> {
        match (self.is_silent, self.json) {
            (true, _) => Ok(()),
            (false, true) => Ok(print_line(answer.text.trim_end())?),
            (false, false) => people(&answer.value),
        }
    }

    /// Whether a person reads along.
    fn is_for_people(&self) -> bool {
        !self.json && !self.is_silent
    }
}

/// Reads a word of the API from the command line, so that a wrong one is refused here already.
fn word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(Value::String(text.to_owned())).map_err(|error| error.to_string())
}

/// Reads for how many hours.
fn hours(text: &str) -> Result<NonZeroU32, String> {
    let hours = text.parse::<NonZeroU32>().ok();
    hours
        .filter(|hours| hours.get() <= LONGEST_HOURS)
        .ok_or_else(|| format!("must be a whole number of hours, 1 to {LONGEST_HOURS} (ten years)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_whole_and_of_ten_years_at_most() {
        assert_eq!(hours("87600").map(NonZeroU32::get), Ok(87_600));
        for bad in ["0", "87601", "1000000", "1.5", "-1", "99999999999", "day"] {
            let why = hours(bad).expect_err("a fault");
            assert_eq!(
                why, "must be a whole number of hours, 1 to 87600 (ten years)",
                "{bad}"
            );
        }
    }

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
