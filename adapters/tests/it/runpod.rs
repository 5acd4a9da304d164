//! RunPod, over recordings and against a scripted server.

use std::collections::BTreeSet;

use adapters::providers::runpod::RunPod;
use adapters::{Adapter, AdapterError, Disposition, Http};
use market::catalog::{CatalogReading, SkipReason, Unread};
use market::offer::{AvailabilityLevel, Offer, Tenancy, Terms};
use market::order::ProviderLeaseState as State;
use serde_json::{Value, json};

use crate::recorded::{SSH_KEY, assert_golden, fixtures, made_up, now, order, recorded};
use crate::server::{Server, Turn};

const H100: &str = "NVIDIA H100 80GB HBM3";

async fn recorded_offers() -> CatalogReading {
    let http = recorded("runpod", "catalog");
    RunPod.read_catalog(&http, now()).await.expect("a reading")
}

async fn read_body(body: Value) -> Result<CatalogReading, AdapterError> {
    RunPod
        .read_catalog(&made_up(&[("POST", "/graphql", 200, body)]), now())
        .await
}

/// A type on the secure cloud, with the same stock and bid for each count.
fn listed_type(id: &str, price: Value) -> Value {
    json!({"id": id, "memoryInGb": 80, "secureCloud": true, "communityCloud": false, "securePrice": price,
        "maxGpuCountSecureCloud": 2, "secure1": {"minimumBidPrice": 1.5}, "secure2": {"minimumBidPrice": 1.5}})
}

fn centre(id: &str, types: &[&str]) -> Value {
    let list: Vec<_> = types
        .iter()
        .map(|id| json!({"gpuTypeId": id, "stockStatus": "High"}))
        .collect();
    json!({"id": id, "listed": true, "gpus1": list})
}

async fn an_offer(gpus: u32, region: &str, terms: Terms) -> Offer {
    let wanted = |offer: &&Offer| {
        offer.gpus.as_whole() == Some(gpus)
            && offer.place.region.as_deref() == Some(region)
            && offer.terms == terms
    };
    let reading = recorded_offers().await;
    reading
        .offers
        .iter()
        .find(wanted)
        .expect("an offer")
        .clone()
}

#[tokio::test]
async fn the_recorded_catalogue_gives_the_golden_offers() {
    let reading = recorded_offers().await;
    assert!(reading.is_whole());
    assert_golden("runpod", &reading);
}

#[tokio::test]
async fn the_main_answer_alone_gives_the_same_offers() {
    let file = fixtures("runpod").join("catalog/01-post-graphql.json");
    let http = Http::replay(file).expect("a recording");
    let alone = RunPod.read_catalog(&http, now()).await.expect("a reading");
    assert_eq!(alone, recorded_offers().await);
}

#[tokio::test]
async fn each_cloud_count_and_kind_of_terms_is_an_offer_of_containers() {
    let reading = recorded_offers().await;
    assert!(
        reading
            .offers
            .iter()
            .all(|offer| offer.tenancy == Tenancy::Container)
    );
    let of = |sku: &str| -> Vec<_> {
        let mine = reading.offers.iter().filter(|offer| offer.sku == sku);
        mine.map(|offer| {
            let region = offer.place.region.clone().expect("a region");
            let price = offer.price_per_node_hour.to_string();
            (region, offer.terms, price, offer.availability.level)
        })
        .collect()
    };
    use AvailabilityLevel::{High, Low, None, Unknown};
    let row = |region: &str, terms, price: &str, level| {
        (region.to_owned(), terms, price.to_owned(), level)
    };
    assert_eq!(
        of(&format!("8x {H100}")),
        [
            row("EU-RO-1", Terms::OnDemand, "23.92", None),
            row("US-KS-2", Terms::OnDemand, "23.92", Low),
            row("EU-RO-1", Terms::Spot, "14.00", None),
            row("US-KS-2", Terms::Spot, "14.00", Low),
        ]
    );
    assert_eq!(
        of("1x NVIDIA GeForce RTX 4090"),
        [
            row("EU-RO-1", Terms::OnDemand, "0.69", High),
            row("EUR-IS-1", Terms::OnDemand, "0.69", Unknown),
            row("community", Terms::OnDemand, "0.34", High),
            row("community", Terms::Spot, "0.20", High),
        ],
        "the secure bid of 0.5 is a placeholder"
    );
    assert!(
        of("8x NVIDIA GeForce RTX 4090")
            .iter()
            .all(|offer| offer.0 == "community")
    );
    let ids: BTreeSet<_> = reading.offers.iter().map(|offer| offer.offer_id).collect();
    assert_eq!(ids.len(), reading.offers.len());
}

#[tokio::test]
async fn a_placeholder_never_becomes_a_price_and_is_told() {
    for price in [json!(0), json!(null), json!(0.5), json!(1)] {
        let body = json!({"data": {"gpuTypes": [listed_type(H100, price.clone()), listed_type("NVIDIA H100 PCIe", json!(3.99))],
            "dataCenters": [centre("US-KS-2", &[H100, "NVIDIA H100 PCIe"])]}});
        let reading = read_body(body).await.expect("a reading");
        assert!(reading.is_whole(), "{price}");
        assert!(
            reading
                .offers
                .iter()
                .all(|offer| offer.raw_gpu_name == "NVIDIA H100 PCIe")
        );
        let skipped = &reading.skipped[0];
        assert_eq!(
            (skipped.reason, skipped.rows),
            (SkipReason::NoPrice, 1),
            "{skipped:?}"
        );
    }
}

#[tokio::test]
async fn a_listing_with_errors_or_holes_is_not_complete() {
    let types = || json!([listed_type(H100, json!(2.99))]);
    let centres = || json!([centre("US-KS-2", &[H100])]);
    let whole = json!({"data": {"gpuTypes": types(), "dataCenters": centres()}});
    assert!(read_body(whole).await.expect("a reading").is_whole());
    let mut cut = centre("EU-RO-1", &[H100]);
    cut["gpus2"] = json!("none");
    for (why, body) in [
        (
            "errors beside the data",
            json!({"data": {"gpuTypes": types(), "dataCenters": centres()}, "errors": [{"message": "timeout"}]}),
        ),
        (
            "no types",
            json!({"data": {"gpuTypes": [], "dataCenters": centres()}}),
        ),
        (
            "no centres",
            json!({"data": {"gpuTypes": types(), "dataCenters": null}}),
        ),
        (
            "a centre that cannot be read",
            json!({"data": {"gpuTypes": types(), "dataCenters": [centre("US-KS-2", &[H100]), cut]}}),
        ),
        (
            "a centre that is no record",
            json!({"data": {"gpuTypes": types(), "dataCenters": [centre("US-KS-2", &[H100]), 7]}}),
        ),
        (
            "a type that cannot be read",
            json!({"data": {"gpuTypes": [listed_type(H100, json!(2.99)), {"id": 7}], "dataCenters": centres()}}),
        ),
    ] {
        assert!(
            !read_body(body).await.expect("a reading").is_whole(),
            "{why}"
        );
    }
    let mut odd = listed_type("NVIDIA H100 PCIe", json!(3.99));
    odd["memoryInGb"] = json!("many");
    let types = [listed_type(H100, json!(2.99)), odd];
    let body = json!({"data": {"gpuTypes": types, "dataCenters": centres()}});
    let reading = read_body(body).await.expect("a reading");
    let skus = [1, 2, 4, 8].map(|count| format!("{count}x NVIDIA H100 PCIe"));
    assert!(!reading.offers.is_empty());
    assert_eq!(reading.unread, Unread::Skus(skus.into()));
    let failed = json!({"data": null, "errors": [{"message": "Something went wrong"}]});
    let error = read_body(failed).await.expect_err("no data");
    assert!(
        error.to_string().contains("Something went wrong"),
        "{error}"
    );
}

#[tokio::test]
async fn a_recorded_pod_lives_from_order_to_gone() {
    let http = recorded("runpod", "lease");
    let order = order(&an_offer(8, "US-KS-2", Terms::OnDemand).await, 1);
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
            State::Pending
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
            .read_lease(&http, &asked.id)
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
            .release_lease(&http, &asked.id)
            .await
            .expect("released, then absent");
    }
    assert_eq!(read().await, None);
}

/// The request for an order of this offer, answered by this.
async fn sent(offer: &Offer, answer: Value) -> (String, Value) {
    let server = Server::start(vec![Turn::Answer(201, "", answer.to_string())]).await;
    let order = order(offer, 1);
    let made = RunPod.request_lease(&server.http(), &order).await;
    assert_eq!(
        made.expect("a pod").client_token(),
        Some(order.client_token)
    );
    let request = server.requests().remove(0);
    let (head, body) = request.split_once("\r\n\r\n").expect("a body");
    let line = head.lines().next().expect("a line").to_owned();
    (line, serde_json::from_str(body).expect("JSON"))
}

#[tokio::test]
async fn an_order_names_cloud_type_count_and_place_and_carries_the_script_in_the_environment() {
    let offer = an_offer(8, "US-KS-2", Terms::OnDemand).await;
    let (line, body) = sent(&offer, json!({"id": "p-1"})).await;
    assert!(line.starts_with("POST /api/v1/v2/pods "), "{line}");
    let mark = "gpb-00000000000000000000000000000007";
    let args = body["args"].as_str().expect("a command");
    assert!(
        args.contains("GPU_BROKER_START_SCRIPT") && args.contains("/start.sh"),
        "{args}"
    );
    let expected = json!({
        "name": mark, "cloud": "SECURE", "gpu": {"id": H100, "count": 8, "minCudaVersion": "12.8"},
        "image": "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404", "args": args, "disk": 50, "ports": ["22/tcp"],
        "env": {"PUBLIC_KEY": SSH_KEY, "GPU_BROKER_START_SCRIPT": "#!/bin/sh\necho once-only-4711\n"},
        "dataCenterIds": ["US-KS-2"],
    });
    assert_eq!(body, expected);
    let (_, body) = sent(
        &an_offer(4, "community", Terms::OnDemand).await,
        json!({"id": "p-1"}),
    )
    .await;
    assert_eq!(
        (&body["cloud"], &body["dataCenterIds"]),
        (&json!("COMMUNITY"), &Value::Null)
    );
}

#[tokio::test]
async fn a_spot_order_bids_the_quoted_price_per_gpu() {
    let offer = an_offer(8, "US-KS-2", Terms::Spot).await;
    let answer =
        json!({"data": {"podRentInterruptable": {"id": "p-1", "gpuCount": 8, "costPerHr": 14.0}}});
    let (line, body) = sent(&offer, answer).await;
    assert!(line.starts_with("POST /api/v1/graphql "), "{line}");
    let input = &body["variables"]["input"];
    assert_eq!(
        (
            &input["bidPerGpu"],
            &input["gpuCount"],
            &input["gpuTypeId"],
            &input["dataCenterId"]
        ),
        (&json!(1.75), &json!(8), &json!(H100), &json!("US-KS-2"))
    );
    let env =
        json!({"key": "GPU_BROKER_START_SCRIPT", "value": "#!/bin/sh\necho once-only-4711\n"});
    assert_eq!(input["env"][0], env);
}

#[tokio::test]
async fn what_the_order_answers_decides_what_may_be_done_next() {
    let order = order(&an_offer(8, "US-KS-2", Terms::OnDemand).await, 1);
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
        (402, "Insufficient balance", Disposition::GiveUp),
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
async fn a_bid_that_failed_is_a_refusal_only_where_the_words_are_known() {
    let order = order(&an_offer(8, "US-KS-2", Terms::Spot).await, 1);
    let bid = async |body: Value| {
        let http = made_up(&[("POST", "/graphql", 200, body)]);
        RunPod
            .request_lease(&http, &order)
            .await
            .expect_err("no pod")
    };
    let errors = |message: &str| json!({"data": {"podRentInterruptable": null}, "errors": [{"message": message}]});
    let sold_out = bid(errors(
        "There are no longer any instances available with the requested specifications.",
    ))
    .await;
    assert!(sold_out.is_refusal(), "{sold_out}");
    assert_eq!(sold_out.disposition(), Disposition::TryNextCandidate);
    for unclear in [
        errors("Something went wrong"),
        json!({"data": null}),
        json!({}),
    ] {
        let error = bid(unclear).await;
        assert!(error.is_outcome_unknown(), "{error}");
    }
}

#[tokio::test]
async fn a_gang_and_a_script_that_is_too_large_are_never_sent() {
    let http = made_up(&[("GET", "/nothing", 200, json!(null))]);
    let offer = an_offer(8, "US-KS-2", Terms::OnDemand).await;
    let mut large = order(&offer, 1);
    large.startup_script = "x".repeat(200_000);
    for bad in [order(&offer, 2), large] {
        let error = RunPod
            .request_lease(&http, &bad)
            .await
            .expect_err("refused");
        assert!(matches!(error, AdapterError::CannotOrder(_)), "{error}");
    }
}
