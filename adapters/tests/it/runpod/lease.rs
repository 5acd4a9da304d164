//! Orders and pods of RunPod.

use adapters::providers::runpod::RunPod;
use adapters::{Adapter, AdapterError, Disposition};
use market::machine::{ImageChoice, MachineRequest};
use market::offer::Offer;
use market::order::{LeaseOrder, ProviderLease, ProviderLeaseState as State};
use serde_json::{Value, json};

use super::{H100, recorded_offers};
use crate::recorded::{SSH_KEY, lease, made_up, now, order, recorded};
use crate::server::{Server, Turn};

async fn an_offer(sku: &str, region: &str) -> Offer {
    let wanted = |offer: &&Offer| offer.sku == sku && offer.place.region.as_deref() == Some(region);
    let reading = recorded_offers().await;
    let offer = reading.offers.iter().find(wanted);
    offer.expect("an offer").clone()
}

/// Eight H100 on the secure cloud.
async fn eight() -> Offer {
    an_offer(&format!("8x {H100}"), "US-KS-2").await
}

#[tokio::test]
async fn a_recorded_pod_lives_from_order_to_gone() {
    let http = recorded("runpod", "lease");
    let order = order(&eight().await, 1);
    let asked = RunPod.request_lease(&http, &order).await.expect("a pod");
    assert_eq!(
        (asked.state, asked.client_token(), asked.region),
        (State::Pending, Some(order.client_token.clone()), None)
    );
    assert_eq!(
        asked.price_per_node_hour,
        Some(order.offer.price_per_node_hour)
    );
    let all = RunPod.list_leases(&http).await.expect("a list");
    assert_eq!(
        all.iter().map(|lease| lease.state).collect::<Vec<_>>(),
        [
            State::Running,
            State::Pending,
            State::Failed,
            State::Pending,
            State::Running
        ]
    );
    assert_eq!(all[0].region.as_deref(), Some("community"));
    assert_eq!(all[2].price_per_node_hour, None, "stopped");
    let found = RunPod
        .find_lease(&http, &order.client_token)
        .await
        .expect("a list")
        .expect("the pod");
    assert_eq!(found.id, asked.id);
    let read = async || {
        RunPod
            .read_lease(&http, &lease(&asked.id.0))
            .await
            .expect("an answer")
    };
    for why in ["it starts", "its port is not published"] {
        let pending = read().await.expect("the pod");
        assert_eq!(
            (pending.state, pending.nodes.len()),
            (State::Pending, 0),
            "{why}"
        );
    }
    let running = read().await.expect("the pod");
    assert_eq!(
        (running.state, running.node_count, running.gpus_per_node),
        (State::Running, Some(1), Some(8))
    );
    assert_eq!(
        (running.sku, running.region),
        (
            Some(order.offer.sku.clone()),
            order.offer.place.region.clone()
        )
    );
    assert_eq!(running.created_at, Some(now()));
    let node = &running.nodes[0];
    assert_eq!(
        (node.host.as_str(), node.port, node.user.as_str()),
        ("198.51.100.21", 34446, "root")
    );
    for _ in 0..2 {
        RunPod
            .release_lease(&http, &lease(&asked.id.0))
            .await
            .expect("released, then absent");
    }
    assert_eq!(read().await, None);
}

#[tokio::test]
async fn a_spot_pod_of_before_is_listed_under_its_mark() {
    let http = recorded("runpod", "lease");
    let all = RunPod.list_leases(&http).await.expect("a list");
    let spot = all.last().expect("the spot pod");
    assert_eq!(spot.id.0, "3s4p5o6t7x");
    assert!(spot.client_token().is_some());
    assert_eq!(spot.sku.as_deref(), Some("1x NVIDIA A100 80GB PCIe"));
    let price = spot.price_per_node_hour.map(|price| price.to_string());
    assert_eq!(price.as_deref(), Some("0.82"), "its bid");
}

#[tokio::test]
async fn a_list_that_is_cut_short_or_odd_is_an_error() {
    let path = "/v2/pods?includeClusterPods=true&limit=1000";
    let more =
        json!({"pods": [{"id": "p1"}], "pagination": {"nextCursor": "c2", "hasNextPage": true}});
    let http = made_up(&[
        ("GET", path, 200, more),
        ("GET", &format!("{path}&cursor=c2"), 500, json!({})),
    ]);
    RunPod.list_leases(&http).await.expect_err("cut short");
    for body in [
        json!({"pods": [{"name": "no id"}]}),
        json!({"pods": [{"id": ""}]}),
        json!({"pods": [7]}),
        json!({"data": []}),
    ] {
        let http = made_up(&[("GET", path, 200, body.clone())]);
        RunPod
            .list_leases(&http)
            .await
            .expect_err(&body.to_string());
    }
    let unpaged = made_up(&[(
        "GET",
        path,
        200,
        json!({"pods": [{"id": "p1", "ssh": null}]}),
    )]);
    assert_eq!(RunPod.list_leases(&unpaged).await.expect("a list").len(), 1);
}

/// The pod of a list that holds it alone.
async fn listed(fields: Value) -> ProviderLease {
    let ssh = json!({"direct": {"host": "198.51.100.7", "port": 40022}});
    let mut pod = json!({"id": "p1", "gpu": {"id": "NVIDIA L4"}, "ssh": ssh});
    let fields = fields.as_object().expect("fields").clone();
    pod.as_object_mut().expect("a pod").extend(fields);
    let path = "/v2/pods?includeClusterPods=true&limit=1000";
    let http = made_up(&[("GET", path, 200, json!({ "pods": [pod] }))]);
    RunPod.list_leases(&http).await.expect("a list").remove(0)
}

#[tokio::test]
async fn every_published_status_has_its_state_and_an_unknown_word_means_pending() {
    for (status, state) in [
        ("PROVISIONING", State::Pending),
        ("STARTING", State::Pending),
        ("RUNNING", State::Running),
        ("EXITED", State::Failed),
        ("ERROR", State::Failed),
        ("TERMINATED", State::Gone),
        ("HIBERNATING", State::Pending),
    ] {
        let pod = listed(json!({"status": status})).await;
        assert_eq!((pod.state, pod.raw_status.as_str()), (state, status));
    }
    let nowhere = json!({"status": "RUNNING", "ssh": {"direct": {"host": "0.0.0.0", "port": 1}}});
    assert_eq!(listed(nowhere).await.state, State::Pending);
}

#[tokio::test]
async fn a_stopped_pod_states_no_price_and_a_dollar_an_hour_is_one() {
    for (cost, price) in [
        (json!(0.0), None),
        (json!(null), None),
        (json!("soon"), None),
        (json!(9_000), None),
        (json!(1), Some("1.00")),
        (json!(2.99), Some("2.99")),
    ] {
        let gpu = json!({"id": "NVIDIA H100 80GB HBM3", "count": 1});
        let pod = listed(json!({"cost": cost, "gpu": gpu})).await;
        let shown = pod.price_per_node_hour.map(|price| price.to_string());
        assert_eq!(shown.as_deref(), price, "{cost}");
    }
    // One that does not say how many GPUs it has is not taken for another machine than was ordered.
    let silent = listed(json!({"cost": 1, "gpu": {"id": "NVIDIA H100 80GB HBM3"}})).await;
    let shown = (silent.sku, silent.gpus_per_node, silent.price_per_node_hour);
    assert_eq!(shown, (None, None, None));
}

/// The request for this order.
async fn sent(order: &LeaseOrder) -> (String, Value) {
    let answer = json!({"id": "p-1"}).to_string();
    let server = Server::start(vec![Turn::Answer(201, "", answer)]).await;
    let made = RunPod
        .request_lease(&server.http(), order)
        .await
        .expect("a pod");
    assert_eq!(made.client_token().as_ref(), Some(&order.client_token));
    let request = server.requests().remove(0);
    let (head, body) = request.split_once("\r\n\r\n").expect("a body");
    let line = head.lines().next().expect("a line").to_owned();
    (line, serde_json::from_str(body).expect("JSON"))
}

#[tokio::test]
async fn an_order_names_cloud_type_count_and_place_and_carries_the_script_in_the_environment() {
    let (line, body) = sent(&order(&eight().await, 1)).await;
    assert!(line.starts_with("POST /api/v1/v2/pods "), "{line}");
    let command = body["cmd"][0].as_str().expect("a command");
    assert!(!command.contains("once-only-4711"), "{command}");
    let expected = json!({
        "name": "gpb-00000000000000000000000000000007", "cloud": "SECURE",
        "gpu": {"id": H100, "count": 8, "minCudaVersion": "12.8"},
        "image": "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404",
        "entrypoint": ["sh", "-c"], "cmd": [command], "disk": 50, "ports": ["22/tcp"],
        "env": {"PUBLIC_KEY": SSH_KEY, "GPU_BROKER_START_SCRIPT": "#!/bin/sh\necho once-only-4711\n"},
        "dataCenterIds": ["US-KS-2"],
    });
    assert_eq!(body, expected);
    let (_, body) = sent(&order(
        &an_offer("4x NVIDIA GeForce RTX 4090", "community").await,
        1,
    ))
    .await;
    assert_eq!(
        (&body["cloud"], &body["dataCenterIds"]),
        (&json!("COMMUNITY"), &Value::Null)
    );
}

#[tokio::test]
async fn image_disk_and_ports_are_those_of_the_order() {
    let digest = format!("ghcr.io/team/train@sha256:{}", "0f".repeat(32));
    let mut wanted = order(&eight().await, 1);
    wanted.machine = MachineRequest {
        image: Some(ImageChoice::Container(digest.clone())),
        disk_gib: Some(400),
        ports: vec![8080, 22, 6006],
    };
    let (_, body) = sent(&wanted).await;
    assert_eq!(
        (&body["image"], &body["disk"]),
        (&json!(digest), &json!(400))
    );
    assert_eq!(body["ports"], json!(["22/tcp", "8080/tcp", "6006/tcp"]));
    wanted.machine.image = Some(ImageChoice::Catalogue("ubuntu-22.04-cuda-12".into()));
    let (_, body) = sent(&wanted).await;
    assert_eq!(body["image"], "runpod/base:1.0.2-cuda1281-ubuntu2204");
    let http = made_up(&[("GET", "/nothing", 200, json!(null))]);
    for image in [
        ImageChoice::Provider("runpod/base:latest".into()),
        ImageChoice::Catalogue("windows".into()),
    ] {
        wanted.machine.image = Some(image);
        let refused = RunPod.request_lease(&http, &wanted).await;
        let error = refused.expect_err("no such image");
        assert!(matches!(error, AdapterError::CannotOrder(_)), "{error}");
    }
}

#[tokio::test]
async fn what_the_order_answers_decides_what_may_be_done_next() {
    let order = order(&eight().await, 1);
    for (status, detail, next) in [
        (
            400,
            "There are no longer any instances available with the requested specifications.",
            Disposition::TryNextCandidate,
        ),
        (
            400,
            "this GPU and data center combination could not be placed",
            Disposition::TryNextCandidate,
        ),
        (
            400,
            "you are over your spend limit",
            Disposition::TryNextCandidate,
        ),
        (402, "no more", Disposition::GiveUp),
        (400, "Insufficient balance", Disposition::GiveUp),
        (401, "invalid key", Disposition::GiveUp),
        (
            403,
            "no access to the requested pool",
            Disposition::TryNextCandidate,
        ),
        (
            422,
            "$: additional properties 'bogus' not allowed",
            Disposition::Fault,
        ),
    ] {
        let body = json!({"title": "No", "status": status, "detail": detail});
        let http = made_up(&[("POST", "/v2/pods", status, body)]);
        let error = RunPod
            .request_lease(&http, &order)
            .await
            .expect_err("no pod");
        assert!(error.is_refusal(), "{status}: {error}");
        assert_eq!(error.disposition(), next, "{status} {detail}");
    }
    for (status, body) in [
        (500, json!({})),
        (201, json!({})),
        (201, json!({"id": ""})),
        (201, json!("{\"id\": \"p")),
        (409, json!({})),
    ] {
        let http = made_up(&[("POST", "/v2/pods", status, body)]);
        let error = RunPod
            .request_lease(&http, &order)
            .await
            .expect_err("no pod");
        assert!(error.is_outcome_unknown(), "{status}: {error}");
    }
}

#[tokio::test]
async fn a_gang_and_an_order_that_is_too_large_are_never_sent() {
    let http = made_up(&[("GET", "/nothing", 200, json!(null))]);
    let offer = eight().await;
    let mut large = order(&offer, 1);
    large.startup_script = "x".repeat(102_000);
    let mut two_lines = order(&offer, 1);
    two_lines.ssh_public_keys = vec![format!("{SSH_KEY}\nssh-rsa BBBB")];
    for bad in [order(&offer, 2), large, two_lines] {
        let error = RunPod
            .request_lease(&http, &bad)
            .await
            .expect_err("refused");
        assert!(matches!(error, AdapterError::CannotOrder(_)), "{error}");
    }
}
