//! The deadlines of a node's steps, and the judgement of a node that stops answering.

use std::time::Duration;

use market::verification::Step;

use super::{Judging, Session, Stage};
use crate::attest::attest;
use crate::evidence::StepTime;

impl Session {
    /// Judges a node that stopped answering. The session is then over.
    ///
    /// Never a pass: what was not answered was not done.
    #[must_use]
    pub fn abandon(&self, judging: Judging) -> Self {
        let mut next = self.clone();
        if self.attestation().is_none() {
            let attestation = attest(&self.opening, Some(&self.commit), &self.evidence, judging);
            next.stage = Stage::Over {
                attestation: Box::new(attestation),
            };
        }
        next
    }

    /// Judges a node that has sent nothing for this long since the broker's last answer. As
    /// [`Self::abandon`], and a step whose deadline has passed meanwhile was not answered in time.
    #[must_use]
    pub fn fell_silent(&self, silence: Duration, judging: Judging) -> Self {
        let mut silent = self.clone();
        if let (Some(step), Some(deadline)) = (self.awaited(), self.deadline())
            && silence > deadline
        {
            silent.time(step, silence);
        }
        silent.abandon(judging)
    }

    /// The step that the broker waits for; none when the node was judged.
    #[must_use]
    pub fn awaited(&self) -> Option<Step> {
        match self.stage {
            Stage::Roots => Some(Step::Roots),
            Stage::Fill { .. } => Some(Step::Fill),
            Stage::Memory { .. } => Some(Step::Memory),
            Stage::Openings { .. } => Some(Step::Openings),
            Stage::Report { .. } => Some(Step::Report),
            Stage::Over { .. } => None,
        }
    }

    /// Whether the node may start again where nobody can tell how long it took. Not after it learned which
    /// products it must open: it could restart until the draw suits it.
    #[must_use]
    pub fn may_begin_anew(&self) -> bool {
        self.awaited() == Some(Step::Roots)
    }

    /// How long the broker waits for the expected step; none when the node was judged.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.awaited()
            .map(|step| Duration::from_millis(self.deadline_ms(step)))
    }

    pub(super) fn time(&mut self, step: Step, elapsed: Duration) {
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let deadline_ms = self.deadline_ms(step);
        self.evidence.times.push(StepTime {
            step,
            elapsed_ms,
            deadline_ms,
        });
    }

    /// The step's own limit, and what earlier steps have left of the limit over all.
    fn deadline_ms(&self, step: Step) -> u64 {
        let deadlines = &self.opening.order.deadlines;
        let taken = self.evidence.times.iter().map(|time| time.elapsed_ms);
        let left = deadlines
            .whole_ms
            .saturating_sub(taken.fold(0, u64::saturating_add));
        let own = match step {
            // The order itself is the answer to step 1; it has no limit.
            Step::Commit => return u64::MAX,
            Step::Roots => deadlines.roots_ms,
            Step::Fill => deadlines.fill_ms,
            Step::Memory => deadlines.memory_ms,
            Step::Openings => deadlines.openings_ms,
            Step::Report => deadlines.report_ms,
        };
        own.min(left)
    }
}
