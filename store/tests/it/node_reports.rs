//! Reports on nodes: the consequence is decided once, and only so often.

use chrono::TimeDelta;
use market::attestation::{FindingCode, Verdict};
use market::event::EventType;
use market::ids::{LeaseId, NodeReportId, PrincipalId, ReservationId, TenantId};
use market::offer::Availability;
use market::reservation::ReservationState;
use store::change::{Change, NewLease};
use store::commands::Command;
use store::fixture::{execute_raw, for_each_database};
use store::node_reports::{Follows, NewNodeReport, NodeReport, REPAIRS, REPORTS};
use store::{Conflict, Store, StoreError};
use uuid::Uuid;

use crate::support::{at, claim, hold, offer, sell, tenant};

/// A report with this verdict.
pub fn report(
    reservation: ReservationId,
    lease: LeaseId,
    verdict: Option<Verdict>,
) -> NewNodeReport {
    NewNodeReport {
        id: NodeReportId::from_uuid(Uuid::now_v7()),
        reservation_id: reservation,
        lease_id: lease,
        node: 0,
        reported_by: PrincipalId::from_uuid(Uuid::from_u128(7)),
        reason: Some("slow".to_owned()),
        verdict,
        failed: vec![FindingCode::MemoryPattern],
        missing: Vec::new(),
        foreign: Vec::new(),
        result: Some(serde_json::json!({ "verdict": verdict })),
    }
}

/// A fleet in use, of so many leases.
pub async fn fleet(
    store: &Store,
    name: &str,
    leases: u32,
) -> (TenantId, ReservationId, Vec<LeaseId>) {
    let offer = offer("a", Availability::exactly(leases));
    sell(store, std::slice::from_ref(&offer), at(0)).await;
    let whose = tenant(store, name).await;
    let held = hold(store, whose, &offer, leases, at(1))
        .await
        .expect("a hold");
    let confirm = Command::Move(ReservationState::Confirmed);
    let reservations = store.reservations().of(whose.0);
    let confirmed = reservations.command(held.id, held.version, confirm, at(2), None);
    confirmed.await.expect("confirmed");
    let claimed = claim(store, held.id, at(3)).await;
    let new_lease = |node_base| NewLease {
        id: LeaseId::from_uuid(Uuid::now_v7()),
        line: 0,
        offer: offer.clone(),
        nodes: 1,
        node_base,
        replaces: None,
    };
    let new_leases: Vec<NewLease> = (0..leases).map(new_lease).collect();
    let ids = new_leases.iter().map(|lease| lease.id).collect();
    let change = Change {
        due_at: Some(at(4)),
        new_leases,
        holds_released: true,
        ..Change::default()
    };
    let saved = store.work().apply(&claimed.claim, &change, at(3)).await;
    saved.expect("the leases are saved");
    for change in [
        "UPDATE leases SET state = 'handed_off'",
        "UPDATE reservations SET gang = FALSE",
    ] {
        execute_raw(store, change).await.expect("changed");
    }
    (whose.0, held.id, ids)
}

async fn in_use(store: &Store, name: &str) -> (TenantId, ReservationId, LeaseId) {
    let (tenant, reservation, leases) = fleet(store, name, 1).await;
    (tenant, reservation, leases[0])
}

#[tokio::test]
async fn a_report_is_kept_told_and_followed_once_for_a_lease_in_use_alone() {
    for_each_database(async |store| {
        let (acme, reservation, lease) = in_use(store, "acme").await;
        let (other, _) = tenant(store, "other").await;
        let foreign = report(reservation, lease, Some(Verdict::Fail));
        let reports = store.node_reports();
        let stranger = reports.of(other).add(&foreign, at(10), None).await;
        assert!(
            matches!(stranger, Err(StoreError::NotFound { .. })),
            "{stranger:?}"
        );
        let add = async |new: NewNodeReport, seconds| {
            let kept = reports.of(acme).add(&new, at(seconds), None).await;
            kept.expect("kept")
        };
        for verdict in [None, Some(Verdict::Pass), Some(Verdict::Inconclusive)] {
            let kept = add(report(reservation, lease, verdict), 9).await;
            assert_eq!(kept.follows, Follows::NothingFailed);
        }
        let before = store.reservations().of(acme).find(reservation).await;
        assert_ne!(before.expect("reads").expect("there").due_at, Some(at(10)));
        let new = report(reservation, lease, Some(Verdict::Fail));
        let kept = add(new.clone(), 10).await;
        let expected = NodeReport {
            id: new.id,
            tenant_id: acme,
            reservation_id: reservation,
            lease_id: lease,
            node: 0,
            reported_by: new.reported_by,
            reason: new.reason.clone(),
            verdict: new.verdict,
            failed: new.failed.clone(),
            missing: Vec::new(),
            foreign: Vec::new(),
            result: new.result.clone(),
            follows: Follows::Repair,
            reported_at: at(10),
        };
        assert_eq!(kept, expected);
        let due = store.reservations().of(acme).find(reservation).await;
        assert_eq!(due.expect("reads").expect("there").due_at, Some(at(10)));
        let again = add(report(reservation, lease, Some(Verdict::Fail)), 11).await;
        assert_eq!(again.follows, Follows::Already);
        let repairing = reports.across_tenants().repairing(lease).await;
        assert_eq!(repairing.expect("reads"), Some(expected));
        let listed = reports
            .of(acme)
            .of_node(reservation, 0, None, 2)
            .await
            .expect("reads");
        assert_eq!(
            listed.iter().map(|one| one.id).collect::<Vec<_>>(),
            [again.id, new.id]
        );
        let older = reports
            .of(acme)
            .of_node(reservation, 0, Some(new.id), 9)
            .await;
        assert_eq!(older.expect("reads").len(), 3);
        for (whose, node) in [(other, 0), (acme, 1)] {
            let none = reports.of(whose).of_node(reservation, node, None, 9).await;
            assert_eq!(none.expect("reads"), []);
        }
        let events = store.events().of(acme).list(&Default::default(), 100).await;
        let told = events.expect("reads").into_iter();
        let told: Vec<_> = told
            .filter(|event| event.kind == EventType::NodeReported)
            .collect();
        assert_eq!(told.len(), 5);
        assert_eq!(told[3].data["follows"], "repair");
        assert_eq!(told[3].data["failed"], serde_json::json!(["mem.pattern"]));

        let gone = format!("UPDATE leases SET state = 'releasing' WHERE id = '{lease}'");
        execute_raw(store, &gone).await.expect("changed");
        let late = report(reservation, lease, Some(Verdict::Fail));
        let late = reports.of(acme).add(&late, at(12), None).await;
        assert!(matches!(late, Err(StoreError::Stale)), "{late:?}");
        let rewritten = execute_raw(store, "DELETE FROM node_reports").await;
        assert!(rewritten.expect_err("kept").contains("append-only"));
    })
    .await;
}

#[tokio::test]
async fn gpus_that_are_gone_are_a_failure_and_a_gang_is_left_to_its_tenant() {
    for_each_database(async |store| {
        let (acme, reservation, lease) = in_use(store, "acme").await;
        let gang = format!("UPDATE reservations SET gang = TRUE WHERE id = '{reservation}'");
        execute_raw(store, &gang).await.expect("changed");
        let mut new = report(reservation, lease, Some(Verdict::Pass));
        new.missing = vec!["GPU-3".to_owned()];
        let kept = store.node_reports().of(acme).add(&new, at(10), None).await;
        assert_eq!(kept.expect("kept").follows, Follows::Gang);
        let followed = store.node_reports().across_tenants().repairing(lease).await;
        assert_eq!(followed.expect("reads"), None);
    })
    .await;
}

#[tokio::test]
async fn only_so_many_machines_of_a_reservation_are_replaced_on_reports_within_a_day() {
    for_each_database(async |store| {
        let (acme, reservation, leases) = fleet(store, "acme", REPAIRS as u32 + 2).await;
        let reports = store.node_reports();
        let add = async |lease: LeaseId, seconds| {
            let new = report(reservation, lease, Some(Verdict::Fail));
            let kept = reports.of(acme).add(&new, at(seconds), None).await;
            kept.expect("kept").follows
        };
        for lease in &leases[..REPAIRS] {
            assert_eq!(add(*lease, 10).await, Follows::Repair);
        }
        assert_eq!(add(leases[REPAIRS], 11).await, Follows::TooOften);
        assert_eq!(add(leases[0], 12).await, Follows::Already);
        let day = 24 * 3_600;
        assert_eq!(add(leases[REPAIRS], 9 + day).await, Follows::TooOften);
        assert_eq!(add(leases[REPAIRS], 10 + day).await, Follows::Repair);
        assert_eq!(add(leases[0], 11 + day).await, Follows::Already);
    })
    .await;
}

#[tokio::test]
async fn nobody_fills_the_database_with_reports() {
    for_each_database(async |store| {
        let (acme, reservation, lease) = in_use(store, "acme").await;
        let reports = store.node_reports();
        let add = async |seconds| {
            let new = report(reservation, lease, Some(Verdict::Fail));
            reports.of(acme).add(&new, at(seconds), None).await
        };
        assert_eq!(add(10).await.expect("kept").follows, Follows::Repair);
        for seconds in 11..10 + REPORTS as i64 {
            let kept = add(seconds).await.expect("kept");
            assert_eq!(kept.follows, Follows::Already);
        }
        let refused = add(100).await.expect_err("too many");
        let day = 24 * 3_600;
        let again = u64::try_from(10 + day - 100).expect("later");
        assert!(
            matches!(
                refused,
                StoreError::Conflict(Conflict::TooManyReports { most: REPORTS, again_in_seconds, .. })
                    if again_in_seconds == again
            ),
            "{refused:?}"
        );
        let later = at(10 + day) - TimeDelta::seconds(1);
        let new = report(reservation, lease, Some(Verdict::Fail));
        assert!(reports.of(acme).add(&new, later, None).await.is_err());
        add(10 + day).await.expect("there is room again");
    })
    .await;
}
