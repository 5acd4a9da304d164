//! How a reading differs from what was known.

use std::collections::HashMap;

use market::catalog::{CatalogReading, OfferDiff};
use market::ids::OfferId;
use market::offer::Offer;

/// Compares a complete reading with the offers known before it.
///
/// The time of observation alone is no change. Only call it for a reading that is complete:
/// absence from anything else says nothing.
#[must_use]
pub fn diff(known: &[Offer], reading: &CatalogReading) -> OfferDiff {
    let mut gone: HashMap<OfferId, &Offer> = known.iter().map(|o| (o.offer_id, o)).collect();
    let mut diff = OfferDiff::default();
    for offer in &reading.offers {
        match gone.remove(&offer.offer_id) {
            None => diff.added.push(offer.clone()),
            Some(before) if !same_but_for_time(before, offer) => diff.changed.push(offer.clone()),
            Some(_) => {}
        }
    }
    // In the order in which they were known, so that the same readings give the same history.
    diff.withdrawn = known
        .iter()
        .map(|o| o.offer_id)
        .filter(|id| gone.contains_key(id))
        .collect();
    diff
}

fn same_but_for_time(before: &Offer, now: &Offer) -> bool {
    let mut before = before.clone();
    before.observed_at = now.observed_at;
    before == *now
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::*;
    use crate::samples;

    fn apply(known: &[Offer], diff: &OfferDiff) -> Vec<Offer> {
        let mut offers: Vec<_> = known
            .iter()
            .filter(|offer| !diff.withdrawn.contains(&offer.offer_id))
            .map(|offer| {
                let changed = diff
                    .changed
                    .iter()
                    .find(|new| new.offer_id == offer.offer_id);
                changed.unwrap_or(offer).clone()
            })
            .chain(diff.added.iter().cloned())
            .collect();
        offers.sort_by_key(|offer| offer.offer_id);
        offers
    }

    #[test]
    fn being_seen_again_is_no_change() {
        let before = samples::offer("a");
        let mut now = before.clone();
        now.observed_at += TimeDelta::hours(1);
        assert!(diff(&[before], &samples::reading(vec![now])).is_empty());
    }

    proptest! {
        #[test]
        fn what_was_known_with_its_difference_is_what_was_read(
            known in proptest::collection::btree_map(0_u8..20, 1_i64..4, 0..12),
            read in proptest::collection::btree_map(0_u8..20, 1_i64..4, 0..12),
        ) {
            let offers = |from: &std::collections::BTreeMap<u8, i64>| -> Vec<Offer> {
                from.iter().map(|(name, price)| samples::priced(&name.to_string(), *price)).collect()
            };
            let (known, mut read) = (offers(&known), offers(&read));
            let found = diff(&known, &samples::reading(read.clone()));
            read.sort_by_key(|offer| offer.offer_id);
            prop_assert_eq!(apply(&known, &found), read);
        }
    }
}
