use std::collections::BTreeSet;

use market::acceptance::AcceptanceRecord;
use market::cooling::EarlyFailure;
use market::lease::{LeaseEvent, LeaseState};
use market::offer::Availability;
use market::order::{ClientToken, ProviderLeaseId, ProviderNode};
use market::reservation::{CloseReason, ReservationState};
use store::change::{Change, LeaseFacts, LeaseUpdate, NewAttempt, ReservationMove};
use store::fixture::{claim_one, count_rows, for_each_database};
use store::{Conflict, StoreError};
use tokio::task::JoinSet;

use crate::support::{at, claim, hold, offer, provisioning, sell, tenant, token};

fn step(id: market::ids::LeaseId, from: LeaseState, to: LeaseState) -> LeaseUpdate {
    LeaseUpdate {
        id,
        from,
        to,
        facts: LeaseFacts::default(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_workers_claim_each_reservation_once() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(100));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        for _ in 0..24 {
            hold(store, whose, &offer, 1, at(1)).await.expect("a hold");
        }
        assert!(
            store
                .work()
                .claim_due(token(), at(299), 60, 9)
                .await
                .expect("ok")
                .is_empty()
        );
        let mut workers = JoinSet::new();
        for _ in 0..16 {
            let store = store.clone();
            workers.spawn(async move {
                store
                    .work()
                    .claim_due(token(), at(300), 60, 4)
                    .await
                    .expect("claims")
            });
        }
        let mut claimed: Vec<_> = workers.join_all().await.into_iter().flatten().collect();
        // A worker skips rows that another is claiming at that moment, so a last claim may find some.
        claimed.extend(
            store
                .work()
                .claim_due(token(), at(300), 60, 100)
                .await
                .expect("claims"),
        );
        let ids: BTreeSet<_> = claimed
            .iter()
            .map(|claimed| claimed.reservation.id)
            .collect();
        assert_eq!((claimed.len(), ids.len()), (24, 24));
        let one = *ids.first().expect("some");
        let taken = claim_one(store, one, token(), at(359), 60)
            .await
            .expect("asks");
        assert!(taken.is_none(), "until it expires");
        let again = store
            .work()
            .claim_due(token(), at(360), 60, 100)
            .await
            .expect("claims");
        assert_eq!(again.len(), 24);
    })
    .await;
}

#[tokio::test]
async fn a_result_of_a_lost_claim_is_dropped_whole() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(2));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let (reservation, lease) = provisioning(store, whose, &offer).await;
        let slow = claim(store, reservation.id, at(5)).await;
        let fast = claim(store, reservation.id, at(65)).await;
        let change = Change {
            lease_updates: vec![step(lease, LeaseState::Requested, LeaseState::Booting)],
            attempts: vec![NewAttempt {
                lease_id: lease,
                outcome: LeaseEvent::Accepted,
                note: None,
                at: at(66),
            }],
            keep_claim: true,
            ..Change::default()
        };
        let stale = store.work().apply(&slow.claim, &change, at(66)).await;
        assert!(matches!(stale, Err(StoreError::Stale)), "{stale:?}");
        assert!(matches!(
            store.work().renew(&slow.claim, at(66), 60).await,
            Err(StoreError::Stale)
        ));
        assert_eq!(count_rows(store, "attempts").await, 0);
        store
            .work()
            .apply(&fast.claim, &change, at(66))
            .await
            .expect("the holder's result");
        let now = store
            .work()
            .renew(&fast.claim, at(67), 60)
            .await
            .expect("still its");
        assert_eq!(now.leases[0].state, LeaseState::Booting);
        assert_eq!(count_rows(store, "attempts").await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_step_from_a_state_that_is_past_writes_nothing() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(2));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let (reservation, lease) = provisioning(store, whose, &offer).await;
        let held = claim(store, reservation.id, at(5)).await;
        let reservation_past = Change {
            reservation: Some(ReservationMove {
                from: ReservationState::Confirmed,
                to: ReservationState::Provisioning,
            }),
            last_error: Some("must not be seen".to_owned()),
            ..Change::default()
        };
        // The first lease's step is legal and must be rolled back with the second, which is not.
        let lease_past = Change {
            lease_updates: vec![
                step(lease, LeaseState::Requested, LeaseState::Booting),
                step(lease, LeaseState::Requested, LeaseState::Withdrawn),
            ],
            last_error: Some("must not be seen".to_owned()),
            ..Change::default()
        };
        for change in [reservation_past, lease_past] {
            let stale = store.work().apply(&held.claim, &change, at(6)).await;
            assert!(matches!(stale, Err(StoreError::Stale)), "{stale:?}");
        }
        let still = store
            .work()
            .renew(&held.claim, at(7), 60)
            .await
            .expect("still claimed");
        assert_eq!(still.reservation, reservation);
        assert_eq!(still.leases, held.leases);
    })
    .await;
}

#[tokio::test]
async fn facts_about_a_lease_are_kept_beside_those_known_before() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(2));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let (reservation, lease) = provisioning(store, whose, &offer).await;
        let saved = store
            .leases()
            .across_tenants()
            .find(lease)
            .await
            .expect("reads")
            .expect("it");
        assert_eq!(saved.client_token, ClientToken::of(lease));
        assert_eq!((saved.state, saved.attempts), (LeaseState::Requested, 0));
        let node = ProviderNode {
            host: "198.51.100.7".to_owned(),
            port: 22,
            user: "ubuntu".to_owned(),
            private_address: None,
        };
        let rounds = [
            LeaseFacts {
                provider_lease_id: Some(ProviderLeaseId("i-1".to_owned())),
                attempts: Some(2),
                accepted_at: Some(at(5)),
                started_at: Some(at(4)),
                ..LeaseFacts::default()
            },
            LeaseFacts {
                provider_nodes: Some(vec![node.clone()]),
                up_at: Some(at(6)),
                verify_deadline: Some(at(600)),
                ..LeaseFacts::default()
            },
            LeaseFacts {
                fall_reason: Some(LeaseEvent::BootFailed),
                fall_note: Some("no route".to_owned()),
                release_accepted_at: Some(at(7)),
                ..LeaseFacts::default()
            },
        ];
        let states = [
            LeaseState::Requested,
            LeaseState::Booting,
            LeaseState::Booting,
            LeaseState::Releasing,
        ];
        for (round, facts) in rounds.into_iter().enumerate() {
            let held = claim(store, reservation.id, at(8)).await;
            let update = LeaseUpdate {
                id: lease,
                from: states[round],
                to: states[round + 1],
                facts,
            };
            let change = Change {
                lease_updates: vec![update],
                ..Change::default()
            };
            store
                .work()
                .apply(&held.claim, &change, at(9))
                .await
                .expect("saved");
        }
        let all = store
            .leases()
            .across_tenants()
            .live_at(&offer.provider)
            .await
            .expect("reads");
        let [lease] = &all[..] else {
            panic!("one live lease, not {all:?}")
        };
        assert_eq!(
            lease.provider_lease_id,
            Some(ProviderLeaseId("i-1".to_owned()))
        );
        assert_eq!(lease.provider_nodes, [node]);
        assert_eq!((lease.started_at, lease.up_at), (Some(at(4)), Some(at(6))));
        assert_eq!(lease.attempts, 2);
        assert_eq!(lease.fall_reason, Some(LeaseEvent::BootFailed));
        assert_eq!(lease.gone_at, None);
    })
    .await;
}

#[tokio::test]
async fn a_reservation_is_closed_only_when_every_lease_is_gone() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(2));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let (reservation, lease) = provisioning(store, whose, &offer).await;
        let releasing = ReservationState::Releasing(CloseReason::Cancelled);
        let closed = ReservationState::Closed(CloseReason::Cancelled);
        let held = claim(store, reservation.id, at(5)).await;
        let change = Change {
            reservation: Some(ReservationMove {
                from: ReservationState::Provisioning,
                to: releasing,
            }),
            lease_updates: vec![step(lease, LeaseState::Requested, LeaseState::Withdrawn)],
            keep_claim: true,
            ..Change::default()
        };
        store
            .work()
            .apply(&held.claim, &change, at(6))
            .await
            .expect("releasing");
        let close = Change {
            reservation: Some(ReservationMove {
                from: releasing,
                to: closed,
            }),
            ..Change::default()
        };
        let early = store.work().apply(&held.claim, &close, at(7)).await;
        assert!(
            matches!(early, Err(StoreError::Conflict(Conflict::LiveLeases))),
            "{early:?}"
        );
        let gone = Change {
            lease_updates: vec![step(lease, LeaseState::Withdrawn, LeaseState::Gone)],
            ..close
        };
        store
            .work()
            .apply(&held.claim, &gone, at(8))
            .await
            .expect("closed");
        let reservation = store
            .reservations()
            .across_tenants()
            .find(reservation.id)
            .await;
        let reservation = reservation.expect("reads").expect("there");
        assert_eq!(
            (reservation.state, reservation.closed_at),
            (closed, Some(at(8)))
        );
        store
            .work()
            .nudge(reservation.id, at(9))
            .await
            .expect("asks");
        assert!(
            store
                .work()
                .claim_due(token(), at(999), 60, 9)
                .await
                .expect("ok")
                .is_empty()
        );
        let dead = claim_one(store, reservation.id, token(), at(999), 60).await;
        assert!(dead.expect("asks").is_none());
    })
    .await;
}

#[tokio::test]
async fn failed_orders_are_remembered_by_offer_and_accepted_ones_are_not_failures() {
    for_each_database(async |store| {
        let mut offer = offer("a", Availability::exactly(2));
        offer.place.region = Some("community".to_owned());
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let (reservation, lease) = provisioning(store, whose, &offer).await;
        let attempt = |outcome, seconds| NewAttempt {
            lease_id: lease,
            outcome,
            note: Some("as told".to_owned()),
            at: at(seconds),
        };
        let attempts = vec![
            attempt(LeaseEvent::Refused, 10),
            attempt(LeaseEvent::Refused, 12),
            attempt(LeaseEvent::Accepted, 20),
            attempt(LeaseEvent::BootFailed, 25),
            attempt(LeaseEvent::BootFailed, 30),
        ];
        let recorded = async |change: Change, now| {
            let held = claim(store, reservation.id, at(now)).await;
            let work = store.work();
            let applied = work.apply(&held.claim, &change, at(now)).await;
            applied.expect("recorded");
        };
        let change = Change {
            attempts: attempts.clone(),
            ..Change::default()
        };
        recorded(change, 31).await;
        let failures = async |since| {
            let all = store.attempts().early_failures_since(at(since)).await;
            all.expect("reads").remove(&offer.offer_id)
        };
        assert_eq!(failures(0).await, None, "the order never left us");
        let ended = async |since| {
            let all = store.attempts().acceptance_since(at(since)).await;
            all.expect("reads").remove(&offer.provider)
        };
        assert_eq!(ended(0).await, None, "the order never left us");
        let facts = |facts| LeaseUpdate {
            id: lease,
            from: LeaseState::Requested,
            to: LeaseState::Requested,
            facts,
        };
        let sent = facts(LeaseFacts {
            attempts: Some(1),
            ..LeaseFacts::default()
        });
        let change = Change {
            lease_updates: vec![sent],
            ..Change::default()
        };
        recorded(change, 32).await;
        let failed = EarlyFailure {
            tenant_id: whose.0,
            at: at(30),
        };
        assert_eq!(failures(10).await, Some(vec![failed]), "once a reservation");
        assert_eq!(failures(30).await, Some(vec![failed]));
        assert_eq!(failures(31).await, None);
        // An accepted order has not ended yet, and a repeated outcome counts once for its reservation.
        let both = AcceptanceRecord {
            refused: 1,
            boot_failed: 1,
            ..AcceptanceRecord::default()
        };
        assert_eq!(ended(10).await, Some(both));
        assert_eq!(ended(30).await.map(|record| record.outcomes()), Some(1));
        assert_eq!(ended(31).await, None);
        // A failure in its tenant's hands is counted apart, and puts nothing in cool-down.
        let handed_over = facts(LeaseFacts {
            handed_off_at: Some(at(29)),
            ..LeaseFacts::default()
        });
        let change = Change {
            lease_updates: vec![handed_over],
            ..Change::default()
        };
        recorded(change, 33).await;
        assert_eq!(failures(0).await, None);
        let in_use = AcceptanceRecord {
            fell_in_use: 2,
            ..AcceptanceRecord::default()
        };
        assert_eq!(ended(0).await, Some(in_use));
    })
    .await;
}
