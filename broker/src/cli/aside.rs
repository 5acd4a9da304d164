//! What is told on stderr beside the answer. Nobody may be listening there.

use std::io::Write as _;

use super::colour::Colours;
use super::terminal::stderr_columns;
use super::text::wrapped;

/// Says on stderr why the exit status is what it is.
pub(super) fn complain(why: &str) {
    tell(&format!("{} {why}", Colours::of_stderr().error("error:")));
}

/// Says on stderr what was done beside what was asked for.
pub(crate) fn note(what: &str) {
    tell(&format!("{} {what}", Colours::of_stderr().heading("note:")));
}

/// Says on stderr what may not be meant.
pub(super) fn warn(what: &str) {
    tell(&format!(
        "{} {what}",
        Colours::of_stderr().warning("warning:")
    ));
}

/// Tells on stderr what is no part of the answer.
pub(super) fn tell(what: &str) {
    let lines = match stderr_columns() {
        Some(columns) => wrapped(columns.into(), what),
        None => what.to_owned(),
    };
    let _ = writeln!(std::io::stderr(), "{lines}");
}
