//! The caller's clock: every state and every bill follows it. Only two deadlines use real time: that of a
//! node's script, and that of a hanging connection.

use chrono::{DateTime, Utc};

/// The simulator's source of time.
///
/// The broker passes the clock that it uses itself, so that advancing it moves both.
pub trait Clock: Send + Sync {
    /// The present moment.
    fn now(&self) -> DateTime<Utc>;
}
