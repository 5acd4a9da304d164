//! The control plane.

use reqwest::Method;
use serde_json::json;
use simulator::Provider;

use crate::stage::{Stage, a10, body};

#[tokio::test]
async fn the_clock_and_the_machines_can_be_read_and_a_fault_given() {
    let stage = Stage::new().await;
    stage.add_key().await;
    let id = stage.launch(&a10("one")).await;
    stage.clock.turn(60);
    let token = stage.simulator.control_credential();
    let clock = stage
        .control(Method::GET, "/clock")
        .bearer_auth(&token)
        .send()
        .await
        .unwrap();
    assert_eq!(
        body(clock, 200).await,
        json!({ "now": "2026-08-01T12:01:00Z" })
    );
    let machines = stage
        .control(Method::GET, "/machines")
        .bearer_auth(&token)
        .send()
        .await
        .unwrap();
    let machines = body(machines, 200).await;
    assert_eq!(machines["machines"][0]["id"], id.as_str());
    assert_eq!(machines["machines"][0]["phase"], "booting");

    let fault = json!({ "provider": "lambda", "kind": "internal_error", "operation": "list" });
    let given = stage
        .control(Method::POST, "/faults")
        .bearer_auth(&token)
        .json(&fault)
        .send()
        .await
        .unwrap();
    assert_eq!(given.status(), 204);
    let broken = stage
        .request(Provider::LAMBDA, Method::GET, "/instances")
        .send()
        .await
        .unwrap();
    assert_eq!(broken.status(), 500);
    for wrong in [
        json!({ "provider": "acme" }),
        json!({ "provider": "lambda", "kind": "fewer_nodes" }),
    ] {
        let refused = stage
            .control(Method::POST, "/faults")
            .bearer_auth(&token)
            .json(&wrong)
            .send()
            .await
            .unwrap();
        assert!(body(refused, 422).await["error"].is_string());
    }
}

#[tokio::test]
async fn control_needs_its_own_credential() {
    let stage = Stage::new().await;
    for (method, path) in [
        (Method::GET, "/clock"),
        (Method::GET, "/machines"),
        (Method::POST, "/faults"),
    ] {
        assert_eq!(
            stage
                .control(method.clone(), path)
                .send()
                .await
                .unwrap()
                .status(),
            401
        );
        let of_a_provider = stage.simulator.credential(Provider::LAMBDA);
        assert_eq!(
            stage
                .control(method, path)
                .bearer_auth(of_a_provider)
                .send()
                .await
                .unwrap()
                .status(),
            401
        );
    }
}
