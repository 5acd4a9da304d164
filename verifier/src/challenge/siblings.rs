//! Facts about a node beyond its own claims: its address at the provider, and the claims of the rental's
//! other nodes. They show a GPU that two nodes claim.

use super::Session;
use crate::evidence::Sibling;
use crate::gang::Apart;

impl Session {
    /// The same session, with the claims of the rental's other nodes so far.
    ///
    /// A GPU that two nodes show counts against the one that reports last. It counts against both where both
    /// claimed it before either reported.
    #[must_use]
    pub fn beside<'a>(mut self, others: impl IntoIterator<Item = &'a Self>) -> Self {
        let node = self.opening.order.node_index;
        let siblings = others.into_iter().map(Self::as_sibling);
        self.evidence.siblings = siblings.filter(|other| other.node != node).collect();
        self
    }

    /// The same session, with the reason why its node is not measured with all others of its gang.
    #[must_use]
    pub fn apart(mut self, why: Option<Apart>) -> Self {
        self.evidence.apart = why.map(Apart::finding);
        self
    }

    /// The same session of a node that its provider lists at this address, regardless of the agent's claims.
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
