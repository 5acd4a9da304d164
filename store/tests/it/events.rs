//! Events: without gaps, in order, and never without the change that they report.

use std::future::poll_fn;
use std::task::Poll;

use market::event::{Event, EventType as T};
use market::ids::TenantId;
use market::lease::{LeaseEvent, LeaseState};
use market::offer::Availability;
use market::reservation::{CloseReason, ReservationState as S};
use serde_json::json;
use store::change::{Change, LeaseFacts, LeaseUpdate, ReservationMove};
use store::commands::Command;
use store::events::{EventFilter, NewEvent};
use store::fixture::{count_rows, for_each_database};
use store::reservations::RequestedAction;
use store::{Store, StoreError};
use tokio::task::JoinSet;

use crate::support::{at, claim, hold, new_reservation, offer, provisioning, quote, sell, tenant};

async fn told(store: &Store, tenant: TenantId) -> Vec<Event> {
    let events = store.events().of(tenant);
    let told = events.list(&EventFilter::default(), 1_000).await;
    told.expect("reads")
}

fn kinds(events: &[Event]) -> Vec<T> {
    events.iter().map(|event| event.kind).collect()
}

fn something(number: u64) -> NewEvent {
    NewEvent {
        kind: T::WebhookTest,
        reservation_id: None,
        data: json!({ "number": number }),
    }
}

#[tokio::test]
async fn every_step_of_a_reservation_and_its_leases_is_told_once_and_in_order() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(2));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let (reservation, lease) = provisioning(store, whose, &offer).await;
        let reservations = store.reservations().of(whose.0);
        let cancel = Command::RequestedAction(RequestedAction::Cancel);
        let wished = reservations
            .command(reservation.id, reservation.version, cancel, at(5), None)
            .await
            .expect("noted");
        // Repeating the same wish makes no event.
        reservations
            .command(reservation.id, wished.version, cancel, at(6), None)
            .await
            .expect("noted");
        let held = claim(store, reservation.id, at(7)).await;
        let change = Change {
            lease_updates: vec![LeaseUpdate {
                id: lease,
                from: LeaseState::Requested,
                to: LeaseState::Gone,
                facts: LeaseFacts {
                    fall_reason: Some(LeaseEvent::Refused),
                    fall_note: Some("canary".to_owned()),
                    ..LeaseFacts::default()
                },
            }],
            reservation: Some(ReservationMove {
                from: S::Provisioning,
                to: S::Releasing(CloseReason::Cancelled),
            }),
            keep_claim: true,
            ..Change::default()
        };
        let work = store.work();
        work.apply(&held.claim, &change, at(8)).await.expect("ok");
        let close = Change {
            reservation: Some(ReservationMove {
                from: S::Releasing(CloseReason::Cancelled),
                to: S::Closed(CloseReason::Cancelled),
            }),
            ..Change::default()
        };
        work.apply(&held.claim, &close, at(9)).await.expect("ok");

        let events = told(store, whose.0).await;
        let expected = [
            T::ReservationHeld,
            T::ReservationConfirmed,
            T::ReservationProvisioning,
            T::LeaseRequested,
            T::ReservationCancelRequested,
            T::LeaseRefused,
            T::ReservationReleasing,
            T::ReservationClosed,
        ];
        assert_eq!(kinds(&events), expected);
        let numbers: Vec<u64> = events.iter().map(|event| event.sequence).collect();
        assert_eq!(numbers, (1..=8).collect::<Vec<_>>());
        assert!(
            events
                .iter()
                .all(|event| event.reservation_id == Some(reservation.id))
        );
        let refused = &events[5];
        assert_eq!(refused.timestamp, at(8));
        let expected = json!({
            "lease_id": lease, "provider": "acme", "nodes": 1, "state": "gone",
            "previous_state": "requested", "reason": "refused",
        });
        assert_eq!(refused.data, expected);
        let closed = &events[7].data;
        assert_eq!(closed["reason"], "cancelled");
        assert_eq!(closed["previous_state"], "releasing");
        assert_eq!(closed["charged_usd"], "0.00");
        assert!(
            !serde_json::to_string(&events)
                .expect("json")
                .contains("canary"),
            "a provider's words stay with us"
        );
    })
    .await;
}

#[tokio::test]
async fn a_change_that_is_refused_tells_nothing() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(1));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let held = hold(store, whose, &offer, 1, at(1)).await.expect("a hold");
        let full = hold(store, whose, &offer, 1, at(1)).await;
        assert!(
            matches!(full, Err(StoreError::OutOfStock { .. })),
            "{full:?}"
        );
        let confirm = Command::Move(S::Confirmed);
        let reservations = store.reservations().of(whose.0);
        let stale = reservations
            .command(held.id, 99, confirm, at(2), None)
            .await;
        assert!(matches!(stale, Err(StoreError::Stale)), "{stale:?}");
        assert_eq!(kinds(&told(store, whose.0).await), [T::ReservationHeld]);
    })
    .await;
}

#[tokio::test]
async fn whoever_dies_in_the_middle_leaves_the_change_and_its_event_or_neither() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(1_000));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let (mut both, mut neither) = (0, 0);
        for polls in 0.. {
            let quote = quote(store, whose.0, &offer, 1).await;
            let before = count_rows(store, "reservations").await;
            let reservations = store.reservations().of(whose.0);
            let new = new_reservation(whose.1, &quote);
            let mut placing = Box::pin(reservations.place_hold(new, at(1), None));
            let mut left = polls;
            let ended = poll_fn(|cx| {
                if left == 0 {
                    return Poll::Ready(None);
                }
                left -= 1;
                placing.as_mut().poll(cx).map(Some)
            })
            .await;
            let finished = ended.is_some();
            drop(placing);
            // The dropped change is rolled back before the next writer begins.
            store
                .events()
                .of(whose.0)
                .append(&[], at(1))
                .await
                .expect("nothing to write");
            let placed = count_rows(store, "reservations").await;
            let told = store.events().of(whose.0).last_sequence().await;
            assert_eq!(told.expect("reads"), u64::try_from(placed).expect("few"));
            match placed - before {
                0 => neither += 1,
                _ => both += 1,
            }
            if finished {
                break;
            }
        }
        assert!(both >= 1 && neither >= 1, "{both} and {neither}");
        let numbers: Vec<_> = told(store, whose.0).await;
        let numbers: Vec<u64> = numbers.iter().map(|event| event.sequence).collect();
        assert_eq!(numbers, (1..=both).collect::<Vec<_>>(), "no gap is left");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_with_a_cursor_misses_nothing_that_racing_writers_append() {
    const WRITERS: u64 = 8;
    const EACH: u64 = 12;
    for_each_database(async |store| {
        let (whose, _) = tenant(store, "acme").await;
        let mut tasks = JoinSet::new();
        for writer in 0..WRITERS {
            let store = store.clone();
            tasks.spawn(async move {
                for n in 0..EACH {
                    let pair = [something(writer * 100 + n), something(writer * 100 + n)];
                    let events = store.events().of(whose);
                    events.append(&pair, at(1)).await.expect("appended");
                }
            });
        }
        let all = 2 * WRITERS * EACH;
        let mut seen = 0;
        while seen < all {
            let filter = EventFilter {
                after: seen,
                ..EventFilter::default()
            };
            let events = store.events().of(whose);
            // Every event up to the counter can be read.
            let last = events.last_sequence().await.expect("reads");
            let page = events.list(&filter, 1_000).await.expect("reads");
            for (event, expected) in page.iter().zip(seen + 1..) {
                assert_eq!(event.sequence, expected, "no number is passed over");
            }
            seen += page.len() as u64;
            assert!(seen >= last, "{seen} of {last}");
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("a writer ends well");
        }
        let events = told(store, whose).await;
        assert_eq!(events.len() as u64, all);
        for pair in events.chunks(2) {
            assert_eq!(pair[0].data, pair[1].data, "a transaction's stay together");
        }
    })
    .await;
}

#[tokio::test]
async fn events_are_found_by_kind_and_reservation_and_by_their_own_tenant_alone() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(9));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let (acme, other) = (tenant(store, "acme").await, tenant(store, "other").await);
        let first = hold(store, acme, &offer, 1, at(1)).await.expect("a hold");
        hold(store, acme, &offer, 1, at(2)).await.expect("a hold");
        let theirs = hold(store, other, &offer, 1, at(3)).await.expect("a hold");
        let mine = store.events().of(acme.0);
        mine.append(&[something(1)], at(4)).await.expect("appended");
        let count = async |filter: EventFilter| mine.list(&filter, 9).await.expect("ok").len();
        let of = |id| EventFilter {
            reservation: Some(id),
            ..EventFilter::default()
        };
        assert_eq!(count(of(first.id)).await, 1);
        assert_eq!(count(of(theirs.id)).await, 0);
        let held = EventFilter {
            kinds: vec![T::ReservationHeld, T::ReservationClosed],
            ..EventFilter::default()
        };
        assert_eq!(count(held).await, 2);
        let middle = EventFilter {
            after: 1,
            up_to: Some(2),
            ..EventFilter::default()
        };
        assert_eq!(count(middle).await, 1);
        let theirs = told(store, other.0).await;
        assert_eq!((theirs.len(), theirs[0].sequence), (1, 1));
    })
    .await;
}
