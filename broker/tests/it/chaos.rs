//! Real processes, really killed: two replicas of the binary on one PostgreSQL and one Redis, behind
//! a load balancer, while tenants buy. Each kill strikes a replica, or Redis, at a moment drawn from
//! a seed, and the killed one is started again. Meanwhile machines fail, orders stay unanswered, something
//! stands in front of a provider and the receiver of webhooks refuses some. In the end one replica and Redis are killed for good, and the other
//! finishes what is under way and repairs what a provider takes away. What must come out is always the
//! same.
//!
//! `cargo xtask chaos --kills N --seed S` runs it for longer. What is drawn follows from the seed;
//! how far each process has come by then does not. The logs of the replicas stay in the folder that
//! is printed. Its sleeps are of real time: when a process dies, no clock of ours can be turned.

mod balancer;
mod buyer;
mod fronts;
pub(crate) mod replica;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use broker::simulation::{World, WorldOptions};
use broker::sweep;
use chrono::TimeDelta;
use futures_util::future::join_all;
use market::identity::Role;
use market::lease::LeaseState;
use market::reservation::{CloseReason, ReservationState};
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use simulator::{Fault, FaultKind, Front, Provider};
use store::events::EventFilter;
use store::fixture::{self, TestDatabase};
use store::leases::Lease;
use store::reservations::ReservationFilter;
use tokio::time::{sleep, timeout};

use crate::eventually::{eventually, output_of};
use crate::hot::server::RedisServer;
use crate::service::{Key, NODE_DEADLINE, Service, agent, ssh_key, usual_world};
use crate::webhooks::receiver::Receiver;
use balancer::Balancer;
use buyer::{Acknowledged, Api, PATIENCE, Wish, buy};
use replica::{Replica, Setting, broker};

/// How often something is killed by default; `cargo xtask check --full` kills more often.
const KILLS: usize = 10;
/// Between two kills. Units: milliseconds.
const BETWEEN_KILLS: std::ops::Range<u64> = 200..1_400;
const BUYERS: usize = 6;
/// In at least so many states of a reservation something is killed, if enough is killed.
const MOMENTS: usize = 3;
const ENOUGH_KILLS: usize = 30;
/// The world lives so much faster than the test: fast enough that a dead worker's claim runs out
/// soon, and slow enough that a living one's does not while it waits for an answer.
const TURN: TimeDelta = TimeDelta::seconds(5);
const TURN_EVERY: Duration = Duration::from_millis(100);

/// What goes wrong at a provider after every fourth kill.
const FAULTS: [FaultKind; 4] = [
    FaultKind::MissingGpu,
    FaultKind::SlowMemory,
    FaultKind::AcceptedThenFailed,
    FaultKind::ReplyLostAfterCreate,
];
const FAULT_EVERY: usize = 4;
/// What stands in front of a provider from every fifth kill to the next one.
const FRONTS: [Front; 4] = [
    Front::NotFoundPage,
    Front::Gone,
    Front::EmptyList,
    Front::CutList,
];
const FRONT_EVERY: usize = 5;
/// How many messages the receiver refuses at first.
const REFUSED_MESSAGES: usize = 5;

/// Whom a kill strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Redis,
    Replica(usize),
}

impl Victim {
    const ALL: [Self; 3] = [Self::Redis, Self::Replica(0), Self::Replica(1)];

    /// One in ten strikes Redis.
    fn draw(random: &mut StdRng) -> Self {
        match random.random_range(0..10) {
            0 => Self::Redis,
            drawn => Self::Replica(drawn % 2),
        }
    }
}

/// Everything that plays along. The simulated market and its clock are in this process; nothing here
/// works on reservations.
struct Scene {
    service: Arc<Service>,
    key: Key,
    database: TestDatabase,
    redis: RedisServer,
    receiver: Receiver,
    balancer: Balancer,
    setting: Arc<Setting>,
    replicas: Vec<Replica>,
}

fn setting(name: &str) -> Option<u64> {
    let said = std::env::var(name).ok()?;
    Some(said.parse().expect("a number"))
}

fn folder(seed: u64) -> PathBuf {
    let run = format!("chaos-{seed}-{}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(run);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

impl Scene {
    /// `None`, said aloud, where PostgreSQL or Redis is missing.
    async fn open(folder: PathBuf) -> Option<Self> {
        let redis = RedisServer::private()?;
        let database = TestDatabase::postgres().await?;
        let store::Database::Url(database_url) = database.database.clone() else {
            panic!("PostgreSQL has a URL");
        };
        let service = Service::start_as(WorldOptions {
            store: Some(database.store.clone()),
            configure_market: Box::new(|market| {
                market.lambda_boot_seconds = 60;
                market.voltagepark_boot_seconds = 60;
                market.node_deadline = NODE_DEADLINE;
            }),
            ..usual_world()
        });
        let service = Arc::new(service.await);
        let simulator = service.world.simulator();
        simulator
            .set_capacity(Provider::Lambda, "gpu_1x_a10", 40)
            .expect("it is sold");
        service.world.read_providers().await;
        let key = service.key("acme", Role::Member).await;
        ssh_key(&service, &key).await;
        let balancer = Balancer::start();
        let sealing_key = service.world.broker().config().data_dir.join("secret.key");
        let environment = [
            ("DATABASE_URL", database_url),
            ("REDIS_URL", redis.url().expose_secret().to_owned()),
            (
                "BROKER__SECRETS__KEY_FILE",
                sealing_key.display().to_string(),
            ),
            ("BROKER__SERVER__PUBLIC_URL", balancer.url.clone()),
            (
                "BROKER__VERIFIER__AGENT_PATH",
                agent().display().to_string(),
            ),
            ("BROKER__SIMULATION__MARKET_URL", simulator.control_url()),
            (
                "BROKER__SIMULATION__CREDENTIAL",
                simulator.control_credential(),
            ),
            ("BROKER__LIMITS__ENABLED", "false".to_owned()),
            // A hold must outlast the time without a replica, which is long by this clock.
            ("BROKER__SALES__HOLD_SECONDS", "86400".to_owned()),
            ("BROKER__SALES__COOLDOWN_SECONDS", "60".to_owned()),
            // By this clock a node that waits for a busy machine is slow; it is not lost.
            ("BROKER__VERIFIER__BOOT_SECONDS", "7200".to_owned()),
            ("BROKER__VERIFIER__VERIFY_SECONDS", "3600".to_owned()),
            // Buyers think better of it all the time.
            ("BROKER__SPENDING__CANCELLED_ORDERS", "1000".to_owned()),
            // lambda states no counts: by default two tenants would take all that there is.
            ("BROKER__SALES__SOFT_HOLDS_PER_OFFER", "20".to_owned()),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value));
        let setting = Arc::new(Setting {
            environment: environment.to_vec(),
            folder,
        });
        let replicas: Vec<_> = ["one", "two"]
            .map(|name| Replica::start(&setting, name))
            .into();
        balancer.stand_before(&replicas);
        Some(Self {
            service,
            key,
            database,
            redis,
            receiver: Receiver::start().await,
            balancer,
            setting,
            replicas,
        })
    }

    fn api(&self) -> Api {
        Api::new(&self.balancer.url, &self.key.secret)
    }

    /// Kills what the seed says when the seed says, and starts it again each time; each at least
    /// once.
    ///
    /// Gives the states in which open reservations were then.
    async fn kill(&mut self, kills: usize, random: &mut StdRng) -> BTreeSet<&'static str> {
        let mut struck = BTreeSet::new();
        let mut first = Victim::ALL;
        first.shuffle(random);
        for number in 0..kills {
            // Where nobody serves, there is nothing in the middle of which to be killed.
            eventually("a replica that serves", async || {
                self.replicas.iter().any(Replica::serves)
            })
            .await;
            sleep(Duration::from_millis(random.random_range(BETWEEN_KILLS))).await;
            let victim = first
                .get(number)
                .copied()
                .unwrap_or_else(|| Victim::draw(random));
            struck.extend(self.open_states().await);
            match victim {
                Victim::Redis => {
                    self.redis.kill();
                    sleep(Duration::from_millis(random.random_range(0..500))).await;
                    self.redis.start();
                }
                Victim::Replica(which) => {
                    self.kill_replica(which);
                    self.replicas[which].start_again();
                    self.balancer.stand_before(&self.replicas);
                }
            }
            eprintln!("kill {}: {victim:?}", number + 1);
            let simulator = self.service.world.simulator();
            let stands = number % FRONT_EVERY == FRONT_EVERY - 1;
            let front = stands.then(|| *FRONTS.choose(random).expect("some"));
            if let Some(front) = front {
                eprintln!("in front of lambda: {front:?}");
            }
            simulator.put_front(Provider::Lambda, front);
            if number % FAULT_EVERY == FAULT_EVERY - 1 {
                let fault = FAULTS.choose(random).expect("some").clone();
                eprintln!("the next launch: {fault:?}");
                let fault = Fault::new(Provider::Lambda, fault);
                simulator.break_next(fault).expect("a fault that fits");
            }
        }
        let simulator = self.service.world.simulator();
        simulator.put_front(Provider::Lambda, None);
        struck
    }

    /// The states of all reservations that are not closed.
    async fn open_states(&self) -> BTreeSet<&'static str> {
        let filter = ReservationFilter {
            open_only: true,
            ..ReservationFilter::default()
        };
        let all = self.database.store.reservations().across_tenants();
        let open = all.list(&filter, None, 1_000).await.expect("reservations");
        open.iter().map(|one| one.state.as_str()).collect()
    }

    /// Has a provider end a machine that somebody uses, and waits until another stands in its place.
    async fn lose_a_machine(&self, order: &Acknowledged) {
        let leases = async || {
            let all = self.database.store.leases().across_tenants();
            all.of_reservation(order.id).await.expect("leases")
        };
        let in_use = |leases: &[Lease]| {
            let state = |lease: &&Lease| lease.state == LeaseState::HandedOff;
            leases.iter().filter(state).count()
        };
        let before = leases().await;
        let lost = before
            .iter()
            .find(|lease| lease.state == LeaseState::HandedOff)
            .expect("it is kept");
        let link = self.service.world.broker().provider(&lost.offer.provider);
        let link = link.expect("a simulated provider");
        let id = lost.provider_lease_id.as_ref().expect("a machine");
        let ended = link.adapter.release_lease(&link.http, id).await;
        ended.expect("the provider ends it");
        let began = Instant::now();
        loop {
            let now = leases().await;
            let fell = now.iter().find(|lease| lease.id == lost.id);
            let is_gone = fell.is_some_and(|lease| lease.state == LeaseState::Gone);
            if is_gone && in_use(&now) == in_use(&before) {
                return eprintln!("{} is repaired", order.id);
            }
            let late = began.elapsed() > PATIENCE;
            assert!(!late, "not repaired: {:#?}", self.falls(order).await);
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn kill_replica(&mut self, which: usize) {
        let replica = &mut self.replicas[which];
        assert!(replica.lives(), "a replica ended by itself");
        replica.kill();
    }

    /// Runs a command of the binary on the same database to its end.
    fn command(&self, args: &[&str]) -> Output {
        let mut command = broker(&self.setting);
        output_of(command.args(args))
    }

    async fn state(&self, order: &Acknowledged) -> ReservationState {
        let all = self.database.store.reservations().across_tenants();
        let found = all.find(order.id).await.expect("an answer");
        found
            .expect("an acknowledged reservation is never lost")
            .state
    }

    /// Waits until every reservation ended as its tenant wished.
    async fn until_as_wished(&self, orders: &[Acknowledged]) {
        let began = Instant::now();
        for order in orders {
            loop {
                // Read once: between two readings it may end.
                let state = self.state(order).await;
                if order.wish.is_met_by(state) || self.has_given_out(order, state).await {
                    break;
                }
                let over = state.is_closed() || began.elapsed() > PATIENCE;
                assert!(
                    !over,
                    "{order:?} is {state}: {:#?}",
                    self.falls(order).await
                );
                sleep(Duration::from_millis(100)).await;
            }
        }
    }

    /// Whether a reservation met so many broken machines that no other candidate was left.
    async fn has_given_out(&self, order: &Acknowledged, state: ReservationState) -> bool {
        if state != ReservationState::Closed(CloseReason::NoCapacity) {
            return false;
        }
        let all = self.database.store.leases().across_tenants();
        let leases = all.of_reservation(order.id).await.expect("leases");
        leases.iter().any(|lease| lease.fall_reason.is_some())
    }

    /// Those whom the tenant has, of these.
    async fn in_hand<'a>(&self, orders: &'a mut [Acknowledged]) -> Vec<&'a mut Acknowledged> {
        let mut kept = Vec::new();
        for order in orders.iter_mut().filter(|order| order.wish == Wish::Keep) {
            if self.state(order).await == ReservationState::Active {
                kept.push(order);
            }
        }
        kept
    }

    /// What the leases of a reservation went through, for a person who looks for the fault.
    async fn falls(&self, order: &Acknowledged) -> Vec<String> {
        let all = self.database.store.leases().across_tenants();
        let leases = all.of_reservation(order.id).await.expect("leases");
        let line = |lease: &Lease| {
            format!(
                "{} {:?} {:?} {:?}",
                lease.id, lease.state, lease.fall_reason, lease.fall_note
            )
        };
        leases.iter().map(line).collect()
    }

    /// Every event of the tenant arrived, under one id each.
    async fn assert_told(&self) {
        let events = self.database.store.events().of(self.key.tenant);
        let everything = EventFilter {
            after: 0,
            ..EventFilter::default()
        };
        let began = Instant::now();
        loop {
            let expected = events.list(&everything, 100_000).await.expect("events");
            let expected: BTreeSet<String> = expected.iter().map(|e| e.id.to_string()).collect();
            let received = self.receiver.received();
            let ids: Vec<_> = received
                .iter()
                .map(|one| one.header("webhook-id"))
                .collect();
            let distinct: BTreeSet<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            let missing: Vec<_> = expected.difference(&distinct).collect();
            if missing.is_empty() {
                assert_eq!(distinct, expected, "nothing else is told");
                let mut bodies = BTreeMap::new();
                for one in &received {
                    let body: Value = serde_json::from_slice(&one.body).expect("JSON");
                    assert_eq!(body["id"], one.header("webhook-id"));
                    let known = bodies
                        .entry(body["sequence"].as_u64())
                        .or_insert(body.clone());
                    assert_eq!(*known, body, "sent again as it was");
                }
                eprintln!(
                    "{} events told, {} of them again",
                    distinct.len(),
                    ids.len() - distinct.len()
                );
                return;
            }
            assert!(began.elapsed() < PATIENCE, "never told: {missing:?}");
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// At most one machine was ever made for an order, and one sweep later none runs unknown.
    async fn assert_sound(&self) {
        let world = &self.service.world;
        for provider in Provider::ALL {
            let mut names = BTreeSet::new();
            for launch in world.simulator().launches(provider) {
                assert!(
                    names.insert(launch.name.clone()),
                    "bought twice: {launch:?}"
                );
            }
        }
        let swept = sweep::sweep(world.broker()).await.expect("an answer");
        assert_eq!((swept.unknown, swept.unreadable), (0, 0), "{swept:?}");
        assert_eq!(world.leaked_machines().await.expect("an answer"), 0);
        let checked = self.command(&["ledger", "check", "--json"]);
        let said = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(checked.status.success(), "{said}");
    }

    async fn close(self) {
        drop(self.replicas);
        if let Some(service) = Arc::into_inner(self.service) {
            service.stop().await;
        }
        self.database.remove().await;
    }
}

/// Lets the world live on for ever: time passes, supply is read, machines come up.
async fn live_on(world: &World) {
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
async fn kills_of_real_replicas_and_of_redis_at_any_moment_lose_no_acknowledged_work() {
    let seed = setting("CHAOS_SEED").unwrap_or(1);
    let kills = setting("CHAOS_KILLS").map_or(KILLS, |kills| kills as usize);
    let folder = folder(seed);
    let Some(mut scene) = Scene::open(folder.clone()).await else {
        return;
    };
    eprintln!("{kills} kills, seed {seed}; logs in {}", folder.display());
    let service = Arc::clone(&scene.service);
    tokio::select! {
        () = live_on(&service.world) => {}
        () = play(&mut scene, kills, seed) => {}
    }
    drop(service);
    scene.close().await;
    std::fs::remove_dir_all(folder).expect("the logs of a good run are not needed");
}

async fn play(scene: &mut Scene, kills: usize, seed: u64) {
    let began = Instant::now();
    let mut random = StdRng::seed_from_u64(seed);
    let api = scene.api();
    let endpoint = json!({ "url": scene.receiver.url("/"), "description": "ours" });
    api.granted("/v1/webhook-endpoints", "endpoint", Some(&endpoint))
        .await;
    scene.receiver.fail_next(REFUSED_MESSAGES);

    let stop = Arc::new(AtomicBool::new(false));
    let buyers: Vec<_> = (0..BUYERS)
        .map(|number| {
            let random = StdRng::seed_from_u64(random.random());
            tokio::spawn(buy(api.clone(), number, random, Arc::clone(&stop)))
        })
        .collect();
    let struck = scene.kill(kills, &mut random).await;
    eprintln!("struck in the middle of {struck:?}");
    let varied = kills < ENOUGH_KILLS || struck.len() >= MOMENTS;
    assert!(varied, "only in the middle of {struck:?}");
    // From here one replica is alone, with what it was in the middle of and what the other was.
    let survivor = random.random_range(0..scene.replicas.len());
    eventually("the replica that is to go on", async || {
        scene.replicas[survivor].serves()
    })
    .await;
    scene.kill_replica(1 - survivor);
    scene.redis.kill();
    eprintln!("replica {survivor} is alone, without Redis");
    stop.store(true, Ordering::Relaxed);
    let mut orders = Vec::new();
    for bought in join_all(buyers).await {
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
    assert!(orders.len() >= BUYERS, "too few to prove anything");
    scene.assert_sound().await;
    // Where few machines were ordered, faults have piled up, and a repair gives up after a few in a row.
    let simulator = scene.service.world.simulator();
    simulator.drop_waiting_faults(Provider::Lambda);
    // The first buyer's is a gang, which is repaired as a whole.
    let kept = scene.in_hand(&mut orders).await.pop().expect("some keep");
    scene.lose_a_machine(kept).await;
    scene.assert_sound().await;
    scene.redis.start();
    scene.replicas[1 - survivor].start_again();
    scene.balancer.stand_before(&scene.replicas);

    // What is kept is given back, and nothing runs then.
    for order in scene.in_hand(&mut orders).await {
        let path = format!("/v1/reservations/{}/release", order.id);
        api.granted(&path, &format!("end-{}", order.id), None).await;
        order.wish = Wish::Release;
    }
    scene.until_as_wished(&orders).await;
    scene.assert_sound().await;
    for order in &orders {
        let all = scene.database.store.leases().across_tenants();
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
    let folder = folder(0);
    let Some(scene) = Scene::open(folder.clone()).await else {
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
    for (table, column, values) in fixture::contents(&scene.database.store).await {
        assert!(
            table != "interrupted_sessions" || values.is_empty(),
            "{column}: {values}"
        );
    }
}
