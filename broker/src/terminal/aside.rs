//! Messages on stderr beside the answer. Write errors are ignored.

use std::io::Write as _;

use crate::terminal::colour::Colours;
use crate::terminal::screen::stderr_columns;
use crate::terminal::text::{clean, wrapped};

/// Prints on stderr why the command failed.
pub(crate) fn complain(why: &str) {
    tell(&sentence(&Colours::of_stderr().error("error:"), why));
}

/// Prints on stderr a side effect of the command.
pub(crate) fn note(what: &str) {
    tell(&sentence(&Colours::of_stderr().heading("note:"), what));
}

/// Prints on stderr a warning about the input.
pub(crate) fn warn(what: &str) {
    tell(&sentence(&Colours::of_stderr().warning("warning:"), what));
}

/// A first word, perhaps in colour, and a text that cannot control the terminal.
fn sentence(first: &str, text: &str) -> String {
    format!("{first} {}", clean(text))
}

/// Prints a line on stderr that is no part of the answer.
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
