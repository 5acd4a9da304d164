//! The last measurements, within the time that the report has left.
//!
//! A GPU that does not finish its part in time is a trouble, not the end of the report. Later work that needs
//! it is skipped. Work that needs no GPU and the final look are still done.

use std::time::{Duration, Instant};

use market::verification::{NodeFacts, Step};

use super::{FIRST_LOOK, MeasuredSoFar, Work};
use crate::device::{DeviceError, Node};
use crate::probe;

/// The rates must be measured within one part in this many of the time left.
const RATES_PART: u32 = 2;
/// How long the last look at the GPUs may take where no time is left: less than the step reserves.
const LAST_LOOK: Duration = Duration::from_secs(3);

impl MeasuredSoFar {
    /// Inspects the GPUs that could be opened, before their first work.
    pub(super) fn look_before_work(&mut self, node: &mut Node) {
        if node.troubles.is_empty() {
            node.set_deadline(Instant::now() + FIRST_LOOK);
            self.failed_at_first = self.look_at_first(node);
        }
    }

    /// Inspects the GPUs before their first work. Gives those that could not be inspected.
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
            // Rates measured beside another's work mean nothing, and would slow that work.
            true => Vec::new(),
            false => self.rates(facts.as_mut(), until),
        };
        if let (Some(facts), Some(observed)) = (&mut facts, self.known.observed) {
            if !self.order.recheck {
                self.together(facts, &mut failed, until);
            }
            // The last look may use a little of the time that is reserved from the GPUs.
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

    /// Reads the GPUs' counters and driver after a trouble, which is often only a consequence of what they
    /// show.
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

    /// Adds troubles of GPUs that have none yet: later ones follow from the first.
    fn tell(&mut self, failed: &[DeviceError]) {
        let troubles = &mut self.known.troubles;
        for error in failed {
            if troubles.iter().all(|told| told.gpu != Some(error.gpu)) {
                troubles.push(error.trouble(Step::Report));
            }
        }
    }

    /// The sustained load, transfers between GPUs, storage and the vendor's own diagnostic.
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

    /// Frees the GPUs' memory for the vendor's diagnostic, which fills it itself.
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
