//! A worker's save while its connection is cut, at each statement in turn: all of it, or nothing.

use std::collections::BTreeMap;

use market::ids::VerificationId;
use market::lease::{LeaseEvent, LeaseState};
use market::offer::{Availability, Offer};
use market::order::ProviderLeaseId;
use store::change::{Change, LeaseFacts, LeaseUpdate, NewAttempt, NewLease, WindowEnd};
use store::fixture::{Cut, TestDatabase, Wire, contents, count_rows};
use store::verifications::NewVerification;
use store::work::Claimed;
use store::{Store, StoreError};
use uuid::Uuid;

use crate::ledger::cost;
use crate::metering::charge;
use crate::support::{at, claim, offer, provisioning, sell, tenant};

/// A save with a row for every table that a worker writes in one round.
fn everything(claimed: &Claimed, offer: &Offer) -> Change {
    let (reservation, lease) = (&claimed.reservation, &claimed.leases[0]);
    let whose = (reservation.tenant_id, reservation.project_id);
    let id = VerificationId::from_uuid(Uuid::now_v7());
    Change {
        window_end: WindowEnd::At(at(9_000)),
        last_error: Some("a remark".into()),
        due_at: Some(at(60)),
        keep_claim: true,
        lease_updates: vec![LeaseUpdate {
            id: lease.id,
            from: LeaseState::Requested,
            to: LeaseState::Booting,
            facts: LeaseFacts {
                provider_lease_id: Some(ProviderLeaseId("i-1".into())),
                accepted_at: Some(at(5)),
                ..LeaseFacts::default()
            },
        }],
        new_leases: vec![NewLease {
            id: market::ids::LeaseId::from_uuid(Uuid::now_v7()),
            line: 0,
            offer: offer.clone(),
            nodes: 1,
            node_base: 1,
            replaces: None,
        }],
        verifications: vec![NewVerification {
            id,
            lease_id: lease.id,
            enrol_hash: id.to_string(),
            nodes: 1,
            deadline: at(900),
            sealed_push: None,
        }],
        attempts: vec![NewAttempt {
            lease_id: lease.id,
            outcome: LeaseEvent::Accepted,
            note: None,
            at: at(5),
        }],
        charges: vec![charge(whose, reservation, lease.id, 100, 7)],
        transactions: vec![cost(&lease.id.to_string(), 7, at(5))],
        ..Change::default()
    }
}

/// Tables that get a row or two, and how many.
const MORE: [(&str, i64); 7] = [
    ("leases", 1),
    ("verifications", 1),
    ("attempts", 1),
    ("charges", 1),
    ("transactions", 1),
    ("postings", 2),
    ("events", 2),
];

/// How many rows each of them has.
async fn rows(store: &Store) -> BTreeMap<&'static str, i64> {
    let mut rows = BTreeMap::new();
    for (table, _) in MORE {
        rows.insert(table, count_rows(store, table).await);
    }
    rows
}

#[tokio::test]
async fn what_a_worker_saves_over_a_connection_that_is_cut_at_any_statement_is_whole_or_not_there()
{
    let Some(test) = TestDatabase::postgres().await else {
        return;
    };
    let wire = Wire::to(&test.database);
    let store = Store::connect(wire.database()).await.expect("connects");
    let offer = offer("a", Availability::exactly(9));
    sell(&test.store, std::slice::from_ref(&offer), at(0)).await;
    let whose = tenant(&test.store, "acme").await;
    let mut cuts = Vec::new();
    for cut in [Cut::Before, Cut::After] {
        let (reservation, _) = provisioning(&test.store, whose, &offer).await;
        let claimed = claim(&test.store, reservation.id, at(4)).await;
        let change = everything(&claimed, &offer);
        let before = contents(&test.store).await;
        let counted = rows(&test.store).await;
        for trips in 0.. {
            wire.cut_after(trips, cut);
            let outcome = store.work().apply(&claimed.claim, &change, at(5)).await;
            let was_cut = !wire.mend();
            match outcome {
                Err(StoreError::Unavailable { .. }) => {
                    assert!(was_cut);
                    assert_eq!(rows(&test.store).await, counted, "{cut:?} {trips}");
                    // Reading all of the database takes time, so not each time.
                    if trips % 16 == 15 {
                        assert_eq!(contents(&test.store).await, before, "{cut:?} {trips}");
                    }
                }
                Err(other) => panic!("{cut:?} {trips}: {other:?}"),
                Ok(()) => {
                    // When the answer to the COMMIT is lost, the database shows whether it committed.
                    assert_eq!(was_cut, cut == Cut::After, "{trips}");
                    cuts.push(trips);
                    break;
                }
            }
        }
        let now = rows(&test.store).await;
        for (table, more) in MORE {
            assert_eq!(now[table] - counted[table], more, "{table}");
        }
        let again = store.work().renew(&claimed.claim, at(6), 60).await;
        let again = again.expect("it has its claim");
        assert_eq!(again.leases[0].state, LeaseState::Booting);
        assert_eq!(again.reservation.window_end, Some(at(9_000)));
    }
    assert!(cuts.iter().all(|statements| *statements > 20), "{cuts:?}");
    store.close().await.expect("closes");
    test.remove().await;
}
