//! Large messages of nodes, refused because many come at once.

use std::io;
use std::time::{Duration, Instant};

use broker::flow::verify;
use broker::platform::app::Broker;
use chrono::{TimeDelta, Utc};
use market::attestation::{FindingCode, Outcome};
use market::verification::Step;
use serde_json::Value;
use simulator::{FaultKind, Provider};
use store::Store;
use store::fixture::{execute_raw, for_each_database};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::sleep;
use verifier::agent::{Transport, TransportError, converse};
use verifier::http::{DIGEST_HEADER, KEY_HEADER, digest_of};
use verifier::jws::Signer;

use super::gang::{access, documents, good_node, outcomes};
use super::scene::{Scene, training};
use super::spoken::{client, commit, fresh_key};
use crate::eventually::{beside, in_time};

/// How old a place may be that is relied on: the service gives a message up whose body does not come within half a
/// minute, and takes another one for its node then.
const FRESH: Duration = Duration::from_secs(15);

/// A line to two replicas: one takes the small messages, the other the large ones, where those of the siblings
/// take all places when step 5 comes first.
struct Crowded {
    small: Broker,
    large_url: String,
    store: Store,
    script: String,
    siblings: Vec<String>,
    runtime: Handle,
}

impl Crowded {
    /// The answer of the replica for large messages.
    async fn say(&self, step: Step, (key, body): (&str, &str), digest: Option<String>) -> Heard {
        let (id, token) = access(&self.script);
        let number = step.number();
        let url = format!("{}/v1/verifications/{id}/steps/{number}", self.large_url);
        let mut call = client().post(url);
        call = call.bearer_auth(token.expose()).header(KEY_HEADER, key);
        call = call.header("content-type", "application/json");
        if let Some(digest) = digest {
            call = call.header(DIGEST_HEADER, digest);
        }
        let answer = in_time("an answer", call.body(body.to_owned()).send()).await;
        let answer = answer.expect("an answer");
        let status = answer.status().as_u16();
        (status, answer.text().await.expect("text"))
    }

    /// A large message of a sibling, of which nothing but the head comes.
    async fn take_place(&self, key: &str) -> Taken {
        let (id, token) = access(&self.script);
        let address = self.large_url.strip_prefix("http://").expect("plain");
        let head = format!(
            "POST /v1/verifications/{id}/steps/6 HTTP/1.1\r\nhost: {address}\r\n\
             authorization: Bearer {token}\r\n{KEY_HEADER}: {key}\r\n\
             content-type: application/json\r\ncontent-length: 1000\r\n\r\n",
            token = token.expose(),
        );
        let since = Instant::now();
        let mut line = TcpStream::connect(address).await.expect("a line");
        line.write_all(head.as_bytes()).await.expect("sent");
        Taken { line, since }
    }

    /// Sends a message that is refused because the siblings take all places; returns the connections that
    /// take them.
    ///
    /// A place that lapsed before all were taken, or that the question itself took from a sibling, is taken again:
    /// however slow the machine is, this is so only once all are.
    async fn refused(&self, step: Step, whose: (&str, &str), digest: &str) -> Vec<Taken> {
        let mut taken = Vec::new();
        for key in &self.siblings {
            taken.push(self.take_place(key).await);
        }
        loop {
            let mut is_settled = true;
            for (place, key) in taken.iter_mut().zip(&self.siblings) {
                if !place.stands() {
                    // Refused yet where the service does not know that the last one hung up: a moment shows it.
                    *place = self.take_place(key).await;
                    is_settled = false;
                }
            }
            // The connection sends nothing, and is refused as the next one would be.
            let (status, _) = self.say(step, (whose.0, "no message"), None).await;
            if status == 503 && is_settled && taken.iter().all(Taken::stands) {
                let (refused, said) = self.say(step, whose, Some(digest.to_owned())).await;
                let oldest = taken.iter().map(|place| place.since.elapsed()).max();
                assert_eq!(
                    refused, 503,
                    "the machine is too slow for this test if the siblings' places lapsed before the message \
                     came; the oldest was taken {oldest:?} ago: {said}"
                );
                return taken;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Sends a message that is refused first and taken much later.
    async fn send_crowded(&self, step: Step, (key, body): (&str, &str)) -> Heard {
        let digest = digest_of(body.as_bytes()).to_string();
        let refused = self.refused(step, (key, body), &digest);
        let taken = in_time("a refusal while the siblings take all places", refused).await;
        let at = |ago| (Utc::now() - TimeDelta::seconds(ago)).format("%Y-%m-%dT%H:%M:%S%.3fZ");
        // The answer before went out long ago, whether the refusal is noted or not.
        let answered = format!(
            "UPDATE node_sessions SET answered_at = '{}' WHERE agent_key = '{key}'",
            at(120),
        );
        execute_raw(&self.store, &answered).await.expect("set");
        drop(taken);
        let tries = async {
            loop {
                // Before each try, for a node that pauses for too long did something else meanwhile.
                let refused = format!(
                    "UPDATE node_sessions SET refused_first_at = '{}', refused_last_at = '{}'
                     WHERE agent_key = '{key}' AND refused_digest = '{digest}'",
                    at(118),
                    at(1),
                );
                execute_raw(&self.store, &refused).await.expect("set");
                let heard = self.say(step, (key, body), Some(digest.clone())).await;
                if heard.0 != 503 {
                    return heard;
                }
            }
        };
        in_time("a place for the message", tries).await
    }
}

/// A place for large messages that a sibling takes.
struct Taken {
    line: TcpStream,
    since: Instant,
}

impl Taken {
    /// Whether it is taken: the service answers a message that it refuses or gives up.
    fn stands(&self) -> bool {
        let answered = self.line.try_read(&mut [0]);
        let waits = answered.is_err_and(|why| why.kind() == io::ErrorKind::WouldBlock);
        waits && self.since.elapsed() < FRESH
    }
}

/// The status and the body of an answer.
type Heard = (u16, String);

impl Transport for Crowded {
    fn send(&mut self, step: Step, body: &str) -> Result<String, TransportError> {
        let message: Value = serde_json::from_str(body).expect("JSON");
        let key = message["agent_key"].as_str().expect("a key").to_owned();
        let sent = async {
            let digest = digest_of(body.as_bytes()).to_string();
            match step {
                Step::Openings => self.send_crowded(step, (&key, body)).await,
                Step::Report => self.say(step, (&key, body), Some(digest)).await,
                _ => {
                    let (id, token) = access(&self.script);
                    let message = (message, Instant::now());
                    let number = step.number();
                    let taken = verify::step(&self.small, id, token.expose(), number, message);
                    (200, taken.await.expect("an answer").to_string())
                }
            }
        };
        let (status, said) = self.runtime.block_on(sent);
        assert_eq!(status, 200, "{said}");
        Ok(said)
    }

    fn is_private(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_a_replica_refused_came_then_whichever_answered_the_step_before() {
    for_each_database(async |store| {
        let mut scene = Scene::open(store).await;
        scene.break_next(Provider::VOLTAGEPARK, FaultKind::NeverCallsHome);
        let id = scene.reserve(training(40)).await;
        scene.work().await;
        scene.turn(900).await;
        let lease = scene.leases(id).await.remove(0);
        assert_eq!(lease.nodes, 5, "one more than have a place");
        let script = scene.line.scripts().remove(0);
        let siblings: Vec<String> = (0..4).map(|_| fresh_key()).collect();
        for (node, key) in lease.provider_nodes.iter().zip(&siblings) {
            let waits = commit(&scene, &script, (&node.host, key)).await;
            waits.assert_refused(409, "siblings_not_ready");
        }
        let large_url = scene.base_url().to_owned();
        scene.restart().await;
        let mut line = Crowded {
            small: scene.broker().clone(),
            large_url,
            store: store.clone(),
            script,
            siblings,
            runtime: Handle::current(),
        };
        let mut played = good_node(&lease, 4).node();
        let (verification, _) = access(&line.script);
        let proved = beside(move || {
            let signer = Signer::from_seed(&rand::random());
            converse(&mut played, verification, &signer, &mut line)
        });
        let proved = in_time("the end of the conversation", proved).await;
        let proved = proved.expect("no panic").expect("a conversation");
        assert!(proved.verdict.is_pass(), "{proved:?}");
        let in_time = outcomes(&documents(&scene, &lease).await, FindingCode::StepTimedOut);
        assert_eq!(in_time, [(4, Some(Outcome::Met))]);
        scene.close().await;
    })
    .await;
}
