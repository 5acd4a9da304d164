//! The layout of the story on a terminal: headings, one line a fact, tables. It goes to stdout, or to stderr
//! if programs read stdout. Write errors are ignored. No text can control the terminal.

use std::io::Write as _;

use crate::terminal::colour::Colours;
use crate::terminal::screen::is_stdout_left;
use crate::terminal::table::{MARGIN, fitted_without, table as draw};
use crate::terminal::text::{clean, command as drawn, hanging, line};

/// Begins a chapter, and prints its subject.
pub(super) fn chapter(title: &str, shows: &str) {
    write_line("");
    write_line(&Colours::of_stdout().heading(&hanging("== ", title)));
    say(format!("Shows: {shows}"));
    write_line("");
}

/// Prints a line of text.
pub(super) fn say(text: impl AsRef<str>) {
    write_line(&hanging("   ", &clean(text.as_ref())));
}

/// Prints one item of a list.
pub(super) fn say_item(text: &str) {
    write_line(&hanging("   - ", &clean(text)));
}

/// Prints an event with the time on the market's clock.
pub(super) fn say_at(time: &str, text: impl AsRef<str>) {
    let text = clean(text.as_ref());
    write_line(&hanging(&format!("   {time}  "), &text));
}

/// Prints a command to copy.
pub(super) fn command(text: &str) {
    write_line(&drawn("   ", text));
}

/// Prints rows under their headings.
pub(super) fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    for line in draw(headings, rows).lines() {
        write_line(&format!("   {line}"));
    }
}

/// As [`table`], never wider than a text; hides these columns first if that makes room.
pub(super) fn table_without(
    headings: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
    spare: &[&str],
) {
    let limit = u16::try_from(line() - MARGIN).ok();
    for line in fitted_without(limit, headings, rows, spare).lines() {
        write_line(&format!("   {line}"));
    }
}

fn write_line(line: &str) {
    let _ = match is_stdout_left() {
        true => writeln!(std::io::stderr(), "{line}"),
        false => writeln!(std::io::stdout(), "{line}"),
    };
}
