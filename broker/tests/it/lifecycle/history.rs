//! GPUs that are seen again: in two leases at once, after their node failed, and under another offer.

use market::attestation::{Attestation, FindingCode, Outcome, Verdict};
use market::lease::{LeaseEvent, LeaseState};
use market::reservation::{CloseReason, ReservationState};
use serde_json::{Value, json};
use simulator::{Fault, FaultKind, Provider};
use store::fixture::{for_each_database, for_usual_database};
use store::leases::Lease;

use super::gang::documents;
use super::scene::{Scene, container};

/// One H100 in a machine of its own.
fn machine() -> Value {
    json!({
        "kind": "gpus", "gpu": "H100-SXM", "count": 1,
        "policy": { "allow_providers": ["lambda"] },
    })
}

/// The outcome of the check against history for the only node of a lease, and the verdict.
async fn judged(scene: &Scene, lease: &Lease) -> (Outcome, String, Verdict) {
    let document: Attestation = documents(scene, lease).await.remove(0);
    let code = FindingCode::InventoryHistory;
    let mut findings = document.findings.into_iter();
    let found = findings.find(|found| found.code == code).expect("judged");
    (found.outcome, found.note, document.verdict)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_that_another_lease_has_fails_at_its_provider_and_the_lease_that_has_it_stays() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let mine = scene.reserve_until_active(machine()).await;
        scene.break_next(Provider::LAMBDA, FaultKind::GpusOfBefore);
        let other = scene.reserve_until_active(machine()).await;
        let leases = scene.leases(other).await;
        let (fell, stands) = (&leases[0], leases.last().expect("a lease"));
        assert_eq!(fell.fall_reason, Some(LeaseEvent::Failed));
        let (outcome, note, verdict) = judged(&scene, fell).await;
        assert_eq!((outcome, verdict), (Outcome::Failed, Verdict::Fail));
        let has = &scene.leases(mine).await[0];
        assert!(note.contains("another lease has it just now"), "{note}");
        assert!(note.contains(&has.offer.offer_id.to_string()), "{note}");
        assert!(!note.contains("lse_"), "whose it is, is nobody's: {note}");
        assert_eq!(has.state, LeaseState::HandedOff);
        assert_eq!(judged(&scene, stands).await.0, Outcome::Met);
        let charges = scene.charges(other).await;
        assert!(charges.iter().all(|it| it.usage.lease_id == stands.id));
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

/// Otherwise a seller who shows the ids of a competitor's GPUs would fail every machine of the competitor.
#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_that_a_lease_at_another_provider_has_is_told_and_handed_over() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let mine = scene.reserve_until_active(machine()).await;
        scene.break_next(Provider::RUNPOD, FaultKind::GpusOfBefore);
        let other = scene.reserve_until_active(container()).await;
        let leases = scene.leases(other).await;
        assert_eq!(leases.len(), 1);
        let (outcome, note, verdict) = judged(&scene, &leases[0]).await;
        let warned = (Outcome::Warned, Verdict::PassWithWarnings);
        assert_eq!((outcome, verdict), warned);
        assert!(note.contains("another lease has it just now"), "{note}");
        let has = &scene.leases(mine).await[0];
        assert!(note.contains(&has.offer.offer_id.to_string()), "{note}");
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

/// One A100 in a container at runpod, in a region: `community` is where its machines are other people's.
fn container_in(region: &str) -> Value {
    json!({
        "kind": "gpus", "gpu": "A100-PCIe-80", "count": 1, "places": { "regions": [region] },
        "policy": { "allow_providers": ["runpod"] },
    })
}

/// Otherwise a seller who lists one machine would fail those of all others who sell at that provider.
#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_that_a_machine_of_other_people_has_is_told_and_handed_over_at_its_provider_too() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        for (has, shows) in [("community", "EU-RO-1"), ("EU-RO-1", "community")] {
            let first = scene.reserve_until_active(container_in(has)).await;
            scene.break_next(Provider::RUNPOD, FaultKind::GpusOfBefore);
            let other = scene.reserve_until_active(container_in(shows)).await;
            let leases = scene.leases(other).await;
            assert_eq!(leases.len(), 1);
            assert_eq!(leases[0].offer.place.region.as_deref(), Some(shows));
            let (outcome, note, verdict) = judged(&scene, &leases[0]).await;
            let warned = (Outcome::Warned, Verdict::PassWithWarnings);
            assert_eq!((outcome, verdict), warned, "{note}");
            let has = &scene.leases(first).await[0];
            let told = format!(
                "another lease has it just now, bought as {} of runpod, which sells machines of other \
                 people too",
                has.offer.offer_id
            );
            assert!(note.contains(&told), "{note}");
            assert_eq!(has.state, LeaseState::HandedOff);
            for id in [first, other] {
                scene.release_and_close(id).await;
            }
        }
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_on_a_machine_of_other_people_condemns_none_of_its_provider() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let fault = Fault::new(Provider::RUNPOD, FaultKind::SlowMemory).times(2);
        let broken = scene.simulator().break_next(fault);
        broken.expect("a fault that fits");
        let id = scene.reserve(container_in("community")).await;
        scene.work().await;
        let no_capacity = ReservationState::Closed(CloseReason::NoCapacity);
        scene.until(id, no_capacity).await;
        let (_, _, verdict) = judged(&scene, &scene.leases(id).await[0]).await;
        assert_eq!(verdict, Verdict::Fail);
        scene.break_next(Provider::RUNPOD, FaultKind::GpusOfBefore);
        let now = scene.reserve_until_active(container_in("EU-RO-1")).await;
        let leases = scene.leases(now).await;
        assert_eq!(leases.len(), 1);
        let (outcome, note, verdict) = judged(&scene, &leases[0]).await;
        let warned = (Outcome::Warned, Verdict::PassWithWarnings);
        assert_eq!((outcome, verdict), warned, "{note}");
        assert!(note.contains("a node with it failed hbm.bw"), "{note}");
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gpus_whose_node_failed_fail_again_at_its_provider_though_they_are_good_now() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        // One offer alone has them, so that a fleet takes it twice and then gives up.
        let four = json!({
            "kind": "gpus", "gpu": "RTX-A6000", "count": 4,
            "policy": { "allow_providers": ["lambda"] },
        });
        let fault = |kind, times| {
            let fault = Fault::new(Provider::LAMBDA, kind).times(times);
            scene
                .simulator()
                .break_next(fault)
                .expect("a fault that fits");
        };
        let no_capacity = ReservationState::Closed(CloseReason::NoCapacity);
        for (kind, outcome) in [
            (FaultKind::SlowMemory, Outcome::Met),
            (FaultKind::GpusOfBefore, Outcome::Failed),
        ] {
            fault(kind, 2);
            let id = scene.reserve(four.clone()).await;
            scene.work().await;
            scene.until(id, no_capacity).await;
            let leases = scene.leases(id).await;
            assert_eq!(leases.len(), 2);
            // New GPUs each time, or the same ones again.
            let (found, note, verdict) = judged(&scene, &leases[0]).await;
            assert_eq!((found, verdict), (outcome, Verdict::Fail), "{note}");
            let quarantined = note.contains("its node failed hbm.bw");
            assert_eq!(quarantined, outcome == Outcome::Failed, "{note}");
            scene.pass_seconds(2 * 3_600);
            scene.read_providers().await;
        }
        // A month later they may prove themselves again.
        scene.pass_seconds(31 * 24 * 3_600);
        scene.read_providers().await;
        fault(FaultKind::GpusOfBefore, 1);
        let id = scene.reserve_until_active(four).await;
        let leases = scene.leases(id).await;
        assert_eq!(leases.len(), 1);
        let (found, _, verdict) = judged(&scene, &leases[0]).await;
        assert!(
            found == Outcome::Met && verdict.is_pass(),
            "{found:?} {verdict}"
        );
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_that_was_bought_before_as_another_offer_is_told_with_both_and_handed_over() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let before = scene.reserve_until_active(machine()).await;
        scene.release_and_close(before).await;
        scene.break_next(Provider::RUNPOD, FaultKind::GpusOfBefore);
        let now = scene.reserve_until_active(container()).await;
        let (before, now) = (scene.leases(before).await, scene.leases(now).await);
        assert_eq!((before.len(), now.len()), (1, 1));
        let (outcome, note, verdict) = judged(&scene, &now[0]).await;
        assert_eq!(
            (outcome, verdict),
            (Outcome::Warned, Verdict::PassWithWarnings)
        );
        for lease in [&before[0], &now[0]] {
            let (offer, provider) = (lease.offer.offer_id, &lease.offer.provider);
            let listing = format!("{offer} of {provider}");
            assert!(note.contains(&listing), "{listing}: {note}");
        }
        let (outcome, _, _) = judged(&scene, &before[0]).await;
        assert_eq!(outcome, Outcome::Met);
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}
