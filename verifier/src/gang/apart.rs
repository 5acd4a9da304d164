//! The findings on a node that was not measured with all others of its gang.

use market::attestation::{Finding, FindingCode, Outcome, Weight};

use super::MOST_NODES;
use crate::rules::finding;

/// The finding on a node that never reached the measurement with the others.
#[must_use]
pub fn absence() -> Finding {
    let note = "The node was not ready in time to be measured with the others.";
    Finding {
        weight: Weight::Must,
        ..finding(FindingCode::StepTimedOut, Outcome::Failed, note)
    }
}

/// Why a node is not measured with all others of its gang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apart {
    /// Its order has more than [`MOST_NODES`] nodes.
    TooMany,
    /// Nodes of the gang belong to other orders, with more than [`MOST_NODES`] in all.
    OtherOrders,
}

impl Apart {
    /// The finding on it, which decides nothing: nothing was measured.
    #[must_use]
    pub fn finding(self) -> Finding {
        let note = match self {
            Self::TooMany => format!(
                "Orders of more than {MOST_NODES} nodes are not measured together: nothing is known of the \
                 network between them."
            ),
            Self::OtherOrders => {
                format!(
                    "Other nodes of the gang are orders of their own, and all are more than {MOST_NODES}: \
                     nothing is known of the network between the nodes of one order and those of another."
                )
            }
        };
        finding(FindingCode::NetworkTogether, Outcome::NotRun, note)
    }
}
