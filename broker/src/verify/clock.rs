//! The real time between our answer and the next step, on the machine's monotonic clock.
//!
//! It lives in this process only. A step that reaches another replica than the one before, or this
//! one after a restart, is timed by the clock of the database.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use market::ids::VerificationId;
use market::verification::AgentKey;

/// Conversations that are timed at once at most; the oldest give way.
const MOST: usize = 100_000;

/// Which step of each conversation this process answered last, and when.
#[derive(Debug, Default)]
pub(crate) struct StepClock(Mutex<HashMap<(VerificationId, AgentKey), Answer>>);

#[derive(Debug, Clone, Copy)]
struct Answer {
    step: u8,
    at: Instant,
}

impl StepClock {
    /// Notes that the answer to a step goes out now.
    pub(super) fn answered(&self, id: VerificationId, key: &AgentKey, step: u8) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= MOST
            && let Some(oldest) = answers
                .iter()
                .min_by_key(|(_, answer)| answer.at)
                .map(|(k, _)| k.clone())
        {
            answers.remove(&oldest);
        }
        let at = Instant::now();
        answers.insert((id, key.clone()), Answer { step, at });
    }

    /// The time since the answer to a step; `None` when this process did not give it.
    pub(super) fn since_answer(
        &self,
        id: VerificationId,
        key: &AgentKey,
        step: u8,
    ) -> Option<Duration> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = answers.get(&(id, key.clone()))?;
        (answer.step == step).then(|| answer.at.elapsed())
    }

    /// The conversation is over.
    pub(super) fn forget(&self, id: VerificationId, key: &AgentKey) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&(id, key.clone()));
    }
}

/// When the present stage of nodes that are measured together began, where this process began it.
#[derive(Debug, Default)]
pub(crate) struct GangClock(Mutex<HashMap<VerificationId, (u32, Instant)>>);

impl GangClock {
    fn stages(&self) -> MutexGuard<'_, HashMap<VerificationId, (u32, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a stage begins now.
    pub(super) fn began(&self, id: VerificationId, stage: u32) {
        let mut stages = self.stages();
        if stages.len() >= MOST
            && let Some(oldest) = stages
                .iter()
                .min_by_key(|(_, (_, at))| *at)
                .map(|(id, _)| *id)
        {
            stages.remove(&oldest);
        }
        stages.insert(id, (stage, Instant::now()));
    }

    /// How long a stage has lasted; `None` when this process did not begin it.
    pub(super) fn lasted(&self, id: VerificationId, stage: u32) -> Option<Duration> {
        let stages = self.stages();
        let (known, at) = stages.get(&id)?;
        (*known == stage).then(|| at.elapsed())
    }

    /// The measuring is over.
    pub(super) fn forget(&self, id: VerificationId) {
        self.stages().remove(&id);
    }
}
