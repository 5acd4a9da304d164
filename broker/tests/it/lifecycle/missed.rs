//! The actions, charges and costs while a machine is not shown, and the actions not taken for that reason
//! alone.

use broker::flow::fulfil;
use broker::flow::reach::probe_all;
use broker::flow::reconcile::{Orders, sweep, sweep_with};
use chrono::TimeDelta;
use market::ids::{LeaseId, ReservationId};
use market::lease::{LeaseEvent, LeaseState};
use market::reservation::ReservationState as S;
use serde_json::{Value, json};
use simulator::{Front, Provider};
use store::fixture::for_usual_database;
use store::leases::Lease;

use super::scene::{Scene, training};
use super::tap::{Call, Fate, Op};
use crate::eventually::eventually;

/// A machine of its own at voltagepark, which forgets ended machines.
fn machine() -> Value {
    json!({
        "kind": "gpus", "gpu": "H100-SXM", "count": 8,
        "policy": { "allow_providers": ["voltagepark"] },
    })
}

async fn lease(scene: &Scene, id: ReservationId) -> Lease {
    scene.leases(id).await.remove(0)
}

/// A minute passes, the prober looks, and the workers do the due work.
async fn minute(scene: &Scene) {
    scene.pass_seconds(60);
    probe_all(scene.broker())
        .await
        .expect("the database answers");
    scene.work().await;
}

/// The provider shows no machine, neither in a list nor by its id.
fn shows_nothing(call: &Call) -> Fate {
    match call.op {
        Op::Read | Op::List => Fate::Hide,
        _ => Fate::Forward,
    }
}

async fn work(scene: &Scene) {
    fulfil::work_until_idle(scene.broker())
        .await
        .expect("the database answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_slow_to_come_is_asked_for_once_by_all_who_wait_for_it() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        for _ in 0..3 {
            scene.reserve_until_active(machine()).await;
        }
        scene.pass_seconds(300);
        let mut lists = 0;
        scene.line.hook(move |call| match call.op {
            Op::Read => Fate::Garble,
            Op::List => {
                lists += 1;
                if lists == 1 {
                    Fate::Wait
                } else {
                    Fate::Forward
                }
            }
            _ => Fate::Forward,
        });
        let slow = async {
            scene.line.hangs().await;
            let reads = || {
                let calls = scene.line.calls();
                calls.iter().filter(|call| call.op == Op::Read).count()
            };
            eventually("looks at all three", async || reads() == 3).await;
            // Longer than a list serves who asks later.
            scene.pass_seconds(10);
            scene.line.go_on();
        };
        tokio::join!(work(&scene), slow);
        let is_list = |call: &&Call| call.op == Op::List;
        let asked = scene.line.calls().iter().filter(is_list).count();
        assert_eq!(asked, 1);
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_passes_while_it_is_not_shown_is_handed_over_once_it_is_shown() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve(machine()).await;
        work(&scene).await;
        // It is up by then, and from the second look on not shown any more.
        scene.pass_seconds(900);
        let mut reads = 0;
        scene.line.hook(move |call| match call.op {
            Op::Read => {
                reads += 1;
                if reads == 1 {
                    Fate::Forward
                } else {
                    Fate::Hide
                }
            }
            Op::List => Fate::Hide,
            _ => Fate::Forward,
        });
        work(&scene).await;
        let verifying = lease(&scene, id).await;
        assert_eq!(verifying.state, LeaseState::Verifying);
        assert!(verifying.missing.is_some());
        scene.simulator().settle().await;
        for _ in 0..4 {
            scene.pass_seconds(30);
            work(&scene).await;
            assert_eq!(lease(&scene, id).await.state, LeaseState::Passed);
            assert_eq!(scene.state(id).await, S::Provisioning, "it may be gone");
        }
        scene.line.unhook();
        scene.pass_seconds(30);
        work(&scene).await;
        assert_eq!(scene.state(id).await, S::Active);
        scene.release_and_close(id).await;
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_not_shown_when_its_time_to_boot_is_over_is_not_given_up_for_that() {
    for_usual_database(async |store| {
        let mut scene = Scene::open(store).await;
        scene
            .restart_as(|config| config.verifier.boot_seconds = 600, |_| true)
            .await;
        let id = scene.reserve(machine()).await;
        work(&scene).await;
        scene.line.hook(shows_nothing);
        for _ in 0..21 {
            scene.pass_seconds(30);
            work(&scene).await;
        }
        let overdue = lease(&scene, id).await;
        assert_eq!(overdue.state, LeaseState::Booting);
        assert!(overdue.missing.is_some());
        // Lists alone prove that it is gone, ten minutes after the first that counts.
        for _ in 0..5 {
            scene.pass_seconds(30);
            work(&scene).await;
        }
        let gone = lease(&scene, id).await;
        assert_eq!(gone.fall_reason, Some(LeaseEvent::Vanished));
        scene.line.unhook();
        scene.close().await;
    })
    .await;
}

/// How much of a machine that went missing is charged, from the hand-off on, once `end` has ended its use;
/// and how long its node was seen.
async fn charged_when_missing(demand: Value, end: impl AsyncFn(&Scene, ReservationId)) {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(demand.clone()).await;
        let machine = scene.simulator().running_machines().remove(0).id;
        let from = lease(&scene, id).await.handed_off_at.expect("in use");
        scene.pass_seconds(3_000);
        minute(&scene).await;
        let seen_at = scene.broker().now();
        let simulator = scene.simulator();
        simulator.put_front(Provider::VOLTAGEPARK, Some(Front::EmptyList));
        simulator.drop_off_network(&machine).expect("it runs");
        for _ in 0..6 {
            minute(&scene).await;
        }
        assert!(lease(&scene, id).await.missing.is_some());
        end(&scene, id).await;
        let state = scene.state(id).await;
        assert!(matches!(state, S::Releasing(_) | S::Closed(_)), "{state}");
        let seconds = 8 * (seen_at - from).num_seconds();
        assert_eq!(scene.charged(id).await.0, seconds, "while it was seen");
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_when_its_use_ends_is_charged_until_it_was_last_seen() {
    charged_when_missing(machine(), async |scene, id| {
        scene.release(id).await;
        scene.work().await;
    })
    .await;
    let mut for_an_hour = machine();
    for_an_hour["window"] = json!({ "duration_hours": 1 });
    charged_when_missing(for_an_hour, async |scene, _| {
        for _ in 0..4 {
            minute(scene).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_stays_in_trouble_is_ordered_at_again_after_ten_minutes() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let mut ids = Vec::new();
        for _ in 0..2 {
            ids.push(scene.reserve_until_active(machine()).await);
        }
        scene.line.hook(shows_nothing);
        for _ in 0..6 {
            minute(&scene).await;
        }
        scene.read_providers().await;
        let next = scene.reserve(machine()).await;
        work(&scene).await;
        let mut since = Vec::new();
        for id in &ids {
            since.extend(lease(&scene, *id).await.missing.map(|it| it.since));
        }
        assert_eq!(since.len(), 2);
        let since = since.into_iter().min().expect("both");
        while scene.broker().now() - since <= TimeDelta::minutes(10) {
            assert_eq!(lease(&scene, next).await.attempts, 0, "it is in trouble");
            minute(&scene).await;
        }
        minute(&scene).await;
        assert_eq!(lease(&scene, next).await.attempts, 1);
        for id in &ids {
            let judged_alone = lease(&scene, *id).await;
            assert_eq!(
                judged_alone.state,
                LeaseState::HandedOff,
                "its node answers"
            );
        }
        scene.line.unhook();
        scene.until(next, S::Active).await;
        for id in ids.into_iter().chain([next]) {
            scene.release_and_close(id).await;
        }
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_cannot_be_read_by_its_id_is_judged_by_the_lists() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(scene.reserve_until_active(machine()).await);
        }
        scene.line.hook(|call| match call.op {
            Op::Read => Fate::Garble,
            _ => Fate::Forward,
        });
        scene.turn(600).await;
        for id in &ids {
            let listed = lease(&scene, *id).await;
            assert!(listed.missing.is_none(), "the list shows it");
            assert_eq!(listed.metered_to, Some(scene.broker().now()));
        }
        scene.take_away(&lease(&scene, ids[0]).await).await;
        for _ in 0..8 {
            scene.turn(60).await;
        }
        let gone = lease(&scene, ids[0]).await;
        assert_eq!(gone.fall_reason, Some(LeaseEvent::Vanished));
        for id in &ids[1..] {
            assert_eq!(lease(&scene, *id).await.state, LeaseState::HandedOff);
        }
        scene.line.unhook();
        scene.close().await;
    })
    .await;
}

/// The lease of a machine that was given up in its tenant's hands, and runs again.
async fn returned(scene: &Scene) -> LeaseId {
    let id = scene.reserve_until_active(training(8)).await;
    let simulator = scene.simulator();
    let machine = simulator.running_machines().remove(0).id;
    minute(scene).await;
    simulator.put_front(Provider::VOLTAGEPARK, Some(Front::EmptyList));
    simulator.drop_off_network(&machine).expect("it runs");
    for _ in 0..20 {
        minute(scene).await;
    }
    let gone = lease(scene, id).await;
    assert_eq!(gone.fall_reason, Some(LeaseEvent::Vanished));
    simulator.put_front(Provider::VOLTAGEPARK, None);
    simulator.return_to_network(&machine).expect("it runs");
    let swept = sweep(scene.broker()).await.expect("an answer");
    assert_eq!(swept.returned, 1);
    gone.id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_returned_machine_stays_so_until_two_lists_lack_it_and_costs_until_its_end_is_accepted() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = returned(&scene).await;
        let all = scene.store().leases().across_tenants();
        let known = async || {
            sweep(scene.broker()).await.expect("an answer");
            all.returned().await.expect("an answer").len()
        };
        // One list that is cut, and one of a provider that shows it again.
        scene.line.hook(shows_nothing);
        assert_eq!(known().await, 1);
        scene.pass_seconds(300);
        assert_eq!(known().await, 1, "an empty list proves nothing");
        scene.line.unhook();
        scene.pass_seconds(300);
        assert_eq!(known().await, 1);

        let nobody = LeaseId::from_uuid(scene.broker().new_uuid());
        let both = [nobody, id];
        let orders = Orders {
            end_returned: &both,
            ..Orders::NONE
        };
        let swept = sweep_with(scene.broker(), orders).await.expect("an answer");
        assert_eq!((swept.ended, &*swept.found_returned), (1, &[id][..]));
        assert_eq!(known().await, 0);
        // Its cost since it was given up is on the bill and in the ledger.
        scene.assert_settled().await;
        let books = store.ledger().books().await.expect("the books");
        assert_eq!(broker::tenant::books::differences(&books), Ok(Vec::new()));
        scene.close().await;
    })
    .await;
}
