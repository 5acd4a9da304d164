use market::catalog::{CatalogReading, OfferDiff, SkipReason};
use market::ids::ProviderId;
use market::money::{Currency, Money};
use market::offer::{Availability, Offer};
use store::StoreError;
use store::audit::NewAuditEntry;
use store::catalog::Generation;
use store::fixture::{count_rows, for_each_database};
use store::offers::{HistoryFilter, OfferChange};
use store::providers::{Cause, ProviderChange};

use crate::support::{at, offer, provider, reading, sell};

const TABLES: [&str; 4] = ["providers", "readings", "offers", "offer_history"];

#[tokio::test]
async fn a_reading_without_changes_writes_one_row_and_keeps_its_offers_fresh() {
    for_each_database(async |store| {
        let offers = [
            offer("a", Availability::exactly(4)),
            offer("b", Availability::NONE),
        ];
        let first = sell(store, &offers, at(0)).await;
        let mut before = Vec::new();
        for table in TABLES {
            before.push(count_rows(store, table).await);
        }
        assert_eq!(before, [1, 1, 2, 2]);
        let later = reading(&offers, at(60));
        let second = store
            .catalog()
            .apply_reading(&later, &OfferDiff::default(), Some(first), at(61))
            .await
            .expect("applied");
        assert!(second > first);
        let mut after = Vec::new();
        for table in TABLES {
            after.push(count_rows(store, table).await);
        }
        assert_eq!(after, [1, 2, 2, 2]);
        let live = store.catalog().live_offers().await.expect("reads");
        assert_eq!(live.generation, Some(second));
        assert_eq!(live.offers.len(), 2);
        for offer in live.offers {
            assert_eq!(
                offer.observed_at,
                at(60),
                "seen again, though nothing was written"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn an_offer_is_stored_whole_and_its_changes_are_appended() {
    for_each_database(async |store| {
        let (kept, dropped) = (
            offer("a", Availability::exactly(4)),
            offer("b", Availability::PRESENT),
        );
        let first = sell(store, &[kept.clone(), dropped.clone()], at(0)).await;
        let known = store
            .catalog()
            .known_offers(&provider())
            .await
            .expect("reads");
        let mut expected = vec![kept.clone(), dropped.clone()];
        expected.sort_by_key(|offer| offer.offer_id);
        assert_eq!(known.offers, expected);

        let price_per_node_hour = Money::parse("19.92", Currency::Usd).expect("a price");
        let cheaper = Offer {
            price_per_node_hour,
            observed_at: at(60),
            ..kept.clone()
        };
        let diff = OfferDiff {
            added: Vec::new(),
            changed: vec![cheaper.clone()],
            withdrawn: vec![dropped.offer_id],
        };
        let later = reading(std::slice::from_ref(&cheaper), at(60));
        store
            .catalog()
            .apply_reading(&later, &diff, Some(first), at(61))
            .await
            .expect("applied");

        let live = store.catalog().live_offers().await.expect("reads").offers;
        assert_eq!(live, std::slice::from_ref(&cheaper));
        let gone = store
            .catalog()
            .offer(dropped.offer_id)
            .await
            .expect("reads")
            .expect("known");
        assert!(gone.withdrawn);

        let all = HistoryFilter::default();
        let history = store
            .catalog()
            .offer_history(kept.offer_id, all, 10)
            .await
            .expect("reads");
        let changes: Vec<_> = history
            .iter()
            .map(|entry| (entry.change, &entry.offer))
            .collect();
        assert_eq!(
            changes,
            [
                (OfferChange::Changed, &cheaper),
                (OfferChange::Added, &kept)
            ]
        );
        let known_then = HistoryFilter {
            known_at: Some(at(60)),
            ..all
        };
        let then = store
            .catalog()
            .offer_history(kept.offer_id, known_then, 10)
            .await;
        assert_eq!(then.expect("reads").len(), 1, "the change was learnt at 61");
        let so_then = HistoryFilter {
            as_of: Some(at(60)),
            ..all
        };
        let then = store
            .catalog()
            .offer_history(kept.offer_id, so_then, 10)
            .await;
        assert_eq!(then.expect("reads").len(), 2, "the change was so at 60");
        let withdrawal = store
            .catalog()
            .offer_history(dropped.offer_id, all, 1)
            .await
            .expect("reads");
        assert_eq!(withdrawal[0].change, OfferChange::Withdrawn);
        assert_eq!(withdrawal[0].observed_at, at(60));
    })
    .await;
}

#[tokio::test]
async fn an_offer_with_a_date_of_its_own_keeps_it_until_it_changes() {
    for_each_database(async |store| {
        store
            .providers()
            .ensure(&provider(), at(0))
            .await
            .expect("a provider");
        let dated = Offer {
            observed_at: at(-86_400),
            ..offer("a", Availability::UNKNOWN)
        };
        let mut sheet = reading(std::slice::from_ref(&dated), at(0));
        sheet.offers = vec![dated.clone()];
        let diff = OfferDiff {
            added: vec![dated.clone()],
            ..OfferDiff::default()
        };
        let first = store
            .catalog()
            .apply_reading(&sheet, &diff, None, at(0))
            .await
            .expect("ok");
        sheet.read_at = at(60);
        let none = OfferDiff::default();
        store
            .catalog()
            .apply_reading(&sheet, &none, Some(first), at(60))
            .await
            .expect("ok");
        let live = store.catalog().live_offers().await.expect("reads").offers;
        assert_eq!(live, [dated]);
    })
    .await;
}

// S91, S109
#[tokio::test]
async fn what_was_on_sale_at_a_generation_comes_out_of_the_history_as_it_was_read_then() {
    for_each_database(async |store| {
        let catalog = store.catalog();
        let [seller, other] = ["acme", "other"].map(|id| ProviderId::parse(id).expect("an id"));
        let mut then = Vec::new();
        for second in 0..24 {
            // The offers change from reading to reading, so that they appear, disappear and come back.
            let of = if second % 3 == 2 { &other } else { &seller };
            store.providers().ensure(of, at(0)).await.expect("there");
            let known = catalog.known_offers(of).await.expect("reads");
            let sold = (0..6).filter(|n| (second * 7 + n * 5) % 4 != 0);
            let offers: Vec<Offer> = sold
                .map(|n| {
                    let dollars = 10 + (second / (n + 2)) % 5;
                    let price = Money::parse(&format!("{dollars}.00"), Currency::Usd);
                    let sku = format!("{of}-{n}");
                    Offer {
                        provider: of.clone(),
                        price_per_node_hour: price.expect("a price"),
                        // One of them has its own date.
                        observed_at: if n == 3 { at(-second / 5) } else { at(second) },
                        ..offer(
                            &sku,
                            Availability::exactly(u32::try_from(1 + n).expect("few")),
                        )
                    }
                })
                .collect();
            let is_known = |offer: &Offer| {
                let mut known = known.offers.iter();
                known
                    .find(|known| known.offer_id == offer.offer_id)
                    .cloned()
            };
            let mut diff = OfferDiff::default();
            for offer in &offers {
                match is_known(offer) {
                    None => diff.added.push(offer.clone()),
                    Some(known) if known.price_per_node_hour != offer.price_per_node_hour => {
                        diff.changed.push(offer.clone());
                    }
                    Some(_) => {}
                }
            }
            let gone = known.offers.iter().map(|offer| offer.offer_id);
            let gone = gone.filter(|id| offers.iter().all(|offer| offer.offer_id != *id));
            diff.withdrawn = gone.collect();
            let reading = CatalogReading {
                provider: of.clone(),
                offers,
                ..reading(&[], at(second))
            };
            let generation = catalog
                .apply_reading(&reading, &diff, known.generation, at(second))
                .await
                .expect("applied");
            then.push((
                generation,
                catalog.live_offers().await.expect("reads").offers,
            ));
        }
        let both = [seller.clone(), other].into();
        for (generation, live) in &then {
            let found = catalog.offers_at(*generation, &both).await.expect("reads");
            assert_eq!(found, *live, "at generation {generation}");
            let mut of_one = live.clone();
            of_one.retain(|offer| offer.provider == seller);
            let found = catalog
                .offers_at(*generation, &[seller.clone()].into())
                .await;
            assert_eq!(found.expect("reads"), of_one, "at generation {generation}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_reading_made_against_an_older_state_or_in_part_is_refused() {
    for_each_database(async |store| {
        let offers = [offer("a", Availability::exactly(4))];
        let first = sell(store, &offers, at(0)).await;
        let none = OfferDiff::default();
        let catalog = store.catalog();
        let second = catalog
            .apply_reading(&reading(&offers, at(60)), &none, Some(first), at(60))
            .await
            .expect("applied");
        for (base, read_at) in [(first, at(90)), (second, at(30))] {
            let refused = reading(&offers, read_at);
            let stale = catalog
                .apply_reading(&refused, &none, Some(base), at(90))
                .await;
            assert!(matches!(stale, Err(StoreError::Stale)), "{stale:?}");
        }
        assert_eq!(count_rows(store, "readings").await, 2);
    })
    .await;
}

#[tokio::test]
async fn a_reading_by_a_clock_that_ran_ahead_holds_up_none_that_follows() {
    for_each_database(async |store| {
        let offers = [offer("a", Availability::exactly(4))];
        let ahead = sell(store, &offers, at(3 * 86_400)).await;
        let none = OfferDiff::default();
        let next = reading(&offers, at(60));
        let applied = store
            .catalog()
            .apply_reading(&next, &none, Some(ahead), at(60))
            .await;
        applied.expect("the clock is right again");
    })
    .await;
}

#[tokio::test]
async fn an_offer_that_was_not_read_keeps_its_date_and_is_dated_again_once_it_is() {
    for_each_database(async |store| {
        let [read, unread] = ["a", "b"].map(|sku| offer(sku, Availability::exactly(2)));
        let offers = [read.clone(), unread.clone()];
        let first = sell(store, &offers, at(0)).await;
        let catalog = store.catalog();
        let dates = async |at_generation: Option<Generation>| {
            let offers = match at_generation {
                Some(one) => catalog.offers_at(one, &[provider()].into()).await,
                None => catalog.live_offers().await.map(|live| live.offers),
            };
            let offers = offers.expect("reads");
            [&read, &unread].map(|of| {
                let mut same = offers.iter().filter(|one| one.offer_id == of.offer_id);
                same.next().expect("on sale").observed_at
            })
        };
        let mut partial = reading(std::slice::from_ref(&read), at(60));
        partial.unread.note(Some("b".to_owned()));
        let mut odd = partial.skipped[0].clone();
        odd.reason = SkipReason::Unreadable;
        partial.skipped.push(odd.clone());
        let kept = OfferDiff {
            changed: vec![unread.clone()],
            ..OfferDiff::default()
        };
        let second = catalog
            .apply_reading(&partial, &kept, Some(first), at(60))
            .await
            .expect("applied");
        assert_eq!(dates(None).await, [at(60), at(0)]);
        let known = store.providers().find(&provider()).await;
        let known = known.expect("reads").expect("known");
        assert_eq!(
            (
                known.last_read_at,
                known.last_complete_at,
                &known.skipped[0]
            ),
            (Some(at(60)), Some(at(0)), &odd),
            "what could not be read is named first"
        );
        let whole = reading(&offers, at(120));
        let again = OfferDiff {
            changed: whole.offers[1..].to_vec(),
            ..OfferDiff::default()
        };
        catalog
            .apply_reading(&whole, &again, Some(second), at(120))
            .await
            .expect("applied");
        assert_eq!(dates(None).await, [at(120), at(120)]);
        assert_eq!(dates(Some(first)).await, [at(0), at(0)]);
        assert_eq!(dates(Some(second)).await, [at(60), at(0)]);
    })
    .await;
}

#[tokio::test]
async fn generations_are_committed_in_order_and_without_gaps() {
    for_each_database(async |store| {
        let names: Vec<_> = (0..8).map(|n| format!("p{n}")).collect();
        let mut readers = tokio::task::JoinSet::new();
        for name in names {
            let store = store.clone();
            readers.spawn(async move {
                let id = market::ids::ProviderId::parse(&name).expect("an id");
                store
                    .providers()
                    .ensure(&id, at(0))
                    .await
                    .expect("a provider");
                let mut base = None;
                let mut given = Vec::new();
                for round in 1..=5 {
                    let mut reading = reading(&[], at(round));
                    reading.provider = id.clone();
                    let none = OfferDiff::default();
                    let generation = store
                        .catalog()
                        .apply_reading(&reading, &none, base, at(round))
                        .await
                        .expect("applied");
                    let latest = store.catalog().latest_generation().await.expect("reads");
                    assert!(latest >= Some(generation), "committed means visible");
                    base = Some(generation);
                    given.push(generation);
                }
                given
            });
        }
        let mut given: Vec<Generation> = readers.join_all().await.into_iter().flatten().collect();
        given.sort();
        assert_eq!(given, (1..=40).map(Generation).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn a_failed_attempt_marks_the_provider_and_touches_no_offer() {
    for_each_database(async |store| {
        sell(store, &[offer("a", Availability::exactly(4))], at(0)).await;
        store
            .providers()
            .record_failure(&provider(), "truncated", at(60))
            .await
            .expect("noted");
        let standings = store.providers().standings().await.expect("reads");
        let reasons: Vec<_> = standings.iter().map(|one| &one.stale_reason).collect();
        assert!(
            reasons.contains(&&Some("truncated".to_owned())),
            "{standings:?}"
        );
        let marked = store
            .providers()
            .find(&provider())
            .await
            .expect("reads")
            .expect("known");
        assert_eq!(marked.stale_reason.as_deref(), Some("truncated"));
        assert_eq!(marked.last_attempt_at, Some(at(60)));
        assert_eq!(marked.last_complete_at, Some(at(0)));
        assert_eq!((marked.live_offers, marked.skipped.len()), (1, 1));
        let live = store.catalog().live_offers().await.expect("reads").offers;
        assert_eq!(live[0].observed_at, at(0), "it grows old");
        let off = ProviderChange {
            enabled: Some(false),
            ..ProviderChange::default()
        };
        let entry = NewAuditEntry::of_command(None, "providers disable", None, at(61));
        store
            .providers()
            .change(&provider(), &off, &Cause::Command(Box::new(entry)))
            .await
            .expect("off");
        assert!(
            store
                .catalog()
                .live_offers()
                .await
                .expect("reads")
                .offers
                .is_empty()
        );
    })
    .await;
}
