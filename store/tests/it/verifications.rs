use market::attestation::Verdict;
use market::ids::{AttestationId, LeaseId, ReservationId, VerificationId};
use market::offer::Availability;
use store::change::Change;
use store::fixture::{for_each_database, statements_of};
use store::verifications::{
    Alone, GangResult, GangStep, Interruption, NewAttestation, NewNodeSession, NewVerification,
    NodeSession, NodeStep, VerificationState,
};
use store::{Conflict, Store, StoreError};
use uuid::Uuid;

use crate::support::{at, claim, offer, provisioning, sell, tenant, token};

pub(crate) struct Opened {
    pub(crate) verification: VerificationId,
    pub(crate) reservation: ReservationId,
    pub(crate) lease: LeaseId,
    tenant: market::ids::TenantId,
}

/// Opens a verification of two nodes; its reservation is due at 500.
pub(crate) async fn opened(store: &Store) -> Opened {
    let offer = offer("a", Availability::exactly(9));
    sell(store, std::slice::from_ref(&offer), at(0)).await;
    let whose = tenant(store, "acme").await;
    let (reservation, lease) = provisioning(store, whose, &offer).await;
    let verification = VerificationId::from_uuid(Uuid::now_v7());
    let held = claim(store, reservation.id, at(5)).await;
    let change = Change {
        verifications: vec![NewVerification {
            sealed_push: Some(b"sealed".to_vec()),
            id: verification,
            lease_id: lease,
            enrol_hash: "enrol".to_owned(),
            nodes: 2,
            deadline: at(900),
        }],
        due_at: Some(at(500)),
        ..Change::default()
    };
    store
        .work()
        .apply(&held.claim, &change, at(5))
        .await
        .expect("opened");
    Opened {
        verification,
        reservation: reservation.id,
        lease,
        tenant: whose.0,
    }
}

pub(crate) fn node(node_index: u32, agent: &str) -> NewNodeSession {
    NewNodeSession {
        node_index,
        host: "198.51.100.7".to_owned(),
        agent_key: agent.to_owned(),
        step: 1,
        session: serde_json::json!({"nonce": agent}),
    }
}

pub(crate) fn step(agent: &str, from: u8, to: u8, verdict: Option<Verdict>) -> NodeStep {
    NodeStep {
        recheck: None,
        sightings: Vec::new(),
        agent_key: agent.to_owned(),
        from,
        to,
        session: serde_json::json!({"step": to}),
        attestation: verdict.map(|verdict| NewAttestation {
            id: AttestationId::from_uuid(Uuid::now_v7()),
            verdict,
            simulated: true,
            jws: "a.b.c".to_owned(),
        }),
    }
}

#[tokio::test]
async fn each_node_that_was_leased_enrols_once() {
    for_each_database(async |store| {
        let opened = opened(store).await;
        let all = store.verifications().across_tenants();
        let found = all.of_lease(opened.lease).await.expect("reads");
        assert_eq!(
            (found[0].id, found[0].reservation_id),
            (opened.verification, opened.reservation)
        );
        let newest = all.newest_of(opened.lease).await.expect("reads");
        assert_eq!(newest.as_ref(), found.last());
        let id = opened.verification;
        let second = all
            .enrol(id, &node(1, "two"), at(10))
            .await
            .expect("enrols");
        let first = all
            .enrol(id, &node(0, "one"), at(11))
            .await
            .expect("enrols");
        let again = all
            .enrol(id, &node(0, "one"), at(12))
            .await
            .expect("its answer was lost");
        assert_eq!((again.fresh, &again.node), (false, &first.node));
        let double = all.enrol(id, &node(0, "three"), at(13)).await;
        assert!(
            matches!(double, Err(StoreError::Conflict(Conflict::Exists { .. }))),
            "{double:?}"
        );
        let third = all.enrol(id, &node(2, "three"), at(13)).await;
        let full = Conflict::VerificationFull { nodes: 2 };
        assert!(
            matches!(&third, Err(StoreError::Conflict(conflict)) if *conflict == full),
            "{third:?}"
        );
        let second = NodeSession {
            has_begun: true,
            ..second.node
        };
        let nodes = all.nodes(id).await.expect("reads");
        assert_eq!(nodes, [first.node, second.clone()]);
        let by_key = all.node_by_key(id, "two").await.expect("reads");
        assert_eq!(by_key.as_ref(), Some(&second));
        let unknown = VerificationId::from_uuid(Uuid::now_v7());
        let nowhere = all.enrol(unknown, &node(0, "one"), at(14)).await;
        assert!(
            matches!(nowhere, Err(StoreError::NotFound { .. })),
            "{nowhere:?}"
        );
        assert_eq!(all.node_by_key(unknown, "two").await.expect("reads"), None);
    })
    .await;
}

#[tokio::test]
async fn a_step_counts_once_and_the_last_one_wakes_the_worker() {
    for_each_database(async |store| {
        let opened = opened(store).await;
        let all = store.verifications().across_tenants();
        let id = opened.verification;
        all.enrol(id, &node(0, "one"), at(10))
            .await
            .expect("enrols");
        let (one, other) = (step("one", 1, 2, None), step("one", 1, 2, None));
        let (first, second) = tokio::join!(
            all.advance(id, 0, &one, at(11)),
            all.advance(id, 0, &other, at(11))
        );
        let refusals: Vec<_> = [first, second]
            .into_iter()
            .filter_map(Result::err)
            .collect();
        assert!(matches!(refusals[..], [StoreError::Stale]), "{refusals:?}");
        assert!(
            store
                .work()
                .claim_due(token(), at(11), 9, 9)
                .await
                .expect("ok")
                .is_empty()
        );
        let another = step("two", 2, 3, None);
        let in_its_name = all.advance(id, 0, &another, at(12)).await;
        assert!(
            matches!(in_its_name, Err(StoreError::Stale)),
            "it is another agent's conversation: {in_its_name:?}"
        );
        let last = step("one", 2, 5, Some(Verdict::Pass));
        all.advance(id, 0, &last, at(12))
            .await
            .expect("the last step");
        let again = all
            .advance(id, 0, &step("one", 5, 5, Some(Verdict::Fail)), at(13))
            .await;
        assert!(
            matches!(again, Err(StoreError::Stale)),
            "a verdict stands: {again:?}"
        );
        let woken = store
            .work()
            .claim_due(token(), at(12), 9, 9)
            .await
            .expect("claims");
        assert_eq!(woken.len(), 1);
        let nodes = all.nodes(id).await.expect("reads");
        assert_eq!((nodes[0].step, nodes[0].verdict), (5, Some(Verdict::Pass)));
        let kept = all.attestations_of(opened.lease).await.expect("reads");
        assert_eq!((kept[0].jws.as_str(), kept[0].simulated), ("a.b.c", true));
        let own = store.verifications().of(opened.tenant);
        assert_eq!(
            own.attestations_of(opened.lease).await.expect("reads"),
            kept
        );
        assert_eq!(
            own.attestation(kept[0].id).await.expect("reads").as_ref(),
            Some(&kept[0])
        );
        let (stranger, _) = tenant(store, "stranger").await;
        let foreign = store.verifications().of(stranger);
        assert_eq!(foreign.attestation(kept[0].id).await.expect("reads"), None);
        assert_eq!(
            foreign.attestations_of(opened.lease).await.expect("reads"),
            []
        );
    })
    .await;
}

#[tokio::test]
async fn a_verification_that_is_over_takes_no_more_steps() {
    for_each_database(async |store| {
        let opened = opened(store).await;
        let all = store.verifications().across_tenants();
        let id = opened.verification;
        all.enrol(id, &node(0, "one"), at(10))
            .await
            .expect("enrols");
        let before = all.find(id).await.expect("reads").expect("kept");
        assert_eq!(before.sealed_push.as_deref(), Some(&b"sealed"[..]));
        for end in [VerificationState::Failed, VerificationState::Passed] {
            let held = claim(store, opened.reservation, at(11)).await;
            let change = Change {
                closed_verifications: vec![(id, end)],
                ..Change::default()
            };
            store
                .work()
                .apply(&held.claim, &change, at(12))
                .await
                .expect("over");
        }
        let found = all.find(id).await.expect("reads").expect("kept");
        assert_eq!(
            found.state,
            VerificationState::Failed,
            "it stays as it ended"
        );
        assert_eq!(found.closed_at, Some(at(12)));
        assert_eq!(found.sealed_push, None, "nothing opens its nodes any more");
        let late = all.advance(id, 0, &step("one", 1, 2, None), at(13)).await;
        assert!(matches!(late, Err(StoreError::Stale)), "{late:?}");
        let late = all.enrol(id, &node(1, "two"), at(13)).await;
        let closed = matches!(
            late,
            Err(StoreError::Conflict(Conflict::VerificationClosed))
        );
        assert!(closed, "{late:?}");
    })
    .await;
}

#[tokio::test]
async fn a_node_that_was_interrupted_begins_anew_three_times_and_no_more() {
    use Interruption::{Ended, HasMoved};
    for_each_database(async |store| {
        let opened = opened(store).await;
        let all = store.verifications().across_tenants();
        let id = opened.verification;
        for (agent, second) in [("one", 10), ("two", 20), ("three", 30), ("four", 40)] {
            all.enrol(id, &node(0, agent), at(second))
                .await
                .expect("enrols");
            // It has moved on by then; it ends; it has already ended.
            let looks = [(2, HasMoved), (1, Ended), (1, HasMoved)];
            for (step, expected) in looks {
                let cut = all.interrupt(id, agent, step, at(second + 5)).await;
                assert_eq!(cut.expect("an answer"), expected, "{agent} at {step}");
            }
            let same = all.enrol(id, &node(1, agent), at(second + 7)).await;
            let committed = matches!(same, Err(StoreError::Conflict(Conflict::AgentKeyCommitted)));
            assert!(committed, "a key speaks once: {same:?}");
        }
        let fifth = all.enrol(id, &node(0, "five"), at(50)).await;
        let too_often = Conflict::InterruptedTooOften { times: 4 };
        assert!(
            matches!(&fifth, Err(StoreError::Conflict(conflict)) if *conflict == too_often),
            "{fifth:?}"
        );
        all.enrol(id, &node(1, "five"), at(51))
            .await
            .expect("its neighbour was never interrupted");
        let last = step("five", 1, 5, Some(Verdict::Pass));
        all.advance(id, 1, &last, at(52)).await.expect("its result");
        let cut = all.interrupt(id, "five", 5, at(53)).await;
        assert_eq!(cut.expect("an answer"), HasMoved, "a result stands");
    })
    .await;
}

fn gang_step(from: i32, stage: u32, verdict: Option<Verdict>) -> GangStep {
    GangStep {
        from,
        stage,
        state: serde_json::json!({"stage": stage}),
        verdict,
        attestations: Vec::new(),
    }
}

#[tokio::test]
async fn nodes_that_are_measured_together_go_on_step_by_step_on_any_replica() {
    for_each_database(async |store| {
        let opened = opened(store).await;
        let id = opened.verification;
        let all = store.verifications();
        let all = all.across_tenants();
        assert_eq!(all.gang_check(id).await.expect("an answer"), None);
        let state = serde_json::json!({"stage": 0});
        assert!(
            all.begin_gang_check(id, &state, at(20))
                .await
                .expect("begun")
        );
        let again = all
            .begin_gang_check(id, &serde_json::json!({}), at(21))
            .await;
        assert!(!again.expect("an answer"), "somebody was faster");

        let first = gang_step(0, 1, None);
        all.keep_gang_step(id, &first, at(22)).await.expect("kept");
        let slower = all.keep_gang_step(id, &gang_step(0, 1, None), at(22)).await;
        assert!(matches!(slower, Err(StoreError::Stale)), "{slower:?}");
        let kept = all.gang_check(id).await.expect("an answer").expect("a row");
        assert_eq!((kept.version, kept.stage, kept.verdict), (1, 1, None));
        assert_eq!(kept.state, first.state);
        let lasted = all.gang_stage_lasted(id).await.expect("an answer");
        assert!(
            lasted.is_some_and(|lasted| lasted.as_secs() < 60),
            "{lasted:?}"
        );

        let results = [(0, Verdict::Fail), (1, Verdict::Pass)];
        let signed = |(node, verdict)| {
            let step = step("a", 4, 5, Some(verdict));
            GangResult {
                verification_id: id,
                node_index: node,
                attestation: step.attestation.expect("a result"),
            }
        };
        let last = GangStep {
            attestations: results.into_iter().map(signed).collect(),
            ..gang_step(1, 2, Some(Verdict::Fail))
        };
        all.keep_gang_step(id, &last, at(30)).await.expect("kept");
        let kept = all.attestations_of(opened.lease).await.expect("an answer");
        let kept: Vec<_> = kept
            .iter()
            .map(|one| (one.node_index, one.verdict))
            .collect();
        assert_eq!(kept, results);
        let due = store
            .reservations()
            .across_tenants()
            .find(opened.reservation)
            .await;
        let due = due.expect("an answer").expect("the reservation").due_at;
        assert_eq!(due, Some(at(30)), "somebody looks at it at once");
        let after = all.keep_gang_step(id, &gang_step(2, 3, None), at(31)).await;
        assert!(matches!(after, Err(StoreError::Stale)), "a result stands");
    })
    .await;
}

#[tokio::test]
async fn the_time_of_a_stage_begins_with_the_stage_and_not_with_each_step() {
    for_each_database(async |store| {
        let opened = opened(store).await;
        let id = opened.verification;
        let all = store.verifications();
        let all = all.across_tenants();
        let state = serde_json::json!({});
        assert!(
            all.begin_gang_check(id, &state, at(20))
                .await
                .expect("begun")
        );
        let lasted = async || {
            let lasted = all.gang_stage_lasted(id).await.expect("an answer");
            lasted.expect("it runs")
        };
        let before = lasted().await;
        all.keep_gang_step(id, &gang_step(0, 0, None), at(21))
            .await
            .expect("kept");
        let same_stage = lasted().await;
        assert!(same_stage >= before, "{same_stage:?} after {before:?}");
        // Long enough for a restart to show.
        while lasted().await < std::time::Duration::from_millis(200) {}
        all.keep_gang_step(id, &gang_step(1, 1, None), at(22))
            .await
            .expect("kept");
        assert!(lasted().await < std::time::Duration::from_millis(200));
    })
    .await;
}

#[tokio::test]
async fn how_far_several_orders_are_is_one_statement_that_reads_nothing_that_was_said() {
    for_each_database(async |store| {
        let opened = opened(store).await;
        let (all, id) = (store.verifications(), opened.verification);
        let all = all.across_tenants();
        let leases = [opened.lease, LeaseId::from_uuid(Uuid::now_v7())];
        let light = |read: &[String]| {
            let all = read.join("\n");
            assert!(
                !all.contains("\"session\"") && !all.contains("jws"),
                "{all}"
            );
            read.len()
        };
        assert_eq!(all.alone(&leases).await.expect("reads"), Alone::default());
        for (index, agent) in [(1, "two"), (0, "one")] {
            let enrolled = all.enrol(id, &node(index, agent), at(10)).await;
            enrolled.expect("enrols");
        }
        assert_eq!(all.verdict_of_agent(id, "one").await.expect("reads"), None);
        let passed = step("one", 1, 5, Some(Verdict::PassWithWarnings));
        all.advance(id, 0, &passed, at(11)).await.expect("kept");
        let (alone, read) = statements_of(all.alone(&leases)).await;
        let one_passed = Alone {
            passed: 1,
            fell: None,
        };
        assert_eq!((alone.expect("reads"), light(&read)), (one_passed, 1));
        let (failed, read) = statements_of(all.any_failed(&leases)).await;
        assert_eq!((failed.expect("reads"), light(&read)), (false, 1));
        let failed = step("two", 1, 5, Some(Verdict::Inconclusive));
        all.advance(id, 1, &failed, at(12)).await.expect("kept");
        let fell = Alone {
            fell: Some(Verdict::Inconclusive),
            ..one_passed
        };
        assert_eq!(all.alone(&leases).await.expect("reads"), fell);
        assert!(all.any_failed(&leases).await.expect("reads"));
        let verdict = all.verdict_of_agent(id, "two").await.expect("reads");
        assert_eq!(verdict, Some(Verdict::Inconclusive));
        let (outcomes, read) = statements_of(all.outcomes_of(opened.lease)).await;
        let outcomes: Vec<_> = outcomes.expect("reads").into_iter().collect();
        let said: Vec<_> = outcomes
            .iter()
            .map(|one| (one.node_index, one.verdict))
            .collect();
        let expected = [(0, Verdict::PassWithWarnings), (1, Verdict::Inconclusive)];
        assert_eq!((&said[..], light(&read)), (&expected[..], 1));
        let newest = all.newest_of_each(&leases).await.expect("reads");
        assert_eq!(newest, [(opened.lease, id)], "the other was never sent");
        let (agents, read) = statements_of(all.agents_of(&[id])).await;
        let mut keys: Vec<_> = agents.expect("reads").into_iter().collect();
        keys.sort_by_key(|agent| agent.node_index);
        let keys: Vec<_> = keys.iter().map(|one| one.agent_key.as_str()).collect();
        assert_eq!((&keys[..], light(&read)), (&["one", "two"][..], 1));
        assert_eq!(
            all.nodes_of(&[id]).await.expect("reads"),
            all.nodes(id).await.expect("reads")
        );

        // A newer verification of the lease is the only one that counts.
        let held = claim(store, opened.reservation, at(20)).await;
        let newer = NewVerification {
            sealed_push: None,
            id: VerificationId::from_uuid(Uuid::now_v7()),
            lease_id: opened.lease,
            enrol_hash: "again".to_owned(),
            nodes: 2,
            deadline: at(900),
        };
        let change = Change {
            verifications: vec![newer.clone()],
            ..Change::default()
        };
        let work = store.work();
        work.apply(&held.claim, &change, at(20))
            .await
            .expect("opened");
        assert_eq!(all.alone(&leases).await.expect("reads"), Alone::default());
        assert!(!all.any_failed(&leases).await.expect("reads"));
        assert_eq!(all.outcomes_of(opened.lease).await.expect("reads"), []);
        let newest = all.newest_of_each(&leases).await.expect("reads");
        assert_eq!(newest, [(opened.lease, newer.id)]);
        let none = all.gang_verdict(opened.lease).await.expect("reads");
        assert_eq!(none, None, "not begun");
        let state = serde_json::json!({});
        let begun = all.begin_gang_check(newer.id, &state, at(21)).await;
        assert!(begun.expect("begun"));
        assert_eq!(all.gang_verdict(opened.lease).await.expect("reads"), None);
        let last = gang_step(0, 1, Some(Verdict::Pass));
        all.keep_gang_step(newer.id, &last, at(22))
            .await
            .expect("kept");
        let over = all.gang_verdict(opened.lease).await.expect("reads");
        assert_eq!(over, Some(Verdict::Pass));
    })
    .await;
}
