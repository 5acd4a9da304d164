//! The terminal of the user, and its width.

use std::sync::atomic::{AtomicBool, Ordering};

use console::Term;

/// The narrowest accepted terminal width.
const NARROWEST: u16 = 20;
/// The width of a terminal that does not report one.
const USUAL: u16 = 80;

/// Whether programs read stdout, and people read stderr.
static ON_STDERR: AtomicBool = AtomicBool::new(false);

/// Reserves stdout for programs from here on: people read stderr, without colours.
pub(crate) fn leave_stdout() {
    ON_STDERR.store(true, Ordering::Relaxed);
}

/// Whether stdout is reserved for programs.
pub(crate) fn is_stdout_left() -> bool {
    ON_STDERR.load(Ordering::Relaxed)
}

/// Whether a person reads stdout, rather than a file or a program.
pub(crate) fn is_stdout_a_terminal() -> bool {
    Term::stdout().is_term()
}

/// The maximum width of output for people: `COLUMNS`, else their terminal; `None` without a terminal, where
/// lines may have any length.
pub(crate) fn columns() -> Option<u16> {
    let terminal = match is_stdout_left() {
        true => Term::stderr(),
        false => Term::stdout(),
    };
    said_columns().or_else(|| columns_of(&terminal))
}

/// The maximum width on stderr. Programs read one sentence a line, so nothing is wrapped without a
/// terminal, even if `COLUMNS` is set.
pub(crate) fn stderr_columns() -> Option<u16> {
    let terminal = columns_of(&Term::stderr())?;
    Some(said_columns().unwrap_or(terminal))
}

fn said_columns() -> Option<u16> {
    let said = std::env::var("COLUMNS").ok()?;
    let said = said.parse().ok()?;
    (said >= NARROWEST).then_some(said)
}

fn columns_of(terminal: &Term) -> Option<u16> {
    let size = terminal.is_term().then(|| terminal.size_checked())?;
    Some(size.map_or(USUAL, |(_, columns)| columns.max(NARROWEST)))
}
