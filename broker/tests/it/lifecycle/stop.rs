//! Work that ends early, and a service that is being stopped: no work stays parked, and the tasks of a
//! replica continue after a panic.

use broker::flow::fulfil;
use broker::platform::app::Broker;
use broker::platform::background::Background;
use broker::service::tasks;
use chrono::{DateTime, TimeDelta, Utc};
use market::ids::ReservationId;
use market::lease::{LeaseEvent, LeaseState};
use market::reservation::ReservationState as S;
use store::fixture::{execute_raw, for_each_database, for_usual_database};
use store::work::ClaimToken;

use super::scene::{Scene, fleet, training};
use super::tap::{Fate, Op};
use crate::eventually::{eventually, in_time};

/// The worker of a replica, alone.
fn worker(broker: &Broker) -> Background {
    let mut work = Background::of(broker);
    work.add("fulfil", fulfil::keep_working);
    work
}

/// The reservations that can be claimed at a moment: these, and only these, are unclaimed.
async fn free_at(scene: &Scene, at: DateTime<Utc>) -> Vec<ReservationId> {
    let token = ClaimToken(scene.broker().new_uuid());
    // A claim of no length is over at once.
    let claimed = scene.store().work().claim_due(token, at, 0, 16).await;
    let claimed = claimed.expect("an answer");
    claimed.iter().map(|one| one.reservation.id).collect()
}

/// Works until a call waits or hangs: returns the reservation and the worker.
async fn at_work(scene: &Scene, op: Op, fate: Fate) -> (ReservationId, Background) {
    scene.line.hook(move |call| match call.op == op {
        true => fate,
        false => Fate::Forward,
    });
    let id = scene.reserve(fleet(1)).await;
    let work = worker(scene.broker());
    in_time("a call that waits", scene.line.hangs()).await;
    (id, work)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_that_fails_is_given_back_with_its_reason_and_done_a_minute_later() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve(fleet(1)).await;
        execute_raw(store, "ALTER TABLE attempts RENAME TO attempts_elsewhere")
            .await
            .expect("renamed");
        scene.work().await;
        let now = scene.broker().now();
        let parked = scene.reservation(id).await;
        let why = parked.last_error.expect("a reason");
        assert!(why.contains("could not be saved"), "{why}");
        assert_eq!(free_at(&scene, now + TimeDelta::seconds(59)).await, []);

        execute_raw(store, "ALTER TABLE attempts_elsewhere RENAME TO attempts")
            .await
            .expect("renamed");
        scene.pass_seconds(60);
        scene.work().await;
        assert_eq!(scene.reservation(id).await.last_error, None);
        scene.until(id, S::Active).await;
        scene.release_and_close(id).await;
        scene.assert_ended().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_that_panics_is_given_back_too() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        scene.line.hook(|call| match call.op {
            Op::Request => Fate::Panic,
            _ => Fate::Forward,
        });
        let id = scene.reserve(fleet(1)).await;
        let work = worker(scene.broker());
        eventually("a reason", async || {
            scene.reservation(id).await.last_error.is_some()
        })
        .await;
        work.stop().await;
        let why = scene.reservation(id).await.last_error.expect("a reason");
        assert!(why.contains("the tap burst"), "{why}");
        let now = scene.broker().now();
        assert_eq!(free_at(&scene, now + TimeDelta::seconds(59)).await, []);
        assert_eq!(free_at(&scene, now + TimeDelta::seconds(60)).await, [id]);
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_told_to_stop_claims_nothing_more_and_lets_its_rounds_end() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let (id, work) = at_work(&scene, Op::Request, Fate::Wait).await;
        let mut stopping = std::pin::pin!(work.stop());
        // On a stop it waits for the order that is still open.
        assert!(futures_util::poll!(stopping.as_mut()).is_pending());
        let later = scene.reserve(training(8)).await;
        scene.broker().nudge();
        scene.line.go_on();
        stopping.await;

        assert_eq!(scene.leases(id).await[0].attempts, 1);
        assert!(scene.leases(id).await[0].provider_lease_id.is_some());
        assert_eq!(scene.reservation(id).await.last_error, None);
        assert_eq!(scene.state(later).await, S::Confirmed);
        assert_eq!(free_at(&scene, scene.broker().now()).await, [later]);
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_that_outlasts_the_drain_is_given_back_for_another_replica_at_once() {
    for_each_database(async |store| {
        let mut scene = Scene::open(store).await;
        let no_time =
            |config: &mut broker::platform::config::Config| config.server.drain_seconds = 0;
        scene.restart_as(no_time, |_| true).await;
        let (id, work) = at_work(&scene, Op::Request, Fate::HangAfter).await;
        work.stop().await;
        let why = scene.reservation(id).await.last_error.expect("a reason");
        assert!(why.contains("stopped"), "{why}");

        scene.line.unhook();
        scene.work().await;
        assert_eq!(scene.leases(id).await.len(), 1);
        assert!(
            scene.leases(id).await[0].provider_lease_id.is_some(),
            "what the dropped round ordered is found by its mark"
        );
        scene.until(id, S::Active).await;
        scene.release_and_close(id).await;
        scene.assert_ended().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_whose_reading_panics_is_read_again() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let mut burst = false;
        scene.line.hook(move |call| {
            if call.op == Op::Catalog && call.provider == "lambda" && !burst {
                burst = true;
                return Fate::Panic;
            }
            Fate::Forward
        });
        scene.pass_seconds(500);
        let now = scene.broker().now();
        let mut work = Background::of(scene.broker());
        tasks::poll_each(&mut work);
        for provider in ["voltagepark", "lambda"] {
            eventually("a fresh reading", async || {
                let snapshot = scene.broker().snapshot();
                let mut its = snapshot
                    .offers()
                    .filter(|o| o.provider().as_str() == provider);
                its.all(|offer| offer.observed_at() == now)
            })
            .await;
        }
        work.stop().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_a_provider_taken_out_of_the_configuration_is_told_of_every_five_minutes() {
    for_usual_database(async |store| {
        let mut scene = Scene::open(store).await;
        let id = scene.reserve_until_active(fleet(1)).await;
        scene
            .restart_as(|_| {}, |provider| provider != "lambda")
            .await;
        scene.pass_seconds(600);
        scene.work().await;
        let now = scene.broker().now();
        let why = scene.reservation(id).await.last_error.expect("a reason");
        assert_eq!(why, "lambda is not configured any more");
        assert_eq!(free_at(&scene, now + TimeDelta::seconds(299)).await, []);
        assert_eq!(free_at(&scene, now + TimeDelta::seconds(300)).await, [id]);

        scene.restart().await;
        scene.pass_seconds(300);
        scene.work().await;
        assert_eq!(scene.reservation(id).await.last_error, None);
        scene.release_and_close(id).await;
        scene.assert_ended().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_never_went_to_a_provider_taken_out_is_given_up_in_time() {
    for_usual_database(async |store| {
        let mut scene = Scene::open(store).await;
        let id = scene.reserve(fleet(1)).await;
        scene
            .restart_as(|_| {}, |provider| provider != "lambda")
            .await;
        scene.work().await;
        assert_eq!(scene.state(id).await, S::Provisioning);
        scene.pass_seconds(scene.broker().config().verifier.boot_seconds.into());
        scene.work().await;
        let lease = scene.leases(id).await.remove(0);
        assert_eq!((lease.state, lease.attempts), (LeaseState::Gone, 0));
        assert_eq!(lease.fall_reason, Some(LeaseEvent::Refused));
        scene.restart().await;
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}
