//! Commands that work on a database of their own.

use std::sync::Arc;

use broker::platform::clock::{Clock, SystemClock};
use market::identity::Role;
use simulator::{Config, Provider, Simulator};
use store::settings::DatabaseMode;
use store::{Database, Store};

use super::{WIDTHS, faults, filled};
use crate::belongings::Belongings;
use crate::client::Shell;
use crate::service::{Service, install_tls};

/// On a fresh database, which the first makes.
const FRESH: [&str; 11] = [
    "token create --tenant acme --data-dir d",
    "migrate status --data-dir d",
    "migrate down --steps 1 --data-dir d",
    "migrate up --data-dir d",
    "keys rotate --data-dir d",
    "keys rotate --purpose attestation --data-dir d",
    "keys list --data-dir d",
    "ledger check --data-dir d",
    "sweep --data-dir d",
    "backup --to copy.db --data-dir d",
    "keys reseal --new-key-file new.key --data-dir d",
];

/// On the database of a simulation, with a provider that is connected.
const PROVIDERS: [&str; 10] = [
    "providers add runpod --base-url {url} --credential-file {key} --data-dir d",
    "providers check runpod --data-dir d",
    "providers rotate runpod --credential-file {key} --data-dir d",
    "providers quarantine runpod --reason lies-about-its-stock-and-its-prices --until {later} --data-dir d",
    "providers list --data-dir d",
    "providers quarantine runpod --end --data-dir d",
    "providers disable runpod --data-dir d",
    "providers enable runpod --data-dir d",
    "providers disable runpod --data-dir d",
    "providers forget runpod --data-dir d",
];

/// On the database of a running service, with its signatures and decisions.
const RUNNING: [&str; 7] = [
    "providers list --data-dir {data}",
    "keys list --data-dir {data}",
    "ledger check --data-dir {data}",
    "audit check --data-dir {data}",
    "audit replay {plan} --data-dir {data}",
    "migrate status --data-dir {data}",
    "attestation verify {result} --jwks {jwks} --allow-simulated",
];

/// All of them.
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    FRESH.into_iter().chain(PROVIDERS).chain(RUNNING)
}

/// The faults of these commands' output, one after the other.
async fn run(
    shell: &Shell,
    width: usize,
    commands: &[&str],
    names: &[(&str, String)],
) -> Vec<String> {
    let mut wrong = Vec::new();
    for command in commands {
        let command = filled(command, names);
        let ended = shell.run(&command).await;
        assert_eq!(ended.status, Some(0), "{command}: {ended:?}");
        assert_ne!(ended.stdout, "", "{command}: {ended:?}");
        wrong.extend(faults(&command, width, &ended.stdout));
    }
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn what_works_on_a_database_keeps_to_the_terminal() {
    let mut wrong = Vec::new();
    for width in WIDTHS {
        let shell = Shell::new().with("COLUMNS", &width.to_string());
        wrong.extend(run(&shell, width, &FRESH, &[]).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_with_providers_keeps_to_the_terminal() {
    install_tls();
    let clock = Arc::new(SystemClock) as Arc<dyn simulator::Clock>;
    let market = Simulator::start(Config::new(clock)).await;
    let market = market.expect("a market");
    let mut wrong = Vec::new();
    for width in WIDTHS {
        let shell = Shell::new().with("COLUMNS", &width.to_string());
        simulation(&shell).await;
        let later = SystemClock.now() + chrono::TimeDelta::hours(1);
        let names = [
            ("url", market.url(Provider::RUNPOD)),
            (
                "key",
                shell.write("key", &market.credential(Provider::RUNPOD)),
            ),
            ("later", later.format("%Y-%m-%dT%H:%M:%SZ").to_string()),
        ];
        wrong.extend(run(&shell, width, &PROVIDERS, &names).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    market.stop().await;
}

/// A database made for simulation in the directory `d`.
async fn simulation(shell: &Shell) {
    let folder = shell.home.path().join("d");
    std::fs::create_dir(&folder).expect("a directory");
    let path = folder.join("broker.db");
    let store = Store::connect(Database::Sqlite { path }).await;
    let store = store.expect("it opens");
    store.migrate_up().await.expect("a schema");
    let settings = store.settings();
    let settled = settings.settle_mode(DatabaseMode::Simulation, SystemClock.now());
    settled.await.expect("settled");
    store.close().await.expect("closes");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_looks_at_a_service_that_runs_keeps_to_the_terminal() {
    let service = Service::start_with_nodes().await;
    let member = service.key("acme", Role::Member).await;
    let admin = service.key("acme", Role::Admin).await;
    let things = Belongings::make(&service, &member, &admin, "a name").await;
    let data = &service.world.broker().config().data_dir;
    let mut wrong = Vec::new();
    for width in WIDTHS {
        let shell = Shell::new().with("COLUMNS", &width.to_string());
        let signed = format!("/v1/attestations/{}", things.attestation);
        let signed = service.with(&member).get(&signed).await;
        let keys = service.anyone().get("/.well-known/jwks.json").await;
        let names = [
            ("data", data.display().to_string()),
            ("plan", things.plan.clone()),
            (
                "result",
                shell.write("result.json", &signed.expect(200).to_string()),
            ),
            (
                "jwks",
                shell.write("jwks.json", &keys.expect(200).to_string()),
            ),
        ];
        wrong.extend(run(&shell, width, &RUNNING, &names).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    service.stop().await;
}
