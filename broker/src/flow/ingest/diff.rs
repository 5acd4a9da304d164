//! The differences between a reading and the known offers.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use market::catalog::{CatalogReading, OfferDiff};
use market::ids::OfferId;
use market::offer::Offer;

/// Compares a reading with the offers known before it, whose last reading was made at `known_at`.
///
/// Being seen again is no change. Neither is the absence of an offer that may be among the unreadable
/// records. But such an offer has a date of its own from then on, until it is seen again: both the start and
/// the end of that are changes.
#[must_use]
pub fn diff(
    known: &[Offer],
    known_at: Option<DateTime<Utc>>,
    reading: &CatalogReading,
) -> OfferDiff {
    let is_dated_by_itself = |offer: &Offer| Some(offer.observed_at) != known_at;
    let mut gone: HashMap<OfferId, &Offer> = known.iter().map(|o| (o.offer_id, o)).collect();
    let mut diff = OfferDiff::default();
    for offer in &reading.offers {
        match gone.remove(&offer.offer_id) {
            None => diff.added.push(offer.clone()),
            Some(before) => {
                let seen_again = is_dated_by_itself(before) && offer.observed_at == reading.read_at;
                if seen_again || !same_but_for_time(before, offer) {
                    diff.changed.push(offer.clone());
                }
            }
        }
    }
    // In the order in which they were known, so that the same readings give the same history.
    for offer in known.iter().filter(|one| gone.contains_key(&one.offer_id)) {
        if !reading.unread.may_hold(&offer.sku) {
            diff.withdrawn.push(offer.offer_id);
        } else if !is_dated_by_itself(offer) {
            diff.changed.push(offer.clone());
        }
    }
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
        let known_at = Some(before.observed_at);
        let mut reading = samples::reading(vec![now.clone()]);
        reading.read_at = now.observed_at;
        assert!(diff(&[before], known_at, &reading).is_empty());
    }

    #[test]
    fn what_may_be_among_the_unread_keeps_its_date_until_it_is_seen_again() {
        let known = ["a", "b", "c"].map(samples::offer);
        let known_at = Some(known[0].observed_at);
        let later = known[0].observed_at + TimeDelta::hours(1);
        let read = |unread: Option<Option<&str>>| {
            let mut reading = samples::reading(vec![Offer {
                observed_at: later,
                ..known[0].clone()
            }]);
            reading.read_at = later;
            if let Some(sku) = unread {
                reading.unread.note(sku.map(str::to_owned));
            }
            diff(&known, known_at, &reading)
        };
        let [_, b, c] = known.each_ref().map(|offer| offer.offer_id);
        let of = |unread| {
            let found = read(unread);
            let kept: Vec<_> = found
                .changed
                .iter()
                .map(|o| (o.offer_id, o.observed_at))
                .collect();
            (kept, found.withdrawn)
        };
        let at = known[0].observed_at;
        assert_eq!(of(None), (vec![], vec![b, c]));
        assert_eq!(of(Some(Some("b"))), (vec![(b, at)], vec![c]));
        assert_eq!(of(Some(None)), (vec![(b, at), (c, at)], vec![]));

        // Read at another time than its provider's last reading, it is dated by itself.
        let mut whole = samples::reading(vec![Offer {
            observed_at: later,
            ..known[1].clone()
        }]);
        whole.read_at = later;
        let again = diff(&known[1..2], Some(later - TimeDelta::minutes(1)), &whole);
        assert_eq!(again.changed, whole.offers);
        whole.unread.note(None);
        whole.offers.clear();
        let still = diff(&known[1..2], Some(later - TimeDelta::minutes(1)), &whole);
        assert!(still.is_empty(), "it is kept without a further change");
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
            let reading = samples::reading(read.clone());
            let found = diff(&known, Some(reading.read_at), &reading);
            read.sort_by_key(|offer| offer.offer_id);
            prop_assert_eq!(apply(&known, &found), read);
        }
    }
}
