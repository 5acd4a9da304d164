//! The nodes of one rental, measured together after each has passed alone.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use broker::flow::verify::measure_together;
use broker::platform::app::Broker;
use market::attestation::{Attestation, FindingCode, Outcome, Verdict};
use market::ids::VerificationId;
use market::lease::{LeaseEvent, LeaseState};
use market::verification::{GangAnswer, GangCall, Rail};
use serde_json::json;
use simulator::{FaultKind, Provider};
use store::fixture::{for_each_database, for_usual_database};
use store::leases::Lease;
use verifier::address::Token;
use verifier::agent::converse;
use verifier::http::HttpBroker;
use verifier::jws::Signer;
use verifier::reference::NodeDescription;

use super::scene::{Scene, container, training};
use super::spoken::{commit, fresh_key};
use crate::eventually::{beside, in_time};

/// The signed documents about a lease: per node in order, the last one after the earlier ones.
pub(super) async fn documents(scene: &Scene, lease: &Lease) -> Vec<Attestation> {
    let all = scene.store().verifications();
    let kept = all.across_tenants().attestations_of(lease.id).await;
    let read = |jws: &str| {
        let payload = jws.split('.').nth(1).expect("three parts");
        let json = URL_SAFE_NO_PAD.decode(payload).expect("base64");
        serde_json::from_slice(&json).expect("an attestation")
    };
    kept.expect("an answer")
        .iter()
        .map(|one| read(&one.jws))
        .collect()
}

/// How each node's own part in a check came out; none in a document without it.
pub(super) fn outcomes(
    documents: &[Attestation],
    code: FindingCode,
) -> Vec<(u32, Option<Outcome>)> {
    let of = |document: &Attestation| {
        let found = document.findings.iter().find(|found| found.code == code);
        (document.node_index, found.map(|found| found.outcome))
    };
    documents.iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nodes_of_a_rental_are_measured_together_and_their_documents_say_so() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(training(24)).await;
        let leases = scene.leases(id).await;
        let documents = documents(&scene, &leases[0]).await;
        for code in [FindingCode::NetworkPairs, FindingCode::NetworkAllReduce] {
            let met = Some(Outcome::Met);
            let expected = [
                (0, None),
                (0, met),
                (1, None),
                (1, met),
                (2, None),
                (2, met),
            ];
            assert_eq!(outcomes(&documents, code), expected, "{code}");
        }
        let last = documents.last().expect("a document");
        assert!(last.verdict.is_pass(), "{last:#?}");
        let unproved = last.what_this_does_not_prove.join("\n");
        assert!(
            unproved.contains("only the hosts' usual network was measured"),
            "{unproved}"
        );
        assert!(
            !unproved.contains("network between nodes under load"),
            "{unproved}"
        );
        let together = scene.store().verifications();
        let check = together
            .across_tenants()
            .gang_check(last.verification_id)
            .await;
        let check = check.expect("an answer").expect("a row");
        assert!(check.verdict.is_some_and(Verdict::is_pass));
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rental_with_one_slow_link_falls_whole_with_the_pair_named_and_is_replaced() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        scene.break_next(Provider::VOLTAGEPARK, FaultKind::SlowLink);
        let id = scene.reserve_until_active(training(32)).await;
        let leases = scene.leases(id).await;
        let (fell, stands) = (&leases[0], leases.last().expect("a lease"));
        assert_eq!(fell.fall_reason, Some(LeaseEvent::Failed));
        assert_eq!((fell.replaced_by, stands.nodes), (Some(stands.id), 4));
        let documents = documents(&scene, fell).await;
        let together: Vec<Attestation> = documents.into_iter().skip(1).step_by(2).collect();
        let verdicts: Vec<Verdict> = together.iter().map(|one| one.verdict).collect();
        use Verdict::{Fail, Pass};
        assert_eq!(verdicts, [Pass, Fail, Pass, Fail], "{together:#?}");
        let findings = &together[1].findings;
        let pairs = findings
            .iter()
            .find(|found| found.code == FindingCode::NetworkPairs);
        let note = &pairs.expect("a finding").note;
        assert!(
            note.contains("node 3 (") && note.contains(") sends to node 1 ("),
            "{note}"
        );
        assert!(
            fell.fall_note
                .as_ref()
                .is_some_and(|note| note.contains("node 1"))
        );
        // Nothing was charged for the failed leases.
        let charges = scene.charges(id).await;
        assert!(
            charges
                .iter()
                .all(|charge| charge.usage.lease_id == stands.id)
        );
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rental_of_which_one_node_is_another_one_again_falls_whole_and_is_replaced() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        scene.break_next(Provider::VOLTAGEPARK, FaultKind::SameNodeTwice);
        let id = scene.reserve_until_active(training(24)).await;
        let leases = scene.leases(id).await;
        let (fell, stands) = (&leases[0], leases.last().expect("a lease"));
        assert_eq!(fell.fall_reason, Some(LeaseEvent::Failed));
        assert_eq!((fell.replaced_by, stands.nodes), (Some(stands.id), 3));
        let of_fallen = documents(&scene, fell).await;
        let unique = outcomes(&of_fallen, FindingCode::InventoryUnique);
        let twins = unique.iter().filter(|(node, _)| *node != 1);
        // The one that reported first may have been alone with its GPUs then.
        let failed = Some(Outcome::Failed);
        assert!(twins.into_iter().any(|(_, it)| *it == failed), "{unique:?}");
        assert!(!unique.contains(&(1, failed)), "{unique:?}");
        let of_standing = documents(&scene, stands).await;
        let unique = outcomes(&of_standing, FindingCode::InventoryUnique);
        assert!(unique.iter().all(|(_, it)| *it == Some(Outcome::Met)));
        let charges = scene.charges(id).await;
        assert!(charges.iter().all(|it| it.usage.lease_id == stands.id));
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_sold_alone_is_not_measured_with_others() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        for demand in [training(8), container()] {
            let id = scene.reserve_until_active(demand).await;
            let leases = scene.leases(id).await;
            let documents = documents(&scene, &leases[0]).await;
            let pairs = outcomes(&documents, FindingCode::NetworkPairs);
            assert_eq!(pairs, [(0, None)]);
            let together = outcomes(&documents, FindingCode::NetworkTogether);
            assert_eq!(together, [(0, None)], "it has no others");
        }
        scene.close().await;
    })
    .await;
}

/// The credentials in an order's start-up script.
pub(crate) fn access(script: &str) -> (VerificationId, Token) {
    let after = |mark: &str| {
        let rest = script.split_once(mark).expect("it is there").1;
        rest.split_once('\'').expect("quoted").0.to_owned()
    };
    let token = after("VERIFIER_TOKEN='").parse().expect("a token");
    (after("--verification '").parse().expect("an id"), token)
}

/// A good node of a lease.
pub(super) fn good_node(lease: &Lease, index: u32) -> NodeDescription {
    let gpus = lease.offer.gpus.as_whole().expect("whole GPUs");
    let description = json!({
        "schema": "simulated-node-1", "node_index": index,
        "host": lease.provider_nodes[index as usize].host, "gpu": "H100-SXM", "gpus": gpus,
        "memory_mib": 81_559, "vcpus": lease.offer.vcpus, "memory_gib": lease.offer.memory_gib,
        "uuids": (0..gpus).map(|gpu| format!("GPU-{gpu}-of-{index}")).collect::<Vec<_>>(),
        "driver": "570.0", "internode": lease.offer.internode,
    });
    NodeDescription::parse(&description.to_string()).expect("a description")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_never_comes_ends_the_measuring_as_timed_out_on_whichever_replica() {
    for_each_database(async |store| {
        let mut scene = Scene::open(store).await;
        scene.break_next(Provider::VOLTAGEPARK, FaultKind::NeverCallsHome);
        let id = scene.reserve(training(16)).await;
        scene.work().await;
        scene.turn(900).await;
        let lease = scene.leases(id).await.remove(0);
        assert_eq!(lease.state, LeaseState::Verifying);
        let (verification, token) = access(&scene.line.scripts()[0]);

        // Both nodes begin; one of the two proves itself, and waits no time at all for the other.
        let host = lease.provider_nodes[1].host.as_str();
        let other = commit(&scene, &scene.line.scripts()[0], (host, &fresh_key())).await;
        other.assert_refused(409, "siblings_not_ready");
        let mut node = good_node(&lease, 0).node();
        let url = scene.base_url().parse().expect("an address");
        let signer = Signer::from_seed(&rand::random());
        let key = signer.public_key().to_agent_key().expect("a key");
        let secret = token.expose().to_owned();
        let alone = beside(move || {
            let patience = Duration::from_secs(60);
            let mut line = HttpBroker::new(url, verification, token, patience);
            converse(&mut node, verification, &signer, &mut line)
        });
        let alone = in_time("the end of the conversation", alone).await;
        let alone = alone.expect("no panic").expect("a conversation");
        assert!(alone.verdict.is_pass() && alone.gang, "{alone:?}");
        let call = GangCall {
            agent_key: key,
            rails: vec![Rail {
                name: "host".to_owned(),
                address: "127.0.0.1:40000".to_owned(),
            }],
            nccl: None,
            done: None,
        };
        let call =
            async |broker: Broker| measure_together(&broker, verification, &secret, &call).await;
        for _ in 0..2 {
            let answer = call(scene.broker().clone()).await.expect("an answer");
            assert!(matches!(answer, GangAnswer::Wait { .. }), "{answer:?}");
        }

        // Another replica, which waits for no node, and did not begin it.
        scene
            .restart_as(|config| config.verifier.verify_seconds = 0, |_| true)
            .await;
        let over = GangAnswer::Over {
            verdict: Verdict::Fail,
        };
        for _ in 0..2 {
            assert_eq!(call(scene.broker().clone()).await.expect("an answer"), over);
        }
        let documents = documents(&scene, &lease).await;
        let late = outcomes(&documents, FindingCode::StepTimedOut);
        assert_eq!(late[0], (0, Some(Outcome::Met)), "the one that came");
        let last = documents.last().expect("a document");
        assert_eq!((last.node_index, last.verdict), (1, Verdict::Fail));
        let note = &last.findings.last().expect("a finding").note;
        assert!(note.contains("was not ready in time"), "{note}");
        scene.work().await;
        let fell = scene.leases(id).await.remove(0);
        assert_eq!(fell.fall_reason, Some(LeaseEvent::Failed));
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}
