//! Whether an optional server answers at present; logs its loss and its return.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::{info, warn};

/// Open while the server is lost: nobody asks it then but the one who looks whether it is back.
#[derive(Default)]
pub(super) struct Circuit(Mutex<State>);

#[derive(Default)]
struct State {
    reached: bool,
    lost: Option<Lost>,
}

struct Lost {
    /// `None` when it was never reached.
    since: Option<Instant>,
}

impl Circuit {
    /// For how long the server has been lost: `None` while it answers, the longest duration there
    /// is when it never did.
    pub(super) fn lost_for(&self) -> Option<Duration> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = state.lost.as_ref()?;
        Some(lost.since.map_or(Duration::MAX, |since| since.elapsed()))
    }

    /// The server did not answer. The first caller to notice logs it.
    pub(super) fn lose(&self, why: &str) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.lost.is_some() {
            return;
        }
        state.lost = Some(Lost {
            since: state.reached.then(Instant::now),
        });
        crate::platform::metrics::hot_state_lost();
        warn!(
            error = why,
            "Redis does not answer: going on without it, slower; every second it is tried again"
        );
    }

    /// The server answered. The first caller after a loss logs it.
    pub(super) fn find(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.reached = true;
        if state.lost.take().is_some() {
            info!("Redis answers again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_never_answered_is_lost_for_ever_and_one_that_did_since_then() {
        let circuit = Circuit::default();
        assert_eq!(circuit.lost_for(), None, "it is tried first");
        circuit.lose("refused");
        assert_eq!(circuit.lost_for(), Some(Duration::MAX));
        circuit.find();
        assert_eq!(circuit.lost_for(), None);
        circuit.lose("refused");
        assert!(circuit.lost_for() < Some(Duration::from_secs(60)));
    }
}
