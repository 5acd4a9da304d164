//! What is awaited of a node until when, and what becomes of one that falls silent.

use std::time::Duration;

use market::verification::Step;

use super::{Judging, Session, Stage};
use crate::attest::attest;
use crate::evidence::StepTime;

impl Session {
    /// Judges a node that stopped answering. The session is over then.
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

    /// Judges a node that has said nothing for this long since the broker's last answer. As
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

    /// Whether the node may prove itself from the beginning where nobody can say how long it took: not once
    /// it was told what of its products it must open, or it would draw until that suits it.
    #[must_use]
    pub fn may_begin_anew(&self) -> bool {
        self.awaited() == Some(Step::Roots)
    }

    /// How long the broker waits for the awaited step; none when the node was judged.
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

    /// Its own limit, and what the steps before have left of that over all.
    fn deadline_ms(&self, step: Step) -> u64 {
        let deadlines = &self.opening.order.deadlines;
        let taken = self.evidence.times.iter().map(|time| time.elapsed_ms);
        let left = deadlines
            .whole_ms
            .saturating_sub(taken.fold(0, u64::saturating_add));
        let own = match step {
            // The order itself is the answer to step 1; nothing limits it.
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
