//! How the story looks on a terminal: headings, one line a fact, tables. It goes to stdout, or to
//! stderr where stdout is for programs. Nobody may be listening: what cannot be written is left out.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cli::table::{hanging, table as draw};

/// Whether stdout is for programs.
static ON_STDERR: AtomicBool = AtomicBool::new(false);

/// Leaves stdout to programs from here on.
pub(super) fn leave_stdout() {
    ON_STDERR.store(true, Ordering::Relaxed);
}

/// Begins a chapter, and says what it shows.
pub(super) fn chapter(title: &str, shows: &str) {
    write_line("");
    write_line(&format!("== {title}"));
    say(format!("Shows: {shows}"));
    write_line("");
}

/// Says one thing.
pub(super) fn say(text: impl AsRef<str>) {
    write_line(&hanging("   ", text.as_ref()));
}

/// Says one of several things.
pub(super) fn say_item(text: &str) {
    write_line(&hanging("   - ", text));
}

/// Says one thing that happened at a time of the market's clock.
pub(super) fn say_at(time: &str, text: impl AsRef<str>) {
    write_line(&hanging(&format!("   {time}  "), text.as_ref()));
}

/// Shows something to copy, in one line however long it is.
pub(super) fn command(text: &str) {
    write_line(&format!("   {text}"));
}

/// Shows rows under their headings.
pub(super) fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    for line in draw(headings, rows).lines() {
        write_line(&format!("   {line}"));
    }
}

fn write_line(line: &str) {
    let _ = match ON_STDERR.load(Ordering::Relaxed) {
        true => writeln!(std::io::stderr(), "{line}"),
        false => writeln!(std::io::stdout(), "{line}"),
    };
}
