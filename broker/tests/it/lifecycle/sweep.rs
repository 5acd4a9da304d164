//! Reconciliation: compares the machines at the providers with the rows, both ways.

use broker::flow::reconcile::{Swept, sweep};
use market::ids::LeaseId;
use market::lease::{LeaseEvent, LeaseState};
use market::machine::MachineRequest;
use market::order::{ClientToken, LeaseOrder};
use market::reservation::{CloseReason, ReservationState as S};
use simulator::Provider;
use store::fixture::{for_each_database, for_usual_database};
use store::leases::Lease;

use super::scene::{Scene, fleet, training};
use super::tap::{Fate, Op};

/// Orders a machine under this mark behind the broker's back, like one of a lease.
async fn order_under(scene: &Scene, token: ClientToken, like: &Lease) {
    let link = scene
        .broker()
        .provider(&like.offer.provider)
        .expect("a simulated provider");
    let order = LeaseOrder {
        client_token: token,
        offer: like.offer.clone(),
        nodes: 1,
        machine: MachineRequest::default(),
        ssh_public_keys: scene.reservation(like.reservation_id).await.ssh_public_keys,
        startup_script: "#!/bin/sh\n".into(),
    };
    link.adapter
        .request_lease(&link.http, &order)
        .await
        .expect("a machine");
}

fn running(scene: &Scene) -> Vec<String> {
    scene
        .simulator()
        .running_machines()
        .into_iter()
        .map(|machine| machine.id)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_of_a_lease_that_is_over_and_a_second_one_under_a_mark_are_ended() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        for demand in [training(8), fleet(1)] {
            let over = scene.reserve_until_active(demand.clone()).await;
            let over_lease = scene.leases(over).await.remove(0);
            scene.release_and_close(over).await;
            scene.turn(60).await;
            let id = scene.reserve_until_active(demand).await;
            let lease = scene.leases(id).await.remove(0);
            let ours = running(&scene);
            assert_eq!(ours.len(), 1);

            order_under(&scene, over_lease.client_token.clone(), &lease).await;
            order_under(&scene, lease.client_token.clone(), &lease).await;
            assert_eq!(running(&scene).len(), 3);
            let swept = sweep(scene.broker()).await.expect("an answer");
            assert_eq!(
                swept,
                Swept {
                    ended: 2,
                    ..Swept::default()
                }
            );
            assert_eq!(running(&scene), ours, "the one that the row knows goes on");
            scene.turn(600).await;
            assert_eq!(scene.state(id).await, S::Active);
            assert_eq!(
                sweep(scene.broker()).await.expect("an answer"),
                Swept::default()
            );
            scene.release_and_close(id).await;
            scene.turn(60).await;
            assert_eq!(running(&scene), [""; 0]);
        }
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_no_row_of_ours_knows_is_never_touched() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(fleet(1)).await;
        let lease = scene.leases(id).await.remove(0);
        let simulator = scene.simulator();
        for name in ["gpb-like-ours", "somebodys-box"] {
            simulator
                .add_foreign_machine(Provider::LAMBDA, "gpu_1x_a10", "us-east-1", 1, name)
                .expect("there is room");
        }
        // The mark of another broker, or of rows that a restored database has lost.
        let unknown = ClientToken::of(LeaseId::from_uuid(scene.broker().new_uuid()));
        order_under(&scene, unknown, &lease).await;
        let before = running(&scene);
        for _ in 0..2 {
            let swept = sweep(scene.broker()).await.expect("an answer");
            assert_eq!(
                swept,
                Swept {
                    foreign: 2,
                    unknown: 1,
                    ..Swept::default()
                }
            );
            scene.turn(600).await;
        }
        assert_eq!(running(&scene), before);
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_vanished_is_noticed_by_the_sweep_at_once() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(fleet(2)).await;
        let from = scene.broker().now();
        scene.turn(600).await;
        let lost = scene.leases(id).await.remove(0);
        scene.take_away(&lost).await;
        // Nobody is due for a look yet, and lambda lists ended machines for a while.
        scene.pass_seconds(60);
        scene.work().await;
        assert_eq!(scene.state(id).await, S::Active);
        let swept = sweep(scene.broker()).await.expect("an answer");
        assert_eq!(
            swept,
            Swept {
                missing: 1,
                ..Swept::default()
            }
        );
        scene.work().await;
        assert_eq!(scene.state(id).await, S::Repairing);
        let fallen = scene.leases(id).await.remove(0);
        assert_eq!(fallen.fall_reason, Some(LeaseEvent::Lost));
        assert_eq!(
            (fallen.metered_to.expect("metered") - from).num_seconds(),
            600
        );
        assert_eq!(sweep(scene.broker()).await.expect("an answer").ended, 0);
        scene.until(id, S::Active).await;
        scene.release_and_close(id).await;
        scene.assert_ended().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_cannot_be_listed_proves_nothing_about_its_machines() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(fleet(1)).await;
        let fail = |call: &super::tap::Call| match (call.provider, call.op) {
            ("lambda", Op::List) => Fate::Fail,
            _ => Fate::Forward,
        };
        scene.line.hook(fail);
        let swept = sweep(scene.broker()).await.expect("an answer");
        assert_eq!(
            swept,
            Swept {
                unreadable: 1,
                ..Swept::default()
            }
        );
        scene.work().await;
        assert_eq!(scene.state(id).await, S::Active);
        scene.line.unhook();
        scene.release_and_close(id).await;
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_took_the_word_and_runs_on_is_told_again() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(training(8)).await;
        scene.release(id).await;
        // It accepts and does nothing, and cannot be read just then.
        scene.line.hook(|call| match (call.op, call.number) {
            (Op::Release, 0) => Fate::Swallow,
            (Op::Read, 1) => Fate::Fail,
            _ => Fate::Forward,
        });
        scene.work().await;
        assert_eq!(scene.leases(id).await[0].state, LeaseState::Releasing);
        assert_eq!(running(&scene).len(), 1);
        scene.line.unhook();
        // Then two lists prove that it is gone.
        for _ in 0..4 {
            scene.turn(60).await;
        }
        assert_eq!(scene.state(id).await, S::Closed(CloseReason::Released));
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}
