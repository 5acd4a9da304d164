//! The real time between our answer and the next step, on the machine's monotonic clock.
//!
//! It lives in this process only. A step that reaches another replica than the one before, or this
//! one after a restart, is timed by the clock of the database; so is a large message that another one refused
//! before because many came at once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use market::ids::VerificationId;
use market::verification::{AgentKey, Digest, Step};

/// Conversations that are timed at once at most; the oldest give way.
const MOST: usize = 100_000;

/// A node that was refused must retry within this time: one that does not had other work to do.
pub(super) const AGAIN_WITHIN: Duration = Duration::from_secs(10);

/// Which step of each conversation this process answered last, and since when the next one is timed.
#[derive(Debug, Default)]
pub(crate) struct StepClock(Mutex<HashMap<(VerificationId, AgentKey), Answer>>);

#[derive(Debug, Clone, Copy)]
struct Answer {
    step: u8,
    at: Instant,
    refused: Option<Refused>,
}

/// When the message after an answer came first and last, and was not taken because many came at once.
#[derive(Debug, Clone, Copy)]
struct Refused {
    /// The digest of the message. A later message with another digest is not the one the node had by then.
    digest: Digest,
    first: Instant,
    last: Instant,
}

impl Answer {
    fn first_tried(&self, digest: Digest, now: Instant) -> Instant {
        let refused = self.still_tried(now);
        let refused = refused.filter(|refused| refused.digest == digest);
        refused.map_or(now, |refused| refused.first)
    }

    /// The refused message of a node that keeps trying.
    fn still_tried(&self, now: Instant) -> Option<Refused> {
        let waits = |refused: &Refused| now.duration_since(refused.last) <= AGAIN_WITHIN;
        self.refused.filter(waits)
    }
}

impl StepClock {
    /// Notes that the answer to a step goes out now.
    pub(super) fn answered(&self, id: VerificationId, key: &AgentKey, step: u8) {
        self.note((id, key), step, Instant::now());
    }

    /// Notes that a node that waited may have the answer to step 1 from now on: its time counts from when it
    /// has asked again at the latest, `within` that long.
    pub(super) fn may_ask(&self, id: VerificationId, key: &AgentKey, within: Duration) {
        self.note((id, key), Step::Commit.number(), Instant::now() + within);
    }

    fn note(&self, (id, key): (VerificationId, &AgentKey), step: u8, at: Instant) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= MOST
            && let Some(oldest) = answers
                .iter()
                .min_by_key(|(_, answer)| answer.at)
                .map(|(k, _)| k.clone())
        {
            answers.remove(&oldest);
        }
        let refused = None;
        answers.insert((id, key.clone()), Answer { step, at, refused });
    }

    /// Notes that a message of this step, with this digest, came just now and was not taken because too many
    /// came at once.
    pub(super) fn refused(
        &self,
        (id, key): (VerificationId, &AgentKey),
        (step, digest): (u8, Digest),
        now: Instant,
    ) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = answers.get_mut(&(id, key.clone()));
        if let Some(answer) = answer.filter(|answer| answer.step + 1 == step) {
            answer.refused = Some(Refused {
                digest,
                first: answer.first_tried(digest, now),
                last: now,
            });
        }
    }

    /// When a message of this step came that is taken now: where the very same was refused before, since
    /// then.
    pub(super) fn first_tried(
        &self,
        (id, key): (VerificationId, &AgentKey),
        (step, digest): (u8, Digest),
        now: Instant,
    ) -> Instant {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = answers.get(&(id, key.clone()));
        let answer = answer.filter(|answer| answer.step + 1 == step);
        answer.map_or(now, |answer| answer.first_tried(digest, now))
    }

    /// How long a node has been silent after the answer to a step; `None` when this process did not give it.
    /// For a node that tries and is refused, the time ends at its first try: here, or elsewhere at `until`.
    pub(super) fn silent_since_answer(
        &self,
        (id, key): (VerificationId, &AgentKey),
        (step, until): (u8, Instant),
    ) -> Option<Duration> {
        let answer = self.answer(id, key, step)?;
        let tried = answer.still_tried(Instant::now());
        let until = tried.map_or(until, |refused| refused.first.min(until));
        Some(until.saturating_duration_since(answer.at))
    }

    /// The time from the answer to a step until then; `None` when this process did not give it.
    pub(super) fn answered_for(
        &self,
        id: VerificationId,
        key: &AgentKey,
        (step, until): (u8, Instant),
    ) -> Option<Duration> {
        let answer = self.answer(id, key, step)?;
        Some(until.saturating_duration_since(answer.at))
    }

    /// The answer to a step, where this process gave it last.
    fn answer(&self, id: VerificationId, key: &AgentKey, step: u8) -> Option<Answer> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = answers.get(&(id, key.clone())).copied();
        answer.filter(|answer| answer.step == step)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_was_refused_came_when_it_came_first_if_its_node_kept_on() {
        let clock = StepClock::default();
        let id = VerificationId::from_uuid(uuid::Uuid::from_u128(1));
        let key = |text: &str| text.repeat(43).parse::<AgentKey>().expect("a key");
        let (own, other) = (key("A"), key("B"));
        clock.answered(id, &own, 4);
        clock.answered(id, &other, 4);
        let message = Digest([1; 32]);
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        for seconds in [1, 6, 14] {
            clock.refused((id, &own), (5, message), at(seconds));
        }
        let came = |key, step, now| clock.first_tried((id, key), (step, message), now);
        assert_eq!(came(&own, 5, at(20)), at(1));
        assert_eq!(
            came(&own, 5, at(25)),
            at(25),
            "it did something else meanwhile"
        );
        assert_eq!(came(&own, 6, at(20)), at(20), "another step");
        assert_eq!(came(&other, 5, at(20)), at(20), "another node");
        let later = Digest([2; 32]);
        assert_eq!(
            clock.first_tried((id, &own), (5, later), at(20)),
            at(20),
            "it had another one by then"
        );
        clock.refused((id, &own), (5, message), at(30));
        assert_eq!(came(&own, 5, at(31)), at(30), "it began again");
        clock.answered(id, &own, 5);
        assert_eq!(came(&own, 6, at(31)), at(31));
    }

    #[test]
    fn a_node_that_is_refused_has_been_silent_until_it_tried_first_wherever_that_was() {
        let clock = StepClock::default();
        let id = VerificationId::from_uuid(uuid::Uuid::from_u128(1));
        let key: AgentKey = "A".repeat(43).parse().expect("a key");
        clock.answered(id, &key, 4);
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let silent = |until| clock.silent_since_answer((id, &key), (4, until));
        let seconds = |until| silent(until).expect("its own").as_secs();
        assert_eq!(seconds(at(50)), 50);
        clock.refused((id, &key), (5, Digest([1; 32])), at(20));
        assert_eq!([at(50), at(8)].map(seconds), [20, 8]);
    }

    #[test]
    fn a_node_that_waited_is_timed_from_when_it_has_asked_again_at_the_latest() {
        let clock = StepClock::default();
        let id = VerificationId::from_uuid(uuid::Uuid::from_u128(1));
        let key: AgentKey = "A".repeat(43).parse().expect("a key");
        let within = Duration::from_secs(60);
        let before = Instant::now();
        clock.may_ask(id, &key, within);
        let after = Instant::now();
        let timed = |until| clock.answered_for(id, &key, (1, until)).expect("its own");
        assert_eq!(timed(before + within), Duration::ZERO);
        let second = Duration::from_secs(1);
        assert!(timed(after + within + second) >= second);
        assert!(timed(before + within + second) <= second);
        let silent = clock.silent_since_answer((id, &key), (1, Instant::now()));
        assert_eq!(silent, Some(Duration::ZERO));
    }
}
