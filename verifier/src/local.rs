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
    judging: Judging,
    entropy: Box<dyn FnMut() -> [u8; 32] + Send>,
    elapsed: Box<dyn FnMut(Step) -> Duration + Send>,
    session: Option<Session>,
}

impl LocalBroker {
    /// A broker with the system's entropy and the real clock.
    #[must_use]
    pub fn new(opening: Opening, attestation_id: AttestationId, now: DateTime<Utc>) -> Self {
        let mut answered = Instant::now();
        let elapsed = move |_| {
            let elapsed = answered.elapsed();
            answered = Instant::now();
            elapsed
        };
        let judging = Judging {
            attestation_id,
            now,
        };
        Self::with(opening, judging, Box::new(rand::random), Box::new(elapsed))
    }

    /// A broker with given entropy and a given time for each step.
    #[must_use]
    pub fn with(
        opening: Opening,
        judging: Judging,
        entropy: Box<dyn FnMut() -> [u8; 32] + Send>,
        elapsed: Box<dyn FnMut(Step) -> Duration + Send>,
    ) -> Self {
        Self {
            opening,
            judging,
            entropy,
            elapsed,
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
    pub fn into_attestation(self) -> Attestation {
        let over = self.session.map(|session| session.abandon(self.judging));
        let known = over.as_ref().and_then(Session::attestation).cloned();
        known.unwrap_or_else(|| judge_silence(&self.opening, self.judging))
    }

    fn answer(&mut self, step: Step, body: &str) -> Result<String, StepError> {
        let (entropy, elapsed) = ((self.entropy)(), (self.elapsed)(step));
        let judging = self.judging;
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
