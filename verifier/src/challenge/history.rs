//! What is kept of the GPUs that a node shows, and what was kept of them before.

use market::attestation::FindingCode;

use super::Session;
use crate::evidence::{History, ShownGpu};
use crate::rules::condemned;

impl Session {
    /// What each GPU of the node shows of itself, as far as it has claimed and signed.
    #[must_use]
    pub fn shown_gpus(&self) -> Vec<ShownGpu> {
        self.evidence.shown_gpus(self.opening.order.expected.gpu)
    }

    /// The same session, which knows what was seen of its GPUs in other leases.
    #[must_use]
    pub fn remembering(mut self, history: History) -> Self {
        self.evidence.history = Some(history);
        self
    }

    /// The same session, which knows the ids of the GPUs that were handed over with the node.
    #[must_use]
    pub fn pinned_to(mut self, handed_over: Vec<String>) -> Self {
        self.evidence.pinned = Some(handed_over);
        self
    }

    /// The failures that put the node's GPUs into quarantine; none while there is no result.
    #[must_use]
    pub fn condemned(&self) -> Vec<FindingCode> {
        let findings = self.attestation().map_or(&[][..], |it| &it.findings);
        condemned(findings)
    }
}
