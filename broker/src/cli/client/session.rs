//! The service that a command calls.

use serde_json::Value;

use super::api::{Api, Document};
use super::connection::{self, ServiceArgs};
use crate::terminal::ending::Ending;
use crate::terminal::text::print_line;

/// The service, and the format in which its replies are shown.
pub(super) struct Session {
    pub(super) api: Api,
    pub(super) json: bool,
    /// Shows nothing: the command prints its own output.
    pub(super) is_silent: bool,
}

impl Session {
    pub(super) fn open(args: &ServiceArgs) -> Result<Self, Ending> {
        let connection = connection::settle(args)?;
        Ok(Self {
            api: Api::new(&connection, args.tenant)?,
            json: args.json,
            is_silent: false,
        })
    }

    /// Shows a reply: the API's JSON for programs, else a text for people.
    pub(super) fn show(
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

    /// Whether a person reads the output.
    pub(super) fn is_for_people(&self) -> bool {
        !self.json && !self.is_silent
    }
}
