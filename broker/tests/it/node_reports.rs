//! `POST /v1/reservations/{id}/nodes/{n}/report`: the consequences of a tenant's report on a node, and their
//! limits.

use chrono::TimeDelta;
use market::attestation::Attestation;
use market::identity::Role;
use market::verification::Level;
use serde_json::{Value, json};
use verifier::cli::{Expectation, run_alone};
use verifier::reference::NodeDescription;

use crate::access::{access, fleet, reserve, until_active};
use crate::lifecycle::scene::training;
use crate::service::{Key, Service, ssh_key};

/// A service with this in use; gives the path of the reservation.
pub(crate) async fn in_use(demand: &Value) -> (Service, Key, String) {
    let service = Service::start_with_nodes().await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let path = reserve(&service, &key, demand).await;
    (service, key, path)
}

/// The output of `verifier run --json` on a node in use whose first GPU loses so many words.
pub(crate) async fn result(service: &Service, key: &Key, path: &str, bad_words: u32) -> Value {
    let node = access(service, key, path).await["nodes"][0].clone();
    let uuids = node["gpu_order"].as_array().expect("ids");
    let bare_metal = uuids.len() == 8;
    let description = json!({
        "schema": "simulated-node-1", "node_index": 0, "host": node["host"], "driver": "570.0",
        "gpu": if bare_metal { "H100-SXM" } else { "A10" }, "gpus": uuids.len(), "uuids": uuids,
        "memory_mib": if bare_metal { 81_559 } else { 23_028 }, "vcpus": 30, "memory_gib": 200,
        "internode": "none", "bad_words": bad_words,
    });
    let node = NodeDescription::parse(&description.to_string()).expect("a description");
    let result =
        run_alone(&mut node.node(), Expectation::what_it_shows(Level::Quick)).expect("a result");
    assert_eq!(result.verdict.is_pass(), bad_words == 0, "{result:#?}");
    json!(result)
}

pub(crate) async fn lease(service: &Service, key: &Key, path: &str) -> Value {
    access(service, key, path).await["nodes"][0]["lease_id"].clone()
}

pub(crate) async fn state(service: &Service, key: &Key, path: &str) -> Value {
    service.with(key).get(path).await.expect(200)["state"].clone()
}

pub(crate) async fn turn(service: &Service) {
    let turned = service.world.turn(TimeDelta::zero()).await;
    turned.expect("the clock turns");
}

/// The events of these kinds so far, the oldest first.
pub(crate) async fn told(service: &Service, key: &Key, kinds: &str) -> Vec<Value> {
    let list = format!("/v1/events?types={kinds}");
    let events = service.with(key).get(&list).await.expect(200);
    events["items"].as_array().expect("items").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_check_fails_is_replaced_and_its_provider_held_to_nothing() {
    let (service, key, path) = in_use(&fleet(1)).await;
    let endpoint = json!({ "url": "https://hooks.example.com/" });
    let endpoint = service
        .with(&key)
        .post("/v1/webhook-endpoints", &endpoint)
        .await;
    let endpoint = endpoint.expect(201)["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let first = lease(&service, &key, &path).await;
    let began = service.world.broker().now();
    let result = result(&service, &key, &path, 3).await;
    let report = format!("{path}/nodes/0/report");
    let body = json!({ "reason": "loses bits", "result": result });
    let caller = service.with(&key).once("a report");
    let kept = caller.post(&report, &body).await.expect(201);
    assert_eq!(kept["follows"], "repair");
    assert_eq!(
        (&kept["verdict"], &kept["lease_id"]),
        (&json!("fail"), &first)
    );
    assert!(kept["failed"].to_string().contains("mem.pattern"), "{kept}");
    assert_eq!(kept["result"], result);
    let again = service
        .with(&key)
        .once("a report")
        .post(&report, &body)
        .await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.expect(201), kept);

    turn(&service).await;
    assert_eq!(state(&service, &key, &path).await, "repairing");
    let now = service.with(&key).post(&report, &body).await;
    let said = now.refused(409, "not_handed_off");
    assert!(
        said.contains("node 0") && said.contains("repairing"),
        "{said}"
    );
    until_active(&service, &key, &path).await;
    assert_ne!(lease(&service, &key, &path).await, first);
    let shown = service.with(&key).get(&path).await.expect(200);
    let fallen = &shown["leases"][0];
    assert_eq!(
        (&fallen["id"], &fallen["fall_reason"]),
        (&first, &json!("unwanted"))
    );
    let note = fallen["fall_note"].as_str().expect("a note");
    assert!(
        note.contains("its tenant's report") && note.contains("mem.pattern"),
        "{note}"
    );
    // A tenant's word alone puts no offer in cool-down and counts against nobody.
    let attempts = service.world.broker().store().attempts();
    let failures = attempts.early_failures_since(began).await;
    assert!(failures.expect("an answer").is_empty());
    let records = attempts.acceptance_since(began).await.expect("an answer");
    let mut records = records.values();
    assert!(records.all(|record| record.outcomes() == record.passed && record.fell_in_use == 0));

    let listed = service
        .with(&key)
        .get(&format!("{path}/nodes/0/reports"))
        .await;
    assert_eq!(listed.expect(200)["items"], json!([kept]));
    let events = told(&service, &key, "node.reported").await;
    assert_eq!(events.len(), 1, "{events:?}");
    let data = &events[0]["data"];
    assert_eq!(
        (&data["report_id"], &data["follows"]),
        (&kept["id"], &json!("repair"))
    );
    assert_eq!((&data["node"], &data["lease_id"]), (&json!(0), &first));
    let deliveries = format!("/v1/webhook-endpoints/{endpoint}/deliveries");
    let deliveries = service.with(&key).get(&deliveries).await.expect(200);
    assert!(
        deliveries.to_string().contains("node.reported"),
        "{deliveries}"
    );
    let books = service.world.broker().store().ledger();
    assert!(books.check().await.expect("a recount").is_balanced());
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_paid_for_until_it_was_reported() {
    let (service, key, path) = in_use(&fleet(1)).await;
    let first = lease(&service, &key, &path).await;
    let result = result(&service, &key, &path, 3).await;
    // No worker has looked at it by then.
    service.world.clock().advance(TimeDelta::seconds(240));
    let report = format!("{path}/nodes/0/report");
    let caller = service.with(&key).once("a report");
    let kept = caller.post(&report, &json!({ "result": result })).await;
    let kept = kept.expect(201);
    assert_eq!(kept["follows"], "repair");
    service.world.clock().advance(TimeDelta::seconds(30));
    turn(&service).await;
    let charges = service.world.broker().store().charges().across_tenants();
    let id = path.rsplit('/').next().expect("an id").parse();
    let charges = charges.of_reservation(id.expect("an id")).await;
    let charges = charges.expect("charges");
    assert!(charges.iter().all(|it| json!(it.usage.lease_id) == first));
    let until = charges.iter().map(|it| it.usage.to).max();
    assert_eq!(json!(until), kept["reported_at"]);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_shows_no_failure_is_kept_and_changes_nothing() {
    let (service, key, path) = in_use(&fleet(1)).await;
    let first = lease(&service, &key, &path).await;
    let good = result(&service, &key, &path, 0).await;
    let report = format!("{path}/nodes/0/report");
    let mut kept = Vec::new();
    for body in [
        json!({ "reason": "hangs\nnow and then" }),
        json!({ "result": good }),
    ] {
        let answer = service.with(&key).post(&report, &body).await.expect(201);
        assert_eq!(answer["follows"], "nothing_failed");
        kept.insert(0, answer);
        service.world.clock().advance(TimeDelta::seconds(1));
    }
    turn(&service).await;
    assert_eq!(state(&service, &key, &path).await, "active");
    assert_eq!(lease(&service, &key, &path).await, first);
    let list = format!("{path}/nodes/0/reports");
    let all = service.with(&key).get(&list).await.expect(200);
    assert_eq!(all["items"], json!(kept));
    let page = service
        .with(&key)
        .get(&format!("{list}?limit=1"))
        .await
        .expect(200);
    assert_eq!(page["items"], json!([kept[0]]));
    let cursor = page["next_cursor"].as_str().expect("another page");
    let next = service
        .with(&key)
        .get(&format!("{list}?limit=1&cursor={cursor}"))
        .await;
    assert_eq!(next.expect(200)["items"], json!([kept[1]]));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gpus_that_are_gone_are_a_failure_though_the_rest_pass() {
    let (service, key, path) = in_use(&training(8)).await;
    let whole: Attestation =
        serde_json::from_value(result(&service, &key, &path, 0).await).expect("a result");
    let mut less = whole.clone();
    let inventory = less.inventory.as_mut().expect("an inventory");
    let gone = inventory.gpus.remove(3).uuid;
    less.expected.gpus = 7;
    let report = format!("{path}/nodes/0/report");
    let answer = service
        .with(&key)
        .post(&report, &json!({ "result": less }))
        .await;
    let kept = answer.expect(201);
    assert_eq!(
        (&kept["verdict"], &kept["missing_gpus"]),
        (&json!("pass"), &json!([gone]))
    );
    // A machine of a gang cannot be replaced without ending the whole gang, which is the tenant's decision.
    assert_eq!(kept["follows"], "gang");
    turn(&service).await;
    assert_eq!(state(&service, &key, &path).await, "active");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_that_was_swapped_for_another_is_a_failure_though_all_pass() {
    // A fleet of machines with several GPUs.
    let demand = json!({
        "kind": "gpus", "gpu": "RTX-A6000", "count": 4,
        "policy": { "allow_providers": ["lambda"] },
    });
    let (service, key, path) = in_use(&demand).await;
    let node = access(&service, &key, &path).await["nodes"][0].clone();
    let mut uuids = node["gpu_order"].as_array().expect("ids").clone();
    let gone = std::mem::replace(&mut uuids[2], json!("GPU-of-another"));
    let description = json!({
        "schema": "simulated-node-1", "node_index": 0, "host": node["host"], "driver": "570.0",
        "gpu": "RTX-A6000", "gpus": 4, "uuids": uuids, "memory_mib": 49_140, "vcpus": 56,
        "memory_gib": 400, "internode": "none",
    });
    let swapped = NodeDescription::parse(&description.to_string()).expect("a description");
    let swapped = run_alone(
        &mut swapped.node(),
        Expectation::what_it_shows(Level::Quick),
    )
    .expect("a result");
    assert!(swapped.verdict.is_pass(), "{swapped:#?}");
    let report = format!("{path}/nodes/0/report");
    let body = json!({ "result": swapped });
    let kept = service.with(&key).post(&report, &body).await.expect(201);
    assert_eq!(
        (
            &kept["foreign_gpus"],
            &kept["missing_gpus"],
            &kept["follows"]
        ),
        (&json!(["GPU-of-another"]), &json!([gone]), &json!("repair"))
    );
    turn(&service).await;
    assert_eq!(state(&service, &key, &path).await, "repairing");
    let events = told(&service, &key, "node.reported").await;
    assert_eq!(events[0]["data"]["foreign_gpus"], 1);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_about_the_node_is_refused_and_nothing_is_kept() {
    let (service, key, path) = in_use(&fleet(1)).await;
    let caller = service.with(&key);
    let report = format!("{path}/nodes/0/report");
    let good = result(&service, &key, &path, 0).await;
    for body in [
        json!({}),
        json!({ "reason": " " }),
        json!({ "reason": "x".repeat(501) }),
        json!({ "reason": "bell \u{7}" }),
        json!({ "result": { "verdict": "fail" } }),
        json!({ "result": "eyJhbGciOiJFZERTQSJ9" }),
    ] {
        caller
            .post(&report, &body)
            .await
            .refused(422, "invalid_body");
    }
    let mut other = good.clone();
    other["inventory"]["gpus"][0]["uuid"] = json!("GPU-of-another");
    let said = caller.post(&report, &json!({ "result": other })).await;
    let said = said.refused(422, "result_refused");
    assert!(said.contains("GPU-of-another"), "{said}");
    let mut other = good.clone();
    other["expected"]["gpu"] = json!("H100-SXM");
    let said = caller.post(&report, &json!({ "result": other })).await;
    let said = said.refused(422, "result_refused");
    assert!(said.contains("H100-SXM") && said.contains("A10"), "{said}");
    let mut changed = good.clone();
    changed["verdict"] = json!("fail");
    let said = caller.post(&report, &json!({ "result": changed })).await;
    said.refused(422, "result_refused");
    let mut huge = good.clone();
    huge["findings"][0]["note"] = json!("x".repeat(130 << 10));
    let said = caller.post(&report, &json!({ "result": huge })).await;
    said.refused(413, "payload_too_large");

    let reason = json!({ "reason": "hangs" });
    for method in ["report", "reports"] {
        let unknown = format!("{path}/nodes/1/{method}");
        let answer = match method {
            "report" => caller.post(&unknown, &reason).await,
            _ => caller.get(&unknown).await,
        };
        let said = answer.refused(404, "not_found");
        assert!(said.contains("1 nodes"), "{said}");
    }
    let neighbour = service.key("acme", Role::Member).await;
    let said = service.with(&neighbour).post(&report, &reason).await;
    said.refused(403, "not_yours");
    let stranger = service.key("other", Role::Member).await;
    for answer in [
        service.with(&stranger).post(&report, &reason).await,
        service.with(&stranger).get(&format!("{report}s")).await,
    ] {
        answer.refused(404, "not_found");
    }
    let released = caller.send("POST", &format!("{path}/release"), None).await;
    released.expect(200);
    turn(&service).await;
    caller
        .post(&report, &reason)
        .await
        .refused(409, "not_handed_off");
    let kept = caller.get(&format!("{report}s")).await.expect(200);
    assert_eq!(kept["items"], json!([]));
    service.stop().await;
}
