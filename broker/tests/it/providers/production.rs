//! Outside a simulation a credential that was entered is shown to its provider alone.

use std::net::TcpListener;
use std::sync::Arc;

use broker::flow::providers::{LinkError, connect_row, seal};
use broker::http::{self, api_keys};
use broker::platform::clock::{Clock as _, SystemClock};
use broker::platform::config::Config;
use broker::service::start::{self, start};
use market::identity::{Projects, Role};
use market::ids::{ApiKeyId, ProjectId, ProviderId, TenantId};
use secrecy::SecretString;
use serde_json::{Value, json};
use store::api_keys::NewApiKey;
use store::audit::NewAuditEntry;
use store::providers::{Cause, ProviderChange};
use store::settings::DatabaseMode;

use crate::eventually::PATIENCE;
use crate::service::install_tls;

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_credential_goes_to_no_other_address_in_production() {
    install_tls();
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config::embedded(dir.path()).expect("the defaults");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (mode, clock) = (DatabaseMode::Production, Arc::new(SystemClock) as Arc<_>);
    let broker = start(config, mode, clock, Vec::new(), url.clone()).await;
    let broker = broker.expect("a broker");
    let store = broker.store();
    let sealing = start::sealing_key(broker.config(), store).await;
    let sealing = sealing.expect("a key");
    let now = SystemClock.now();

    let lambda = ProviderId::parse("lambda").expect("an id");
    let credential = SecretString::from("canary-in-the-mine");
    let change = ProviderChange {
        enabled: Some(false),
        credential: Some(Some(seal(&sealing, &lambda, &credential, now))),
        ..ProviderChange::default()
    };
    let cause = || {
        let entry = NewAuditEntry::of_command(None, "providers add", None, now);
        Cause::Command(Box::new(entry))
    };
    let providers = store.providers();
    let entered = providers.enter(&lambda, &change, now, &cause()).await;
    let row = entered.expect("entered");
    let link = connect_row(&sealing, &row, mode).expect("it can be connected");
    assert!(link.is_some());

    let new_tenant = (
        TenantId::from_uuid(broker.new_uuid()),
        ProjectId::from_uuid(broker.new_uuid()),
    );
    let tenants = store.tenants();
    let tenant = tenants.ensure("operators", new_tenant.0, new_tenant.1, now);
    let secret = api_keys::NewSecret::generate();
    let key = NewApiKey {
        id: ApiKeyId::from_uuid(broker.new_uuid()),
        name: "test".into(),
        role: Role::Admin,
        scopes: api_keys::default_scopes(Role::Admin),
        projects: Projects::All,
        provider: None,
        prefix: secret.prefix(),
        hash: secret.hash(),
        expires_at: None,
        created_at: now,
        made_by: None,
    };
    let tenant = tenant.await.expect("a tenant").id;
    let inserted = store.api_keys().of(tenant).insert(key, None).await;
    inserted.expect("a key");
    let server = http::serve(broker.clone(), listener).expect("a server");
    let handle = server.handle();
    tokio::spawn(server);
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(PATIENCE)
        .build();
    let client = client.expect("a client");
    // An address of documentation, at which nobody is.
    for asked in [
        json!({ "base_url": "https://192.0.2.1" }),
        json!({ "base_url": "https://192.0.2.1", "credential": null }),
        json!({ "base_url": "https://192.0.2.1", "credential": "another" }),
    ] {
        let request = client.patch(format!("{url}/v1/providers/lambda"));
        let request = request.bearer_auth(secret.reveal()).json(&asked);
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), 422, "{asked}");
        let problem: Value = answer.json().await.expect("a problem");
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.contains("is for simulations"), "{detail}");
    }
    let kept = store.providers().find(&lambda).await.expect("reads");
    assert_eq!(kept, Some(row));
    handle.stop(true).await;

    // A row written by other means gets no connection either.
    let change = ProviderChange {
        base_url: Some(Some("https://192.0.2.1".into())),
        ..ProviderChange::default()
    };
    let poisoned = store.providers().change(&lambda, &change, &cause()).await;
    let poisoned = poisoned.expect("changed");
    let refused = connect_row(&sealing, &poisoned, mode).map(|_| ());
    assert!(matches!(refused, Err(LinkError::BaseUrl)), "{refused:?}");
}
