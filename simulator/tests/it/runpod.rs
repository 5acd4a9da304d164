//! The wire format of runpod, where no adapter looks.

use reqwest::Method;
use serde_json::{Value, json};
use simulator::{NodeEnd, NodeRunner, Provider};

use crate::stage::{KEY, Stage, body, but};

const H100: &str = "NVIDIA H100 80GB HBM3";

/// A pod of one H100 in Kansas.
fn pod(name: &str) -> Value {
    json!({
        "name": name, "cloud": "SECURE", "gpu": { "id": H100, "count": 1 }, "image": "any:1", "disk": 50,
        "ports": ["22/tcp"], "env": { "PUBLIC_KEY": KEY }, "dataCenterIds": ["US-KS-2"],
    })
}

impl Stage {
    async fn at_runpod(&self, path: &str, status: u16) -> Value {
        let request = self.request(Provider::RUNPOD, Method::GET, path);
        body(request.send().await.unwrap(), status).await
    }

    async fn create(&self, order: &Value, status: u16) -> Value {
        let request = self.request(Provider::RUNPOD, Method::POST, "/v2/pods");
        body(request.json(order).send().await.unwrap(), status).await
    }
}

#[tokio::test]
async fn stock_is_that_of_one_cloud_and_count_and_sold_out_places_are_left_out() {
    let stage = Stage::new().await;
    let h100 = async |count: u32, cloud: &str| {
        let query = format!("include=AVAILABILITY&product=POD&count={count}&cloud={cloud}");
        let listed = stage
            .at_runpod(&format!("/v2/catalog/gpus?{query}"), 200)
            .await;
        let types = listed["gpus"].as_array().unwrap();
        types.iter().find(|it| it["id"] == H100).unwrap().clone()
    };
    let eight = h100(8, "SECURE").await;
    let kansas = json!([{ "id": "US-KS-2", "name": "US-KS-2", "availability": "LOW" }]);
    assert_eq!(
        (&eight["availability"], &eight["dataCenters"]),
        (&json!("LOW"), &kansas)
    );
    assert_eq!(eight["price"], json!({ "secure": 2.99, "community": 0.0 }));
    assert_eq!(eight["maxCount"], json!({ "secure": 8, "community": 0 }));
    let at_others = h100(1, "COMMUNITY").await;
    assert_eq!(
        (&at_others["availability"], at_others.get("dataCenters")),
        (&json!("NONE"), None)
    );
    let centers = stage.at_runpod("/v2/catalog/datacenters", 200).await;
    let centers = centers["dataCenters"].as_array().unwrap();
    let romania = centers.iter().find(|it| it["id"] == "EU-RO-1").unwrap();
    let mut sold = romania["gpuAvailability"].as_array().unwrap().iter();
    assert!(sold.any(|it| it["id"] == H100), "its eight are sold out");
    assert!(centers.iter().all(|it| it["id"] != "community"));
}

#[tokio::test]
async fn pods_are_listed_in_pages() {
    let stage = Stage::new().await;
    for name in ["a", "b", "c"] {
        stage.create(&pod(name), 201).await;
    }
    let first = stage.at_runpod("/v2/pods?limit=2", 200).await;
    let next = first["pagination"]["nextCursor"].as_str().unwrap();
    assert_eq!(first["pagination"]["hasNextPage"], true);
    let path = format!("/v2/pods?limit=2&cursor={next}");
    let second = stage.at_runpod(&path, 200).await;
    assert_eq!(second["pods"][0]["name"], "c");
    assert_eq!(
        second["pagination"],
        json!({ "hasNextPage": false, "nextCursor": null })
    );
}

#[tokio::test]
async fn what_cannot_be_deployed_is_a_400_and_what_is_no_order_a_422() {
    let stage = Stage::new().await;
    let h200 = json!({ "id": "NVIDIA H200", "count": 8 });
    for (odd, status) in [
        (but(pod("x"), "dataCenterIds", json!(["XX-1"])), 400),
        (
            but(pod("x"), "gpu", json!({ "id": "no such", "count": 1 })),
            400,
        ),
        (but(pod("x"), "gpu", h200), 400),
        (but(pod("x"), "env", json!("none")), 422),
        (but(pod("x"), "name", 7), 422),
    ] {
        assert_eq!(stage.create(&odd, status).await["status"], status, "{odd}");
    }
    assert!(stage.simulator.launches(Provider::RUNPOD).is_empty());
}

#[tokio::test]
async fn a_pod_runs_its_command_with_its_environment_up_to_the_images_own_start() {
    let stage = Stage::with(|config| config.node_runner = NodeRunner::Run).await;
    let command = "echo \"$GREETING from $(test -f \"$SIMULATED_NODE\" && echo a node)\"\n\
                   [ -x /start.sh ] && exec /start.sh\necho never";
    let mut order = but(pod("gpb-1"), "entrypoint", json!(["sh", "-c"]));
    order["cmd"] = json!([command]);
    order["env"] = json!({ "GREETING": "it's\nme" });
    let made = stage.create(&order, 201).await;
    stage.clock.turn(120);
    stage.simulator.settle().await;
    let id = made["id"].as_str().unwrap();
    let output = stage.simulator.node_output(id, 0).unwrap();
    assert_eq!(output.end, Some(NodeEnd::Exited(0)), "{output:?}");
    assert_eq!(output.stdout, "it's\nme from a node\n");
}
