//! Guards against listings that shrink by mistake: their offers are withdrawn only once two readings in a row
//! lack them.
//!
//! The first reading is kept in this process only. After a restart, the next one counts as the first.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use market::ids::{OfferId, ProviderId};

/// For each provider, the withdrawal that the next reading must confirm: the missing offers.
#[derive(Debug, Default)]
pub(crate) struct ShrinkGuard(Mutex<HashMap<ProviderId, BTreeSet<OfferId>>>);

impl ShrinkGuard {
    /// Whether the reading before this one lacked all of these offers too.
    ///
    /// If so, the stored withdrawal is removed. If not, this one is stored in its place.
    pub(super) fn confirm_or_remember(&self, provider: &ProviderId, withdrawn: &[OfferId]) -> bool {
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

    /// Clears the stored withdrawal after a normal reading.
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
        assert!(!doubts.confirm_or_remember(&provider, &ids[..2]));
        assert!(
            !doubts.confirm_or_remember(&provider, &ids),
            "more is missing than before"
        );
        assert!(doubts.confirm_or_remember(&provider, &ids[..2]));
        assert!(
            !doubts.confirm_or_remember(&provider, &ids[..2]),
            "a confirmed doubt is over"
        );
    }
}
