//! Real processes, really killed, while tenants buy: two replicas of the binary on a PostgreSQL and a Redis
//! of their own, behind a load balancer, or one on the embedded database. Each kill strikes a replica,
//! PostgreSQL or Redis, at a moment drawn from a seed, and the killed one is restarted. Meanwhile machines
//! fail, orders stay unanswered, front ends answer in place of a provider, and the receiver of webhooks
//! refuses some. In the end one replica is alone, without Redis, finishes the work under way and replaces
//! machines that a provider takes away. The result must always be the same.
//!
//! `cargo xtask chaos --kills N --seed S` runs it for longer. The kills follow from the seed; the progress of
//! each process by then does not. The logs of the replicas stay in the folder that is printed. Its sleeps are
//! of real time: when a process dies, no clock of ours can be advanced.

mod balancer;
mod buyer;
mod fronts;
pub(crate) mod replica;
mod scene;
mod victim;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use broker::tools::simulation::SimulatedMarket;
use chrono::TimeDelta;
use futures_util::future::join_all;
use market::lease::LeaseState;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use simulator::Provider;
use store::fixture;
use tokio::time::{sleep, timeout};

use crate::eventually::eventually;
use crate::hot::server::RedisServer;
use buyer::{Intent, buy};
use replica::Replica;
use scene::Scene;
use victim::FAULT_EVERY;

/// How often something is killed by default; `cargo xtask check --full` kills more often.
const KILLS: usize = 10;
/// On the embedded database: there is one process to be killed.
const KILLS_OF_ONE: usize = 6;
const BUYERS: usize = 6;
/// Where one replica serves them all.
const BUYERS_AT_ONE: usize = 3;
/// In at least so many states of a reservation something is killed, if enough is killed.
const MOMENTS: usize = 3;
const ENOUGH_KILLS: usize = 30;
/// The simulated world runs so much faster than the test: fast enough that a dead worker's claim expires
/// soon, and slow enough that a living worker's claim does not while it waits for an answer.
const TURN: TimeDelta = TimeDelta::seconds(5);
const TURN_EVERY: Duration = Duration::from_millis(100);
/// How many messages the receiver refuses at first.
const REFUSED_MESSAGES: usize = 5;

fn setting(name: &str) -> Option<u64> {
    let said = std::env::var(name).ok()?;
    Some(said.parse().expect("a number"))
}

fn folder(run: &str, seed: u64) -> PathBuf {
    let run = format!("chaos-{run}-{seed}-{}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(run);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Lets the world live on for ever: time passes, supply is read, machines come up.
async fn live_on(world: &SimulatedMarket) {
    for turn in 0_u32.. {
        world.clock().advance(TURN);
        if turn % 24 == 0 {
            // The replicas' own pollers follow the real clock.
            world.read_providers().await;
        }
        let pause = sleep(TURN_EVERY);
        let _ = timeout(TURN_EVERY, world.simulator().settle()).await;
        pause.await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_real_replicas_and_of_their_servers_at_any_moment_lose_no_acknowledged_work() {
    let seed = setting("CHAOS_SEED").unwrap_or(1);
    let folder = folder("postgres", seed);
    let Some(scene) = Scene::on_mortal_postgres(folder.clone()).await else {
        return;
    };
    survives(scene, &folder, (KILLS, BUYERS), seed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_a_real_broker_on_its_embedded_database_lose_no_acknowledged_work() {
    let seed = setting("CHAOS_SEED").unwrap_or(1);
    let folder = folder("sqlite", seed);
    let scene = Scene::on_sqlite(folder.clone()).await;
    survives(scene, &folder, (KILLS_OF_ONE, BUYERS_AT_ONE), seed).await;
}

async fn survives(mut scene: Scene, folder: &Path, (kills, buyers): (usize, usize), seed: u64) {
    let kills = setting("CHAOS_KILLS").map_or(kills, |kills| kills as usize);
    eprintln!("{kills} kills, seed {seed}; logs in {}", folder.display());
    let service = Arc::clone(&scene.service);
    tokio::select! {
        () = live_on(&service.world) => {}
        () = play(&mut scene, kills, buyers, seed) => {}
    }
    drop(service);
    scene.close().await;
    std::fs::remove_dir_all(folder).expect("the logs of a good run are not needed");
}

async fn play(scene: &mut Scene, kills: usize, buyers: usize, seed: u64) {
    let began = Instant::now();
    let mut random = StdRng::seed_from_u64(seed);
    let api = scene.api();
    let endpoint = json!({ "url": scene.receiver.url("/"), "description": "ours" });
    api.granted("/v1/webhook-endpoints", "endpoint", Some(&endpoint))
        .await;
    scene.receiver.fail_next(REFUSED_MESSAGES);

    let stop = Arc::new(AtomicBool::new(false));
    let all: Vec<_> = (0..buyers)
        .map(|number| {
            let random = StdRng::seed_from_u64(random.random());
            tokio::spawn(buy(api.clone(), number, random, Arc::clone(&stop)))
        })
        .collect();
    let struck = scene.kill(kills, &mut random).await;
    eprintln!("struck in the middle of {struck:?}");
    let varied = kills < ENOUGH_KILLS || struck.len() >= MOMENTS;
    assert!(varied, "only in the middle of {struck:?}");
    // From here one replica is alone, with its own unfinished work and that of the other.
    let survivor = random.random_range(0..scene.replicas.len());
    eventually("the replica that is to go on", async || {
        scene.replicas[survivor].serves()
    })
    .await;
    let others: Vec<_> = (0..scene.replicas.len())
        .filter(|which| *which != survivor)
        .collect();
    for which in &others {
        scene.kill_replica(*which);
    }
    scene.redis.iter_mut().for_each(RedisServer::kill);
    eprintln!("replica {survivor} is alone, without Redis");
    stop.store(true, Ordering::Relaxed);
    let mut orders = Vec::new();
    for bought in join_all(all).await {
        orders.extend(bought.expect("a buyer who got answers"));
    }
    scene.until_as_wished(&orders).await;
    let took = began.elapsed();
    let mut given_out = 0;
    for order in &orders {
        let state = scene.state(order).await;
        given_out += usize::from(scene.has_given_out(order, state).await);
    }
    eprintln!(
        "{} reservations, all but {given_out} as wished after {took:?}",
        orders.len()
    );
    assert!(given_out <= kills / FAULT_EVERY, "faults were shared out");
    assert!(orders.len() >= buyers, "too few to prove anything");
    scene.assert_sound().await;
    // Where few machines were ordered, faults have piled up, and a repair gives up after a few in a row.
    let simulator = scene.service.world.simulator();
    simulator.drop_waiting_faults(Provider::LAMBDA);
    // The first buyer's is a gang, which is repaired as a whole.
    let kept = scene.in_hand(&mut orders).await.pop().expect("some keep");
    scene.lose_a_machine(kept).await;
    scene.assert_sound().await;
    scene.redis.iter_mut().for_each(RedisServer::start);
    for which in others {
        scene.replicas[which].start_again();
    }
    scene.balancer.stand_before(&scene.replicas);

    // The reservations that are kept are released, and nothing runs then.
    for order in scene.in_hand(&mut orders).await {
        let path = format!("/v1/reservations/{}/release", order.id);
        api.granted(&path, &format!("end-{}", order.id), None).await;
        order.wish = Intent::Release;
    }
    scene.until_as_wished(&orders).await;
    scene.assert_sound().await;
    for order in &orders {
        let all = scene.store.leases().across_tenants();
        let leases = all.of_reservation(order.id).await.expect("leases");
        assert!(leases.iter().all(|lease| lease.state == LeaseState::Gone));
    }
    let running = scene.service.world.simulator().running_machines();
    assert!(running.is_empty(), "{running:?}");
    scene.assert_told().await;
    for replica in &mut scene.replicas {
        assert!(replica.lives(), "a replica ended by itself");
    }
    eprintln!("sound after {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_of_one_conversation_may_reach_one_replica_after_the_other() {
    let folder = folder("steps", 0);
    let Some(scene) = Scene::on_postgres(folder.clone()).await else {
        return;
    };
    let service = Arc::clone(&scene.service);
    tokio::select! {
        () = live_on(&service.world) => {}
        () = prove_one_node(&scene) => {}
    }
    drop(service);
    scene.close().await;
    std::fs::remove_dir_all(folder).expect("the logs of a good run are not needed");
}

async fn prove_one_node(scene: &Scene) {
    eventually("both replicas", async || {
        scene.replicas.iter().all(Replica::serves)
    })
    .await;
    let (random, once) = (StdRng::seed_from_u64(1), Arc::new(AtomicBool::new(true)));
    let orders = buy(scene.api(), 1, random, once).await;
    scene.until_as_wished(&orders).await;
    let steps = scene.balancer.who_took(balancer::STEPS);
    let distinct: BTreeSet<_> = steps.iter().collect();
    assert_eq!(distinct.len(), 2, "both were asked: {steps:?}");
    for (table, column, values) in fixture::contents(&scene.store).await {
        assert!(
            table != "interrupted_sessions" || values.is_empty(),
            "{column}: {values}"
        );
    }
}
