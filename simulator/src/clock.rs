//! The caller's clock: every state and every bill follows it. Only the deadline of a node's
//! script and of a connection that hangs run on real time.

use chrono::{DateTime, Utc};

/// Where the simulator reads the time.
///
/// The broker passes the clock it uses itself, so that one turn of it moves both.
pub trait Clock: Send + Sync {
    /// The present moment.
    fn now(&self) -> DateTime<Utc>;
}
