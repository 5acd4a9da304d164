//! The record of the GPUs that a node shows, and their record from earlier leases.

use market::attestation::FindingCode;

use super::Session;
use crate::evidence::{History, ShownGpu};
use crate::rules::condemned;

impl Session {
    /// Each GPU's claims about itself, as far as the node has claimed and signed them.
    #[must_use]
    pub fn shown_gpus(&self) -> Vec<ShownGpu> {
        self.evidence.shown_gpus(self.opening.order.expected.gpu)
    }

    /// The same session, with earlier sightings of its GPUs in other leases.
    #[must_use]
    pub fn remembering(mut self, history: History) -> Self {
        self.evidence.history = Some(history);
        self
    }

    /// The same session, with the ids of the GPUs that were handed over with the node.
    #[must_use]
    pub fn pinned_to(mut self, handed_over: Vec<String>) -> Self {
        self.evidence.pinned = Some(handed_over);
        self
    }

    /// The failures for which the node's GPUs are quarantined; none while there is no result.
    #[must_use]
    pub fn condemned(&self) -> Vec<FindingCode> {
        let findings = self.attestation().map_or(&[][..], |it| &it.findings);
        condemned(findings)
    }
}
