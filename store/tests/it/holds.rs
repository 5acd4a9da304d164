use market::catalog::OfferDiff;
use market::lease::LeaseState;
use market::offer::{Availability, AvailabilityLevel, Offer};
use market::reservation::{CloseReason, ReservationState};
use market::verification::Level;
use store::change::{Change, LeaseFacts, LeaseUpdate, NewLease};
use store::commands::Command;
use store::fixture::{TestDatabase, count_rows, for_each_database};
use store::{Conflict, StockPolicy, Store, StoreError};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::support::{
    at, claim, hold, new_reservation, offer, provisioning, quote, reading, sell, tenant,
};

/// Lets 32 tasks hold `nodes` each of one offer at once; returns how many got it.
async fn race(store: &Store, availability: Availability, nodes: u32) -> usize {
    let offer = offer("raced", availability);
    sell(store, std::slice::from_ref(&offer), at(0)).await;
    let whose = tenant(store, "acme").await;
    let mut tasks = JoinSet::new();
    for _ in 0..32 {
        let (store, offer) = (store.clone(), offer.clone());
        tasks.spawn(async move { hold(&store, whose, &offer, nodes, at(1)).await });
    }
    let outcomes = tasks.join_all().await;
    for refusal in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        assert!(
            matches!(refusal, StoreError::OutOfStock { .. }),
            "{refusal:?}"
        );
    }
    let held = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(
        count_rows(store, "holds").await,
        i64::try_from(held).expect("few")
    );
    assert_eq!(
        count_rows(store, "reservations").await,
        i64::try_from(held).expect("few")
    );
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_holds_never_take_more_than_the_provider_has() {
    for_each_database(async |store| {
        assert_eq!(race(store, Availability::exactly(7), 2).await, 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offer_without_a_count_is_held_once() {
    for_each_database(async |store| {
        assert_eq!(race(store, Availability::PRESENT, 4).await, 1);
    })
    .await;
}

#[tokio::test]
async fn an_offer_without_a_count_is_held_as_often_as_the_policy_says() {
    for_each_database(async |store| {
        let store = store.clone().with_stock_policy(StockPolicy {
            sets_without_count: 3,
            ..StockPolicy::default()
        });
        assert_eq!(race(&store, Availability::UNKNOWN, 1).await, 3);
    })
    .await;
}

#[tokio::test]
async fn an_offer_without_a_count_is_not_held_for_more_nodes_than_the_policy_says() {
    for_each_database(async |store| {
        let store = store.clone().with_stock_policy(StockPolicy {
            nodes_without_count: 2,
            ..StockPolicy::default()
        });
        let offers = [offer("soft", Availability::PRESENT)];
        sell(&store, &offers, at(0)).await;
        let whose = tenant(&store, "acme").await;
        let refusal = hold(&store, whose, &offers[0], 3, at(1)).await;
        assert!(
            matches!(refusal, Err(StoreError::OutOfStock { free: 2, .. })),
            "{refusal:?}"
        );
        hold(&store, whose, &offers[0], 2, at(1))
            .await
            .expect("as many as the policy says");
    })
    .await;
}

#[tokio::test]
async fn a_lower_bound_refuses_nothing_and_sold_out_everything() {
    for_each_database(async |store| {
        let plenty = Availability {
            level: AvailabilityLevel::High,
            nodes: Some(2),
            at_least: true,
        };
        let offers = [offer("plenty", plenty), offer("none", Availability::NONE)];
        sell(store, &offers, at(0)).await;
        let whose = tenant(store, "acme").await;
        for _ in 0..3 {
            hold(store, whose, &offers[0], 2, at(1))
                .await
                .expect("there is more");
        }
        let refusal = hold(store, whose, &offers[1], 1, at(1)).await;
        assert!(
            matches!(refusal, Err(StoreError::OutOfStock { free: 0, .. })),
            "{refusal:?}"
        );
        let unknown = offer("never read", plenty);
        let refusal = hold(store, whose, &unknown, 1, at(1)).await;
        assert!(
            matches!(refusal, Err(StoreError::OutOfStock { free: 0, .. })),
            "{refusal:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_quote_is_taken_once_in_time_and_only_by_its_tenant() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(9));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let (buyer, project) = tenant(store, "buyer").await;
        let (other, other_project) = tenant(store, "other").await;
        let quote = quote(store, buyer, &offer, 1).await;
        let place = async |whose, project, now| {
            let new = new_reservation(project, &quote);
            store
                .reservations()
                .of(whose)
                .place_hold(new, now, None)
                .await
        };
        let foreign = place(other, other_project, at(1)).await;
        assert!(
            matches!(foreign, Err(StoreError::NotFound { what: "quote" })),
            "{foreign:?}"
        );
        let foreign = place(buyer, other_project, at(1)).await;
        assert!(
            matches!(foreign, Err(StoreError::NotFound { what: "project" })),
            "{foreign:?}"
        );
        let late = place(buyer, project, at(600)).await;
        assert!(
            matches!(late, Err(StoreError::Conflict(Conflict::QuoteLapsed))),
            "{late:?}"
        );
        let held = place(buyer, project, at(599)).await.expect("in time");
        assert_eq!(held.state, ReservationState::Held);
        let again = place(buyer, project, at(599)).await;
        assert!(
            matches!(again, Err(StoreError::Conflict(Conflict::QuoteTaken))),
            "{again:?}"
        );
        let kept = store
            .quotes()
            .of(buyer)
            .find(quote.id)
            .await
            .expect("reads")
            .expect("kept");
        assert_eq!(kept.taken_by, Some(held.id));
        assert_eq!(kept.quote, quote);
        assert_eq!(
            count_rows(store, "holds").await,
            1,
            "refused attempts left nothing"
        );
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_hold_frees_its_offer() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(1));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let held = hold(store, whose, &offer, 1, at(1))
            .await
            .expect("the last node");
        assert!(hold(store, whose, &offer, 1, at(1)).await.is_err());
        let cancel = Command::Move(ReservationState::Closed(CloseReason::Cancelled));
        let closed = store
            .reservations()
            .of(whose.0)
            .command(held.id, held.version, cancel, at(2), None)
            .await
            .expect("cancelled");
        assert_eq!((closed.closed_at, closed.due_at), (Some(at(2)), None));
        hold(store, whose, &offer, 1, at(3))
            .await
            .expect("free again");
    })
    .await;
}

#[tokio::test]
async fn a_lease_counts_against_the_stock_until_the_provider_has_counted_it() {
    for_each_database(async |store| {
        let two = offer("a", Availability::exactly(2));
        let first = sell(store, std::slice::from_ref(&two), at(0)).await;
        let whose = tenant(store, "acme").await;
        let (reservation, lease) = provisioning(store, whose, &two).await;
        let claimed = claim(store, reservation.id, at(5)).await;
        let change = Change {
            lease_updates: vec![LeaseUpdate {
                id: lease,
                from: LeaseState::Requested,
                to: LeaseState::Booting,
                facts: LeaseFacts {
                    accepted_at: Some(at(5)),
                    ..LeaseFacts::default()
                },
            }],
            due_at: Some(at(6)),
            ..Change::default()
        };
        store
            .work()
            .apply(&claimed.claim, &change, at(5))
            .await
            .expect("accepted");
        let spoken_for = async || store.catalog().held_nodes().await.expect("reads");
        assert_eq!(spoken_for().await, [(two.offer_id, 1)].into());
        // The provider counted its two before the lease was counted: one of them is ours.
        let refusal = hold(store, whose, &two, 2, at(6)).await;
        assert!(
            matches!(refusal, Err(StoreError::OutOfStock { free: 1, .. })),
            "{refusal:?}"
        );
        // A later reading that could not read this offer counted nothing of it.
        let mut without = reading(&[], at(30));
        without.unread.note(None);
        let kept = OfferDiff {
            changed: vec![two.clone()],
            ..OfferDiff::default()
        };
        let apply = async |reading, diff, base, now| {
            let catalog = store.catalog();
            let applied = catalog.apply_reading(reading, diff, Some(base), now).await;
            applied.expect("read")
        };
        let second = apply(&without, &kept, first, at(30)).await;
        assert_eq!(spoken_for().await, [(two.offer_id, 1)].into());
        let refusal = hold(store, whose, &two, 2, at(31)).await;
        assert!(
            matches!(refusal, Err(StoreError::OutOfStock { free: 1, .. })),
            "{refusal:?}"
        );
        // Counted again, two are free beside ours.
        let again = reading(std::slice::from_ref(&two), at(60));
        let seen = OfferDiff {
            changed: again.offers.clone(),
            ..OfferDiff::default()
        };
        apply(&again, &seen, second, at(60)).await;
        assert_eq!(spoken_for().await, [].into());
        hold(store, whose, &two, 2, at(61))
            .await
            .expect("both are free");
        assert_eq!(spoken_for().await, [(two.offer_id, 2)].into());
    })
    .await;
}

#[tokio::test]
async fn what_was_held_may_be_ordered_though_the_provider_counts_less_by_then() {
    for_each_database(async |store| {
        let last = offer("a", Availability::exactly(1));
        let base = sell(store, std::slice::from_ref(&last), at(0)).await;
        let whose = tenant(store, "acme").await;
        let held = hold(store, whose, &last, 1, at(1))
            .await
            .expect("the last node");
        let none = Offer {
            availability: Availability::NONE,
            observed_at: at(2),
            ..last.clone()
        };
        let diff = OfferDiff {
            changed: vec![none.clone()],
            ..OfferDiff::default()
        };
        let sold_out = reading(&[none], at(2));
        store
            .catalog()
            .apply_reading(&sold_out, &diff, Some(base), at(2))
            .await
            .expect("read");
        assert!(
            hold(store, whose, &last, 1, at(3)).await.is_err(),
            "for anyone else it is gone"
        );
        let confirm = Command::Move(ReservationState::Confirmed);
        let reservations = store.reservations().of(whose.0);
        reservations
            .command(held.id, held.version, confirm, at(3), None)
            .await
            .expect("confirmed");
        let claimed = claim(store, held.id, at(4)).await;
        let lease = NewLease {
            id: market::ids::LeaseId::from_uuid(Uuid::now_v7()),
            line: 0,
            offer: last.clone(),
            nodes: 1,
            node_base: 0,
            replaces: None,
        };
        let change = Change {
            new_leases: vec![lease],
            holds_released: true,
            ..Change::default()
        };
        store
            .work()
            .apply(&claimed.claim, &change, at(4))
            .await
            .expect("it was set aside");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_on_one_sqlite_file_neither_oversell_nor_refuse_each_other() {
    let database = TestDatabase::sqlite().await;
    let other = Store::connect(database.database.clone())
        .await
        .expect("a second process");
    let offer = offer("raced", Availability::exactly(20));
    sell(&other, std::slice::from_ref(&offer), at(0)).await;
    let whose = tenant(&other, "acme").await;
    let mut tasks = JoinSet::new();
    for task in 0..32 {
        let store = if task % 2 == 0 {
            other.clone()
        } else {
            database.store.clone()
        };
        let offer = offer.clone();
        tasks.spawn(async move { hold(&store, whose, &offer, 1, at(1)).await });
    }
    let (held, refused): (Vec<_>, Vec<_>) =
        tasks.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!((held.len(), refused.len()), (20, 12));
    for refusal in refused {
        assert!(
            matches!(refusal, Err(StoreError::OutOfStock { free: 0, .. })),
            "{refusal:?}"
        );
    }
    other.close().await.expect("closes");
    database.remove().await;
}

#[tokio::test]
async fn a_replacement_is_saved_only_while_its_offer_has_nodes() {
    for_each_database(async |store| {
        let (own, other) = (
            offer("own", Availability::exactly(1)),
            offer("other", Availability::exactly(1)),
        );
        sell(store, &[own.clone(), other.clone()], at(0)).await;
        let whose = tenant(store, "acme").await;
        let (reservation, lease) = provisioning(store, whose, &own).await;
        let rival = hold(store, whose, &other, 1, at(4))
            .await
            .expect("the other's last node");
        let claimed = claim(store, reservation.id, at(5)).await;
        let replacement = NewLease {
            id: market::ids::LeaseId::from_uuid(Uuid::now_v7()),
            line: 0,
            offer: other.clone(),
            nodes: 1,
            node_base: 0,
            replaces: Some(lease),
        };
        let change = Change {
            new_leases: vec![replacement.clone()],
            keep_claim: true,
            ..Change::default()
        };
        let refusal = store.work().apply(&claimed.claim, &change, at(5)).await;
        assert!(
            matches!(refusal, Err(StoreError::OutOfStock { .. })),
            "{refusal:?}"
        );
        assert_eq!(count_rows(store, "leases").await, 1);
        let cancel = Command::Move(ReservationState::Closed(CloseReason::Cancelled));
        let reservations = store.reservations().of(whose.0);
        reservations
            .command(rival.id, rival.version, cancel, at(6), None)
            .await
            .expect("gone");
        store
            .work()
            .apply(&claimed.claim, &change, at(7))
            .await
            .expect("now there is one");
        let leases = store
            .leases()
            .of(whose.0)
            .of_reservation(reservation.id)
            .await;
        let leases = leases.expect("reads");
        assert_eq!(leases[0].replaced_by, Some(replacement.id));
        assert_eq!(leases[1].replaces, Some(lease));
        assert_eq!(leases[1].offer, other);
    })
    .await;
}

#[tokio::test]
async fn a_reservation_keeps_how_deeply_it_is_verified_and_an_older_one_is_standard() {
    for_each_database(async |store| {
        let offers = [offer("a", Availability::exactly(9))];
        sell(store, &offers, at(0)).await;
        let whose = tenant(store, "buyer").await;
        let held = hold(store, whose, &offers[0], 1, at(1))
            .await
            .expect("a hold");
        assert_eq!(held.verification, Level::Deep);
        let read = async || {
            let all = store.reservations().across_tenants();
            all.find(held.id)
                .await
                .expect("an answer")
                .expect("it is there")
                .verification
        };
        assert_eq!(read().await, Level::Deep);
        let older = "UPDATE reservations SET verification = NULL";
        store::fixture::execute_raw(store, older)
            .await
            .expect("written");
        assert_eq!(read().await, Level::Standard);
    })
    .await;
}
