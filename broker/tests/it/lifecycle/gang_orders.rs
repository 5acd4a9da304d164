//! The nodes of a gang whose provider rents each by itself: still measured together, once every order has
//! booted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use broker::flow::verify::{LeaseVerdict, measure_together, verdict_of};
use market::attestation::{FindingCode, Outcome, Verdict};
use market::ids::ReservationId;
use market::lease::{LeaseEvent, LeaseState};
use market::reservation::ReservationState;
use market::verification::{GangAnswer, GangCall};
use simulator::{FaultKind, Provider};
use store::fixture::{for_each_database, for_usual_database, statements_of};
use store::leases::Lease;
use verifier::agent::converse;
use verifier::http::HttpBroker;
use verifier::jws::Signer;

use super::gang::{access, documents, good_node, outcomes};
use super::scene::{Scene, training};
use super::tap::{Fate, Op};
use crate::eventually::{beside, in_time};

/// The replaced leases of a reservation, and the standing ones.
pub(super) async fn fallen_and_standing(
    scene: &Scene,
    id: ReservationId,
) -> (Vec<Lease>, Vec<Lease>) {
    let leases = scene.leases(id).await;
    leases
        .into_iter()
        .partition(|lease| lease.replaced_by.is_some())
}

/// Which of these leases failed, and why: for a person who reads the failure.
pub(super) fn falls<'a>(leases: &'a [Lease]) -> Vec<(LeaseEvent, &'a str)> {
    let fall = |lease: &'a Lease| Some((lease.fall_reason?, lease.fall_note.as_deref()?));
    leases.iter().filter_map(fall).collect()
}

/// How many measurings of gangs were begun for these leases.
pub(super) async fn checks(scene: &Scene, leases: &[Lease]) -> usize {
    let all = scene.store().verifications().across_tenants();
    let mut begun = 0;
    for lease in leases {
        for verification in all.of_lease(lease.id).await.expect("an answer") {
            let check = all.gang_check(verification.id).await.expect("an answer");
            begun += usize::from(check.is_some());
        }
    }
    begun
}

pub(super) async fn assert_measured_together(scene: &Scene, leases: &[Lease]) {
    for lease in leases {
        let documents = documents(scene, lease).await;
        for code in [FindingCode::NetworkPairs, FindingCode::NetworkAllReduce] {
            let expected = [(0, None), (0, Some(Outcome::Met))];
            assert_eq!(outcomes(&documents, code), expected, "{code}");
        }
        let together = outcomes(&documents, FindingCode::NetworkTogether);
        assert_eq!(together, [(0, None), (0, None)], "it was looked at");
        assert!(documents.iter().all(|one| one.verdict.is_pass()));
    }
    assert_eq!(checks(scene, leases).await, 1, "one for all of them");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nodes_of_several_orders_are_measured_together() {
    for_each_database(async |store| {
        let scene = Scene::open_node_by_node(store).await;
        let id = scene.reserve_until_active(training(24)).await;
        let leases = scene.leases(id).await;
        assert_eq!(leases.len(), 3, "these fell: {:?}", falls(&leases));
        assert_measured_together(&scene, &leases).await;
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_unlike_size_are_one_gang_whose_nodes_are_numbered_through() {
    for_usual_database(async |store| {
        let scene = Scene::open_two_by_two(store).await;
        // Of the first order, whose second node sends slowly to node 1 of the gang: to itself, so to none.
        scene.break_next(Provider::VOLTAGEPARK, FaultKind::SlowLink);
        let id = scene.reserve_until_active(training(24)).await;
        let leases = scene.leases(id).await;
        let nodes: Vec<u32> = leases.iter().map(|lease| lease.nodes).collect();
        assert_eq!(nodes, [2, 1], "these fell: {:?}", falls(&leases));
        for lease in &leases {
            let documents = documents(&scene, lease).await;
            let pairs = outcomes(&documents, FindingCode::NetworkPairs);
            let met = Some(Outcome::Met);
            let expected: Vec<_> = (0..lease.nodes)
                .flat_map(|node| [(node, None), (node, met)])
                .collect();
            assert_eq!(pairs, expected);
        }
        assert_eq!(checks(&scene, &leases).await, 1);
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_link_between_two_orders_fails_these_and_no_other() {
    for_usual_database(async |store| {
        let scene = Scene::open_node_by_node(store).await;
        // Of the first order, whose node sends slowly to the second.
        scene.break_next(Provider::VOLTAGEPARK, FaultKind::SlowLink);
        let id = scene.reserve_until_active(training(32)).await;
        let (fallen, standing) = fallen_and_standing(&scene, id).await;
        let reasons: Vec<_> = fallen.iter().map(|lease| lease.fall_reason).collect();
        let (failed, unwanted) = (Some(LeaseEvent::Failed), Some(LeaseEvent::Unwanted));
        assert_eq!(
            reasons,
            [failed, failed, unwanted, unwanted],
            "{:?}",
            falls(&fallen)
        );
        for (lease, slow) in fallen.iter().zip([true, true, false, false]) {
            let last = documents(&scene, lease).await.pop().expect("a document");
            let verdict = match slow {
                true => Verdict::Fail,
                false => Verdict::Pass,
            };
            assert_eq!(last.verdict, verdict, "{last:#?}");
            let pairs = last.findings.iter();
            let mut pairs = pairs.filter(|found| found.code == FindingCode::NetworkPairs);
            let note = &pairs.next().expect("a finding").note;
            assert!(
                note.contains("node 0 (") && note.contains(") sends to node 1 ("),
                "{note}"
            );
        }
        assert_eq!(standing.len(), 4);
        assert_measured_together(&scene, &standing).await;
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_comes_late_is_waited_for_beyond_the_time_of_the_others() {
    for_usual_database(async |store| {
        let scene = Scene::open_node_by_node(store).await;
        // The first order goes out more than half an hour after the others.
        let mut sent = 0;
        let is_late = Arc::new(AtomicBool::new(true));
        let first_is_late = Arc::clone(&is_late);
        scene.line.hook(move |call| {
            sent += usize::from(call.op == Op::Request);
            match call.op == Op::Request && first_is_late.load(Ordering::Relaxed) {
                true if sent != 2 && sent != 3 => Fate::Fail,
                _ => Fate::Forward,
            }
        });
        let id = scene.reserve(training(24)).await;
        scene.work().await;
        for _ in 0..8 {
            scene.turn(290).await;
        }
        is_late.store(false, Ordering::Relaxed);
        let leases = scene.leases(id).await;
        let states: Vec<_> = leases.iter().map(|lease| lease.state).collect();
        use LeaseState::{Requested, Verifying};
        assert_eq!(states, [Requested, Verifying, Verifying]);
        for lease in &leases[1..] {
            let over = lease.verify_deadline.expect("they are up");
            assert!(over < scene.broker().now(), "their own time is over");
            let alone = documents(&scene, lease).await;
            assert_eq!(alone.len(), 1, "they passed alone");
        }
        assert_eq!(checks(&scene, &leases).await, 0, "nothing to measure yet");
        scene.until(id, ReservationState::Active).await;
        let leases = scene.leases(id).await;
        assert_eq!(leases.len(), 3, "these fell: {:?}", falls(&leases));
        assert_measured_together(&scene, &leases).await;
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_never_comes_takes_those_that_wait_for_it_along_and_alone_is_to_blame() {
    for (fault, reason) in [
        (FaultKind::NeverCallsHome, LeaseEvent::TimedOut),
        (FaultKind::AcceptedThenFailed, LeaseEvent::BootFailed),
    ] {
        for_usual_database(async |store| {
            let scene = Scene::open_node_by_node(store).await;
            scene.break_next(Provider::VOLTAGEPARK, fault.clone());
            let id = scene.reserve_until_active(training(24)).await;
            let (fallen, standing) = fallen_and_standing(&scene, id).await;
            let reasons: Vec<_> = fallen.iter().map(|lease| lease.fall_reason).collect();
            let unwanted = Some(LeaseEvent::Unwanted);
            let expected = [Some(reason), unwanted, unwanted];
            assert_eq!(reasons, expected, "{fault:?}: {:?}", falls(&fallen));
            assert_measured_together(&scene, &standing).await;
            scene.assert_sound().await;
            scene.close().await;
        })
        .await;
    }
}

/// Checks that so many statements were sent, and that none read the answers of nodes or their documents.
fn assert_light(read: &[String], statements: usize) {
    assert_eq!(read.len(), statements, "{read:#?}");
    for heavy in ["jws", "\"session\""] {
        let all = read.join("\n");
        assert!(!all.contains(heavy), "{heavy} is read:\n{all}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_an_order_reads_as_much_however_many_orders_its_gang_has() {
    for gpus in [16, 32] {
        for_usual_database(async |store| {
            let scene = Scene::open_node_by_node(store).await;
            let id = scene.reserve_until_active(training(gpus)).await;
            for lease in scene.leases(id).await {
                let look = verdict_of(scene.broker(), &lease);
                let (verdict, read) = statements_of(look).await;
                assert_eq!(verdict.expect("an answer"), LeaseVerdict::Passed);
                // Its own results, the reservation, its leases, and the verdict on all of them.
                assert_light(&read, 4);
            }
            scene.close().await;
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_waits_for_others_reads_as_much_however_many_orders_its_gang_has() {
    for orders in [2_u32, 4] {
        for_each_database(async |store| {
            let scene = Scene::open_node_by_node(store).await;
            for _ in 0..orders {
                scene.break_next(Provider::VOLTAGEPARK, FaultKind::NeverCallsHome);
            }
            let id = scene.reserve(training(8 * orders)).await;
            scene.work().await;
            scene.turn(900).await;
            let lease = scene.leases(id).await.remove(0);
            assert_eq!(lease.state, LeaseState::Verifying);
            let (verification, token) = access(&scene.line.scripts()[0]);
            let signer = Signer::from_seed(&rand::random());
            let agent_key = signer.public_key().to_agent_key().expect("a key");
            let (secret, url) = (token.expose().to_owned(), scene.base_url().parse());
            let (mut node, url) = (good_node(&lease, 0).node(), url.expect("an address"));
            let alone = beside(move || {
                let patience = Duration::from_secs(60);
                let mut line = HttpBroker::new(url, verification, token, patience);
                converse(&mut node, verification, &signer, &mut line)
            });
            let alone = in_time("the end of the conversation", alone).await;
            let alone = alone.expect("no panic").expect("a conversation");
            assert!(alone.verdict.is_pass() && alone.gang, "{alone:?}");
            let call = GangCall {
                agent_key,
                rails: Vec::new(),
                nccl: None,
                done: None,
            };
            let called = measure_together(scene.broker(), verification, &secret, &call);
            let (answer, read) = statements_of(called).await;
            let answer = answer.expect("an answer");
            assert!(matches!(answer, GangAnswer::Gather { .. }), "{answer:?}");
            // Its verification, its own verdict, its lease, the reservation, all leases, the joint
            // measurement, and the outcomes of the nodes.
            assert_light(&read, 7);
            let (verdict, read) = statements_of(verdict_of(scene.broker(), &lease)).await;
            let waits = LeaseVerdict::Open { until: None };
            assert_eq!(verdict.expect("an answer"), waits);
            assert_light(&read, 5);
            scene.close().await;
        })
        .await;
    }
}
