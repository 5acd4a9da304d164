//! Re-checks of nodes in use: one token for many conversations, and the result of each.

use market::attestation::{FindingCode, Verdict};
use market::ids::{AttestationId, LeaseId, ReservationId, TenantId, VerificationId};
use store::fixture::{execute_raw, for_each_database};
use store::node_reports::{Follows, REPAIRS};
use store::rechecks::{EVERY_MINUTES, NewPermit, NewRecheck, Recheck};
use store::verifications::{
    Interruption, NewAttestation, NewNodeSession, NodeStep, VerificationState,
};
use store::{Conflict, Store, StoreError};
use uuid::Uuid;

use crate::node_reports::{fleet, report};
use crate::support::at;

fn permit(reservation: ReservationId, lease: LeaseId) -> NewPermit {
    NewPermit {
        id: VerificationId::from_uuid(Uuid::now_v7()),
        reservation_id: reservation,
        lease_id: lease,
        node_index: 0,
        token_hash: Uuid::now_v7().simple().to_string(),
        until: at(1_000_000),
    }
}

pub(crate) async fn enrol(
    store: &Store,
    id: VerificationId,
    agent: &str,
    seconds: i64,
) -> Result<bool, StoreError> {
    let node = NewNodeSession {
        node_index: 0,
        host: "198.51.100.7".to_owned(),
        agent_key: agent.to_owned(),
        step: 1,
        session: serde_json::json!({}),
    };
    let all = store.verifications().across_tenants();
    let enrolled = all.enrol(id, &node, at(seconds)).await?;
    Ok(enrolled.fresh)
}

/// A complete re-check of a node, with this result.
pub(crate) async fn look(
    store: &Store,
    id: VerificationId,
    verdict: Verdict,
    seconds: i64,
) -> Result<AttestationId, StoreError> {
    let agent = Uuid::now_v7().to_string();
    assert!(enrol(store, id, &agent, seconds).await?);
    let failed = match verdict {
        Verdict::Fail => vec![FindingCode::InventoryPinned],
        _ => Vec::new(),
    };
    let attestation = AttestationId::from_uuid(Uuid::now_v7());
    let step = NodeStep {
        agent_key: agent,
        from: 1,
        to: 5,
        session: serde_json::json!({}),
        attestation: Some(NewAttestation {
            id: attestation,
            verdict,
            simulated: true,
            jws: "a.b.c".to_owned(),
        }),
        sightings: Vec::new(),
        recheck: Some(NewRecheck {
            node: 0,
            pinned_set_changed: !failed.is_empty(),
            failed,
        }),
    };
    let all = store.verifications().across_tenants();
    all.advance(id, 0, &step, at(seconds)).await?;
    Ok(attestation)
}

pub(crate) async fn allowed(
    store: &Store,
    tenant: TenantId,
    reservation: ReservationId,
    lease: LeaseId,
) -> VerificationId {
    let permit = permit(reservation, lease);
    let mine = store.rechecks().of(tenant);
    mine.permit(&permit, at(10), None).await.expect("permitted");
    permit.id
}

async fn last(store: &Store, tenant: TenantId, lease: LeaseId) -> Vec<Recheck> {
    let mine = store.rechecks().of(tenant);
    mine.last_of_lease(lease).await.expect("an answer")
}

#[tokio::test]
async fn one_token_serves_for_many_looks_and_not_for_two_at_once() {
    for_each_database(async |store| {
        let (tenant, reservation, leases) = fleet(store, "acme", 1).await;
        let lease = leases[0];
        let id = allowed(store, tenant, reservation, lease).await;
        assert_eq!(last(store, tenant, lease).await, []);
        let first = look(store, id, Verdict::Pass, 20).await.expect("a look");
        let too_soon = enrol(store, id, "another", 19 + EVERY_MINUTES * 60).await;
        let again_in_seconds = 1;
        let lately = Conflict::RecheckedLately { again_in_seconds };
        assert!(
            matches!(&too_soon, Err(StoreError::Conflict(why)) if *why == lately),
            "{too_soon:?}"
        );
        // Nor by a token that replaces it.
        let id = allowed(store, tenant, reservation, lease).await;
        let too_soon = enrol(store, id, "another", 19 + EVERY_MINUTES * 60).await;
        assert!(
            matches!(&too_soon, Err(StoreError::Conflict(why)) if *why == lately),
            "{too_soon:?}"
        );
        let later = 20 + EVERY_MINUTES * 60;
        let second = look(store, id, Verdict::Pass, later).await.expect("a look");
        let kept = last(store, tenant, lease).await;
        assert_eq!(kept.len(), 1);
        assert_eq!(
            (kept[0].attestation_id, kept[0].follows, kept[0].checked_at),
            (second, Follows::NothingFailed, at(later))
        );
        // Both documents are there, and neither is the one of the hand-off.
        let mine = store.verifications().of(tenant);
        assert!(mine.attestation(first).await.expect("reads").is_some());
        assert_eq!(mine.attestations_of(lease).await.expect("reads"), []);
        let all = store.verifications().across_tenants();
        let newest = all.newest_of(lease).await.expect("reads");
        assert!(newest.is_none(), "none by which its order was sent");
        let rewritten = execute_raw(store, "DELETE FROM node_rechecks").await;
        assert!(rewritten.is_err());
    })
    .await;
}

#[tokio::test]
async fn a_look_that_is_cut_off_lets_none_begin_sooner() {
    for_each_database(async |store| {
        let (tenant, reservation, leases) = fleet(store, "acme", 1).await;
        let first = allowed(store, tenant, reservation, leases[0]).await;
        assert!(enrol(store, first, "one", 20).await.expect("enrols"));
        let all = store.verifications().across_tenants();
        let cut = all.interrupt(first, "one", 1, at(25)).await;
        assert_eq!(cut.expect("ends"), Interruption::Ended);
        // Neither by the same token nor by one that replaces it.
        let same = enrol(store, first, "two", 26).await;
        assert!(same.is_err(), "{same:?}");
        let again = allowed(store, tenant, reservation, leases[0]).await;
        let too_soon = enrol(store, again, "two", 26).await;
        let again_in_seconds = EVERY_MINUTES as u64 * 60 - 6;
        let lately = Conflict::RecheckedLately { again_in_seconds };
        assert!(
            matches!(&too_soon, Err(StoreError::Conflict(why)) if *why == lately),
            "{too_soon:?}"
        );
        let later = enrol(store, again, "two", 20 + EVERY_MINUTES * 60).await;
        assert!(later.expect("enrols"));
    })
    .await;
}

#[tokio::test]
async fn a_token_is_taken_back_by_another_and_by_its_tenant_and_is_made_for_what_is_in_use() {
    for_each_database(async |store| {
        let (tenant, reservation, leases) = fleet(store, "acme", 1).await;
        let (lease, mine) = (leases[0], store.rechecks().of(tenant));
        let old = allowed(store, tenant, reservation, lease).await;
        let new = allowed(store, tenant, reservation, lease).await;
        let all = store.verifications().across_tenants();
        let state = async |id| {
            let found = all.find(id).await.expect("reads").expect("there");
            assert_eq!(found.recheck_node, Some(0));
            found.state
        };
        assert_eq!(state(old).await, VerificationState::Abandoned);
        assert_eq!(state(new).await, VerificationState::Open);
        let stranger = store.rechecks().of(TenantId::from_uuid(Uuid::now_v7()));
        let theirs = stranger.revoke(reservation, (lease, 0), at(11), None).await;
        assert!(matches!(theirs, Err(StoreError::NotFound { .. })));
        let theirs = stranger
            .permit(&permit(reservation, lease), at(11), None)
            .await;
        assert!(matches!(theirs, Err(StoreError::NotFound { .. })));
        let of_node = (lease, 0);
        mine.revoke(reservation, of_node, at(12), None)
            .await
            .expect("taken back");
        assert_eq!(state(new).await, VerificationState::Abandoned);
        let again = mine.revoke(reservation, of_node, at(13), None).await;
        assert!(matches!(again, Err(StoreError::NotFound { .. })));
        let last = allowed(store, tenant, reservation, lease).await;
        let released = "UPDATE leases SET state = 'releasing'";
        execute_raw(store, released).await.expect("changed");
        let late = mine.permit(&permit(reservation, lease), at(14), None).await;
        assert!(matches!(late, Err(StoreError::Stale)), "{late:?}");
        let over = look(store, last, Verdict::Fail, 15).await;
        let closed = Conflict::VerificationClosed;
        assert!(
            matches!(&over, Err(StoreError::Conflict(why)) if *why == closed),
            "{over:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn failed_looks_and_reports_replace_only_so_many_leases_together() {
    for_each_database(async |store| {
        let (tenant, reservation, leases) = fleet(store, "acme", 5).await;
        let reports = store.node_reports().of(tenant);
        let reported = report(reservation, leases[0], Some(Verdict::Fail));
        let kept = reports.add(&reported, at(10), None).await.expect("kept");
        assert_eq!(kept.follows, Follows::Repair);
        let mut follows = Vec::new();
        for lease in &leases {
            let id = allowed(store, tenant, reservation, *lease).await;
            look(store, id, Verdict::Fail, 20).await.expect("a look");
            follows.push(last(store, tenant, *lease).await[0].follows);
        }
        use Follows::{Already, Repair, TooOften};
        assert_eq!(REPAIRS, 3);
        assert_eq!(follows, [Already, Repair, Repair, TooOften, TooOften]);
        let all = store.rechecks().across_tenants();
        let first = all.repairing(leases[0]).await.expect("an answer");
        assert_eq!(first, None, "it is replaced on its tenant's report");
        let second = all.repairing(leases[1]).await.expect("an answer");
        assert!(second.expect("a look").pinned_set_changed);
    })
    .await;
}
