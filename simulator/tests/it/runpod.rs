//! The wire format of runpod.

use reqwest::Method;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use simulator::Provider;
use simulator::{Fault, FaultKind, NodeEnd, NodeRunner};

use crate::stage::{KEY, Stage, body, but};

const H100: &str = "NVIDIA H100 80GB HBM3";

const LISTING: &str = "query { gpuTypes { id securePrice communityCloud maxGpuCount \
    one: lowestPrice(input: {gpuCount: 1, secureCloud: true}) { stockStatus minimumBidPrice } \
    community: lowestPrice(input: {gpuCount: 1, secureCloud: false}) { stockStatus minimumBidPrice } } \
    dataCenters { id listed eight: gpuAvailability(input: {gpuCount: 8, secureCloud: true}) \
    { gpuTypeId stockStatus available } } }";

/// A pod of one H100 in Kansas.
fn pod(name: &str) -> Value {
    json!({
        "name": name, "cloud": "SECURE", "gpu": { "id": H100, "count": 1 }, "image": "any:1", "disk": 50,
        "ports": ["22/tcp"], "env": { "PUBLIC_KEY": KEY }, "dataCenterIds": ["US-KS-2"],
    })
}

fn bid(name: &str, per_gpu: f64) -> Value {
    json!({
        "query": "mutation ($input: PodRentInterruptableInput!) { podRentInterruptable(input: $input) { id costPerHr } }",
        "variables": { "input": {
            "bidPerGpu": per_gpu, "cloudType": "SECURE", "gpuCount": 1, "gpuTypeId": H100, "name": name,
            "imageName": "any:1", "ports": "22/tcp", "env": [], "dataCenterId": "US-KS-2",
        } },
    })
}

impl Stage {
    async fn create(&self, order: &Value, status: u16) -> Value {
        let request = self
            .request(Provider::RUNPOD, Method::POST, "/v2/pods")
            .json(order);
        body(request.send().await.unwrap(), status).await
    }

    async fn made(&self, order: &Value) -> String {
        self.create(order, 201).await["id"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    async fn pod(&self, id: &str, status: u16) -> Value {
        let request = self.request(Provider::RUNPOD, Method::GET, &format!("/v2/pods/{id}"));
        body(request.send().await.unwrap(), status).await
    }

    async fn delete_pod(&self, id: &str) -> u16 {
        let request = self.request(Provider::RUNPOD, Method::DELETE, &format!("/v2/pods/{id}"));
        request.send().await.unwrap().status().as_u16()
    }

    async fn ask(&self, question: &Value) -> Value {
        let request = self
            .request(Provider::RUNPOD, Method::POST, "/graphql")
            .json(question);
        body(request.send().await.unwrap(), 200).await
    }
}

#[tokio::test]
async fn the_listing_answers_strangers_under_the_names_that_were_asked_for() {
    let stage = Stage::new().await;
    let stranger = stage.anonymous(Provider::RUNPOD, Method::POST, "/graphql");
    let answer = stranger
        .json(&json!({ "query": LISTING }))
        .send()
        .await
        .unwrap();
    let data = body(answer, 200).await["data"].clone();
    let types = data["gpuTypes"].as_array().unwrap();
    let h100 = types.iter().find(|kind| kind["id"] == H100).unwrap();
    assert_eq!(
        *h100,
        json!({
            "id": H100, "securePrice": 2.99, "communityCloud": false, "maxGpuCount": 8,
            "one": { "minimumBidPrice": 1.495, "uninterruptablePrice": 2.99, "stockStatus": "High" },
            "community": null,
        })
    );
    assert!(types.iter().any(|kind| kind["id"] == "unknown"));
    let centers = data["dataCenters"].as_array().unwrap();
    let sold_out = centers
        .iter()
        .find(|center| center["id"] == "EU-RO-1")
        .unwrap();
    assert_eq!(
        sold_out["eight"][1],
        json!({ "gpuTypeId": H100, "stockStatus": null, "available": false })
    );
}

#[tokio::test]
async fn a_pod_is_provisioned_then_runs_then_is_gone() {
    let stage = Stage::new().await;
    let asked = stage.create(&pod("gpb-1"), 201).await;
    assert_eq!(
        (&asked["status"], &asked["dataCenterId"], &asked["cost"]),
        (&json!("PROVISIONING"), &Value::Null, &json!(2.99))
    );
    let id = asked["id"].as_str().unwrap();
    stage.clock.turn(60);
    let starting = stage.pod(id, 200).await;
    assert_eq!(
        (
            &starting["status"],
            &starting["dataCenterId"],
            &starting["ssh"]["direct"]
        ),
        (&json!("STARTING"), &json!("US-KS-2"), &Value::Null)
    );
    stage.clock.turn(60);
    let running = stage.pod(id, 200).await;
    assert_eq!(running["status"], "RUNNING");
    assert_eq!(running["ssh"]["direct"]["port"], stage.simulator.ssh_port());
    let request = stage.request(Provider::RUNPOD, Method::GET, "/v2/pods");
    let listed = body(request.send().await.unwrap(), 200).await;
    assert_eq!(listed, json!({ "pods": [running] }));
    assert_eq!(stage.delete_pod(id).await, 204);
    assert_eq!(stage.delete_pod(id).await, 404);
    assert_eq!(stage.pod(id, 404).await["detail"], "pod not found");
    let bill = stage.simulator.bill(Provider::RUNPOD);
    assert_eq!(
        bill.total_usd,
        Decimal::new(9_966_667, 8),
        "120 s of 2.99 an hour"
    );
}

#[tokio::test]
async fn strangers_and_bodies_beyond_the_specification_are_refused() {
    let stage = Stage::new().await;
    for (method, path) in [(Method::GET, "/v2/pods"), (Method::DELETE, "/v2/pods/x")] {
        let answer = stage
            .anonymous(Provider::RUNPOD, method, path)
            .send()
            .await
            .unwrap();
        assert_eq!(body(answer, 401).await["status"], 401);
    }
    let stranger = stage
        .anonymous(Provider::RUNPOD, Method::POST, "/graphql")
        .json(&bid("gpb-1", 2.0));
    let refused = body(stranger.send().await.unwrap(), 200).await;
    assert_eq!(
        refused["errors"][0]["extensions"]["code"],
        "UNAUTHENTICATED"
    );
    for odd in [
        but(pod("x"), "bogus", 1),
        but(pod(""), "disk", 1),
        but(pod("x"), "cloud", "ALL"),
        but(pod("x"), "env", json!({ "a;id": "x" })),
        but(pod("x"), "gpu", json!({ "id": H100, "count": 0 })),
    ] {
        assert_eq!(stage.create(&odd, 422).await["status"], 422, "{odd}");
    }
    for (odd, words) in [
        (
            but(pod("x"), "dataCenterIds", json!(["XX-1"])),
            "data center is not known",
        ),
        (
            but(pod("x"), "gpu", json!({ "id": "no such" })),
            "cannot be deployed",
        ),
        (
            but(pod("x"), "gpu", json!({ "id": "NVIDIA H200", "count": 8 })),
            "no longer any instances",
        ),
    ] {
        let refused = stage.create(&odd, 400).await;
        assert!(
            refused["detail"].as_str().unwrap().contains(words),
            "{refused}"
        );
    }
    assert!(stage.simulator.launches(Provider::RUNPOD).is_empty());
}

#[tokio::test]
async fn a_bid_above_the_floor_makes_a_pod_at_its_own_price() {
    let stage = Stage::new().await;
    let low = stage.ask(&bid("gpb-1", 1.0)).await;
    assert_eq!(low["errors"][0]["message"], "Your bid is too low");
    let made = stage.ask(&bid("gpb-1", 1.6)).await["data"]["podRentInterruptable"].clone();
    assert_eq!(made["costPerHr"], 1.6);
    let shown = stage.pod(made["id"].as_str().unwrap(), 200).await;
    assert_eq!(
        (&shown["name"], &shown["cost"]),
        (&json!("gpb-1"), &json!(1.6))
    );
    stage.clock.turn(3_600);
    assert_eq!(
        stage.simulator.bill(Provider::RUNPOD).total_usd,
        Decimal::new(16, 1)
    );
}

#[tokio::test]
async fn a_price_changes_for_every_count_of_a_type() {
    let stage = Stage::new().await;
    let dearer = Decimal::new(325, 2);
    stage
        .simulator
        .set_price(Provider::RUNPOD, &format!("8x {H100}"), dearer)
        .unwrap();
    let listing = stage.ask(&json!({ "query": LISTING })).await;
    let types = listing["data"]["gpuTypes"].as_array().unwrap();
    let h100 = types.iter().find(|kind| kind["id"] == H100).unwrap();
    assert_eq!(h100["securePrice"], 3.25);
    assert_eq!(stage.create(&pod("gpb-1"), 201).await["cost"], 3.25);
}

#[tokio::test]
async fn a_pod_runs_its_start_command_with_the_environment_of_its_order() {
    let stage = Stage::with(|config| config.node_runner = NodeRunner::Run).await;
    let command = "sh -c 'echo \"$GREETING from $(test -f \"$SIMULATED_NODE\" && echo a node)\"; exec /start.sh'";
    let order = but(
        but(pod("gpb-1"), "args", command),
        "env",
        json!({ "GREETING": "it's me" }),
    );
    let id = stage.made(&order).await;
    stage.clock.turn(120);
    stage.simulator.settle().await;
    let output = stage.simulator.node_output(&id, 0).unwrap();
    assert_eq!(output.end, Some(NodeEnd::Exited(0)), "{output:?}");
    assert_eq!(output.stdout, "it's me from a node\n");
}

#[tokio::test]
async fn faults_come_in_the_words_of_the_provider() {
    let stage = Stage::new().await;
    let fault = |kind| Fault::new(Provider::RUNPOD, kind);
    stage
        .simulator
        .break_next(fault(FaultKind::AcceptedThenFailed))
        .unwrap();
    let id = stage.made(&pod("gpb-1")).await;
    stage.clock.turn(120);
    assert_eq!(stage.pod(&id, 200).await["status"], "ERROR");
    stage
        .simulator
        .break_next(fault(FaultKind::PartialCatalog))
        .unwrap();
    let cut = stage.ask(&json!({ "query": LISTING })).await;
    assert_eq!(cut["data"]["gpuTypes"].as_array().unwrap().len(), 2);
    assert_eq!(cut["errors"][0]["message"], "Something went wrong");
    stage
        .simulator
        .break_next(fault(FaultKind::ReplyLostAfterCreate))
        .unwrap();
    let lost = stage
        .request(Provider::RUNPOD, Method::POST, "/v2/pods")
        .json(&pod("gpb-2"));
    assert!(lost.send().await.is_err());
    assert_eq!(stage.simulator.launches(Provider::RUNPOD)[1].name, "gpb-2");
    assert!(
        stage
            .simulator
            .break_next(fault(FaultKind::FewerNodes))
            .is_err()
    );
}
