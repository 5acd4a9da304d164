//! The surroundings of killed processes: the market, the database, the replicas, and the checks of the
//! result.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::flow::reconcile;
use broker::tools::simulation::SimulatedMarketOptions;
use futures_util::future::join_all;
use market::identity::Role;
use market::lease::LeaseState;
use market::order::LeaseRef;
use market::reservation::{CloseReason, ReservationState};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use simulator::Provider;
use store::Store;
use store::events::EventFilter;
use store::fixture::{self, PostgresServer, TestDatabase};
use store::leases::Lease;
use store::reservations::ReservationFilter;
use tokio::time::sleep;

use super::balancer::Balancer;
use super::buyer::{Acknowledged, Api, Intent, PATIENCE};
use super::replica::{Replica, Setting, broker};
use crate::eventually::{eventually, output_of};
use crate::hot::server::RedisServer;
use crate::service::{Key, NODE_DEADLINE, Service, agent, ssh_key, usual_world};
use crate::webhooks::receiver::Receiver;

/// More than this process has to the database.
const CONNECTIONS: usize = 40;

/// The simulated market and its clock are in this process; nothing here works on reservations.
pub(super) struct Scene {
    pub(super) service: Arc<Service>,
    pub(super) key: Key,
    /// The database of the replicas.
    pub(super) store: Store,
    /// The parts of it to remove; none of an embedded one.
    database: Option<TestDatabase>,
    /// Its server, where that can be killed.
    pub(super) postgres: Option<PostgresServer>,
    pub(super) redis: Option<RedisServer>,
    pub(super) receiver: Receiver,
    pub(super) balancer: Balancer,
    setting: Arc<Setting>,
    pub(super) replicas: Vec<Replica>,
}

impl Scene {
    /// Two replicas on the PostgreSQL that other tests use too; `None`, with a printed notice, where that or
    /// Redis is missing.
    pub(super) async fn on_postgres(folder: PathBuf) -> Option<Self> {
        let redis = RedisServer::private()?;
        let database = TestDatabase::postgres().await?;
        Some(Self::open(folder, Some((redis, None, database))).await)
    }

    /// The same on a PostgreSQL that can be killed.
    pub(super) async fn on_mortal_postgres(folder: PathBuf) -> Option<Self> {
        let redis = RedisServer::private()?;
        let postgres = PostgresServer::private()?;
        let database = TestDatabase::on(&postgres).await;
        Some(Self::open(folder, Some((redis, Some(postgres), database))).await)
    }

    /// One replica on the embedded database.
    pub(super) async fn on_sqlite(folder: PathBuf) -> Self {
        Self::open(folder, None).await
    }

    async fn open(
        folder: PathBuf,
        servers: Option<(RedisServer, Option<PostgresServer>, TestDatabase)>,
    ) -> Self {
        let store = servers
            .as_ref()
            .map(|(.., database)| database.store.clone());
        let service = Service::start_as(SimulatedMarketOptions {
            store,
            configure_market: Box::new(|market| {
                for provider in [Provider::LAMBDA, Provider::VOLTAGEPARK] {
                    market.timing_of(provider).boot_seconds = 60;
                }
                market.node_deadline = NODE_DEADLINE;
            }),
            ..usual_world()
        });
        let service = Arc::new(service.await);
        let simulator = service.world.simulator();
        simulator
            .set_capacity(Provider::LAMBDA, "gpu_1x_a10", 40)
            .expect("it is sold");
        service.world.read_providers().await;
        let key = service.key("acme", Role::Member).await;
        ssh_key(&service, &key).await;
        let balancer = Balancer::start();
        let data_dir = service.world.broker().config().data_dir.clone();
        let path = |path: PathBuf| path.display().to_string();
        let usual = [
            ("BROKER__SERVER__PUBLIC_URL", balancer.url.clone()),
            ("BROKER__VERIFIER__AGENT_PATH", path(agent())),
            ("BROKER__SIMULATION__MARKET_URL", simulator.control_url()),
            (
                "BROKER__SIMULATION__CREDENTIAL",
                simulator.control_credential(),
            ),
            ("BROKER__RATE_LIMITS__ENABLED", "false".to_owned()),
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
        let where_it_is = match &servers {
            Some((redis, _, database)) => {
                let store::Database::Url(url) = database.database.clone() else {
                    panic!("PostgreSQL has a URL");
                };
                vec![
                    ("DATABASE_URL", url),
                    ("REDIS_URL", redis.url().expose_secret().to_owned()),
                    (
                        "BROKER__SECRETS__KEY_FILE",
                        path(data_dir.join("secret.key")),
                    ),
                ]
            }
            None => vec![("BROKER__DATA_DIR", path(data_dir))],
        };
        let environment = usual.into_iter().chain(where_it_is);
        let setting = Arc::new(Setting {
            environment: environment
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            folder,
        });
        // An embedded database takes one.
        let names = &["one", "two"][..if servers.is_some() { 2 } else { 1 }];
        let start = |name: &&str| Replica::start(&setting, name);
        let replicas: Vec<_> = names.iter().map(start).collect();
        balancer.stand_before(&replicas);
        let store = service.world.broker().store().clone();
        let (redis, postgres, database) = match servers {
            Some((redis, postgres, database)) => (Some(redis), postgres, Some(database)),
            None => (None, None, None),
        };
        Self {
            service,
            key,
            store,
            database,
            postgres,
            redis,
            receiver: Receiver::start().await,
            balancer,
            setting,
            replicas,
        }
    }

    /// Reconnects to a database that was killed: the connections of this process are dead, and each reports
    /// so once.
    pub(super) async fn connect_again(&self) {
        let asked = || fixture::execute_raw(&self.store, "SELECT 1");
        join_all((0..CONNECTIONS).map(|_| asked())).await;
        eventually("the database", async || asked().await.is_ok()).await;
    }

    pub(super) fn api(&self) -> Api {
        Api::new(&self.balancer.url, &self.key.secret)
    }

    /// The states of all reservations that are not closed.
    pub(super) async fn open_states(&self) -> BTreeSet<&'static str> {
        let filter = ReservationFilter {
            open_only: true,
            ..ReservationFilter::default()
        };
        let all = self.store.reservations().across_tenants();
        let open = all.list(&filter, None, 1_000).await.expect("reservations");
        open.iter().map(|one| one.state.as_str()).collect()
    }

    /// Makes a provider end a machine in use, and waits until another replaces it.
    pub(super) async fn lose_a_machine(&self, order: &Acknowledged) {
        let leases = async || {
            let all = self.store.leases().across_tenants();
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
        let at_provider = LeaseRef {
            id: lost.provider_lease_id.clone().expect("a machine"),
            client_token: lost.client_token.clone(),
            region: lost.offer.place.region.clone(),
        };
        let ended = link.adapter.release_lease(&link.http, &at_provider).await;
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

    pub(super) fn kill_replica(&mut self, which: usize) {
        let replica = &mut self.replicas[which];
        assert!(replica.lives(), "a replica ended by itself");
        replica.kill();
    }

    /// Runs a command of the binary on the same database to its end.
    fn command(&self, args: &[&str]) -> Output {
        let mut command = broker(&self.setting);
        output_of(command.args(args))
    }

    pub(super) async fn state(&self, order: &Acknowledged) -> ReservationState {
        let all = self.store.reservations().across_tenants();
        let found = all.find(order.id).await.expect("an answer");
        found
            .expect("an acknowledged reservation is never lost")
            .state
    }

    /// Waits until every reservation ended as its tenant wished.
    pub(super) async fn until_as_wished(&self, orders: &[Acknowledged]) {
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
    pub(super) async fn has_given_out(
        &self,
        order: &Acknowledged,
        state: ReservationState,
    ) -> bool {
        if state != ReservationState::Closed(CloseReason::NoCapacity) {
            return false;
        }
        let all = self.store.leases().across_tenants();
        let leases = all.of_reservation(order.id).await.expect("leases");
        leases.iter().any(|lease| lease.fall_reason.is_some())
    }

    /// Those whom the tenant has, of these.
    pub(super) async fn in_hand<'a>(
        &self,
        orders: &'a mut [Acknowledged],
    ) -> Vec<&'a mut Acknowledged> {
        let mut kept = Vec::new();
        for order in orders.iter_mut().filter(|order| order.wish == Intent::Keep) {
            if self.state(order).await == ReservationState::Active {
                kept.push(order);
            }
        }
        kept
    }

    /// The history of a reservation's leases, for a person who looks for the fault.
    pub(super) async fn falls(&self, order: &Acknowledged) -> Vec<String> {
        let all = self.store.leases().across_tenants();
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
    pub(super) async fn assert_told(&self) {
        let events = self.store.events().of(self.key.tenant);
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
                assert_eq!(distinct, expected, "nothing else is reported");
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

    /// At most one machine was ever made for an order, and after one more reconciliation no unknown machine
    /// runs.
    pub(super) async fn assert_sound(&self) {
        let world = &self.service.world;
        for provider in Provider::DEMONSTRATION {
            let mut names = BTreeSet::new();
            for launch in world.simulator().launches(provider) {
                assert!(
                    names.insert(launch.name.clone()),
                    "bought twice: {launch:?}"
                );
            }
        }
        let swept = reconcile::sweep(world.broker()).await.expect("an answer");
        assert_eq!((swept.unknown, swept.unreadable), (0, 0), "{swept:?}");
        assert_eq!(world.leaked_machines().await.expect("an answer"), 0);
        let checked = self.command(&["ledger", "check", "--json"]);
        let said = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(checked.status.success(), "{said}");
    }

    pub(super) async fn close(self) {
        drop(self.replicas);
        if let Some(service) = Arc::into_inner(self.service) {
            service.stop().await;
        }
        if let Some(database) = self.database {
            database.remove().await;
        }
    }
}
