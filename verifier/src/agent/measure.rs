//! What is measured last, with the time that the report has left.
//!
//! What a GPU does not do in its part of the time is a trouble and nothing more: what needs it is left out
//! from then on, what needs no GPU and what is looked at in the end is done all the same.

use std::time::{Duration, Instant};

use market::verification::{NodeFacts, Step};

use super::{FIRST_LOOK, Known, Work};
use crate::device::{DeviceError, Node};
use crate::probe;

/// Of the time that is left, the part in which the rates must be measured: one of so many.
const RATES_PART: u32 = 2;
/// How long the last look at the GPUs may take where nothing is left: less than is kept back of the step.
const LAST_LOOK: Duration = Duration::from_secs(3);

impl Known {
    /// Looks at GPUs that could be opened, before they are asked for work.
    pub(super) fn look_before_work(&mut self, node: &mut Node) {
        if node.troubles.is_empty() {
            node.set_deadline(Instant::now() + FIRST_LOOK);
            self.failed_at_first = self.look_at_first(node);
        }
    }

    /// Looks at the GPUs before their first work. Gives those that could not be looked at.
    pub(super) fn look_at_first(&mut self, node: &mut Node) -> Vec<DeviceError> {
        let (facts, failed) = probe::facts::before(node);
        self.facts = facts;
        self.observed = Some(Instant::now());
        failed
    }
}

impl Work<'_> {
    pub(super) fn measure(&mut self, began: Instant) {
        let until = began + self.for_gpus(self.order.deadlines.report_ms);
        let mut facts = self.known.facts.take();
        let mut failed = match self.order.recheck {
            // Rates beside the work of others say nothing, and would slow that.
            true => Vec::new(),
            false => self.rates(facts.as_mut(), until),
        };
        if let (Some(facts), Some(observed)) = (&mut facts, self.known.observed) {
            if !self.order.recheck {
                self.together(facts, &mut failed, until);
            }
            // Of what the GPUs may not use there is a little for the last look.
            self.node
                .set_deadline(Instant::now() + left(until) + LAST_LOOK);
            failed.extend(probe::facts::after(self.node, facts, observed.elapsed()));
            if let Some(surroundings) = &mut self.node.surroundings {
                surroundings.after(facts);
            }
        }
        self.known.facts = facts;
        self.tell(&failed);
    }

    /// What the GPUs' counters and their driver say after a trouble, which often is only what came of that.
    pub(super) fn look_once_more(&mut self) {
        self.node.set_deadline(Instant::now() + LAST_LOOK);
        let mut failed = match self.known.facts {
            Some(_) => Vec::new(),
            None => self.known.look_at_first(self.node),
        };
        if let (Some(facts), Some(observed)) = (&mut self.known.facts, self.known.observed) {
            failed.extend(probe::facts::after(self.node, facts, observed.elapsed()));
        }
        self.tell(&failed);
    }

    /// Adds troubles of GPUs that have none yet: what follows a first one is no other.
    fn tell(&mut self, failed: &[DeviceError]) {
        let troubles = &mut self.known.troubles;
        for error in failed {
            if troubles.iter().all(|told| told.gpu != Some(error.gpu)) {
                troubles.push(error.trouble(Step::Report));
            }
        }
    }

    /// The load, what goes from GPU to GPU, storage and the vendor's own diagnostic.
    fn together(&mut self, facts: &mut NodeFacts, failed: &mut Vec<DeviceError>, until: Instant) {
        if failed.is_empty() {
            self.node.set_deadline(until);
            let (nonce, order) = (&self.nonce, &self.order);
            failed.extend(probe::burn::burn(
                self.node,
                facts,
                nonce,
                order,
                left(until),
            ));
        }
        if failed.is_empty() {
            probe::links::measure(self.node, facts, &self.order, left(until));
        }
        probe::storage::measure(self.node, facts, &self.order, left(until));
        if failed.is_empty() {
            failed.extend(self.release(until));
        }
        probe::diagnostic::run(self.node, facts, &self.order, left(until));
    }

    /// Leaves the GPUs' memory to the vendor's diagnostic, which fills it itself.
    fn release(&mut self, until: Instant) -> Vec<DeviceError> {
        self.node.set_deadline(until + LAST_LOOK);
        let nothing = self.nothing();
        let released = self.node.on_all(nothing, |_, device, ()| device.release());
        released.err().unwrap_or_default()
    }

    /// The rates of memory, host links and products.
    fn rates(&mut self, facts: Option<&mut NodeFacts>, until: Instant) -> Vec<DeviceError> {
        self.node
            .set_deadline(Instant::now() + left(until) / RATES_PART);
        let work = &self.order.bandwidth;
        let copied = self
            .node
            .on_all(vec![(); self.node.devices.len()], |_, device, ()| {
                probe::bandwidth::measure(device, work)
            });
        match copied {
            Ok(rates) => self.known.rates = rates,
            Err(errors) => return errors,
        }
        let Some(facts) = facts else {
            return Vec::new();
        };
        let failed = probe::facts::rates(self.node, facts, work);
        match failed.is_empty() {
            true => probe::gemm::rates(self.node, facts, &self.nonce, &self.order),
            false => failed,
        }
    }
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}
