//! The wire format of vultr, beyond what its adapter sees.

use reqwest::Method;
use serde_json::{Value, json};
use simulator::Provider;

use crate::stage::{Stage, body, but};

const PROVIDER: Provider = Provider::VULTR;

async fn call(stage: &Stage, method: Method, path: &str, status: u16) -> Value {
    let request = stage.request(PROVIDER, method, path);
    body(request.send().await.unwrap(), status).await
}

async fn get(stage: &Stage, path: &str) -> Value {
    call(stage, Method::GET, path, 200).await
}

async fn launch(stage: &Stage, path: &str, order: &Value, status: u16) -> Value {
    let request = stage.request(PROVIDER, Method::POST, path);
    body(request.json(order).send().await.unwrap(), status).await
}

async fn delete(stage: &Stage, path: &str) -> u16 {
    let request = stage.request(PROVIDER, Method::DELETE, path);
    request.send().await.unwrap().status().as_u16()
}

/// The user data is `#!/bin/sh` in base64.
fn order(plan: &str, region: &str) -> Value {
    json!({ "region": region, "plan": plan, "label": "gpb-test", "tags": ["gpb-test"], "os_id": 1743,
        "user_data": "IyEvYmluL3NoCg==" })
}

const METAL: &str = "vbm-112c-2048gb-8-h100-gpu";

#[tokio::test]
async fn plans_are_two_lists_and_name_the_regions_where_they_are_free() {
    let stage = Stage::new().await;
    let plans = get(&stage, "/plans?type=all&per_page=500").await;
    let metal = get(&stage, "/plans-metal").await;
    let ids = |plans: &Value| -> Vec<String> {
        let plans = plans.as_array().unwrap().iter();
        plans
            .map(|plan| plan["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert!(ids(&plans["plans"]).iter().all(|id| id.starts_with("vcg-")));
    assert!(
        ids(&metal["plans_metal"])
            .iter()
            .all(|id| id.starts_with("vbm-"))
    );
    let h100 = &plans["plans"][0];
    assert_eq!(h100["locations"], json!(["ewr"]), "lhr is sold out");
    assert_eq!(
        (&h100["gpu_count"], &h100["gpu_vram_gb"]),
        (&json!("8"), &json!(640))
    );
    assert_eq!(plans["plans"][2]["locations"], json!([]));
    let bare = &metal["plans_metal"][0];
    assert_eq!(
        (&bare["cpu_count"], &bare["cpu_threads"]),
        (&json!(112), &json!(224))
    );
    assert!(bare.get("gpu_type").is_none(), "{bare}");
    let regions = get(&stage, "/regions?per_page=1").await;
    assert_eq!(regions["regions"][0]["country"], "NL");
    let next = regions["meta"]["links"]["next"].as_str().unwrap();
    let second = get(&stage, &format!("/regions?per_page=1&cursor={next}")).await;
    assert_eq!(second["regions"][0]["city"], "New Jersey");
}

#[tokio::test]
async fn a_machine_is_found_on_the_paths_of_its_kind_alone() {
    let stage = Stage::new().await;
    let vm = order("vcg-l40s-16c-180g-48vram", "ams");
    let vm = launch(&stage, "/instances", &vm, 202).await;
    let metal = launch(&stage, "/bare-metals", &order(METAL, "sea"), 202).await;
    assert_eq!(vm["instance"]["main_ip"], "0.0.0.0");
    assert_eq!(vm["instance"]["server_status"], "none");
    assert!(metal["bare_metal"].get("server_status").is_none());
    stage.clock.turn(120);
    for (here, there, list, one) in [
        ("/instances", "/bare-metals", "instances", &vm["instance"]),
        (
            "/bare-metals",
            "/instances",
            "bare_metals",
            &metal["bare_metal"],
        ),
    ] {
        let listed = get(&stage, here).await;
        assert_eq!(listed["meta"]["total"], 1);
        assert_eq!(listed[list][0]["status"], "active");
        assert_eq!(listed[list][0]["tags"], json!(["gpb-test"]));
        let id = one["id"].as_str().unwrap();
        let elsewhere = format!("{there}/{id}");
        call(&stage, Method::GET, &elsewhere, 404).await;
        assert_eq!(delete(&stage, &elsewhere).await, 404);
        for status in [204, 404] {
            assert_eq!(delete(&stage, &format!("{here}/{id}")).await, status);
        }
    }
}

#[tokio::test]
async fn a_launch_that_breaks_a_rule_makes_nothing() {
    let stage = Stage::new().await;
    let good = order("vcg-l40s-16c-180g-48vram", "ams");
    for (field, value) in [
        ("plan", json!("vcg-none")),
        ("plan", json!(METAL)),
        ("region", json!("lhr")),
        ("region", json!("mars")),
        ("os_id", json!(null)),
        ("image_id", json!("5f1a2b3c")),
        ("user_data", json!("#!/bin/sh\n")),
    ] {
        let refused = launch(&stage, "/instances", &but(good.clone(), field, value), 400).await;
        assert_eq!(refused["status"], 400, "{field}");
    }
    launch(&stage, "/bare-metals", &good, 400).await;
    assert!(stage.simulator.launches(PROVIDER).is_empty());
}
