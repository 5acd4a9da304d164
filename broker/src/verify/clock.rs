//! The real time between our answer and the next step, on the machine's monotonic clock.
//!
//! It lives in this process only: a conversation that a restart cut in two cannot be timed, and
//! is not gone on with. The node begins it anew.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use market::ids::VerificationId;
use market::verification::AgentKey;

/// Conversations that are timed at once at most; the oldest give way.
const MOST: usize = 100_000;

/// When each conversation was last answered.
#[derive(Debug, Default)]
pub(crate) struct StepClock(Mutex<HashMap<(VerificationId, AgentKey), Instant>>);

impl StepClock {
    /// Notes that an answer goes out now.
    pub(super) fn answered(&self, id: VerificationId, key: &AgentKey) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= MOST
            && let Some(oldest) = answers
                .iter()
                .min_by_key(|(_, at)| **at)
                .map(|(k, _)| k.clone())
        {
            answers.remove(&oldest);
        }
        answers.insert((id, key.clone()), Instant::now());
    }

    /// The time since the last answer; `None` when this process gave none.
    pub(super) fn since_answer(&self, id: VerificationId, key: &AgentKey) -> Option<Duration> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(&(id, key.clone())).map(Instant::elapsed)
    }

    /// The conversation is over.
    pub(super) fn forget(&self, id: VerificationId, key: &AgentKey) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&(id, key.clone()));
    }
}
