//! What is told on stderr beside the answer. Nobody may be listening there.

use std::io::Write as _;

use crate::terminal::colour::Colours;
use crate::terminal::screen::stderr_columns;
use crate::terminal::text::{clean, wrapped};

/// Says on stderr why the exit status is what it is.
pub(crate) fn complain(why: &str) {
    tell(&sentence(&Colours::of_stderr().error("error:"), why));
}

/// Says on stderr what was done beside what was asked for.
pub(crate) fn note(what: &str) {
    tell(&sentence(&Colours::of_stderr().heading("note:"), what));
}

/// Says on stderr what may not be meant.
pub(crate) fn warn(what: &str) {
    tell(&sentence(&Colours::of_stderr().warning("warning:"), what));
}

/// A first word, which may have a colour, and a text behind it that can steer no terminal.
fn sentence(first: &str, text: &str) -> String {
    format!("{first} {}", clean(text))
}

/// Tells on stderr what is no part of the answer.
pub(crate) fn tell(what: &str) {
    let lines = match stderr_columns() {
        Some(columns) => wrapped(columns.into(), what),
        None => what.to_owned(),
    };
    let _ = writeln!(std::io::stderr(), "{lines}");
}

#[cfg(test)]
mod tests {
    use crate::terminal::aside::*;

    #[test]
    fn only_the_first_word_has_a_colour() {
        let first = Colours::ALL.error("error:");
        assert_eq!(
            sentence(&first, "no \u{1b}[31mfile\u{7}"),
            format!("{first} no  [31mfile ")
        );
    }
}
