//! Pages of offers as they were sent: the same question is answered from memory until the answer
//! would differ.
//!
//! It differs once there is another snapshot, or once an offer on the page grows a second older. The rest of
//! a page follows from those two, also that an offer went stale.

use std::sync::{Arc, Weak};

use actix_web::web::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use market::offer::age_seconds;
use matcher::Snapshot;
use moka::sync::Cache;

/// How much is kept. Units: bytes of answers.
const KEPT_BYTES: u64 = 32 * 1024 * 1024;

/// The pages sent lately, by their query as it was written.
pub(crate) struct OfferPages(Cache<String, KnownPage>);

#[derive(Clone)]
struct KnownPage {
    snapshot: Weak<Snapshot>,
    from: DateTime<Utc>,
    until: DateTime<Utc>,
    body: Bytes,
}

impl Default for OfferPages {
    fn default() -> Self {
        let weigh = |query: &String, page: &KnownPage| {
            u32::try_from(query.len() + page.body.len()).unwrap_or(u32::MAX)
        };
        let cache = Cache::builder().max_capacity(KEPT_BYTES).weigher(weigh);
        Self(cache.build())
    }
}

impl OfferPages {
    /// The answer to a query, if it is still current.
    pub(super) fn find(
        &self,
        query: &str,
        snapshot: &Arc<Snapshot>,
        now: DateTime<Utc>,
    ) -> Option<Bytes> {
        let known = self.0.get(query)?;
        // A weak handle keeps its address from being given to a later snapshot.
        let same = known.snapshot.as_ptr() == Arc::as_ptr(snapshot);
        (same && (known.from..known.until).contains(&now)).then_some(known.body)
    }

    /// Keeps an answer that shows offers as they are now, by when each was read.
    pub(super) fn keep(
        &self,
        query: &str,
        snapshot: &Arc<Snapshot>,
        now: DateTime<Utc>,
        shown: impl Iterator<Item = DateTime<Utc>>,
        body: Bytes,
    ) {
        let page = KnownPage {
            snapshot: Arc::downgrade(snapshot),
            from: now,
            until: until(now, shown),
            body,
        };
        self.0.insert(query.to_owned(), page);
    }
}

/// When the first of the offers that were read then grows a second older; soon, if there are no offers.
fn until(now: DateTime<Utc>, shown: impl Iterator<Item = DateTime<Utc>>) -> DateTime<Utc> {
    let older = |observed_at: DateTime<Utc>| {
        let age = age_seconds(observed_at, now);
        let age = i64::try_from(age).unwrap_or(i64::MAX);
        let grown = TimeDelta::try_seconds(age.saturating_add(1))?;
        observed_at.checked_add_signed(grown)
    };
    let soon = now + TimeDelta::seconds(1);
    shown.filter_map(older).fold(soon, DateTime::min)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::samples;

    fn snapshot(at: DateTime<Utc>) -> Arc<Snapshot> {
        Arc::new(Snapshot::new(1, at, Vec::new(), HashMap::new()))
    }

    #[test]
    fn a_page_is_sent_again_until_an_offer_on_it_grows_older_or_the_snapshot_changes() {
        let mut offer = samples::offer("gpu_8x");
        let now = offer.observed_at + TimeDelta::milliseconds(7_400);
        offer.orderable = false;
        let (pages, first) = (OfferPages::default(), snapshot(now));
        let body = Bytes::from_static(b"a page");
        pages.keep(
            "limit=1",
            &first,
            now,
            std::iter::once(offer.observed_at),
            body.clone(),
        );
        let found = |query, snapshot, at| pages.find(query, snapshot, at);
        let last = now + TimeDelta::microseconds(599_999);
        assert_eq!(offer.age_seconds(last), 7);
        assert_eq!(found("limit=1", &first, last), Some(body));
        let grown = last + TimeDelta::microseconds(1);
        assert_eq!(offer.age_seconds(grown), 8);
        assert_eq!(found("limit=1", &first, grown), None);
        assert_eq!(found("limit=1", &first, now - TimeDelta::seconds(1)), None);
        assert_eq!(found("limit=2", &first, now), None);
        assert_eq!(found("limit=1", &snapshot(now), now), None);
    }
}
