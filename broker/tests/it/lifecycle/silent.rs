//! Nodes that begin to prove themselves and stop responding in the middle.

use std::time::Duration;

use market::attestation::{Attestation, Finding, FindingCode, Outcome, Verdict};
use market::ids::LeaseId;
use market::lease::{LeaseEvent, LeaseState};
use market::reservation::ReservationState;
use market::verification::Step;
use serde_json::json;
use simulator::{FaultKind, Provider};
use store::fixture::{for_each_database, for_usual_database};
use store::leases::Lease;
use store::sightings::NewSighting;
use verifier::agent::{Transport, TransportError, converse};
use verifier::http::HttpBroker;
use verifier::jws::Signer;
use verifier::reference::NodeDescription;

use super::gang::{access, documents};
use super::scene::{Scene, fleet};
use crate::eventually::{beside, in_time};

/// A connection that goes silent after a step.
struct Cut {
    line: HttpBroker,
    after: Step,
}

impl Transport for Cut {
    fn send(&mut self, step: Step, body: &str) -> Result<String, TransportError> {
        if step.number() > self.after.number() {
            let last = "the line is cut".to_owned();
            return Err(TransportError::GaveUp { step, last });
        }
        self.line.send(step, body)
    }

    fn is_private(&self) -> bool {
        self.line.is_private()
    }
}

/// A lease of one GPU, with one node that shows so many of this kind and memory, and sends nothing after this
/// step.
async fn silent_after(scene: &Scene, after: Step, gpu: (&str, u32, u32)) -> Lease {
    scene.break_next(Provider::LAMBDA, FaultKind::NeverCallsHome);
    let id = scene.reserve(fleet(1)).await;
    scene.work().await;
    scene.turn(300).await;
    let lease = scene.leases(id).await.remove(0);
    assert_eq!(lease.state, LeaseState::Verifying);
    let scripts = scene.line.scripts();
    let (verification, token) = access(scripts.last().expect("a script"));
    let description = json!({
        "schema": "simulated-node-1", "node_index": 0, "host": lease.provider_nodes[0].host,
        "gpu": gpu.0, "gpus": gpu.2, "memory_mib": gpu.1, "vcpus": lease.offer.vcpus,
        "memory_gib": lease.offer.memory_gib,
        "uuids": (0..gpu.2).map(|at| uuid(&lease, at)).collect::<Vec<_>>(),
        "driver": "570.0", "internode": "none",
    });
    let description = NodeDescription::parse(&description.to_string()).expect("a description");
    let url = scene.base_url().parse().expect("an address");
    let talked = beside(move || {
        let line = HttpBroker::new(url, verification, token, Duration::from_secs(60));
        let signer = Signer::from_seed(&rand::random());
        let mut node = description.node();
        converse(&mut node, verification, &signer, &mut Cut { line, after })
    });
    let talked = in_time("the end of the conversation", talked).await;
    let talked = talked.expect("no panic");
    assert!(talked.is_err(), "{talked:?}");
    scene.work().await;
    assert_eq!(scene.leases(id).await[0].state, LeaseState::Verifying);
    scene.turn(601).await;
    scene.leases(id).await.remove(0)
}

/// The id of a GPU that the node of a lease shows.
fn uuid(lease: &Lease, at: u32) -> String {
    format!("GPU-{at}-of-{}", lease.id)
}

fn finding(document: &Attestation, code: FindingCode) -> &Finding {
    let found = document.findings.iter().find(|found| found.code == code);
    found.expect("every check is in a document")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_falls_silent_is_timed_out_in_that_step_and_what_it_proved_stands() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        let proved_by = |step| match step {
            Step::Openings => (Outcome::Met, Step::Report),
            Step::Memory => (Outcome::NotRun, Step::Openings),
            Step::Fill => (Outcome::NotRun, Step::Memory),
            Step::Roots => (Outcome::NotRun, Step::Fill),
            _ => (Outcome::NotRun, Step::Roots),
        };
        for after in &Step::ALL[..5] {
            let fallen = silent_after(&scene, *after, ("A10", 23_028, 1)).await;
            let (exact, silent) = proved_by(*after);
            assert_eq!(fallen.fall_reason, Some(LeaseEvent::TimedOut), "{after}");
            let document = documents(&scene, &fallen).await.remove(0);
            let note = fallen.fall_note.as_deref().unwrap_or_default();
            let words = format!(
                "in time; node 0 of the lease stopped responding in step {silent} (attestation {})",
                document.id
            );
            assert!(note.ends_with(&words), "{note}");
            assert_eq!(document.verdict, Verdict::Inconclusive, "{after}");
            let late = finding(&document, FindingCode::StepTimedOut);
            assert_eq!(late.outcome, Outcome::NotRun);
            assert_eq!(late.note, format!("The node did not answer step {silent}."));
            assert_eq!(finding(&document, FindingCode::SdcExact).outcome, exact);
            let counted = match after {
                Step::Commit => Outcome::NotRun,
                _ => Outcome::Met,
            };
            let count = finding(&document, FindingCode::InventoryCount);
            assert_eq!(count.outcome, counted, "{after}: {count:?}");
            let id = fallen.reservation_id;
            scene.until(id, ReservationState::Active).await;
            assert_eq!(scene.leases(id).await.len(), 2, "another one stands in");
            scene.release_and_close(id).await;
        }
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_falls_silent_after_it_was_caught_has_failed() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let fallen = silent_after(&scene, Step::Roots, ("T4", 15_360, 1)).await;
        assert_eq!(fallen.fall_reason, Some(LeaseEvent::Failed));
        let note = fallen.fall_note.as_deref().unwrap_or_default();
        let words = "stopped responding in step fill, after it had failed inv.identity";
        assert!(note.contains(words), "{note}");
        let document = documents(&scene, &fallen).await.remove(0);
        assert_eq!(document.verdict, Verdict::Fail);
        let all = store.verifications().across_tenants();
        let judged = all.of_lease(fallen.id).await.expect("verifications");
        let rows = all.nodes(judged[0].id).await.expect("its nodes");
        assert_eq!(
            rows[0].verdict,
            Some(Verdict::Fail),
            "and is not judged again"
        );
        scene.close().await;
    })
    .await;
}

/// Otherwise a seller who lists one GPU could pose as all the machines of his competitors.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_node_that_shows_more_gpus_than_were_leased_no_more_are_known() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let fallen = silent_after(&scene, Step::Roots, ("A10", 23_028, 3)).await;
        assert_eq!(fallen.fall_reason, Some(LeaseEvent::Failed));
        let document = documents(&scene, &fallen).await.remove(0);
        let count = finding(&document, FindingCode::InventoryCount);
        assert_eq!(count.outcome, Outcome::Failed, "{count:?}");
        let shown = |at| NewSighting {
            uuid: uuid(&fallen, at),
            serial: None,
            name: String::new(),
            memory_mib: 0,
            failed: Vec::new(),
        };
        let other = LeaseId::from_uuid(scene.broker().new_uuid());
        let seen = store.sightings().of(&[0, 1, 2].map(shown), other).await;
        let seen = seen.expect("an answer");
        let known: Vec<_> = seen.iter().map(|seen| &*seen.gpu.uuid).collect();
        assert_eq!(known, [uuid(&fallen, 0).to_lowercase()]);
        assert_eq!(seen[0].gpu.failed, [FindingCode::InventoryCount]);
        scene.close().await;
    })
    .await;
}
