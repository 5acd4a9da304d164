//! A running service for one test: the real server on a free port over a database of its own, with simulated
//! providers already read and a clock that only the test advances.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use broker::http::api_keys::{NewSecret, default_scopes};
use broker::platform::config::Config;
use broker::platform::data_dir;
use broker::tools::simulation::{SimulatedMarket, SimulatedMarketOptions};
use chrono::TimeDelta;
use market::identity::{Projects, Role, Scopes};
use market::ids::{ApiKeyId, ProjectId, ProviderId, TenantId};
use reqwest::header::{HeaderMap, HeaderName};
use reqwest::{Method, RequestBuilder};
use serde_json::Value;
use simulator::NodeRunner;
use store::api_keys::NewApiKey;
use store::fixture::write_migrated_sqlite;
use tempfile::TempDir;

use crate::eventually::{PATIENCE, in_time};

static TLS: Once = Once::new();

pub(crate) struct Service {
    pub(crate) world: SimulatedMarket,
    client: reqwest::Client,
    _dir: TempDir,
}

/// An API key and whose it is.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) id: ApiKeyId,
    pub(crate) tenant: TenantId,
    pub(crate) secret: String,
}

/// The answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Value,
}

impl Answer {
    /// The body of an answer that must have this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.body
    }

    /// Checks that it is a problem document with this status and code, and gives its detail.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, code: &str) -> String {
        assert_eq!(
            (self.status, self.body["code"].as_str()),
            (status, Some(code)),
            "{}",
            self.text
        );
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{}",
            self.text
        );
        assert_eq!(self.body["status"], status);
        assert_eq!(
            self.body["request_id"].as_str(),
            self.header("x-request-id")
        );
        let detail = self.body["detail"].as_str().expect("a detail");
        assert!(!detail.is_empty());
        detail.to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .get(name)
            .map(|value| value.to_str().expect("a plain header"))
    }
}

/// Every HTTP client of this process needs the TLS provider in place before it is made.
pub(crate) fn install_tls() {
    TLS.call_once(|| {
        rustls::crypto::ring::default_provider()
            .install_default()
            .expect("the only TLS provider");
    });
}

/// The program of pretend nodes.
pub(crate) fn agent() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_pretend-node"))
}

/// How long a node may run, in real time: some wait for others through many advances of the clock, and a busy
/// machine is no fault of theirs.
pub(crate) const NODE_DEADLINE: Duration = Duration::from_secs(600);

/// A world, but for where it lies and the program of its nodes.
pub(crate) fn usual_world() -> SimulatedMarketOptions {
    SimulatedMarketOptions {
        configure_market: Box::new(|market| market.node_deadline = NODE_DEADLINE),
        ..SimulatedMarketOptions::new(Path::new(""))
    }
}

/// Calls the service with or without a key.
pub(crate) struct Caller<'a> {
    service: &'a Service,
    bearer: Option<String>,
    headers: Vec<(&'static str, String)>,
}

impl Service {
    /// Starts a service whose nodes do not run.
    pub(crate) async fn start() -> Self {
        Self::start_with(NodeRunner::Off).await
    }

    /// Starts a service whose nodes run the agent and prove themselves.
    pub(crate) async fn start_with_nodes() -> Self {
        Self::start_with(NodeRunner::Run).await
    }

    /// Starts a service whose nodes do not run, with another configuration.
    pub(crate) async fn start_configured(
        configure: impl Fn(&mut Config) + Send + Sync + 'static,
    ) -> Self {
        Self::start_as(SimulatedMarketOptions {
            nodes: NodeRunner::Off,
            configure: Box::new(configure),
            ..usual_world()
        })
        .await
    }

    async fn start_with(nodes: NodeRunner) -> Self {
        let usual = usual_world();
        Self::start_as(SimulatedMarketOptions { nodes, ..usual }).await
    }

    /// Starts a service in a world of one's own making, but for where it lies and its nodes' agent.
    pub(crate) async fn start_as(options: SimulatedMarketOptions) -> Self {
        install_tls();
        let dir = tempfile::tempdir().expect("a directory");
        if options.store.is_none() {
            write_migrated_sqlite(&data_dir::database(dir.path())).await;
        }
        let options = SimulatedMarketOptions {
            data_dir: dir.path().to_owned(),
            executable: Some(agent()),
            ..options
        };
        let world = SimulatedMarket::open(options).await.expect("a world");
        world
            .read_price_lists(&[])
            .await
            .expect("the bundled price list");
        let failures = world.read_providers().await;
        assert!(failures.is_empty(), "{failures:?}");
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(PATIENCE)
            .build()
            .expect("a client");
        Self {
            world,
            client,
            _dir: dir,
        }
    }

    /// Makes a key of a tenant, and the tenant if there is none of that name.
    pub(crate) async fn key(&self, tenant: &str, role: Role) -> Key {
        self.key_with(tenant, role, default_scopes(role)).await
    }

    /// Makes a key that works in one project of the tenant only.
    pub(crate) async fn key_in(&self, tenant: &str, role: Role, project: &str) -> Key {
        let project = project.parse().expect("the id of a project");
        let narrow = |key: &mut NewApiKey| key.projects = Projects::Only([project].into());
        self.key_as(tenant, role, narrow).await
    }

    /// Makes a key of the role `provider` that is bound to this one, or to none as before keys were.
    pub(crate) async fn key_of_provider(&self, tenant: &str, provider: Option<&str>) -> Key {
        let provider = provider.map(|id| ProviderId::parse(id).expect("a provider"));
        let bind = |key: &mut NewApiKey| key.provider = provider;
        self.key_as(tenant, Role::Provider, bind).await
    }

    /// Makes a key with these scopes. A second passes, so that the next one is newer.
    pub(crate) async fn key_with(&self, tenant: &str, role: Role, scopes: Scopes) -> Key {
        let narrow = |key: &mut NewApiKey| key.scopes = scopes;
        self.key_as(tenant, role, narrow).await
    }

    /// Makes a key of this role, with these changes; one of a provider is bound to `lambda`.
    async fn key_as(&self, tenant: &str, role: Role, change: impl FnOnce(&mut NewApiKey)) -> Key {
        self.world.clock().advance(TimeDelta::seconds(1));
        let broker = self.world.broker();
        let ids = (
            TenantId::from_uuid(broker.new_uuid()),
            ProjectId::from_uuid(broker.new_uuid()),
        );
        let tenant = broker
            .store()
            .tenants()
            .ensure(tenant, ids.0, ids.1, broker.now())
            .await
            .expect("a tenant")
            .id;
        let (secret, id) = (
            NewSecret::generate(),
            ApiKeyId::from_uuid(broker.new_uuid()),
        );
        let lambda = || ProviderId::parse("lambda").expect("a provider");
        let mut new = NewApiKey {
            id,
            name: "test".into(),
            role,
            scopes: default_scopes(role),
            projects: Projects::All,
            provider: (role == Role::Provider).then(lambda),
            prefix: secret.prefix(),
            hash: secret.hash(),
            expires_at: None,
            created_at: broker.now(),
            made_by: None,
        };
        change(&mut new);
        broker
            .store()
            .api_keys()
            .of(tenant)
            .insert(new, None)
            .await
            .expect("a key");
        Key {
            id,
            tenant,
            secret: secret.reveal().to_owned(),
        }
    }

    /// Calls without any credential.
    pub(crate) fn anyone(&self) -> Caller<'_> {
        Caller {
            service: self,
            bearer: None,
            headers: Vec::new(),
        }
    }

    /// Calls with a key.
    pub(crate) fn with(&self, key: &Key) -> Caller<'_> {
        self.bearer(&key.secret)
    }

    /// Calls with any credential.
    pub(crate) fn bearer(&self, credential: &str) -> Caller<'_> {
        Caller {
            bearer: Some(credential.to_owned()),
            ..self.anyone()
        }
    }

    /// Stops everything.
    pub(crate) async fn stop(self) {
        in_time("the end of the service", self.world.close()).await;
    }
}

impl Caller<'_> {
    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn once(self, idempotency_key: &str) -> Self {
        self.header("idempotency-key", idempotency_key)
    }

    pub(crate) fn get(&self, path: &str) -> impl Future<Output = Answer> + use<> {
        send(self.request(Method::GET, path))
    }

    pub(crate) fn delete(&self, path: &str) -> impl Future<Output = Answer> + use<> {
        send(self.request(Method::DELETE, path))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> impl Future<Output = Answer> + use<> {
        send(self.request(Method::POST, path).json(body))
    }

    pub(crate) fn patch(&self, path: &str, body: &Value) -> impl Future<Output = Answer> + use<> {
        send(self.request(Method::PATCH, path).json(body))
    }

    /// Sends a body that need not be JSON.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> impl Future<Output = Answer> + use<> {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let mut request = self.request(method, path);
        if let Some((media_type, bytes)) = body {
            request = request.header("content-type", media_type).body(bytes);
        }
        send(request)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.service.world.base_url());
        let mut request = self.service.client.request(method, url);
        if let Some(bearer) = &self.bearer {
            request = request.bearer_auth(bearer);
        }
        for (name, value) in &self.headers {
            request = request.header(HeaderName::from_static(name), value);
        }
        request
    }
}

async fn send(request: RequestBuilder) -> Answer {
    let response = request.send().await.expect("an answer");
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await.expect("a body");
    let body = serde_json::from_str(&text).unwrap_or_default();
    Answer {
        status,
        headers,
        text,
        body,
    }
}

/// A demand for one node of the orderable offer that the simulated market has most of.
pub(crate) async fn orderable_demand(service: &Service) -> Value {
    let offers = service
        .anyone()
        .get("/v1/offers?limit=200")
        .await
        .expect(200);
    let offers = offers["items"].as_array().expect("items");
    let offer = offers
        .iter()
        .filter(|offer| offer["orderable"] == true && offer["terms"] == "on_demand")
        .max_by_key(|offer| offer["availability"]["nodes"].as_u64())
        .expect("something that can be ordered");
    serde_json::json!({
        "kind": "gpus", "gpu": offer["gpu"], "count": offer["gpus"],
        "policy": { "allow_providers": [offer["provider"]] },
    })
}

/// Plans and quotes something that can be ordered; gives the ids of plan and quote.
pub(crate) async fn quote(service: &Service, key: &Key) -> (String, String) {
    let demand = orderable_demand(service).await;
    let plan = service
        .with(key)
        .post("/v1/plans", &demand)
        .await
        .expect(201);
    let body = serde_json::json!({ "plan_id": plan["id"], "candidate": 1 });
    let quote = service
        .with(key)
        .post("/v1/quotes", &body)
        .await
        .expect(201);
    let id = |value: &Value| value["id"].as_str().expect("an id").to_owned();
    (id(&plan), id(&quote))
}

/// A public key whose private half nobody has, as `ssh-keygen` prints it.
pub(crate) const SSH_LINE: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL/jvLoaH32TkoT3REDQJN2Kns8sKpmipKlobgQsB0mt";
/// Its fingerprint, as `ssh-keygen -l` prints it.
pub(crate) const SSH_FINGERPRINT: &str = "SHA256:CAmcjzXaiFN8RInmaYctL7Xr1ku00OJmF6tjbCtUVcA";

/// Adds the SSH key that machines get, unless the tenant has it; gives its id.
pub(crate) async fn ssh_key(service: &Service, key: &Key) -> String {
    let ask = serde_json::json!({ "name": "laptop", "public_key": SSH_LINE });
    let added = service.with(key).post("/v1/ssh-keys", &ask).await;
    if added.status != 201 {
        added.refused(409, "already_exists");
    }
    let listed = service.with(key).get("/v1/ssh-keys").await.expect(200);
    listed["items"][0]["id"].as_str().expect("an id").to_owned()
}

/// Places a hold and gives its id. A second passes, so that the next one is newer.
pub(crate) async fn hold(service: &Service, key: &Key) -> String {
    service.world.clock().advance(TimeDelta::seconds(1));
    ssh_key(service, key).await;
    let (_, quote) = quote(service, key).await;
    let body = serde_json::json!({ "quote_id": quote });
    let held = service
        .with(key)
        .post("/v1/reservations", &body)
        .await
        .expect(201);
    held["id"].as_str().expect("an id").to_owned()
}
