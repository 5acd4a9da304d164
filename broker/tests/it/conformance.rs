//! Every adapter keeps its contract against the simulated provider that it speaks to.

use std::sync::Arc;
use std::time::Duration;

use adapters::conformance::{BrokenFront, ConformanceWorld, Outcome, run};
use adapters::{Http, HttpConfig, registry};
use async_trait::async_trait;
use broker::platform::clock::{Clock as _, ManualClock, SystemClock};
use chrono::{DateTime, TimeDelta, Utc};
use secrecy::SecretString;
use simulator::{Config, Fault, FaultKind, Front, NodeRunner, Operation, Provider, Simulator};

struct Simulated<'a> {
    simulator: &'a Simulator,
    provider: Provider,
    clock: &'a ManualClock,
}

#[async_trait]
impl ConformanceWorld for Simulated<'_> {
    fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    fn takes_orders(&self) -> bool {
        true
    }

    async fn advance(&self, by: Duration) {
        self.clock
            .advance(TimeDelta::from_std(by).expect("a short while"));
        self.simulator.tick();
    }

    async fn lose_next_reply(&self) -> bool {
        let fault =
            Fault::new(self.provider, FaultKind::ReplyLostAfterCreate).on(Operation::Launch);
        self.simulator.break_next(fault).is_ok()
    }

    async fn put_front(&self, front: Option<BrokenFront>) -> bool {
        let front = front.map(|front| match front {
            BrokenFront::NotFoundPage => Front::NotFoundPage,
            BrokenFront::Gone => Front::Gone,
            BrokenFront::CredentialRefused => Front::CredentialRefused,
        });
        self.simulator.put_front(self.provider, front);
        true
    }
}

async fn check(provider: Provider) {
    crate::service::install_tls();
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let simulator = Simulator::start(Config {
        node_runner: NodeRunner::Off,
        ..Config::new(Arc::clone(&clock) as Arc<dyn simulator::Clock>)
    })
    .await
    .expect("a simulator");
    let id = market::ids::ProviderId::parse(provider.as_str()).expect("a provider");
    let adapter = registry::by_id(&id).expect("an adapter for each simulated provider");
    let http = Http::live(HttpConfig {
        base_url: simulator.url(provider),
        allow_loopback: true,
        call_spacing: Duration::ZERO,
        order_spacing: Duration::ZERO,
        ..HttpConfig::of(
            adapter.profile(),
            Some(SecretString::from(simulator.credential(provider))),
        )
    })
    .expect("a connection");
    let world = Simulated {
        simulator: &simulator,
        provider,
        clock: &clock,
    };
    let results = run(adapter, &http, &world).await;
    let mut passed = 0;
    for result in &results {
        match &result.outcome {
            Outcome::Passed => passed += 1,
            Outcome::NotApplicable(why) => println!("{provider}: {}: {why}", result.check),
            Outcome::Failed(why) => panic!("{provider}: {}: {why}", result.check),
        }
    }
    assert!(passed >= 10, "{provider}: only {passed} checks applied");
    assert!(
        simulator.running_machines().is_empty(),
        "{:?}",
        simulator.running_machines()
    );
    simulator.stop().await;
}

#[tokio::test]
async fn the_lambda_adapter_keeps_its_contract() {
    check(Provider::LAMBDA).await;
}

#[tokio::test]
async fn the_runpod_adapter_keeps_its_contract() {
    check(Provider::RUNPOD).await;
}

#[tokio::test]
async fn the_voltagepark_adapter_keeps_its_contract() {
    check(Provider::VOLTAGEPARK).await;
}
