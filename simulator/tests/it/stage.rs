//! A simulator on free ports, a manual clock, and a client for both accounts.

use std::sync::{Arc, Mutex, Once};

use chrono::{DateTime, TimeDelta, TimeZone, Utc};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use simulator::{Clock, Config, NodeRunner, Provider, Simulator};

use crate::eventually::PATIENCE;

/// A location of the bundled market with 8 free nodes on InfiniBand and 6 on Ethernet.
pub const LOCATION: &str = "3f0c7b9e-52d4-4a86-9c1e-7d2b8a6f4e10";
pub const INFINIBAND: &str = "h100-sxm5-80gb-infiniband";
pub const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMmUqWz0Tq8nEtTnHs4bDwdGqM4cHcXcFz1k5Nn2nQ9q test";

/// A clock that stands still until the test moves it.
pub struct TurnedClock(Mutex<DateTime<Utc>>);

impl TurnedClock {
    pub fn turn(&self, seconds: i64) {
        *self.0.lock().unwrap() += TimeDelta::seconds(seconds);
    }
}

impl Clock for TurnedClock {
    fn now(&self) -> DateTime<Utc> {
        *self.0.lock().unwrap()
    }
}

pub struct Stage {
    pub simulator: Simulator,
    pub clock: Arc<TurnedClock>,
    client: Client,
}

impl Stage {
    /// No node runs a script.
    pub async fn new() -> Self {
        Self::with(|config| config.node_runner = NodeRunner::Off).await
    }

    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            rustls::crypto::ring::default_provider()
                .install_default()
                .unwrap()
        });
        let start = Utc.with_ymd_and_hms(2026, 8, 1, 12, 0, 0).unwrap();
        let clock = Arc::new(TurnedClock(Mutex::new(start)));
        let mut config = Config::new(clock.clone());
        change(&mut config);
        let simulator = Simulator::start(config).await.unwrap();
        Self {
            simulator,
            clock,
            client: Client::builder()
                .no_proxy()
                .timeout(PATIENCE)
                .redirect(reqwest::redirect::Policy::none())
                .build()
                .unwrap(),
        }
    }

    /// A request without a credential.
    pub fn anonymous(&self, provider: Provider, method: Method, path: &str) -> RequestBuilder {
        self.client
            .request(method, format!("{}{path}", self.simulator.url(provider)))
    }

    pub fn request(&self, provider: Provider, method: Method, path: &str) -> RequestBuilder {
        self.anonymous(provider, method, path)
            .bearer_auth(self.simulator.credential(provider))
    }

    pub fn control(&self, method: Method, path: &str) -> RequestBuilder {
        self.client
            .request(method, format!("{}{path}", self.simulator.control_url()))
    }

    pub async fn lambda(&self, path: &str) -> Value {
        body(
            self.request(Provider::LAMBDA, Method::GET, path)
                .send()
                .await
                .unwrap(),
            200,
        )
        .await["data"]
            .clone()
    }

    pub async fn voltagepark(&self, path: &str) -> Value {
        body(
            self.request(Provider::VOLTAGEPARK, Method::GET, path)
                .send()
                .await
                .unwrap(),
            200,
        )
        .await
    }

    pub async fn add_key(&self) -> Value {
        let key = json!({ "name": "ours", "public_key": KEY });
        let request = self
            .request(Provider::LAMBDA, Method::POST, "/ssh-keys")
            .json(&key);
        body(request.send().await.unwrap(), 200).await["data"].clone()
    }

    pub fn lambda_launch(&self, order: &Value) -> RequestBuilder {
        self.request(
            Provider::LAMBDA,
            Method::POST,
            "/instance-operations/launch",
        )
        .json(order)
    }

    /// Launches a machine, and returns its id.
    pub async fn launch(&self, order: &Value) -> String {
        let answer = body(self.lambda_launch(order).send().await.unwrap(), 200).await;
        answer["data"]["instance_ids"][0]
            .as_str()
            .unwrap()
            .to_owned()
    }

    pub async fn terminate(&self, id: &str) -> Response {
        let ids = json!({ "instance_ids": [id] });
        self.request(
            Provider::LAMBDA,
            Method::POST,
            "/instance-operations/terminate",
        )
        .json(&ids)
        .send()
        .await
        .unwrap()
    }

    pub fn voltagepark_rent(&self, order: &Value) -> RequestBuilder {
        self.request(Provider::VOLTAGEPARK, Method::POST, "/bare-metal/")
            .json(order)
    }

    /// Rents nodes, and returns the id of the rental.
    pub async fn rent(&self, order: &Value) -> String {
        let answer = body(self.voltagepark_rent(order).send().await.unwrap(), 200).await;
        answer["id"].as_str().unwrap().to_owned()
    }

    pub async fn end_rental(&self, id: &str) -> Response {
        self.request(
            Provider::VOLTAGEPARK,
            Method::DELETE,
            &format!("/bare-metal/{id}"),
        )
        .send()
        .await
        .unwrap()
    }
}

/// The JSON body of an answer with this status.
pub async fn body(response: Response, status: u16) -> Value {
    let (got, text) = (response.status(), response.text().await.unwrap());
    assert_eq!(got, status, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// A launch of one A10 with a name.
pub fn a10(name: &str) -> Value {
    json!({
        "region_name": "us-east-1",
        "instance_type_name": "gpu_1x_a10",
        "ssh_key_names": ["ours"],
        "name": name,
    })
}

/// A rental of this many nodes on InfiniBand.
pub fn rental(name: &str, nodes: u32) -> Value {
    json!({
        "location_id": LOCATION,
        "gpu_count": nodes * 8,
        "name": name,
        "network_type": "infiniband",
        "organization_ssh_keys": { "mode": "none" },
        "ssh_keys": [KEY],
    })
}

/// The same order with one field added or changed.
pub fn but(mut order: Value, field: &str, value: impl Into<Value>) -> Value {
    order[field] = value.into();
    order
}
