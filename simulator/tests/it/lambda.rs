//! The wire format of lambda.

use reqwest::Method;
use serde_json::{Value, json};
use simulator::Provider;

use crate::stage::{KEY, Stage, a10, body, but};

fn error(code: &str, answer: &Value) {
    assert_eq!(answer["error"]["code"], code, "{answer}");
    assert!(answer["error"]["message"].is_string(), "{answer}");
    assert_eq!(answer.as_object().unwrap().len(), 1, "{answer}");
}

#[tokio::test]
async fn instance_types_are_an_object_by_name_with_cents_specs_and_regions() {
    let stage = Stage::new().await;
    let types = stage.lambda("/instance-types").await;
    assert_eq!(
        types["gpu_8x_h100_sxm5"],
        json!({
            "instance_type": {
                "name": "gpu_8x_h100_sxm5",
                "description": "8x H100 (80 GB SXM5)",
                "gpu_description": "H100 (80 GB SXM5)",
                "price_cents_per_hour": 2392,
                "specs": { "vcpus": 208, "memory_gib": 1800, "storage_gib": 22528, "gpus": 8 },
            },
            "regions_with_capacity_available": [
                { "name": "us-east-1", "description": "Virginia, USA" },
                { "name": "us-south-2", "description": "North Texas, USA" },
            ],
        })
    );
    assert_eq!(
        types["gpu_8x_v100"]["regions_with_capacity_available"],
        json!([]),
        "sold out keeps its price"
    );
    assert_eq!(
        types["gpu_8x_v100"]["instance_type"]["price_cents_per_hour"],
        632
    );
}

#[tokio::test]
async fn regions_are_listed_once_each_whatever_is_free_there() {
    let stage = Stage::new().await;
    let regions = stage.lambda("/regions").await;
    let names: Vec<&str> = regions
        .as_array()
        .unwrap()
        .iter()
        .map(|region| region["name"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"us-west-3") && names.is_sorted_by(|a, b| a < b),
        "{names:?}"
    );
    let virginia = json!({ "name": "us-east-1", "description": "Virginia, USA" });
    assert!(regions.as_array().unwrap().contains(&virginia));
}

#[tokio::test]
async fn a_machine_boots_runs_terminates_and_goes_by_the_clock() {
    let stage = Stage::new().await;
    stage.add_key().await;
    let tags = json!([{ "key": "lease", "value": "lse_1" }]);
    let id = stage.launch(&but(a10("lse_1"), "tags", tags.clone())).await;
    assert!(
        id.len() == 32 && id.chars().all(|c| c.is_ascii_hexdigit()),
        "{id}"
    );

    let booting = stage.lambda(&format!("/instances/{id}")).await;
    assert_eq!(booting["status"], "booting");
    for absent in [
        "ip",
        "private_ip",
        "hostname",
        "jupyter_token",
        "file_system_mounts",
    ] {
        assert!(booting.get(absent).is_none(), "{absent} of {booting}");
    }
    assert_eq!(booting["name"], "lse_1");
    assert_eq!(booting["tags"], tags);
    assert_eq!(booting["ssh_key_names"], json!(["ours"]));
    assert_eq!(booting["file_system_names"], json!([]));
    assert_eq!(booting["region"]["name"], "us-east-1");
    assert_eq!(booting["instance_type"]["price_cents_per_hour"], 129);
    assert_eq!(
        booting["actions"]["restart"],
        json!({ "available": false, "reason_code": "vm-has-not-launched" })
    );

    stage.clock.turn(299);
    assert_eq!(
        stage.lambda(&format!("/instances/{id}")).await["status"],
        "booting"
    );
    stage.clock.turn(1);
    let active = stage.lambda("/instances").await[0].clone();
    assert_eq!(active["status"], "active");
    assert!(
        active["ip"].as_str().unwrap().starts_with("127."),
        "{active}"
    );
    assert_eq!(active["actions"]["terminate"], json!({ "available": true }));

    let ended = body(stage.terminate(&id).await, 200).await;
    assert_eq!(
        ended["data"]["terminated_instances"][0]["status"],
        "terminating"
    );
    assert_eq!(stage.simulator.running_machines(), []);
    assert_eq!(stage.lambda("/instances").await[0]["status"], "terminating");
    assert_eq!(
        stage.terminate(&id).await.status(),
        200,
        "once more changes nothing"
    );

    stage.clock.turn(15);
    assert_eq!(stage.lambda("/instances").await, json!([]));
    assert_eq!(
        stage.lambda(&format!("/instances/{id}")).await["status"],
        "terminated"
    );
    error(
        "global/object-does-not-exist",
        &body(stage.terminate(&id).await, 404).await,
    );
}

#[tokio::test]
async fn a_launch_takes_capacity_and_its_end_gives_it_back() {
    let stage = Stage::new().await;
    stage.add_key().await;
    stage
        .simulator
        .set_place_capacity(Provider::LAMBDA, "gpu_1x_a10", "us-east-1", 1)
        .unwrap();
    let regions = async |stage: &Stage| {
        stage.lambda("/instance-types").await["gpu_1x_a10"]["regions_with_capacity_available"]
            .clone()
    };
    assert_eq!(regions(&stage).await.as_array().unwrap().len(), 2);

    let id = stage.launch(&a10("first")).await;
    assert_eq!(
        regions(&stage).await,
        json!([{ "name": "us-west-1", "description": "California, USA" }])
    );
    let refused = stage.lambda_launch(&a10("second")).send().await.unwrap();
    error(
        "instance-operations/launch/insufficient-capacity",
        &body(refused, 400).await,
    );

    stage.terminate(&id).await;
    stage.launch(&a10("third")).await;
    let names: Vec<String> = stage
        .simulator
        .launches(Provider::LAMBDA)
        .into_iter()
        .map(|launch| launch.name)
        .collect();
    assert_eq!(names, ["first", "third"]);
}

#[tokio::test]
async fn every_call_needs_the_credential() {
    let stage = Stage::new().await;
    let calls = [
        (Method::GET, "/instance-types"),
        (Method::GET, "/regions"),
        (Method::GET, "/instances"),
        (Method::GET, "/instances/x"),
        (Method::POST, "/instance-operations/launch"),
        (Method::POST, "/instance-operations/terminate"),
        (Method::GET, "/ssh-keys"),
        (Method::POST, "/ssh-keys"),
        (Method::DELETE, "/ssh-keys/x"),
    ];
    for (method, path) in calls {
        let anonymous = stage
            .anonymous(Provider::LAMBDA, method.clone(), path)
            .send()
            .await
            .unwrap();
        error("global/invalid-api-key", &body(anonymous, 401).await);
        let other = stage.simulator.credential(simulator::Provider::VOLTAGEPARK);
        let wrong = stage
            .anonymous(Provider::LAMBDA, method, path)
            .bearer_auth(other)
            .send()
            .await
            .unwrap();
        error("global/invalid-api-key", &body(wrong, 401).await);
    }
}

#[tokio::test]
async fn what_is_not_there_is_a_404_in_the_envelope() {
    let stage = Stage::new().await;
    for (method, path) in [
        (Method::GET, "/nowhere"),
        (Method::DELETE, "/instances"),
        (Method::GET, "/instances/"),
    ] {
        let answer = stage
            .request(Provider::LAMBDA, method, path)
            .send()
            .await
            .unwrap();
        error("global/not-found", &body(answer, 404).await);
    }
    let missing = stage
        .request(Provider::LAMBDA, Method::GET, "/instances/none")
        .send()
        .await
        .unwrap();
    error("global/object-does-not-exist", &body(missing, 404).await);
}

#[tokio::test]
async fn a_launch_that_breaks_the_rules_is_refused_and_makes_nothing() {
    let stage = Stage::new().await;
    stage.add_key().await;
    let invalid = [
        but(a10("x"), "ssh_key_names", json!([])),
        but(a10("x"), "ssh_key_names", json!(["ours", "ours"])),
        but(a10("x"), "quantity", 2),
        but(a10("x"), "name", "n".repeat(65)),
        but(a10("x"), "hostname", "-starts-badly"),
        but(a10("x"), "hostname", "Capital"),
        but(a10("x"), "user_data", "u".repeat(1_000_001)),
        but(a10("x"), "tags", json!([{ "key": "1digit", "value": "v" }])),
        but(
            a10("x"),
            "tags",
            json!([{ "key": "key", "value": "v".repeat(129) }]),
        ),
        but(a10("x"), "region_name", Value::Null),
    ];
    for order in invalid {
        error(
            "global/invalid-parameters",
            &body(stage.lambda_launch(&order).send().await.unwrap(), 400).await,
        );
    }
    for (field, value) in [
        ("region_name", "mars-1"),
        ("instance_type_name", "gpu_1x_none"),
        ("ssh_key_names", ""),
    ] {
        let order = if value.is_empty() {
            but(a10("x"), field, json!(["theirs"]))
        } else {
            but(a10("x"), field, value)
        };
        error(
            "global/object-does-not-exist",
            &body(stage.lambda_launch(&order).send().await.unwrap(), 404).await,
        );
    }
    assert_eq!(stage.simulator.launches(Provider::LAMBDA), []);
    let longest = but(
        but(a10("x"), "user_data", "u".repeat(1_000_000)),
        "hostname",
        "node-1",
    );
    let id = stage.launch(&longest).await;
    stage.clock.turn(300);
    assert_eq!(
        stage.lambda(&format!("/instances/{id}")).await["hostname"],
        "node-1"
    );
}

#[tokio::test]
async fn ssh_keys_are_added_listed_and_deleted() {
    let stage = Stage::new().await;
    let key = stage.add_key().await;
    assert_eq!(key["name"], "ours");
    assert_eq!(key["public_key"], KEY);
    assert_eq!(stage.lambda("/ssh-keys").await, json!([key]));
    let cases = [
        (
            "global/duplicate",
            json!({ "name": "ours", "public_key": KEY }),
        ),
        ("global/invalid-parameters", json!({ "name": "other" })),
        ("global/invalid-parameters", json!({ "public_key": KEY })),
    ];
    for (code, wrong) in cases {
        let answer = stage
            .request(Provider::LAMBDA, Method::POST, "/ssh-keys")
            .json(&wrong)
            .send()
            .await
            .unwrap();
        error(code, &body(answer, 400).await);
    }
    let path = format!("/ssh-keys/{}", key["id"].as_str().unwrap());
    let deleted = stage
        .request(Provider::LAMBDA, Method::DELETE, &path)
        .send()
        .await
        .unwrap();
    assert_eq!(body(deleted, 200).await, json!({ "data": {} }));
    assert_eq!(stage.lambda("/ssh-keys").await, json!([]));
    let again = stage
        .request(Provider::LAMBDA, Method::DELETE, &path)
        .send()
        .await
        .unwrap();
    error("global/not-found", &body(again, 404).await);
}

#[tokio::test]
async fn launches_come_twelve_seconds_apart_where_the_limit_is_on() {
    let stage = Stage::with(|config| {
        config.node_runner = simulator::NodeRunner::Off;
        let timing = config.timing_of(Provider::LAMBDA);
        timing.launch_spacing_seconds = Some(12);
    })
    .await;
    stage.add_key().await;
    stage.launch(&a10("first")).await;
    stage.clock.turn(11);
    let early = stage.lambda_launch(&a10("second")).send().await.unwrap();
    assert_eq!(early.status(), 429);
    assert_eq!(early.headers().get("retry-after"), None);
    assert!(body(early, 429).await["error"]["code"].is_string());
    stage.clock.turn(1);
    stage.launch(&a10("second")).await;
}

#[tokio::test]
async fn the_same_seed_gives_the_same_ids_and_addresses_but_other_credentials() {
    let mut seen = Vec::new();
    for _ in 0..2 {
        let stage = Stage::new().await;
        stage.add_key().await;
        let id = stage.launch(&a10("one")).await;
        stage.clock.turn(300);
        let ip = stage.lambda(&format!("/instances/{id}")).await["ip"].clone();
        seen.push((id, ip, stage.simulator.credential(Provider::LAMBDA)));
    }
    assert_eq!((&seen[0].0, &seen[0].1), (&seen[1].0, &seen[1].1));
    assert_ne!(seen[0].2, seen[1].2);
}
