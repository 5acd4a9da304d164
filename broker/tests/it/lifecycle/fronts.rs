//! A front end answers in place of a provider: the broker loses, buys or ends no machine because of its
//! answers, whatever they are and however long it lasts.

use broker::flow::reach::probe_all;
use broker::flow::reconcile::sweep;
use market::ids::ReservationId;
use market::reservation::ReservationState as S;
use simulator::{Front, Provider};
use store::Store;
use store::fixture::for_usual_database;

use super::scene::{Scene, anything_at};

/// Each front in turn, and for how long it stands. Units: minutes.
const FRONTS: [Front; 6] = [
    Front::NotFoundPage,
    Front::Gone,
    Front::EmptyList,
    Front::CutList,
    Front::CredentialRefused,
    Front::LateReads { seconds: 90 },
];
const MINUTES: i64 = 30;

fn running(scene: &Scene) -> Vec<String> {
    let machines = scene.simulator().running_machines();
    machines.into_iter().map(|machine| machine.id).collect()
}

/// A minute passes: the workers and the prober run, and every fifth time the reconciliation.
async fn minute(scene: &Scene, number: i64) {
    scene.pass_seconds(60);
    probe_all(scene.broker())
        .await
        .expect("the database answers");
    scene.work().await;
    if number % 5 == 0 {
        sweep(scene.broker()).await.expect("the database answers");
        scene.work().await;
    }
}

async fn machines_outlast_every_front(store: &Store, provider: Provider) {
    let scene = Scene::open(store).await;
    let mut ids: Vec<ReservationId> = Vec::new();
    for _ in 0..2 {
        ids.push(scene.reserve_until_active(anything_at(provider)).await);
    }
    let (ours, made) = (running(&scene), scene.made_at(provider));
    for front in FRONTS {
        scene.simulator().put_front(provider, Some(front));
        for number in 1..=MINUTES {
            minute(&scene, number).await;
            assert_eq!(running(&scene), ours, "{front:?} for {number} minutes");
            for id in &ids {
                assert_eq!(
                    scene.state(*id).await,
                    S::Active,
                    "{front:?}, minute {number}"
                );
            }
        }
        scene.simulator().put_front(provider, None);
        for number in 1..=5 {
            minute(&scene, number).await;
        }
        assert_eq!(running(&scene), ours, "after {front:?}");
    }
    assert_eq!(scene.made_at(provider), made, "nothing was bought");
    for id in ids {
        assert_eq!(scene.state(id).await, S::Active);
        scene.release_and_close(id).await;
    }
    // The work continues.
    let next = scene.reserve_until_active(anything_at(provider)).await;
    scene.release_and_close(next).await;
    scene.assert_settled().await;
    scene.close().await;
}

// S120
#[tokio::test(flavor = "multi_thread")]
async fn machines_in_use_at_lambda_outlast_every_front() {
    for_usual_database(async |store| machines_outlast_every_front(store, Provider::LAMBDA).await)
        .await;
}

// S120
#[tokio::test(flavor = "multi_thread")]
async fn machines_in_use_at_runpod_outlast_every_front() {
    for_usual_database(async |store| machines_outlast_every_front(store, Provider::RUNPOD).await)
        .await;
}

// S120
#[tokio::test(flavor = "multi_thread")]
async fn machines_in_use_at_voltagepark_outlast_every_front() {
    for_usual_database(async |store| {
        machines_outlast_every_front(store, Provider::VOLTAGEPARK).await;
    })
    .await;
}
