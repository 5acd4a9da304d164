//! Readings that are not trusted at once: offers that they would withdraw must be missing twice.
//!
//! Kept in this process only; after a restart a doubted reading is doubted again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use market::ids::{OfferId, ProviderId};

/// The offers that the last doubted reading of each provider would have withdrawn.
#[derive(Debug, Default)]
pub(crate) struct ShrinkGuard(Mutex<HashMap<ProviderId, BTreeSet<OfferId>>>);

impl ShrinkGuard {
    /// Whether the reading before this one would have withdrawn all of these as well.
    ///
    /// When not, this one is remembered for the next to confirm.
    pub(super) fn confirms(&self, provider: &ProviderId, withdrawn: &[OfferId]) -> bool {
        let withdrawn: BTreeSet<_> = withdrawn.iter().copied().collect();
        let mut doubts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if doubts
            .get(provider)
            .is_some_and(|before| withdrawn.is_subset(before))
        {
            doubts.remove(provider);
            return true;
        }
        doubts.insert(provider.clone(), withdrawn);
        false
    }

    /// A reading came in between that gave no reason for doubt.
    pub(super) fn forget(&self, provider: &ProviderId) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(provider);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn only_what_is_missing_twice_in_a_row_is_withdrawn() {
        let doubts = ShrinkGuard::default();
        let (provider, ids) = (
            samples::provider(),
            ["a", "b", "c"].map(|n| samples::offer(n).offer_id),
        );
        assert!(!doubts.confirms(&provider, &ids[..2]));
        assert!(
            !doubts.confirms(&provider, &ids),
            "more is missing than before"
        );
        assert!(doubts.confirms(&provider, &ids[..2]));
        assert!(
            !doubts.confirms(&provider, &ids[..2]),
            "a confirmed doubt is over"
        );
    }
}
