//! How the story looks on a terminal: headings, one line a fact, tables. It goes to stdout, or to
//! stderr where stdout is for programs. Nobody may be listening: what cannot be written is left out. Nothing
//! in it can steer a terminal.

use std::io::Write as _;

use crate::terminal::colour::Colours;
use crate::terminal::screen::is_stdout_left;
use crate::terminal::table::{MARGIN, fitted_without, table as draw};
use crate::terminal::text::{clean, command as drawn, hanging, line};

/// Begins a chapter, and says what it shows.
pub(super) fn chapter(title: &str, shows: &str) {
    write_line("");
    write_line(&Colours::of_stdout().heading(&hanging("== ", title)));
    say(format!("Shows: {shows}"));
    write_line("");
}

/// Says one thing.
pub(super) fn say(text: impl AsRef<str>) {
    write_line(&hanging("   ", &clean(text.as_ref())));
}

/// Says one of several things.
pub(super) fn say_item(text: &str) {
    write_line(&hanging("   - ", &clean(text)));
}

/// Says one thing that happened at a time of the market's clock.
pub(super) fn say_at(time: &str, text: impl AsRef<str>) {
    let text = clean(text.as_ref());
    write_line(&hanging(&format!("   {time}  "), &text));
}

/// Shows a command to copy.
pub(super) fn command(text: &str) {
    write_line(&drawn("   ", text));
}

/// Shows rows under their headings.
pub(super) fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    for line in draw(headings, rows).lines() {
        write_line(&format!("   {line}"));
    }
}

/// As [`table`], never wider than a text; these columns are left out first, where that makes room.
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
