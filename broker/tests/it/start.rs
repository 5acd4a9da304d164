//! The parts from which a broker refuses to be built: nothing simulated passes as real, and a simulation
//! reaches nothing real (invariant 14).

use std::path::Path;
use std::sync::Arc;

use adapters::{Http, HttpConfig, registry};
use broker::platform::clock::SystemClock;
use broker::platform::config::{Config, ProviderConfig};
use broker::platform::provider_set::ProviderLink;
use broker::platform::start_error::StartError;
use broker::service::start::start;
use market::ids::ProviderId;
use secrecy::SecretString;
use store::Database;
use store::fixture::TestDatabase;
use store::settings::DatabaseMode;

use crate::service::install_tls;

fn config(dir: &Path, base_url: Option<&str>) -> Config {
    let mut config = Config::embedded(dir).expect("the defaults");
    let settings = ProviderConfig {
        enabled: true,
        base_url: base_url.map(str::to_owned),
        credential: Some(SecretString::from("canary")),
        ..ProviderConfig::default()
    };
    let id = "lambda".parse().expect("a provider");
    config.providers.insert(id, settings);
    config
}

fn simulated() -> Vec<ProviderLink> {
    install_tls();
    let id = ProviderId::parse("lambda").expect("a provider");
    let adapter = registry::by_id(&id).expect("an adapter");
    let http = Http::live(HttpConfig {
        base_url: "http://127.0.0.1:9/api/v1".into(),
        allow_loopback: true,
        ..HttpConfig::of(adapter.profile(), None)
    });
    vec![ProviderLink {
        adapter,
        http: http.expect("a connection"),
    }]
}

async fn refusal(
    config: Config,
    mode: DatabaseMode,
    links: Vec<ProviderLink>,
) -> Option<StartError> {
    install_tls();
    let url = "http://127.0.0.1:9".to_owned();
    start(config, mode, Arc::new(SystemClock), links, url)
        .await
        .err()
}

#[tokio::test]
async fn a_simulation_refuses_a_provider_that_is_not_on_this_machine() {
    let dir = tempfile::tempdir().expect("a directory");
    for url in [None, Some("https://cloud.lambda.ai/api/v1")] {
        let refused = refusal(
            config(dir.path(), url),
            DatabaseMode::Simulation,
            Vec::new(),
        )
        .await;
        let words = refused.expect("a refusal").to_string();
        assert!(
            words.contains("lambda") && words.contains("this machine"),
            "{words}"
        );
        assert!(!words.contains("canary"), "{words}");
    }
}

#[tokio::test]
async fn production_refuses_simulated_providers_and_addresses_of_this_machine() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut plain = config(dir.path(), None);
    plain.providers.clear();
    let refused = refusal(plain, DatabaseMode::Production, simulated()).await;
    assert!(
        matches!(refused, Some(StartError::SimulatedInProduction)),
        "{refused:?}"
    );
    for url in [
        "http://127.0.0.1:9/api/v1",
        "https://localhost/api/v1",
        "http://[::1]:9",
    ] {
        let refused = refusal(
            config(dir.path(), Some(url)),
            DatabaseMode::Production,
            Vec::new(),
        )
        .await;
        assert!(
            matches!(refused, Some(StartError::Provider { .. })),
            "{url}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn machines_are_not_ordered_to_call_themselves() {
    install_tls();
    let dir = tempfile::tempdir().expect("a directory");
    let mut with_agent = config(dir.path(), None);
    with_agent.providers.clear();
    let agent = dir.path().join("agent");
    std::fs::write(&agent, "an agent").expect("a file");
    with_agent.verifier.agent_path = Some(agent);
    let at = async |url: &str| {
        let (config, mode) = (with_agent.clone(), DatabaseMode::Production);
        let started = start(config, mode, Arc::new(SystemClock), Vec::new(), url.into()).await;
        started.err()
    };
    for url in [
        "http://127.0.0.1:8080",
        "https://localhost",
        "https://[::1]:8080",
        "https://0.0.0.0:8443",
        "https://[::ffff:127.0.0.1]",
        "https://broker.localhost.",
        "http://broker.example.com",
        "broker.example.com",
    ] {
        let refused = at(url).await;
        assert!(
            matches!(refused, Some(StartError::PublicUrl(_))),
            "{url}: {refused:?}"
        );
    }
    assert!(!dir.path().join("broker.db").exists(), "nothing is written");
    let started = at("https://broker.example.com").await;
    assert!(started.is_none(), "{started:?}");
}

/// Beside an embedded database a key is made; elsewhere nobody would keep it.
#[tokio::test]
async fn on_a_server_of_its_own_a_missing_sealing_key_stops_the_start() {
    let Some(database) = TestDatabase::postgres().await else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let mut plain = config(dir.path(), None);
    plain.providers.clear();
    let Database::Url(url) = &database.database else {
        panic!("not on a server: {:?}", database.database)
    };
    plain.database.url = Some(SecretString::from(url.clone()));
    let refused = refusal(plain, DatabaseMode::Simulation, Vec::new()).await;
    let words = refused.expect("a refusal").to_string();
    assert!(words.contains("none is configured"), "{words}");
    database.remove().await;
}

#[tokio::test]
async fn one_provider_is_never_simulated_and_configured_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let twice = config(dir.path(), Some("http://127.0.0.1:9/api/v1"));
    let refused = refusal(twice, DatabaseMode::Simulation, simulated()).await;
    let words = refused.expect("a refusal").to_string();
    assert!(words.contains("at once"), "{words}");
}

#[tokio::test]
async fn a_database_keeps_the_mode_it_was_made_in() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut plain = config(dir.path(), None);
    plain.providers.clear();
    for (mode, is_refused) in [
        (DatabaseMode::Simulation, false),
        (DatabaseMode::Production, true),
        (DatabaseMode::Simulation, false),
    ] {
        let refused = refusal(plain.clone(), mode, Vec::new()).await;
        assert_eq!(refused.is_some(), is_refused, "{mode}: {refused:?}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn the_directory_of_the_embedded_database_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("a directory");
    let inside = dir.path().join("made/here");
    let mut plain = config(&inside, None);
    plain.providers.clear();
    assert!(
        refusal(plain, DatabaseMode::Simulation, Vec::new())
            .await
            .is_none()
    );
    let mode = std::fs::metadata(&inside)
        .expect("made")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}
