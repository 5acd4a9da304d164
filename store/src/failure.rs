//! The meaning of a database error, by its code: retry at once, try again later, or outcome unknown.
//!
//! Sources: <https://www.postgresql.org/docs/current/errcodes-appendix.html> and
//! <https://www.sqlite.org/rescode.html>.

use sea_orm::{DbBackend, DbErr, RuntimeErr, SqlxError};

/// Whether the same transaction may succeed when it is retried at once: a serialisation failure or deadlock
/// on PostgreSQL (40001, 40P01), a busy or locked SQLite (5, 6, 261, 517).
pub(crate) fn is_transient(error: &DbErr) -> bool {
    matches!(
        code(error).as_deref(),
        Some("40001" | "40P01" | "5" | "6" | "261" | "517")
    )
}

/// Whether the database cannot write or answer now: the connection is lost, or the server, the disk or
/// another transaction prevents it.
pub(crate) fn is_passing(error: &DbErr) -> bool {
    matches!(error, DbErr::ConnectionAcquire(_))
        || is_lost(error)
        || is_transient(error)
        || code(error).is_some_and(|code| {
            is_postgres_passing(&code) || sqlite_primary(&code).is_some_and(is_sqlite_passing)
        })
}

/// Whether the outcome of a COMMIT is unknown after this answer.
///
/// SQLite returns a code at once. After an I/O error (10) the next process that opens the file may find the
/// whole transaction in the write-ahead log, and an interruption (9) may come when all is done.
pub(crate) fn hides_outcome(error: &DbErr, backend: DbBackend) -> bool {
    let code = code(error);
    is_lost(error)
        || code.is_some_and(|code| match backend {
            DbBackend::Postgres => is_going_down(&code),
            _ => matches!(sqlite_primary(&code), Some(9 | 10)),
        })
}

/// Whether the connection is gone, without an answer of the database.
fn is_lost(error: &DbErr) -> bool {
    matches!(
        cause(error),
        Some(
            SqlxError::Io(_)
                | SqlxError::Tls(_)
                | SqlxError::Protocol(_)
                | SqlxError::PoolTimedOut
                | SqlxError::PoolClosed
                | SqlxError::WorkerCrashed
        )
    )
}

/// Class 08, connection exceptions; class 53, no room on the disk, in memory or for a connection;
/// 57P01 to 57P05, the server ends the connection; 58030, an I/O error; 25006, it is a standby now.
fn is_postgres_passing(code: &str) -> bool {
    code.len() == 5
        && (code.starts_with("08")
            || code.starts_with("53")
            || is_going_down(code)
            || matches!(code, "58030" | "25006"))
}

fn is_going_down(code: &str) -> bool {
    code.starts_with("57P0")
}

/// The primary code: the lowest eight bits of an extended one.
fn sqlite_primary(code: &str) -> Option<u32> {
    // PostgreSQL's codes have five characters, SQLite's four at most.
    let code: u32 = code.parse().ok().filter(|_| code.len() < 5)?;
    Some(code & 0xff)
}

/// No memory (7), read-only (8), interrupted (9), an I/O error (10), full (13), not to be opened (14).
fn is_sqlite_passing(primary: u32) -> bool {
    matches!(primary, 7..=10 | 13 | 14)
}

fn code(error: &DbErr) -> Option<String> {
    let SqlxError::Database(refusal) = cause(error)? else {
        return None;
    };
    refusal.code().map(|code| code.into_owned())
}

fn cause(error: &DbErr) -> Option<&SqlxError> {
    match error {
        DbErr::Exec(RuntimeErr::SqlxError(cause))
        | DbErr::Query(RuntimeErr::SqlxError(cause))
        | DbErr::Conn(RuntimeErr::SqlxError(cause)) => Some(cause),
        _ => None,
    }
}
