//! The real binary, while front ends answer in place of its providers.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use market::ids::ReservationId;
use market::reservation::{CloseReason, ReservationState};
use simulator::{Front, Provider, Simulator};
use tokio::time::sleep;

use super::buyer::keep;
use super::replica::Replica;
use super::scene::Scene;
use super::{folder, live_on, setting};
use crate::eventually::eventually;
use crate::lifecycle::scene::anything_at;

/// The fronts that stand before providers at the same time.
const PHASES: [[(Provider, Front); 3]; 2] = [
    [
        (Provider::LAMBDA, Front::NotFoundPage),
        (Provider::RUNPOD, Front::EmptyList),
        (Provider::VOLTAGEPARK, Front::CutList),
    ],
    [
        (Provider::LAMBDA, Front::LateReads { seconds: 90 }),
        (Provider::RUNPOD, Front::CredentialRefused),
        (Provider::VOLTAGEPARK, Front::Gone),
    ],
];
/// For how long, by the clock of the world: longer than any proof of absence takes. `cargo xtask chaos` and
/// `cargo xtask check --full` use half an hour.
const MINUTES: i64 = 12;

fn running(simulator: &Simulator) -> Vec<String> {
    let machines = simulator.running_machines().into_iter();
    machines.map(|machine| machine.id).collect()
}

async fn state(scene: &Scene, id: ReservationId) -> ReservationState {
    let all = scene.store.reservations().across_tenants();
    let found = all.find(id).await.expect("an answer");
    found.expect("it was acknowledged").state
}

/// Lets so much time pass, in which every machine of the tenant stays as it is.
async fn nothing_changes(scene: &Scene, ours: &[String], minutes: i64, why: &str) {
    let world = &scene.service.world;
    let until = world.broker().now() + TimeDelta::minutes(minutes);
    while world.broker().now() < until {
        assert_eq!(running(world.simulator()), ours, "{why}");
        sleep(Duration::from_millis(200)).await;
    }
}

async fn stand_in_front(scene: &Scene) {
    eventually("both replicas", async || {
        scene.replicas.iter().all(Replica::serves)
    })
    .await;
    let (api, simulator) = (scene.api(), scene.service.world.simulator());
    let mut kept = Vec::new();
    for provider in Provider::DEMONSTRATION {
        for number in 0..2 {
            let name = format!("{provider}-{number}");
            kept.push(keep(&api, &name, anything_at(provider)).await);
        }
    }
    let ours = running(simulator);
    assert_eq!(ours.len(), kept.len());
    let minutes = setting("CHAOS_FRONT_MINUTES").map_or(MINUTES, |minutes| minutes as i64);
    for phase in PHASES {
        for (provider, front) in phase {
            simulator.put_front(provider, Some(front));
        }
        nothing_changes(scene, &ours, minutes, &format!("{phase:?}")).await;
        for provider in Provider::DEMONSTRATION {
            simulator.put_front(provider, None);
        }
        nothing_changes(scene, &ours, 3, &format!("after {phase:?}")).await;
    }
    for id in kept {
        assert_eq!(state(scene, id).await, ReservationState::Active);
        let path = format!("/v1/reservations/{id}/release");
        api.granted(&path, &format!("release-{id}"), None).await;
        eventually("a released reservation", async || {
            state(scene, id).await == ReservationState::Closed(CloseReason::Released)
        })
        .await;
    }
    assert_eq!(running(simulator), [""; 0]);
    scene.assert_sound().await;
}

// S120
#[tokio::test(flavor = "multi_thread")]
async fn real_replicas_keep_every_machine_whatever_stands_in_front_of_the_providers() {
    let folder = folder("fronts", 0);
    let Some(scene) = Scene::on_postgres(folder.clone()).await else {
        return;
    };
    let service = Arc::clone(&scene.service);
    tokio::select! {
        () = live_on(&service.world) => {}
        () = stand_in_front(&scene) => {}
    }
    drop(service);
    scene.close().await;
    std::fs::remove_dir_all(folder).expect("the logs of a good run are not needed");
}
