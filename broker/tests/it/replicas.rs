//! Two replicas over one PostgreSQL and one Redis: one sells the supply that the other reads, one of them
//! polls, and both continue when Redis is lost.

use std::sync::Arc;
use std::time::Duration;

use adapters::Adapter;
use broker::flow::reserve::{self, Particulars};
use broker::flow::{ingest, plan, reconcile};
use broker::platform::app::Broker;
use broker::platform::background::Background;
use broker::platform::config::Config;
use broker::platform::provider_set::ProviderLink;
use broker::service::start;
use broker::service::tasks;
use broker::tools::simulation::{SimulatedMarket, SimulatedMarketOptions, Wrap, simulated_links};
use chrono::TimeDelta;
use market::identity::TenantScope;
use market::ids::{ProjectId, SshKeyId, TenantId};
use secrecy::SecretString;
use serde_json::json;
use simulator::{Fault, FaultKind, NodeRunner, Provider};
use store::fixture::TestDatabase;
use store::settings::DatabaseMode;
use store::ssh_keys::NewSshKey;

use crate::eventually::eventually;
use crate::hot::server::{AnyRedis, RedisServer};
use crate::lifecycle::tap::{CallInterceptor, Line, Op};
use crate::service::install_tls;

/// Two replicas of one deployment, in one process; each with a tap before its providers.
struct Replicas {
    database: TestDatabase,
    world: SimulatedMarket,
    one: Broker,
    two: Broker,
    lines: [Arc<Line>; 2],
    _dir: tempfile::TempDir,
}

fn tapped(line: &Arc<Line>) -> Box<Wrap> {
    let line = Arc::clone(line);
    Box::new(move |adapter: &'static dyn Adapter| {
        CallInterceptor::before(adapter, Arc::clone(&line))
    })
}

impl Replicas {
    /// `None`, with a printed notice, where there is no PostgreSQL.
    async fn start(redis: SecretString) -> Option<Self> {
        let database = TestDatabase::postgres().await?;
        install_tls();
        let dir = tempfile::tempdir().expect("a directory");
        let lines = [Arc::new(Line::default()), Arc::new(Line::default())];
        let configure = move |config: &mut Config| {
            config.redis.url = Some(redis.clone());
            config.rate_limits.enabled = false;
        };
        let world = SimulatedMarket::open(SimulatedMarketOptions {
            store: Some(database.store.clone()),
            nodes: NodeRunner::Off,
            wrap: tapped(&lines[0]),
            configure: Box::new(configure.clone()),
            ..SimulatedMarketOptions::new(dir.path())
        })
        .await
        .expect("a world");
        let mut config = Config::embedded(dir.path()).expect("the defaults");
        configure(&mut config);
        let links: Vec<ProviderLink> = simulated_links(
            world.simulator(),
            Duration::from_secs(10),
            &*tapped(&lines[1]),
        )
        .expect("links");
        let two = start::with_store(
            database.store.clone(),
            config,
            DatabaseMode::Simulation,
            Arc::clone(world.clock()) as Arc<_>,
            links,
            world.base_url().to_owned(),
        )
        .await
        .expect("a second broker");
        // The first answer takes a connection, which on a busy machine takes longer than callers wait.
        for broker in [world.broker(), &two] {
            eventually("Redis", async || {
                broker
                    .hot()
                    .cache("warm", b"up", Duration::from_secs(60))
                    .await;
                broker.hot().cached("warm").await.is_some()
            })
            .await;
        }
        Some(Self {
            one: world.broker().clone(),
            two,
            database,
            world,
            lines,
            _dir: dir,
        })
    }

    /// How often the catalogues were asked for by each.
    fn reads(&self) -> [usize; 2] {
        self.lines.each_ref().map(|line| {
            let calls = line.calls();
            calls.iter().filter(|call| call.op == Op::Catalog).count()
        })
    }

    /// How often the machines were listed, by both.
    fn lists(&self) -> usize {
        let of = |line: &Arc<Line>| {
            line.calls()
                .iter()
                .filter(|call| call.op == Op::List)
                .count()
        };
        self.lines.iter().map(of).sum()
    }

    /// Waits until both have the supply that the database holds.
    async fn abreast(&self) {
        eventually("the same supply", async || {
            let latest = self.database.store.catalog().latest_generation().await;
            let latest = latest.expect("an answer").map_or(0, |last| last.0);
            latest > 0
                && self.one.snapshot().generation() == latest
                && self.two.snapshot().generation() == latest
        })
        .await;
    }

    async fn close(self) {
        self.world.close().await;
        drop((self.one, self.two));
        self.database.remove().await;
    }
}

/// The tasks of a replica that follow and read the supply.
fn supply(broker: &Broker) -> Background {
    let mut work = Background::of(broker);
    work.add("tail", ingest::keep_tailing);
    tasks::poll_each(&mut work);
    work
}

fn sweeping(broker: &Broker) -> Background {
    let mut work = Background::of(broker);
    work.add("sweep", reconcile::keep_sweeping);
    work
}

async fn tenant(broker: &Broker) -> TenantId {
    let tenant = TenantId::from_uuid(broker.new_uuid());
    let project = ProjectId::from_uuid(broker.new_uuid());
    let tenants = broker.store().tenants();
    tenants
        .ensure("acme", tenant, project, broker.now())
        .await
        .expect("a tenant");
    tenant
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_replica_reads_the_other_plans_on() {
    let Some(redis) = AnyRedis::find() else {
        return;
    };
    let Some(replicas) = Replicas::start(redis.url()).await else {
        return;
    };
    let (one, two) = (&replicas.one, &replicas.two);
    assert!(ingest::read_all(one).await.is_empty());
    assert_eq!(two.snapshot().generation(), 0);
    assert!(ingest::catch_up(two).await.expect("an answer"));
    assert!(
        !ingest::catch_up(two).await.expect("an answer"),
        "it has it"
    );
    let demand = json!({ "kind": "gpus", "gpu": "A10", "count": 1 });
    let demand: market::demand::Demand = serde_json::from_value(demand).expect("a demand");
    let acme = TenantScope::whole(tenant(two).await);
    let fresh = async || {
        let made = plan::make_plan(two, &acme, demand.clone())
            .await
            .expect("a plan");
        made.plan.candidates.len()
    };
    assert!(fresh().await > 0);
    let again = plan::make_plan(one, &acme, demand.clone()).await;
    let made = plan::make_plan(two, &acme, demand.clone()).await;
    assert_eq!(
        again.expect("a plan"),
        made.expect("a plan"),
        "one plan for both"
    );

    // The one reads on; the other, which never polls, keeps selling.
    replicas.world.clock().advance(TimeDelta::days(1));
    assert_eq!(fresh().await, 0, "supply of yesterday is not sold");
    assert!(ingest::read_all(one).await.is_empty());
    assert!(ingest::catch_up(two).await.expect("an answer"));
    assert!(fresh().await > 0);
    assert_eq!(replicas.reads()[1], 0);

    // A reading that failed makes no generation, and is seen as well.
    let fault = Fault::new(Provider::LAMBDA, FaultKind::EmptyCatalog);
    replicas
        .world
        .simulator()
        .break_next(fault)
        .expect("a fault");
    replicas.world.clock().advance(TimeDelta::seconds(60));
    assert_eq!(ingest::read_all(one).await.len(), 1);
    assert!(ingest::catch_up(two).await.expect("an answer"));
    let lambda = market::ids::ProviderId::parse("lambda").expect("an id");
    let snapshot = two.snapshot();
    assert!(snapshot.provider(&lambda).expect("known").stale.is_some());
    replicas.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_polls_and_sweeps_and_the_other_takes_over_when_it_stops() {
    let Some(redis) = AnyRedis::find() else {
        return;
    };
    let Some(replicas) = Replicas::start(redis.url()).await else {
        return;
    };
    let providers = replicas.one.providers().len();
    let first = (supply(&replicas.one), sweeping(&replicas.one));
    eventually("the first readings", async || {
        replicas.reads() == [providers, 0] && replicas.lists() == providers
    })
    .await;
    let second = (supply(&replicas.two), sweeping(&replicas.two));
    replicas.abreast().await;
    // A replica that starts reads the providers that nobody else reads: none.
    assert!(ingest::read_own(&replicas.two).await.is_empty());
    assert_eq!(
        (replicas.reads(), replicas.lists()),
        ([providers, 0], providers)
    );

    replicas.world.clock().advance(TimeDelta::seconds(60));
    first.0.stop().await;
    first.1.stop().await;
    eventually("the other's readings", async || {
        replicas.reads() == [providers, providers] && replicas.lists() == 2 * providers
    })
    .await;
    second.0.stop().await;
    second.1.stop().await;
    replicas.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_tenant_holds_at_one_replica_is_in_its_next_plan_at_the_other() {
    let Some(redis) = AnyRedis::find() else {
        return;
    };
    let Some(replicas) = Replicas::start(redis.url()).await else {
        return;
    };
    let (one, two) = (&replicas.one, &replicas.two);
    assert!(ingest::read_all(one).await.is_empty());
    assert!(ingest::catch_up(two).await.expect("an answer"));
    let acme = TenantScope::whole(tenant(two).await);
    let key = NewSshKey {
        id: SshKeyId::from_uuid(two.new_uuid()),
        name: "laptop".to_owned(),
        public_key: "ssh-ed25519 AAAA".to_owned(),
        fingerprint: "SHA256:test".to_owned(),
    };
    let keys = two.store().ssh_keys().of(acme.tenant);
    keys.add(key, two.now(), None).await.expect("added");
    let demand = json!({ "kind": "gpus", "gpu": "A10", "count": 1 });
    let demand: market::demand::Demand = serde_json::from_value(demand).expect("a demand");
    let plan = async |broker| {
        let made = plan::make_plan(broker, &acme, demand.clone()).await;
        made.expect("a plan").id
    };
    let hold = async |broker| {
        let particulars = Particulars::default();
        let held = reserve::in_one_call(broker, &acme, demand.clone(), particulars, None);
        held.await.expect("held");
    };
    let before = plan(two).await;
    assert_eq!(plan(one).await, before, "one plan for both");
    hold(one).await;
    let after = plan(one).await;
    assert_ne!(after, before);
    assert_eq!(plan(two).await, before, "it has not looked yet");
    ingest::catch_up(two).await.expect("an answer");
    assert_eq!(plan(two).await, after);
    // Each has placed one now, and neither answers with the plan from before the second.
    hold(two).await;
    let last = plan(two).await;
    assert!(last != before && last != after);
    ingest::catch_up(one).await.expect("an answer");
    assert_eq!(plan(one).await, last);
    replicas.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_go_on_without_redis_and_find_each_other_again() {
    let Some(mut redis) = RedisServer::private() else {
        return;
    };
    let Some(replicas) = Replicas::start(redis.url()).await else {
        return;
    };
    let providers = replicas.one.providers().len();
    let first = supply(&replicas.one);
    eventually("the first readings", async || {
        replicas.reads() == [providers, 0]
    })
    .await;
    let second = supply(&replicas.two);
    replicas.abreast().await;

    redis.kill();
    replicas.world.clock().advance(TimeDelta::seconds(60));
    assert!(ingest::read_all(&replicas.one).await.is_empty());
    replicas.abreast().await;
    assert_eq!(
        replicas.reads()[1],
        0,
        "the holder goes on, the other waits"
    );

    redis.start();
    eventually("the lease", async || {
        // Renewed or taken again by its holder; the other asks in vain.
        let (hot, name) = (replicas.one.hot(), replicas.one.replica());
        let long = Duration::from_secs(15);
        hot.renew("poll:lambda", name, long).await || hot.acquire("poll:lambda", name, long).await
    })
    .await;
    assert!(ingest::read_own(&replicas.two).await.is_empty());
    assert_eq!(replicas.reads()[1], 0);
    replicas.abreast().await;
    first.stop().await;
    second.stop().await;
    replicas.close().await;
}
