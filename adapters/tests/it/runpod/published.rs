//! The examples of RunPod's published specification.

use std::path::Path;

use adapters::Adapter;
use adapters::providers::runpod::RunPod;
use market::offer::AvailabilityLevel;
use market::order::ProviderLeaseState as State;
use serde_json::Value;

use super::{CENTRES, gpus_path, skus_of};
use crate::recorded::{made_up, now, order};

/// Where a copy of it lies beside the checkout.
#[tokio::test]
async fn the_examples_of_the_specification_are_read() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/providers/specs/runpod-rest-v2-openapi.json");
    let Ok(text) = std::fs::read_to_string(&file) else {
        println!("skipped: there is no {}", file.display());
        return;
    };
    let spec: Value = serde_json::from_str(&text).expect("JSON");
    let example = |path: &str, method: &str, status: &str, name: &str| {
        let answer = &spec["paths"][path][method]["responses"][status];
        answer["content"]["application/json"]["examples"][name]["value"].clone()
    };
    let http = made_up(&[
        (
            "GET",
            &gpus_path(1, "SECURE"),
            200,
            example("/v2/catalog/gpus", "get", "200", "gpus"),
        ),
        (
            "GET",
            &gpus_path(4, "COMMUNITY"),
            200,
            example("/v2/catalog/gpus", "get", "200", "gpus"),
        ),
        (
            "GET",
            CENTRES,
            200,
            example("/v2/catalog/datacenters", "get", "200", "dataCenters"),
        ),
        (
            "GET",
            "/v2/pods?includeClusterPods=true&limit=1000",
            200,
            example("/v2/pods", "get", "200", "pods"),
        ),
        (
            "POST",
            "/v2/pods",
            201,
            example("/v2/pods", "post", "201", "pod"),
        ),
    ]);
    let reading = RunPod.read_catalog(&http, now()).await.expect("a reading");
    assert!(reading.is_whole());
    let sku = "NVIDIA GeForce RTX 4090";
    // By hand: 0.44 for one, and four times 0.31.
    assert_eq!(
        skus_of(&reading),
        [
            format!("1x {sku} in US-KS-2 at 0.44"),
            format!("4x {sku} in community at 1.24")
        ]
    );
    for offer in &reading.offers {
        assert_eq!(offer.gpu.to_string(), "RTX-4090");
        assert_eq!(offer.availability.level, AvailabilityLevel::High);
    }
    assert_eq!(
        reading.offers[0]
            .place
            .country
            .map(|it| it.to_string())
            .as_deref(),
        Some("US")
    );
    let pods = RunPod.list_leases(&http).await.expect("a list");
    let [pod] = &pods[..] else { panic!("{pods:?}") };
    assert_eq!(
        (pod.state, pod.sku.clone()),
        (State::Running, Some(format!("1x {sku}")))
    );
    assert_eq!(
        pod.price_per_node_hour.map(|it| it.to_string()).as_deref(),
        Some("0.44")
    );
    assert_eq!(
        (pod.nodes[0].host.as_str(), pod.nodes[0].port),
        ("195.26.233.3", 34446)
    );
    let made = RunPod
        .request_lease(&http, &order(&reading.offers[0], 1))
        .await;
    assert_eq!(made.expect("a pod").state, State::Pending);
}
