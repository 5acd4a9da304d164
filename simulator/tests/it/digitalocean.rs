//! The wire format of digitalocean, beyond what its adapter sees.

use reqwest::Method;
use serde_json::{Value, json};
use simulator::Provider;

use crate::stage::{Stage, body, but};

const PROVIDER: Provider = Provider::DIGITALOCEAN;

async fn get(stage: &Stage, path: &str) -> Value {
    let request = stage.request(PROVIDER, Method::GET, path);
    body(request.send().await.unwrap(), 200).await
}

async fn delete(stage: &Stage, path: &str) -> u16 {
    let request = stage.request(PROVIDER, Method::DELETE, path);
    request.send().await.unwrap().status().as_u16()
}

async fn launch(stage: &Stage, order: &Value, status: u16) -> Value {
    let request = stage.request(PROVIDER, Method::POST, "/droplets");
    body(request.json(order).send().await.unwrap(), status).await
}

fn order() -> Value {
    json!({ "name": "gpb-test", "region": "nyc2", "size": "gpu-h100x8-640gb", "image": "gpu-h100x8-base",
        "tags": ["gpb-test"], "user_data": "#!/bin/sh\n" })
}

#[tokio::test]
async fn sizes_name_the_regions_where_they_are_free_and_the_memory_of_all_gpus() {
    let stage = Stage::new().await;
    let sizes = get(&stage, "/sizes?per_page=200").await;
    let of = |slug: &str| {
        let mut sizes = sizes["sizes"].as_array().unwrap().iter();
        sizes.find(|size| size["slug"] == slug).unwrap()
    };
    let h100 = of("gpu-h100x8-640gb");
    assert_eq!(h100["regions"], json!(["nyc2"]), "tor1 is sold out");
    assert_eq!(h100["price_hourly"], json!(35.28));
    assert_eq!(h100["memory"], 1_966_080);
    let vram = json!({ "amount": 640, "unit": "gib" });
    let info = json!({ "count": 8, "model": "nvidia_h100", "vram": vram });
    assert_eq!(h100["gpu_info"], info);
    assert_eq!(of("gpu-4000adax1-20gb")["regions"], json!([]));
    let page = get(&stage, "/sizes?per_page=2&page=2").await;
    assert_eq!(page["links"]["pages"]["next"], "/v2/sizes?page=3");
}

#[tokio::test]
async fn a_machine_is_listed_among_those_with_gpus_alone_and_its_tag_outlives_it() {
    let stage = Stage::new().await;
    let made = launch(&stage, &order(), 202).await;
    let id = made["droplet"]["id"].as_u64().unwrap();
    assert_eq!(made["droplet"]["status"], "new");
    assert_eq!(made["droplet"]["networks"]["v4"], json!([]));
    stage.clock.turn(90);
    assert_eq!(get(&stage, "/droplets").await["droplets"], json!([]));
    let gpus = get(&stage, "/droplets?type=gpus").await;
    assert_eq!(gpus["droplets"][0]["status"], "active");
    assert_eq!(gpus["droplets"][0]["tags"], json!(["gpb-test"]));
    let path = format!("/droplets/{id}");
    for status in [204, 404] {
        assert_eq!(delete(&stage, &path).await, status);
    }
    for (left, status) in [(1, 204), (0, 404)] {
        assert_eq!(get(&stage, "/tags").await["meta"]["total"], left);
        assert_eq!(delete(&stage, "/tags/gpb-test").await, status);
    }
}

#[tokio::test]
async fn a_launch_that_breaks_a_rule_makes_nothing_and_leaves_no_tag() {
    let stage = Stage::new().await;
    for (field, value) in [
        ("size", json!("gpu-none")),
        ("region", json!("tor1")),
        ("region", json!("mars1")),
        ("image", json!(null)),
        ("name", json!("not a host")),
        ("user_data", json!("#".repeat(65_537))),
    ] {
        let refused = launch(&stage, &but(order(), field, value), 422).await;
        assert_eq!(refused["id"], "unprocessable_entity", "{field}");
    }
    assert!(stage.simulator.things(PROVIDER).is_empty());
    assert!(stage.simulator.launches(PROVIDER).is_empty());
}
