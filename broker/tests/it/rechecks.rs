//! `POST /v1/reservations/{id}/nodes/{n}/recheck`: a node in use is re-checked, by the real agent.

use std::process::Stdio;
use std::time::Duration;

use broker::flow::verify::{StepRefusal, measure_together};
use broker::tenant::retention;

use chrono::TimeDelta;
use market::acceptance::AcceptanceRecord;
use market::attestation::{Attestation, FindingCode, Outcome};
use market::identity::Role;
use market::verification::{GangCall, Rail};
use serde_json::{Value, json};
use tokio::process::Command;
use verifier::agent::converse;
use verifier::http::HttpBroker;
use verifier::jws::{PublicKey, Signer};
use verifier::reference::NodeDescription;

use crate::access::{access, fleet, gang, until_active};
use crate::eventually::{beside, in_time};
use crate::lifecycle::gang::access as granted;
use crate::node_reports::{in_use, lease, state, told, turn};
use crate::service::{Key, Service};

/// How the agent's run on a node ended.
#[derive(Debug)]
struct Ran {
    passed: bool,
    said: String,
}

/// The permit to check a node in use again.
async fn permit(service: &Service, key: &Key, path: &str, node: u32) -> Value {
    let route = format!("{path}/nodes/{node}/recheck");
    let answer = service.with(key).send("POST", &route, None).await;
    answer.expect(201)
}

/// The node as the agent finds it, with these GPUs in place of its own where some are named.
async fn description(
    service: &Service,
    key: &Key,
    path: &str,
    (node, gpus): (usize, Option<Vec<String>>),
) -> Value {
    let node = access(service, key, path).await["nodes"][node].clone();
    let own = node["gpu_order"].as_array().expect("ids").clone();
    let uuids = gpus.map_or(json!(own), |gpus| json!(gpus));
    let bare_metal = own.len() == 8;
    json!({
        "schema": "simulated-node-1", "node_index": 0, "host": node["host"], "driver": "570.0",
        "gpu": if bare_metal { "H100-SXM" } else { "A10" }, "gpus": own.len(), "uuids": uuids,
        "memory_mib": if bare_metal { 81_559 } else { 23_028 }, "vcpus": 30, "memory_gib": 200,
        "internode": "none",
    })
}

/// Runs a script on the node of a description, as a timer does.
async fn run(script: &Value, description: &Value) -> Ran {
    let folder = tempfile::tempdir().expect("a folder");
    let described = folder.path().join("node.json");
    std::fs::write(&described, description.to_string()).expect("written");
    let script = script.as_str().expect("a script");
    // The test does not wait for calls that are refused for minutes.
    let script = script.replace("--patience-seconds 60", "--patience-seconds 0");
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &script]);
    shell.env("SIMULATED_NODE", &described);
    ran(&mut shell).await
}

/// Runs a script by itself, as a user who tries a simulation does.
async fn run_by_hand(script: &Value) -> Ran {
    let mut shell = Command::new("/bin/sh");
    let shell = shell.arg("-c").arg(script.as_str().expect("a script"));
    ran(shell.env_remove("SIMULATED_NODE")).await
}

/// How a shell ended.
async fn ran(shell: &mut Command) -> Ran {
    let output = shell.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = in_time("the end of a script", output).await;
    let output = output.expect("a shell");
    let said = [output.stdout, output.stderr].concat();
    Ran {
        passed: output.status.success(),
        said: String::from_utf8_lossy(&said).into_owned(),
    }
}

async fn run_as_it_is(service: &Service, key: &Key, path: &str, permit: &Value) -> Ran {
    let node = permit["node"].as_u64().expect("a number") as usize;
    let description = description(service, key, path, (node, None)).await;
    run(&permit["script"], &description).await
}

/// The document of a result, checked by the published keys.
async fn document(service: &Service, key: &Key, id: &Value) -> Attestation {
    let id = id.as_str().expect("an id");
    let shown = service.with(key).get(&format!("/v1/attestations/{id}"));
    let shown = shown.await.expect(200);
    let jws = shown["jws"].as_str().expect("a document");
    let keys = service.anyone().get("/.well-known/jwks.json").await;
    let keys = keys.expect(200)["keys"].as_array().expect("keys").clone();
    let read = keys.iter().find_map(|key| {
        let public = PublicKey::parse(key["x"].as_str()?).ok()?;
        verifier::attest::verify_attestation(jws, &public).ok()
    });
    read.expect("signed by a published key")
}

async fn node(service: &Service, key: &Key, path: &str, node: usize) -> Value {
    let nodes = service.with(key).get(&format!("{path}/nodes")).await;
    nodes.expect(200)["items"][node].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_simulation_the_script_brings_along_the_node_as_it_was_handed_over() {
    let (service, key, path) = in_use(&fleet(1)).await;
    let permit = permit(&service, &key, &path, 0).await;
    let ran = run_by_hand(&permit["script"]).await;
    assert!(ran.passed, "{ran:?}");
    let last = node(&service, &key, &path, 0).await["last_recheck"].clone();
    assert_eq!(last["pinned_set_changed"], json!(false), "{last}");
    let document = document(&service, &key, &last["attestation_id"]).await;
    assert!(document.recheck && document.simulated && document.verdict.is_pass());
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_leads_a_gang_by_the_token_of_a_node_in_use() {
    let (service, key, path) = in_use(&gang()).await;
    let permit = permit(&service, &key, &path, 0).await;
    let (verification, token) = granted(permit["script"].as_str().expect("a script"));
    let described = description(&service, &key, &path, (0, None)).await;
    let url = service.world.base_url().parse().expect("an address");
    let secret = token.expose().to_owned();
    let signer = Signer::from_seed(&rand::random());
    let agent = signer.public_key().to_agent_key().expect("a key");
    let looked = beside(move || {
        let described = NodeDescription::parse(&described.to_string()).expect("a description");
        let mut line = HttpBroker::new(url, verification, token, Duration::from_secs(60));
        converse(&mut described.node(), verification, &signer, &mut line)
    });
    let looked = in_time("the end of the conversation", looked).await;
    let looked = looked.expect("no panic").expect("a conversation");
    assert!(looked.verdict.is_pass() && !looked.gang, "{looked:?}");
    let call = GangCall {
        agent_key: agent,
        rails: vec![Rail {
            name: "host".to_owned(),
            address: "127.0.0.1:40000".to_owned(),
        }],
        nccl: None,
        done: None,
    };
    let broker = service.world.broker();
    let answer = measure_together(broker, verification, &secret, &call).await;
    assert!(matches!(answer, Err(StepRefusal::NoGang)), "{answer:?}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_token_has_a_node_in_use_looked_at_again_and_again() {
    let (service, key, path) = in_use(&fleet(1)).await;
    let before = node(&service, &key, &path, 0).await;
    assert_eq!(before["last_recheck"], Value::Null);
    let permit = permit(&service, &key, &path, 0).await;
    assert_eq!(
        (&permit["node"], &permit["every_seconds"]),
        (&json!(0), &json!(600))
    );
    let token = permit["token"].as_str().expect("a token");
    let script = permit["script"].as_str().expect("a script");
    assert!(
        token.starts_with("rt_") && script.contains(token),
        "{script}"
    );
    assert!(script.contains("--host"), "{script}");

    let first = run_as_it_is(&service, &key, &path, &permit).await;
    assert!(first.passed, "{first:?}");
    let now = service.world.broker().now();
    let shown = node(&service, &key, &path, 0).await;
    let last = &shown["last_recheck"];
    assert_eq!(
        (&last["verdict"], &last["follows"]),
        (&json!("pass"), &json!("nothing_failed"))
    );
    assert_eq!(last["checked_at"], json!(now));
    assert_eq!(
        (&shown["attestation_id"], &shown["verdict"]),
        (&before["attestation_id"], &before["verdict"]),
        "what it was handed over with stands"
    );
    let signed = document(&service, &key, &last["attestation_id"]).await;
    assert!(signed.recheck && signed.simulated);
    assert_eq!(
        signed.verification_id.to_string(),
        permit["verification_id"]
    );
    let outcome = |code| signed.findings.iter().find(|found| found.code == code);
    let pinned = outcome(FindingCode::InventoryPinned).expect("judged");
    assert_eq!(pinned.outcome, Outcome::Met);
    assert!(outcome(FindingCode::InventoryResidue).is_none());
    let events = told(&service, &key, "node.rechecked").await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["data"]["attestation_id"], last["attestation_id"]);
    assert_eq!(events[0]["data"]["pinned_set_changed"], false);

    let at_once = run_as_it_is(&service, &key, &path, &permit).await;
    assert!(!at_once.passed, "{at_once:?}");
    let said = "the broker refused step commit with status 429: too_many_rechecks";
    assert!(at_once.said.contains(said), "{at_once:?}");
    service.world.clock().advance(TimeDelta::seconds(600));
    let again = run_as_it_is(&service, &key, &path, &permit).await;
    assert!(again.passed, "{again:?}");
    let latest = node(&service, &key, &path, 0).await["last_recheck"].clone();
    assert_ne!(latest["attestation_id"], last["attestation_id"]);
    turn(&service).await;
    assert_eq!(state(&service, &key, &path).await, "active");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swapped_gpu_ends_the_warranty_and_its_machine_is_replaced() {
    let (service, key, path) = in_use(&fleet(1)).await;
    let first = lease(&service, &key, &path).await;
    let began = service.world.broker().now();
    let permit = permit(&service, &key, &path, 0).await;
    let other = Some(vec!["GPU-of-another".to_owned()]);
    let swapped = description(&service, &key, &path, (0, other)).await;
    let ran = run(&permit["script"], &swapped).await;
    assert!(!ran.passed && ran.said.contains("fail"), "{ran:?}");
    let last = node(&service, &key, &path, 0).await["last_recheck"].clone();
    assert_eq!(
        (
            &last["pinned_set_changed"],
            &last["follows"],
            &last["failed"]
        ),
        (&json!(true), &json!("repair"), &json!(["inv.pinned"]))
    );
    let events = told(&service, &key, "node.rechecked").await;
    assert_eq!(events[0]["data"]["pinned_set_changed"], true);

    turn(&service).await;
    assert_eq!(state(&service, &key, &path).await, "repairing");
    let over = run(&permit["script"], &swapped).await;
    assert!(over.said.contains("invalid_token"), "{over:?}");
    until_active(&service, &key, &path).await;
    assert_ne!(lease(&service, &key, &path).await, first);
    let shown = service.with(&key).get(&path).await.expect(200);
    let fallen = &shown["leases"][0];
    assert_eq!(
        (&fallen["id"], &fallen["fall_reason"]),
        (&first, &json!("failed"))
    );
    let note = fallen["fall_note"].as_str().expect("a note");
    assert!(
        note.contains("re-check") && note.contains("inv.pinned"),
        "{note}"
    );
    // The broker itself made the check, so it is on record. Its tenant may have made it fail, so it is no
    // evidence for the next order.
    let store = service.world.broker().store();
    let records = store.attempts().acceptance_since(began).await;
    let records: Vec<_> = records.expect("an answer").into_values().collect();
    let fell = |record: &AcceptanceRecord| record.fell_in_use;
    assert_eq!(records.iter().map(fell).sum::<u64>(), 1, "{records:?}");
    let ended = |record: &AcceptanceRecord| record.outcomes() - record.passed;
    assert_eq!(records.iter().map(ended).sum::<u64>(), 0, "{records:?}");
    let failures = store.attempts().early_failures_since(began).await;
    assert_eq!(failures.expect("an answer").len(), 0);
    assert!(
        store
            .ledger()
            .check()
            .await
            .expect("a recount")
            .is_balanced()
    );
    // GPUs that somebody in the tenant's place let its node show are recorded for no lease.
    let shown = store::sightings::NewSighting {
        uuid: "GPU-of-another".to_owned(),
        serial: None,
        name: String::new(),
        memory_mib: 0,
        failed: Vec::new(),
    };
    let nobody = serde_json::from_value(json!("lse_00000000000000000000000000000000"));
    let seen = store.sightings().of(&[shown], nobody.expect("an id")).await;
    assert_eq!(seen.expect("an answer"), []);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_good_for_its_own_node_until_it_is_taken_back_or_the_node_is() {
    let (service, key, path) = in_use(&fleet(2)).await;
    let [zero, one] = [
        permit(&service, &key, &path, 0).await,
        permit(&service, &key, &path, 1).await,
    ];
    let of_one = description(&service, &key, &path, (1, None)).await;
    let elsewhere = run(&zero["script"], &of_one).await;
    assert!(elsewhere.said.contains("node_refused"), "{elsewhere:?}");
    let (id, other) = (&zero["verification_id"], &one["token"]);
    let step = format!("/v1/verifications/{}/steps/1", id.as_str().expect("an id"));
    let other = service.bearer(other.as_str().expect("a token"));
    let commit = json!({ "protocol": 1 });
    other
        .post(&step, &commit)
        .await
        .refused(401, "invalid_token");
    // Nothing else is reached by it.
    other.get(&path).await.refused(401, "invalid_token");

    let route = format!("{path}/nodes/0/recheck");
    let renewed = permit(&service, &key, &path, 0).await;
    let old = run_as_it_is(&service, &key, &path, &zero).await;
    assert!(old.said.contains("invalid_token"), "{old:?}");
    let neighbour = service.key("acme", Role::Member).await;
    let stranger = service.key("other", Role::Member).await;
    for method in ["POST", "DELETE"] {
        let answer = service.with(&neighbour).send(method, &route, None).await;
        answer.refused(403, "not_yours");
        let answer = service.with(&stranger).send(method, &route, None).await;
        answer.refused(404, "not_found");
        let unknown = format!("{path}/nodes/7/recheck");
        let answer = service.with(&key).send(method, &unknown, None).await;
        answer.refused(404, "not_found");
    }
    service.with(&key).delete(&route).await.expect(204);
    service
        .with(&key)
        .delete(&route)
        .await
        .refused(404, "not_found");
    let revoked = run_as_it_is(&service, &key, &path, &renewed).await;
    assert!(revoked.said.contains("invalid_token"), "{revoked:?}");

    let released = service
        .with(&key)
        .send("POST", &format!("{path}/release"), None);
    released.await.expect(200);
    turn(&service).await;
    let after = run(&one["script"], &of_one).await;
    assert!(after.said.contains("invalid_token"), "{after:?}");
    let answer = service.with(&key).send("POST", &route, None).await;
    answer.refused(409, "not_handed_off");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_shown_once_and_a_gang_is_told_of_what_failed() {
    let (service, key, path) = in_use(&gang()).await;
    let route = format!("{path}/nodes/0/recheck");
    let caller = service.with(&key).once("a recheck");
    let made = caller.send("POST", &route, None).await.expect(201);
    assert!(made["token"].is_string());
    let caller = service.with(&key).once("a recheck");
    let again = caller.send("POST", &route, None).await.expect(201);
    assert_eq!(again["verification_id"], made["verification_id"]);
    assert_eq!(
        (&again["token"], &again["script"]),
        (&Value::Null, &Value::Null)
    );

    // Both nodes are of one rental.
    let of_one = description(&service, &key, &path, (1, None)).await;
    let elsewhere = run(&made["script"], &of_one).await;
    assert!(
        elsewhere.said.contains("node_refused") && elsewhere.said.contains("that of node 0"),
        "{elsewhere:?}"
    );

    let gone = description(&service, &key, &path, (0, None)).await;
    let mut fewer = gone["uuids"].as_array().expect("ids").clone();
    fewer.remove(3);
    let mut gone = gone;
    (gone["gpus"], gone["uuids"]) = (json!(7), json!(fewer));
    let ran = run(&made["script"], &gone).await;
    assert!(!ran.passed, "{ran:?}");
    let last = node(&service, &key, &path, 0).await["last_recheck"].clone();
    assert_eq!(last["follows"], "gang");
    assert!(last["failed"].to_string().contains("inv.count"), "{last}");
    turn(&service).await;
    assert_eq!(state(&service, &key, &path).await, "active");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_re_check_that_was_passed_is_let_go_in_time_and_whoever_asks_for_it_is_told() {
    let (service, key, path) = in_use(&fleet(1)).await;
    let stranger = service.key("other", Role::Member).await;
    let handed_off = node(&service, &key, &path, 0).await["attestation_id"].clone();
    let permit = permit(&service, &key, &path, 0).await;
    let broker = service.world.broker();
    let mut looks = Vec::new();
    for days in [0, 91] {
        service.world.clock().advance(TimeDelta::days(days));
        let nothing = retention::prune(broker).await;
        assert_eq!(
            (nothing.rechecks, nothing.failures),
            (0, 0),
            "the last stays"
        );
        let ran = run_as_it_is(&service, &key, &path, &permit).await;
        assert!(ran.passed, "{ran:?}");
        let shown = node(&service, &key, &path, 0).await;
        looks.push(shown["last_recheck"]["attestation_id"].clone());
    }
    let show = async |id: &Value, key: &Key| {
        let id = id.as_str().expect("an id");
        let shown = service.with(key).get(&format!("/v1/attestations/{id}"));
        shown.await
    };
    show(&looks[0], &key).await.expect(200);
    let pruned = retention::prune(broker).await;
    assert_eq!((pruned.rechecks, pruned.failures), (1, 0));
    let said = show(&looks[0], &key)
        .await
        .refused(410, "attestation_let_go");
    assert!(said.contains("`pass`"), "{said}");
    show(&looks[0], &stranger).await.refused(404, "not_found");
    for kept in [&looks[1], &handed_off] {
        show(kept, &key).await.expect(200);
    }
    let last = node(&service, &key, &path, 0).await["last_recheck"].clone();
    assert_eq!(last["attestation_id"], looks[1]);
    assert_eq!(retention::prune(broker).await.rechecks, 0);
    service.stop().await;
}
