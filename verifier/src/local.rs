//! A broker in the same process: the whole conversation without a socket.
//!
//! It serves the stand-alone run, and tests, which bring their own entropy and clock.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use market::attestation::Attestation;
use market::ids::AttestationId;
use market::verification::{Fill, MemoryRoots, Openings, ReportSubmission, Roots, Step};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::agent::{Transport, TransportError};
use crate::challenge::{Answered, Judging, Opening, Session, StepError, judge_silence};

/// A broker that verifies one node.
pub struct LocalBroker {
    opening: Opening,
    attestation_id: AttestationId,
    now: Box<dyn FnMut() -> DateTime<Utc> + Send>,
    entropy: Box<dyn FnMut() -> [u8; 32] + Send>,
    timer: Box<dyn Timer>,
    session: Option<Session>,
}

/// Tells how long a node took for each step.
pub trait Timer: Send {
    /// A step's message has come; gives how long it took after the answer before it.
    fn came(&mut self, step: Step) -> Duration;

    /// The answer is made: what that took is none of the node's time.
    fn answered(&mut self) {}
}

/// A given time for each step.
impl<F: FnMut(Step) -> Duration + Send> Timer for F {
    fn came(&mut self, step: Step) -> Duration {
        self(step)
    }
}

/// The time of a clock.
#[derive(Debug)]
pub struct ByClock<N> {
    now: N,
    answered: Instant,
}

impl<N: FnMut() -> Instant> ByClock<N> {
    /// A timer by this clock.
    #[must_use]
    pub fn new(mut now: N) -> Self {
        let answered = now();
        Self { now, answered }
    }
}

impl<N: FnMut() -> Instant + Send> Timer for ByClock<N> {
    fn came(&mut self, _step: Step) -> Duration {
        (self.now)().saturating_duration_since(self.answered)
    }

    fn answered(&mut self) {
        self.answered = (self.now)();
    }
}

impl LocalBroker {
    /// A broker with the system's entropy and the real clock.
    #[must_use]
    pub fn new(opening: Opening, attestation_id: AttestationId) -> Self {
        Self {
            opening,
            attestation_id,
            now: Box::new(Utc::now),
            entropy: Box::new(rand::random),
            timer: Box::new(ByClock::new(Instant::now)),
            session: None,
        }
    }

    /// A broker with given entropy and time, for which it is always as late as it judges.
    #[must_use]
    pub fn with(
        opening: Opening,
        judging: Judging,
        entropy: Box<dyn FnMut() -> [u8; 32] + Send>,
        timer: Box<dyn Timer>,
    ) -> Self {
        Self {
            opening,
            attestation_id: judging.attestation_id,
            now: Box::new(move || judging.now),
            entropy,
            timer,
            session: None,
        }
    }

    /// What the broker knows of the node, once it has committed.
    #[must_use]
    pub const fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// The result, once there is one.
    #[must_use]
    pub fn attestation(&self) -> Option<&Attestation> {
        self.session.as_ref().and_then(Session::attestation)
    }

    /// The result; of a node that stopped answering, what is known of it.
    #[must_use]
    pub fn into_attestation(mut self) -> Attestation {
        let judging = self.judging();
        let over = self.session.map(|session| session.abandon(judging));
        let known = over.as_ref().and_then(Session::attestation).cloned();
        known.unwrap_or_else(|| judge_silence(&self.opening, judging))
    }

    fn judging(&mut self) -> Judging {
        Judging {
            attestation_id: self.attestation_id,
            now: (self.now)(),
        }
    }

    fn answer(&mut self, step: Step, body: &str) -> Result<String, StepError> {
        let elapsed = self.timer.came(step);
        let entropy = (self.entropy)();
        let judging = self.judging();
        let Some(session) = self.session.take() else {
            let commit = serde_json::from_str(body)?;
            let opening = self.opening.clone();
            return self.keep(Session::open(opening, commit, entropy));
        };
        self.session = Some(session.clone());
        match step {
            Step::Commit => self.keep(session.on_commit_again(&serde_json::from_str(body)?)),
            Step::Roots => self.keep(session.on_roots(&read::<Roots>(body)?, entropy, elapsed)),
            Step::Fill => self.keep(session.on_fill(&read::<Fill>(body)?, entropy, elapsed)),
            Step::Memory => self.keep(session.on_memory(&read::<MemoryRoots>(body)?, elapsed)),
            Step::Openings => {
                self.keep(session.on_openings(&read::<Openings>(body)?, entropy, elapsed))
            }
            Step::Report => {
                self.keep(session.on_report(&read::<ReportSubmission>(body)?, judging, elapsed))
            }
        }
    }

    fn keep<R: Serialize>(
        &mut self,
        answered: Result<Answered<R>, StepError>,
    ) -> Result<String, StepError> {
        let Answered { session, reply, .. } = answered?;
        self.session = Some(session);
        self.timer.answered();
        Ok(serde_json::to_string(&reply)?)
    }
}

fn read<Q: DeserializeOwned>(body: &str) -> Result<Q, StepError> {
    Ok(serde_json::from_str(body)?)
}

impl Transport for LocalBroker {
    fn send(&mut self, step: Step, body: &str) -> Result<String, TransportError> {
        self.answer(step, body)
            .map_err(|refusal| TransportError::Refused {
                step,
                status: 409,
                detail: refusal.to_string(),
            })
    }

    fn is_private(&self) -> bool {
        true
    }
}
