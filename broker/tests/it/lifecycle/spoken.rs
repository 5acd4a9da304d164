//! The messages of a node to the service, one by one, by the script of its order.

use std::sync::LazyLock;
use std::time::Instant;

use broker::flow::verify::{self, StepRefusal};
use broker::platform::app::Broker;
use market::verification::{PROTOCOL, Step};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use verifier::agent::{Transport, TransportError};
use verifier::jws::Signer;

use super::gang::access;
use super::scene::Scene;
use crate::eventually::in_time;

/// The service's answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Heard {
    pub(super) status: u16,
    /// The seconds before the next call, where it states them.
    pub(super) retry_after: Option<String>,
    pub(super) body: Value,
}

impl Heard {
    pub(super) fn assert_refused(&self, status: u16, code: &str) {
        assert_eq!((self.status, &self.body["code"]), (status, &json!(code)));
    }

    /// The nonce that a node was given.
    pub(super) fn nonce(&self) -> &Value {
        assert_eq!(self.status, 200, "{}", self.body);
        assert!(self.body["nonce"].is_string(), "{}", self.body);
        &self.body["nonce"]
    }
}

/// The client of all who speak here: to make one takes long, for it reads every certificate of the machine.
///
/// No connection of it outlives its call, and so none is that of a test that is over.
pub(super) fn client() -> &'static reqwest::Client {
    static CLIENT: LazyLock<reqwest::Client> = LazyLock::new(|| {
        let client = reqwest::Client::builder().no_proxy();
        let client = client.pool_max_idle_per_host(0).build();
        client.expect("a client")
    });
    &CLIENT
}

/// Sends something to the service.
pub(super) async fn say(scene: &Scene, script: &str, step: Step, body: &Value) -> Heard {
    let (verification, token) = access(script);
    let number = step.number();
    let path = format!("/v1/verifications/{verification}/steps/{number}");
    let call = client().post(format!("{}{path}", scene.base_url()));
    let call = call.bearer_auth(token.expose()).json(body);
    let answer = in_time("an answer", call.send()).await;
    let answer = answer.expect("an answer");
    let retry_after = answer.headers().get("retry-after");
    let retry_after = retry_after.map(|value| value.to_str().expect("text").to_owned());
    Heard {
        status: answer.status().as_u16(),
        retry_after,
        body: answer.json().await.expect("JSON"),
    }
}

/// Commits a node to a key.
pub(super) async fn commit(scene: &Scene, script: &str, (host, key): (&str, &str)) -> Heard {
    let body = json!({
        "protocol": PROTOCOL, "agent_key": key, "host": host, "device_kind": "reference",
        "agent": { "version": "0.1.0", "sha256": "0".repeat(64) },
    });
    say(scene, script, Step::Commit, &body).await
}

pub(super) fn fresh_key() -> String {
    let signer = Signer::from_seed(&rand::random());
    let key = signer.public_key().to_agent_key();
    key.expect("a key").to_string()
}

/// A line to one replica, on which the test decides when messages arrive.
pub(super) struct Timed<A, W> {
    pub(super) broker: Broker,
    pub(super) runtime: Handle,
    pub(super) script: String,
    /// When the message of a step arrives, whose node heard this last.
    pub(super) arrives: A,
    /// The actions of a node while it waits for its siblings.
    pub(super) waits: W,
    pub(super) heard: Value,
}

impl<A: FnMut(Step, &Value) -> Instant, W: FnMut()> Transport for Timed<A, W> {
    fn send(&mut self, step: Step, body: &str) -> Result<String, TransportError> {
        let (id, token) = access(&self.script);
        let body: Value = serde_json::from_str(body).expect("JSON");
        loop {
            let message = (body.clone(), (self.arrives)(step, &self.heard));
            let taken = verify::step(&self.broker, id, token.expose(), step.number(), message);
            match self.runtime.block_on(taken) {
                Ok(answer) => {
                    self.heard = answer;
                    return Ok(self.heard.to_string());
                }
                Err(StepRefusal::SiblingsNotReady) => (self.waits)(),
                Err(refusal) => {
                    let last = refusal.to_string();
                    return Err(TransportError::GaveUp { step, last });
                }
            }
        }
    }

    fn is_private(&self) -> bool {
        true
    }
}
