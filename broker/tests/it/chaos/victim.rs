//! The victim of each kill, its time, and the other faults meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use simulator::{Fault, FaultKind, Front, Provider};
use tokio::time::sleep;

use super::replica::Replica;
use super::scene::Scene;
use crate::eventually::eventually;

/// Between two kills. Units: milliseconds.
const BETWEEN_KILLS: std::ops::Range<u64> = 200..1_400;
/// For how long a server is away at most. Units: milliseconds.
const AWAY: std::ops::Range<u64> = 0..500;

/// The fault at a provider after every fourth kill.
const FAULTS: [FaultKind; 4] = [
    FaultKind::MissingGpu,
    FaultKind::SlowMemory,
    FaultKind::AcceptedThenFailed,
    FaultKind::ReplyLostAfterCreate,
];
pub(super) const FAULT_EVERY: usize = 4;
/// The front before a provider from every fifth kill to the next one.
const FRONTS: [Front; 4] = [
    Front::NotFoundPage,
    Front::Gone,
    Front::EmptyList,
    Front::CutList,
];
const FRONT_EVERY: usize = 5;

/// The victim of a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Redis,
    Postgres,
    Replica(usize),
}

impl Victim {
    /// All that can be killed in a scene.
    fn all(scene: &Scene) -> Vec<Self> {
        let replicas = (0..scene.replicas.len()).map(Self::Replica);
        let redis = scene.redis.iter().map(|_| Self::Redis);
        let postgres = scene.postgres.iter().map(|_| Self::Postgres);
        replicas.chain(redis).chain(postgres).collect()
    }

    /// One in ten strikes Redis, and one in ten PostgreSQL, where they are.
    fn draw(all: &[Self], random: &mut StdRng) -> Self {
        let replicas = all.iter().filter(|one| matches!(one, Self::Replica(_)));
        let drawn = match random.random_range(0..10) {
            0 => Self::Redis,
            1 => Self::Postgres,
            drawn => Self::Replica(drawn % replicas.count()),
        };
        if all.contains(&drawn) {
            drawn
        } else {
            Self::Replica(0)
        }
    }
}

impl Scene {
    /// Kills the victims at the times that the seed gives, and restarts each; each at least once.
    ///
    /// Gives the states in which open reservations were then.
    pub(super) async fn kill(
        &mut self,
        kills: usize,
        random: &mut StdRng,
    ) -> BTreeSet<&'static str> {
        let mut struck = BTreeSet::new();
        let all = Victim::all(self);
        let mut first = all.clone();
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
                .unwrap_or_else(|| Victim::draw(&all, random));
            struck.extend(self.open_states().await);
            self.strike(victim, Duration::from_millis(random.random_range(AWAY)))
                .await;
            eprintln!("kill {}: {victim:?}", number + 1);
            self.go_wrong(number, random);
        }
        let simulator = self.service.world.simulator();
        simulator.put_front(Provider::LAMBDA, None);
        struck
    }

    /// Kills one and starts it again; a server is away for so long.
    async fn strike(&mut self, victim: Victim, away: Duration) {
        match victim {
            Victim::Redis => {
                let redis = self.redis.as_mut().expect("it is there");
                redis.kill();
                sleep(away).await;
                redis.start();
            }
            Victim::Postgres => {
                // A replica that starts without its database logs that and exits: its supervisor restarts it.
                eventually("replicas that serve", async || {
                    self.replicas.iter().all(Replica::serves)
                })
                .await;
                let postgres = self.postgres.as_mut().expect("it is there");
                postgres.kill();
                sleep(away).await;
                postgres.start();
                self.connect_again().await;
            }
            Victim::Replica(which) => {
                self.kill_replica(which);
                self.replicas[which].start_again();
                self.balancer.stand_before(&self.replicas);
            }
        }
    }

    /// After some kills a front end answers for a provider, or its next machine is broken.
    fn go_wrong(&self, number: usize, random: &mut StdRng) {
        let simulator = self.service.world.simulator();
        let stands = number % FRONT_EVERY == FRONT_EVERY - 1;
        let front = stands.then(|| *FRONTS.choose(random).expect("some"));
        if let Some(front) = front {
            eprintln!("in front of lambda: {front:?}");
        }
        simulator.put_front(Provider::LAMBDA, front);
        if number % FAULT_EVERY == FAULT_EVERY - 1 {
            let fault = FAULTS.choose(random).expect("some").clone();
            eprintln!("the next launch: {fault:?}");
            let fault = Fault::new(Provider::LAMBDA, fault);
            simulator.break_next(fault).expect("a fault that fits");
        }
    }
}
