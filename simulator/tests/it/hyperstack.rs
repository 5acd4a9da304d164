//! The wire format of hyperstack, where its adapter does not look.

use reqwest::Method;
use serde_json::{Value, json};
use simulator::Provider;

use crate::stage::{KEY, Stage, body, but};

/// The answer to a call with the credential in the provider's own header.
async fn call(stage: &Stage, method: Method, path: &str, sent: &Value, status: u16) -> Value {
    let provider = Provider::HYPERSTACK;
    let request = stage.anonymous(provider, method, path);
    let request = request.header("api_key", stage.simulator.credential(provider));
    body(request.json(sent).send().await.unwrap(), status).await
}

async fn get(stage: &Stage, path: &str) -> Value {
    call(stage, Method::GET, path, &json!(null), 200).await
}

async fn post(stage: &Stage, path: &str, sent: Value, status: u16) -> Value {
    call(stage, Method::POST, path, &sent, status).await
}

#[tokio::test]
async fn price_flavor_and_stock_go_by_the_same_word_for_a_gpu() {
    let stage = Stage::new().await;
    let book = get(&stage, "/pricebook").await;
    assert_eq!(book[0], json!({"name": "H100-80G-SXM5", "value": "3.20"}));
    let flavors = get(&stage, "/core/flavors").await;
    let flavor = &flavors["data"][0]["flavors"][0];
    assert_eq!(
        (&flavor["name"], &flavor["gpu"]),
        (&json!("n3-H100-SXM5x8"), &json!("H100-80G-SXM5"))
    );
    let stocks = get(&stage, "/core/stocks").await;
    let of_h100 = |it: &&Value| it["models"][0]["model"] == "H100-80G-PCIe";
    let stock = stocks["stocks"]
        .as_array()
        .unwrap()
        .iter()
        .find(of_h100)
        .unwrap();
    assert_eq!(stock["region"], "CANADA-1");
    // Two flavors of one stock, of which the larger is sold out.
    assert_eq!(
        stock["models"][0]["configurations"],
        json!({"1x": 4, "8x": 0})
    );
}

#[tokio::test]
async fn a_machine_needs_a_key_pair_of_its_environment() {
    let stage = Stage::new().await;
    let environment = |region: &str| json!({"name": format!("env-{region}"), "region": region});
    let (make, machines) = ("/core/environments", "/core/virtual-machines");
    for region in ["CANADA-1", "US-1"] {
        let made = post(&stage, make, environment(region), 200).await;
        assert_eq!(made["environment"]["region"], region);
    }
    let taken = post(&stage, make, environment("US-1"), 409).await;
    assert_eq!(
        taken,
        json!({"status": false, "message": "It already exists"})
    );
    post(&stage, make, environment("MOON-1"), 404).await;
    let pair = json!({"name": "ours", "environment_name": "env-CANADA-1", "public_key": KEY});
    let made = post(&stage, "/core/keypairs", pair, 200).await;
    assert_eq!(made["keypair"]["environment"]["region"], "CANADA-1");
    assert!(made["keypair"]["id"].is_u64());
    let nowhere = json!({"name": "other", "environment_name": "none", "public_key": KEY});
    post(&stage, "/core/keypairs", nowhere, 404).await;

    let order = json!({"name": "one", "environment_name": "env-CANADA-1", "flavor_name": "n3-L40x1",
        "image_name": "Ubuntu", "key_name": "ours", "count": 1, "labels": []});
    post(
        &stage,
        machines,
        but(order.clone(), "key_name", "none"),
        404,
    )
    .await;
    post(
        &stage,
        machines,
        but(order.clone(), "environment_name", "env-US-1"),
        400,
    )
    .await;
    let sold_out = post(
        &stage,
        machines,
        but(order.clone(), "flavor_name", "n3-H100x8"),
        400,
    )
    .await;
    assert_eq!(sold_out["message"], "Not enough stock");
    let made = post(&stage, machines, order, 200).await;
    assert_eq!(made["instances"][0]["status"], "BUILD");
    assert_eq!(get(&stage, machines).await["count"], 1);
}
