//! A key that the agent of one node commits speaks for no other node.

use market::lease::LeaseState;
use market::verification::{PROTOCOL, Step};
use serde_json::{Value, json};
use simulator::{FaultKind, Provider};
use store::fixture::for_each_database;
use verifier::jws::Signer;

use super::gang::access;
use super::scene::{Scene, training};

/// What the service answers to the first step of a node under a key, by the script that its order came with.
async fn commit(scene: &Scene, script: &str, (host, key): (&str, &str)) -> (u16, Value) {
    let (verification, token) = access(script);
    let step = Step::Commit.number();
    let path = format!("/v1/verifications/{verification}/steps/{step}");
    let body = json!({
        "protocol": PROTOCOL, "agent_key": key, "host": host, "device_kind": "reference",
        "agent": { "version": "0.1.0", "sha256": "0".repeat(64) },
    });
    let http = reqwest::Client::builder().no_proxy().build();
    let call = http.expect("a client");
    let call = call.post(format!("{}{path}", scene.base_url()));
    let call = call.bearer_auth(token.expose()).json(&body);
    let answer = call.send().await.expect("an answer");
    let status = answer.status().as_u16();
    (status, answer.json().await.expect("JSON"))
}

fn fresh_key() -> String {
    let signer = Signer::from_seed(&rand::random());
    let key = signer.public_key().to_agent_key();
    key.expect("a key").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_commits_the_key_of_another_order_is_refused() {
    for_each_database(async |store| {
        let scene = Scene::open_node_by_node(store).await;
        for _ in 0..2 {
            scene.break_next(Provider::Voltagepark, FaultKind::NeverCallsHome);
        }
        let id = scene.reserve(training(16)).await;
        scene.work().await;
        scene.turn(900).await;
        let leases = scene.leases(id).await;
        let hosts: Vec<&str> = leases
            .iter()
            .map(|lease| lease.provider_nodes[0].host.as_str())
            .collect();
        assert!(leases.iter().all(|one| one.state == LeaseState::Verifying));
        let scripts = scene.line.scripts();
        let key = fresh_key();

        let first = commit(&scene, &scripts[0], (hosts[0], &key)).await;
        assert_eq!(first.0, 200, "{}", first.1);
        let (status, refused) = commit(&scene, &scripts[1], (hosts[1], &key)).await;
        let code = refused["code"].as_str();
        assert_eq!(
            (status, code),
            (409, Some("agent_key_committed")),
            "{refused}"
        );
        // What it committed itself it may say again, and hears the same.
        let again = commit(&scene, &scripts[0], (hosts[0], &key)).await;
        assert_eq!(again, first);
        let (status, own) = commit(&scene, &scripts[1], (hosts[1], &fresh_key())).await;
        assert_eq!(status, 200, "{own}");
        assert_ne!(own["nonce"], first.1["nonce"]);
        scene.close().await;
    })
    .await;
}
