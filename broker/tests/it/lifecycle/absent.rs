//! Machines that a provider does not show: when it is proved that they are gone, and the course until then
//! and if they come back.

use broker::flow::reach::probe_all;
use broker::flow::reconcile::{Orders, Swept, sweep, sweep_with};
use chrono::TimeDelta;
use market::event::EventType;
use market::ids::ReservationId;
use market::lease::{LeaseEvent, LeaseState};
use market::reservation::{CloseReason, ReservationState as S};
use serde_json::{Value, json};
use simulator::{Front, Operation, Provider};
use store::events::EventFilter;
use store::fixture::{for_each_database, for_usual_database};
use store::leases::Lease;

use super::scene::{Scene, training};

/// A machine of its own at voltagepark, which forgets ended machines.
fn machine() -> Value {
    json!({
        "kind": "gpus", "gpu": "H100-SXM", "count": 8,
        "policy": { "allow_providers": ["voltagepark"] },
    })
}

/// So many machines in use, each with a reservation of its own.
async fn machines(scene: &Scene, count: usize) -> Vec<ReservationId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(scene.reserve_until_active(machine()).await);
    }
    ids
}

async fn lease(scene: &Scene, id: ReservationId) -> Lease {
    scene.leases(id).await.remove(0)
}

/// The notices about missing leases so far, the oldest first.
async fn told(scene: &Scene) -> Vec<EventType> {
    let events = scene.store().events().of(scene.tenant);
    let all = events.list(&EventFilter::default(), 10_000).await;
    let kinds = all.expect("events").into_iter().map(|event| event.kind);
    kinds
        .filter(|kind| matches!(kind, EventType::LeaseMissing | EventType::LeaseShown))
        .collect()
}

/// A minute passes, the prober looks, and the workers do the due work.
async fn minute(scene: &Scene) {
    scene.pass_seconds(60);
    probe_all(scene.broker())
        .await
        .expect("the database answers");
    scene.work().await;
}

// S120
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_vanished_is_missed_until_two_lists_prove_it_and_replaced_then() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        let ids = machines(&scene, 3).await;
        let made = scene.made_at(Provider::VOLTAGEPARK);
        scene.turn(300).await;
        let before = lease(&scene, ids[0]).await;
        scene.take_away(&before).await;
        // The longest lag of the list.
        scene.pass_seconds(60);
        let swept = sweep(scene.broker()).await.expect("an answer");
        assert_eq!(swept.missing, 1);
        let missed_at = scene.broker().now();
        for _ in 0..2 {
            scene.work().await;
            let missing = lease(&scene, ids[0]).await;
            assert_eq!(missing.state, LeaseState::HandedOff);
            assert_eq!(missing.missing.expect("it is missing").since, missed_at);
            assert_eq!(
                missing.metered_to, before.metered_to,
                "nothing proves its use"
            );
            assert_eq!(scene.state(ids[0]).await, S::Active);
            scene.pass_seconds(60);
        }
        assert_eq!(
            scene.made_at(Provider::VOLTAGEPARK),
            made,
            "nothing is replaced yet"
        );
        assert_eq!(told(&scene).await, [EventType::LeaseMissing]);
        scene.read_providers().await;
        scene.work().await;
        let gone = lease(&scene, ids[0]).await;
        assert_eq!(gone.state, LeaseState::Gone);
        assert_eq!(gone.fall_reason, Some(LeaseEvent::Vanished));
        scene.until(ids[0], S::Active).await;
        assert_eq!(scene.leases(ids[0]).await.len(), 2);
        assert_eq!(scene.made_at(Provider::VOLTAGEPARK), made + 1);
        for id in ids {
            scene.release_and_close(id).await;
        }
        scene.assert_ended().await;
        scene.close().await;
    })
    .await;
}

// S120
#[tokio::test(flavor = "multi_thread")]
async fn machines_that_vanish_at_once_are_waited_for_and_nothing_is_ordered_there_meanwhile() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let ids = machines(&scene, 5).await;
        scene.turn(300).await;
        for id in &ids[..2] {
            scene.take_away(&lease(&scene, *id).await).await;
        }
        scene.pass_seconds(60);
        sweep(scene.broker()).await.expect("an answer");
        let of_lists = (Provider::VOLTAGEPARK, Operation::List);
        let lists = || scene.simulator().call_counts()[&of_lists];
        let asked = lists();
        scene.work().await;
        assert_eq!(lists(), asked, "the list of the sweep serves the round");
        let made = scene.made_at(Provider::VOLTAGEPARK);
        let next = scene.reserve(machine()).await;
        for passed in 1..10 {
            scene.turn(60).await;
            for id in &ids {
                assert_eq!(scene.state(*id).await, S::Active, "after {passed} minutes");
            }
            assert_eq!(
                scene.made_at(Provider::VOLTAGEPARK),
                made,
                "nothing is ordered there"
            );
        }
        assert_eq!(lease(&scene, next).await.attempts, 0);
        scene.turn(60).await;
        for id in &ids[..2] {
            let gone = lease(&scene, *id).await;
            assert_eq!(
                gone.fall_reason,
                Some(LeaseEvent::Vanished),
                "judged by itself"
            );
        }
        for id in ids.iter().chain([&next]) {
            scene.until(*id, S::Active).await;
        }
        assert_eq!(scene.made_at(Provider::VOLTAGEPARK), made + 3);
        for id in ids.into_iter().chain([next]) {
            scene.release_and_close(id).await;
        }
        scene.assert_ended().await;
        scene.close().await;
    })
    .await;
}

// S120
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_was_given_up_and_runs_again_waits_for_a_persons_word() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(training(8)).await;
        let (simulator, began) = (scene.simulator(), scene.broker().now());
        let machine = simulator.running_machines().remove(0).id;
        minute(&scene).await;
        simulator.put_front(Provider::VOLTAGEPARK, Some(Front::EmptyList));
        for _ in 0..20 {
            minute(&scene).await;
        }
        let missing = lease(&scene, id).await;
        assert_eq!(missing.state, LeaseState::HandedOff, "its node answers");
        assert!(missing.missing.is_some());
        let last_seen = scene.broker().now();
        let used = TimeDelta::minutes(21);
        assert!(last_seen - began == used && missing.metered_to <= Some(last_seen));
        // Nothing shows it now: neither a list nor its node.
        simulator.drop_off_network(&machine).expect("it runs");
        for _ in 0..15 {
            minute(&scene).await;
        }
        let gone = lease(&scene, id).await;
        assert_eq!(gone.fall_reason, Some(LeaseEvent::Vanished));
        assert_eq!(gone.release_accepted_at, None, "nobody told it to end");
        assert_eq!(scene.charged(id).await.0, 8 * used.num_seconds());
        scene
            .until(id, S::Closed(CloseReason::RepairImpossible))
            .await;

        simulator.put_front(Provider::VOLTAGEPARK, None);
        simulator.return_to_network(&machine).expect("it runs");
        let waits = Swept {
            returned: 1,
            ..Swept::default()
        };
        for _ in 0..2 {
            let swept = sweep(scene.broker()).await.expect("an answer");
            assert_eq!(swept, waits, "its tenant may be at work there");
            scene.turn(300).await;
        }
        let all = scene.store().leases().across_tenants();
        let returned = all.returned().await.expect("an answer");
        assert_eq!(returned.len(), 1);
        assert_eq!(returned[0].id, gone.id);
        let orders = Orders {
            end_returned: &[gone.id],
            ..Orders::NONE
        };
        let swept = sweep_with(scene.broker(), orders).await.expect("an answer");
        assert_eq!((swept.ended, swept.returned), (1, 0));
        scene.turn(60).await;
        let swept = sweep(scene.broker()).await.expect("an answer");
        assert_eq!(swept, Swept::default());
        assert!(all.returned().await.expect("an answer").is_empty());
        scene.assert_ended().await;
        scene.close().await;
    })
    .await;
}
