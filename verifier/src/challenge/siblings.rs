//! What is known of a node beside its own claims: where its provider has it, and what the other nodes of
//! the rental claim, so that no GPU is that of two of them.

use super::Session;
use crate::evidence::Sibling;
use crate::gang::Apart;

impl Session {
    /// The same session, which knows what the other nodes of its rental have claimed so far.
    ///
    /// What two of them show is held against whichever reports last, and against both where both have
    /// said what they have before either reports.
    #[must_use]
    pub fn beside<'a>(mut self, others: impl IntoIterator<Item = &'a Self>) -> Self {
        let node = self.opening.order.node_index;
        let siblings = others.into_iter().map(Self::as_sibling);
        self.evidence.siblings = siblings.filter(|other| other.node != node).collect();
        self
    }

    /// The same session, which knows why its node is not measured with all others of its gang.
    #[must_use]
    pub fn apart(mut self, why: Option<Apart>) -> Self {
        self.evidence.apart = why.map(Apart::finding);
        self
    }

    /// The same session of a node that its provider knows at this address, whatever the agent claims.
    #[must_use]
    pub fn known_at(mut self, host: &str) -> Self {
        self.evidence.known_at = Some(host.to_owned());
        self
    }

    fn as_sibling(&self) -> Sibling {
        let claims = self.evidence.inventory.iter().flat_map(|it| &it.gpus);
        let report = self.evidence.report.as_ref();
        let facts = report
            .filter(|report| report.is_signed())
            .and_then(|report| report.facts.as_deref());
        let boards = facts.into_iter().flat_map(|facts| &facts.gpus);
        Sibling {
            node: self.opening.order.node_index,
            uuids: claims.map(|claim| claim.uuid.clone()).collect(),
            serials: boards.filter_map(|gpu| gpu.serial.clone()).collect(),
        }
    }
}
