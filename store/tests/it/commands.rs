use market::lease::LeaseState;
use market::offer::Availability;
use market::order::ProviderLeaseId;
use market::reservation::{CloseReason, ReservationState};
use store::StoreError;
use store::change::{Change, LeaseFacts, LeaseUpdate, ReservationMove};
use store::commands::Command;
use store::fixture::for_each_database;
use store::reservations::RequestedAction;

use crate::support::{at, claim, hold, offer, provisioning, sell, tenant, token};

fn step(id: market::ids::LeaseId, from: LeaseState, to: LeaseState) -> LeaseUpdate {
    LeaseUpdate {
        id,
        from,
        to,
        facts: LeaseFacts::default(),
    }
}

#[tokio::test]
async fn a_wish_during_a_claim_loses_no_result_and_is_taken_up_at_once() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(2));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let (reservation, lease) = provisioning(store, whose, &offer).await;
        let held = claim(store, reservation.id, at(5)).await;
        let wish = Command::RequestedAction(RequestedAction::Cancel);
        let reservations = store.reservations().of(whose.0);
        let wished = reservations
            .command(reservation.id, reservation.version, wish, at(6), None)
            .await
            .expect("noted while a worker is busy");
        assert_eq!(
            (wished.wish, wished.wish_at),
            (RequestedAction::Cancel, Some(at(6)))
        );
        assert_eq!(wished.state, ReservationState::Provisioning);
        let facts = LeaseFacts {
            provider_lease_id: Some(ProviderLeaseId("i-1".to_owned())),
            ..LeaseFacts::default()
        };
        let change = Change {
            lease_updates: vec![LeaseUpdate {
                facts,
                ..step(lease, LeaseState::Requested, LeaseState::Booting)
            }],
            due_at: Some(at(500)),
            ..Change::default()
        };
        store
            .work()
            .apply(&held.claim, &change, at(7))
            .await
            .expect("the machine is known");
        let due = store
            .work()
            .claim_due(token(), at(7), 60, 9)
            .await
            .expect("claims");
        let [taken_up] = &due[..] else {
            panic!("due at once, not {due:?}")
        };
        assert_eq!(taken_up.reservation.wish, RequestedAction::Cancel);
        assert_eq!(
            taken_up.leases[0].provider_lease_id,
            Some(ProviderLeaseId("i-1".to_owned()))
        );
        // Once a worker takes the wish up, it no longer makes the reservation due.
        let change = Change {
            due_at: Some(at(500)),
            ..Change::default()
        };
        store
            .work()
            .apply(&taken_up.claim, &change, at(8))
            .await
            .expect("applied");
        assert!(
            store
                .work()
                .claim_due(token(), at(499), 60, 9)
                .await
                .expect("ok")
                .is_empty()
        );
        // A second wish does not move the time of the first.
        let again = reservations
            .find(reservation.id)
            .await
            .expect("reads")
            .expect("there");
        let later = Command::RequestedAction(RequestedAction::Release);
        let again = reservations
            .command(again.id, again.version, later, at(90), None)
            .await;
        let again = again.expect("noted");
        assert_eq!(
            (again.wish, again.wish_at),
            (RequestedAction::Cancel, Some(at(6)))
        );
    })
    .await;
}

#[tokio::test]
async fn an_extension_moves_the_end_and_wakes_the_worker() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(2));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let held = hold(store, whose, &offer, 1, at(1)).await.expect("a hold");
        assert_eq!(held.window_end, None);
        let reservations = store.reservations().of(whose.0);
        let extend = Command::Extend(at(7_200));
        let extended = reservations
            .command(held.id, held.version, extend, at(2), None)
            .await;
        let extended = extended.expect("extended");
        assert_eq!(
            (extended.window_end, extended.state),
            (Some(at(7_200)), held.state)
        );
        assert_eq!(
            store
                .work()
                .claim_due(token(), at(2), 60, 9)
                .await
                .expect("ok")
                .len(),
            1
        );
    })
    .await;
}

#[tokio::test]
async fn a_confirmation_makes_a_lapsing_worker_stale() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(2));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let held = hold(store, whose, &offer, 1, at(1)).await.expect("a hold");
        let worker = claim(store, held.id, at(300)).await;
        let reservations = store.reservations().of(whose.0);
        let confirm = Command::Move(ReservationState::Confirmed);
        let confirmed = reservations
            .command(held.id, held.version, confirm, at(300), None)
            .await
            .expect("ok");
        assert_eq!(confirmed.confirmed_at, Some(at(300)));
        let twice = reservations
            .command(held.id, held.version, confirm, at(301), None)
            .await;
        assert!(matches!(twice, Err(StoreError::Stale)), "{twice:?}");
        let lapse = Change {
            reservation: Some(ReservationMove {
                from: ReservationState::Held,
                to: ReservationState::Closed(CloseReason::Expired),
            }),
            ..Change::default()
        };
        let stale = store.work().apply(&worker.claim, &lapse, at(301)).await;
        assert!(matches!(stale, Err(StoreError::Stale)), "{stale:?}");
        let now = reservations
            .find(held.id)
            .await
            .expect("reads")
            .expect("there");
        assert_eq!(now.state, ReservationState::Confirmed);
    })
    .await;
}
