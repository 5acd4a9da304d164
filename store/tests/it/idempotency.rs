use market::offer::Availability;
use store::fixture::{count_rows, for_each_database};
use store::idempotency::{Answer, Begun, Completion, IdempotencyMark};
use store::reservations::Reservation;
use store::{Store, StoreError};

use crate::support::{at, new_reservation, offer, quote, sell, tenant};

const POST: &str = "POST /v1/reservations";

async fn begin(store: &Store, tenant: market::ids::TenantId, body: &str, seconds: i64) -> Begun {
    store
        .idempotency()
        .of(tenant)
        .begin("key-1", POST, body, at(seconds))
        .await
        .expect("asks")
}

fn fresh(begun: Begun) -> IdempotencyMark {
    match begun {
        Begun::Fresh(mark) => mark,
        other => panic!("fresh, not {other:?}"),
    }
}

fn created(reservation: &Reservation) -> Answer {
    Answer {
        status: 201,
        body: format!("{{\"id\":\"{}\"}}", reservation.id),
    }
}

#[tokio::test]
async fn the_same_request_is_answered_alike_and_another_one_is_refused() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(9));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let (buyer, project) = tenant(store, "buyer").await;
        let (other, _) = tenant(store, "other").await;
        let mark = fresh(begin(store, buyer, "hash", 1).await);
        assert_eq!(begin(store, buyer, "hash", 2).await, Begun::InProgress);
        assert_eq!(begin(store, buyer, "other hash", 2).await, Begun::Mismatch);
        fresh(begin(store, other, "other hash", 2).await);
        let quote = quote(store, buyer, &offer, 1).await;
        let completion = Completion {
            mark: Some(&mark),
            audit: None,
            render: &created,
        };
        let new = new_reservation(project, &quote);
        let reservations = store.reservations().of(buyer);
        let held = reservations
            .place_hold(new, at(3), Some(completion))
            .await
            .expect("held");
        assert_eq!(
            begin(store, buyer, "hash", 4).await,
            Begun::Replay(created(&held))
        );
        assert_eq!(begin(store, buyer, "other hash", 4).await, Begun::Mismatch);
        let day_later = 86_401;
        assert_eq!(
            begin(store, buyer, "hash", 86_400).await,
            Begun::Replay(created(&held))
        );
        fresh(begin(store, buyer, "other hash", day_later).await);
        let forget = async || {
            let now = at(2 * day_later);
            let forgotten = store.retention().prune_idempotency_keys(now, 1).await;
            forgotten.expect("forgets")
        };
        assert_eq!(forget().await, 1, "a batch at a time");
        assert_eq!((forget().await, forget().await), (1, 0));
    })
    .await;
}

#[tokio::test]
async fn a_refused_request_leaves_its_key_free() {
    for_each_database(async |store| {
        let (buyer, _) = tenant(store, "buyer").await;
        let mark = fresh(begin(store, buyer, "hash", 1).await);
        store
            .idempotency()
            .of(buyer)
            .abandon(&mark)
            .await
            .expect("given back");
        assert_eq!(count_rows(store, "idempotency_keys").await, 0);
        fresh(begin(store, buyer, "corrected", 2).await);
    })
    .await;
}

#[tokio::test]
async fn a_try_that_was_taken_over_can_no_longer_have_an_effect() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(9));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let (buyer, project) = tenant(store, "buyer").await;
        let lost = fresh(begin(store, buyer, "hash", 1).await);
        assert_eq!(begin(store, buyer, "hash", 60).await, Begun::InProgress);
        let second = fresh(begin(store, buyer, "hash", 61).await);
        let quote = quote(store, buyer, &offer, 1).await;
        let reservations = store.reservations().of(buyer);
        let place = async |mark: &IdempotencyMark| {
            let completion = Completion {
                mark: Some(mark),
                audit: None,
                render: &created,
            };
            let new = new_reservation(project, &quote);
            reservations.place_hold(new, at(62), Some(completion)).await
        };
        let late = place(&lost).await;
        assert!(matches!(late, Err(StoreError::Stale)), "{late:?}");
        assert_eq!(count_rows(store, "reservations").await, 0);
        let held = place(&second).await.expect("the quote is still open");
        assert_eq!(
            begin(store, buyer, "hash", 63).await,
            Begun::Replay(created(&held))
        );
    })
    .await;
}
