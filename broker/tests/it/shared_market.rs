//! A simulated market that several processes share: who may join it, and how its clock is followed.

use std::sync::Arc;

use broker::platform::clock::{Clock as _, ManualClock, SystemClock};
use broker::tools::simulation::SharedMarket;
use chrono::TimeDelta;
use secrecy::SecretString;
use simulator::{Config, Provider, Simulator};

use crate::eventually::eventually;
use crate::service::install_tls;

async fn market() -> (Simulator, Arc<ManualClock>) {
    install_tls();
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let shared = Arc::clone(&clock) as Arc<dyn simulator::Clock>;
    let market = Simulator::start(Config::new(shared)).await;
    (market.expect("a market"), clock)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turned_clock_is_seen_soon_and_one_that_stands_still_stands_for_all() {
    let (market, clock) = market().await;
    let credential = SecretString::from(market.control_credential());
    let joined = SharedMarket::join(&market.control_url(), &credential).await;
    let joined = joined.expect("it may join");
    assert_eq!(joined.links.len(), Provider::ALL.len());
    assert_eq!(
        joined.clock.now(),
        broker::platform::clock::Clock::now(&*clock)
    );
    let turned = clock.advance(TimeDelta::days(1));
    eventually("the turned clock", async || joined.clock.now() == turned).await;
    market.stop().await;
    assert_eq!(joined.clock.now(), turned, "it stands");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_has_the_credential_joins_and_only_on_this_machine() {
    let (market, _) = market().await;
    let wrong = SecretString::from("control-wrong");
    let refused = SharedMarket::join(&market.control_url(), &wrong).await;
    let why = format!("{:#}", refused.err().expect("refused"));
    assert!(
        why.contains("credential") && !why.contains("wrong"),
        "{why}"
    );
    let away = SharedMarket::join("http://192.0.2.1:8080", &wrong).await;
    let why = format!("{:#}", away.err().expect("refused"));
    assert!(why.contains("on this machine"), "{why}");
    market.stop().await;
}
