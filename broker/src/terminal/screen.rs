//! The terminal that people read on, and how wide it is.

use std::sync::atomic::{AtomicBool, Ordering};

use console::Term;

/// The narrowest terminal that is believed.
const NARROWEST: u16 = 20;
/// How wide a terminal is that does not say it.
const USUAL: u16 = 80;

/// Whether stdout is for programs, and people read stderr.
static ON_STDERR: AtomicBool = AtomicBool::new(false);

/// Leaves stdout to programs from here on: people read stderr, without colours.
pub(crate) fn leave_stdout() {
    ON_STDERR.store(true, Ordering::Relaxed);
}

/// Whether stdout is left to programs.
pub(crate) fn is_stdout_left() -> bool {
    ON_STDERR.load(Ordering::Relaxed)
}

/// Whether a person reads stdout, rather than a file or a program.
pub(crate) fn is_stdout_a_terminal() -> bool {
    Term::stdout().is_term()
}

/// How wide what people read may be: what `COLUMNS` says, else their terminal; `None` where there is none,
/// and lines may be as long as they like.
pub(crate) fn columns() -> Option<u16> {
    let terminal = match is_stdout_left() {
        true => Term::stderr(),
        false => Term::stdout(),
    };
    said_columns().or_else(|| columns_of(&terminal))
}

/// How wide what is told on stderr may be. Programs read one sentence a line, so `COLUMNS` alone breaks
/// none.
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
