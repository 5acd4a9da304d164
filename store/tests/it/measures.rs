use market::catalog::{SkipReason, Skipped};
use market::offer::Availability;
use store::catalog::Generation;
use store::fixture::for_each_database;
use store::measures::{Behind, QueueDepth};

use crate::support::{at, claim, hold, offer, provider, reading, sell, tenant};

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_database_has_nothing_that_waits() {
    for_each_database(async |store| {
        let measures = store.measures();
        assert_eq!(
            measures.work(at(0)).await.expect("reads"),
            QueueDepth::default()
        );
        assert_eq!(
            measures.webhooks(at(0)).await.expect("reads"),
            QueueDepth::default()
        );
        assert!(
            measures
                .open_reservations()
                .await
                .expect("reads")
                .is_empty()
        );
        assert_eq!(
            measures.behind(Generation(0)).await.expect("reads"),
            Behind::default()
        );
        assert!(measures.skipped().await.expect("reads").is_empty());
        for pool in store.pools() {
            assert!(
                pool.busy + pool.idle <= pool.most && pool.most > 0,
                "{pool:?}"
            );
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_due_or_claimed_or_neither() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(100));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let first = hold(store, whose, &offer, 1, at(1)).await.expect("a hold");
        hold(store, whose, &offer, 1, at(1)).await.expect("a hold");
        // Each hold is due when it lapses.
        let lapse = first.hold_expires_at;
        let depth = store.measures().work(at(2)).await.expect("reads");
        assert_eq!(
            depth,
            QueueDepth {
                waiting: 2,
                ..QueueDepth::default()
            }
        );
        claim(store, first.id, lapse).await;
        let depth = store.measures().work(lapse).await.expect("reads");
        let expected = QueueDepth {
            waiting: 2,
            due: 1,
            claimed: 1,
            oldest_due_at: Some(lapse),
        };
        assert_eq!(depth, expected);
        let open = store.measures().open_reservations().await.expect("reads");
        assert_eq!(open, [("held".to_owned(), 2)].into());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_behind_since_the_first_reading_that_it_lacks() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(1));
        let seen = sell(store, std::slice::from_ref(&offer), at(0)).await;
        let behind = async |generation| store.measures().behind(generation).await.expect("reads");
        assert_eq!(behind(seen).await, Behind::default());
        let since = Behind {
            generations: 1,
            since: Some(at(0)),
        };
        assert_eq!(behind(Generation(seen.0 - 1)).await, since);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_reading_of_a_provider_says_what_was_skipped_and_why() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(1));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let mut next = reading(std::slice::from_ref(&offer), at(60));
        next.skipped.push(Skipped {
            file: None,
            row: None,
            rows: 2,
            sku: Some("x".into()),
            reason: SkipReason::NoPrice,
            why: "it has no price".into(),
        });
        let catalog = store.catalog();
        let known = catalog.known_offers(&provider()).await.expect("reads");
        let nothing = Default::default();
        let applied = catalog.apply_reading(&next, &nothing, known.generation, at(60));
        applied.await.expect("applies");
        let skipped = store.measures().skipped().await.expect("reads");
        assert_eq!(
            skipped,
            [(
                provider(),
                [(SkipReason::UnknownGpu, 3), (SkipReason::NoPrice, 2)].into()
            )]
        );
    })
    .await;
}
