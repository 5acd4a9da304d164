//! The wire format of voltagepark.

use reqwest::Method;
use serde_json::{Value, json};
use simulator::Provider;
use simulator::{Market, NodeRunner};

use crate::stage::{INFINIBAND, LOCATION, Stage, body, but, rental};

#[tokio::test]
async fn a_location_has_two_networks_with_prices_as_decimal_strings_per_gpu() {
    let stage = Stage::new().await;
    let anonymous = stage
        .anonymous(Provider::VOLTAGEPARK, Method::GET, "/bare-metal/locations")
        .send()
        .await
        .unwrap();
    let page = body(anonymous, 200).await;
    assert_eq!(
        page["results"][0],
        json!({
            "id": LOCATION,
            "gpu_price_ethernet": "1.99",
            "gpu_price_infiniband": "2.49",
            "gpu_count_ethernet": 48,
            "gpu_count_infiniband": 64,
            "reserved_gpu_count_infiniband_cluster_one": null,
            "reserved_gpu_count_infiniband_cluster_two": null,
            "specs_per_node": {
                "gpu_model": "h100-sxm5-80gb",
                "gpu_count": 8,
                "cpu_model": "Intel Xeon Platinum 8480+",
                "cpu_count": 104,
                "ram_gb": 1024,
                "storage_gb": 24000,
            },
        })
    );
    assert_eq!(
        page["results"][2]["gpu_count_infiniband"], 0,
        "sold out keeps its price"
    );
    assert_eq!(page["results"][2]["gpu_price_infiniband"], "2.49");
    let envelope = (
        &page["total_result_count"],
        &page["has_previous"],
        &page["has_next"],
    );
    assert_eq!(envelope, (&json!(3), &json!(false), &json!(false)));
}

/// A market of this many locations, each with one free node on Ethernet.
fn wide_market(locations: u32) -> Market {
    let bundled = Market::bundled();
    let row = bundled
        .rows()
        .iter()
        .find(|row| row.key() == "h100-sxm5-80gb-ethernet")
        .unwrap();
    let header = "provider,sku,network,place,place_label,gpu,gpu_label,gpus,gpu_memory_mib,cpu_model,vcpus,memory_gib,\
        storage_gib,price_usd_hour,per,free_nodes,internode,certainty,source\n";
    let line = |n: u32| {
        format!(
            "voltagepark,{},ethernet,place-{n:02},,H100-SXM,,8,81559,,104,1024,24000,1.99,gpu,1,ethernet,low,test\n",
            row.sku
        )
    };
    Market::parse(&(header.to_owned() + &(0..locations).map(line).collect::<String>())).unwrap()
}

#[tokio::test]
async fn lists_are_paged_by_limit_and_offset() {
    let stage = Stage::with(|config| {
        config.node_runner = NodeRunner::Off;
        config.market = wide_market(17);
    })
    .await;
    let mut seen: Vec<String> = Vec::new();
    let pages = [
        ("", 15, false, true),
        ("?offset=15", 2, true, false),
        ("?limit=4&offset=4", 4, true, true),
        ("?offset=99", 0, true, false),
    ];
    for (query, length, has_previous, has_next) in pages {
        let page = stage
            .voltagepark(&format!("/bare-metal/locations{query}"))
            .await;
        assert_eq!(page["total_result_count"], 17, "{query}");
        assert_eq!(
            (&page["has_previous"], &page["has_next"]),
            (&json!(has_previous), &json!(has_next)),
            "{query}"
        );
        let results = page["results"].as_array().unwrap();
        assert_eq!(results.len(), length, "{query}");
        if !query.contains("limit") {
            seen.extend(
                results
                    .iter()
                    .map(|location| location["id"].as_str().unwrap().to_owned()),
            );
        }
    }
    assert_eq!(
        seen,
        (0..17).map(|n| format!("place-{n:02}")).collect::<Vec<_>>()
    );
    assert_eq!(
        stage.voltagepark("/bare-metal/locations").await["results"][0]["gpu_price_infiniband"],
        Value::Null
    );
}

#[tokio::test]
async fn a_rental_is_pending_without_addresses_then_running_then_gone() {
    let stage = Stage::new().await;
    let order = but(rental("lse_2", 2), "tags", json!(["lse_2"]));
    let id = stage.rent(&order).await;
    assert_eq!(id.len(), 36);
    let path = format!("/bare-metal/{id}");
    let pending = stage.voltagepark(&path).await;
    assert_eq!(pending["status"], "Pending");
    assert_eq!(pending["node_networking"], json!([]));
    assert_eq!(
        (&pending["name"], &pending["tags"]),
        (&json!("lse_2"), &json!(["lse_2"]))
    );
    assert_eq!(
        (&pending["node_count"], &pending["network_type"]),
        (&json!(2), &json!("infiniband"))
    );
    assert_eq!(pending["rate_hourly"], "39.84", "16 GPUs at 2.49");
    assert_eq!(pending["creation_timestamp"], "2026-08-01T12:00:00+00:00");
    assert_eq!(
        stage.voltagepark("/bare-metal/locations").await["results"][0]["gpu_count_infiniband"],
        48
    );

    stage.clock.turn(900);
    let page = stage.voltagepark("/bare-metal/").await;
    assert_eq!(page["total_result_count"], 1);
    let running = &page["results"][0];
    assert_eq!(
        (&running["status"], &running["power_status"]),
        (&json!("Running"), &json!("Running"))
    );
    let nodes = running["node_networking"].as_array().unwrap();
    assert_eq!(nodes.len(), 2);
    assert_ne!(nodes[0]["public_ip"], nodes[1]["public_ip"]);
    assert!(
        nodes
            .iter()
            .all(|node| node["private_ip"].as_str().unwrap().starts_with("10."))
    );

    let ended = stage.end_rental(&id).await;
    assert_eq!(
        (ended.status().as_u16(), ended.text().await.unwrap()),
        (204, String::new())
    );
    assert_eq!(
        stage.voltagepark("/bare-metal/").await["results"],
        json!([])
    );
    let gone = stage
        .request(Provider::VOLTAGEPARK, Method::GET, &path)
        .send()
        .await
        .unwrap();
    assert!(body(gone, 404).await["detail"].is_string());
    assert!(body(stage.end_rental(&id).await, 404).await["detail"].is_string());
    assert_eq!(
        stage.voltagepark("/bare-metal/locations").await["results"][0]["gpu_count_infiniband"],
        64
    );
}

#[tokio::test]
async fn a_list_without_its_slash_redirects_to_the_one_with_it() {
    let stage = Stage::new().await;
    let answer = stage
        .request(Provider::VOLTAGEPARK, Method::GET, "/bare-metal?limit=3")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 307);
    assert_eq!(answer.headers()["location"], "/api/v1/bare-metal/?limit=3");
    let answer = stage
        .request(Provider::VOLTAGEPARK, Method::POST, "/bare-metal")
        .json(&rental("x", 1))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 307);
    assert_eq!(stage.simulator.launches(Provider::VOLTAGEPARK), []);
}

#[tokio::test]
async fn prices_are_open_to_strangers_and_nothing_else_is() {
    let stage = Stage::new().await;
    for (method, path) in [
        (Method::GET, "/bare-metal/"),
        (Method::POST, "/bare-metal/"),
        (Method::GET, "/bare-metal/x"),
        (Method::DELETE, "/bare-metal/x"),
    ] {
        let answer = stage
            .anonymous(Provider::VOLTAGEPARK, method, path)
            .json(&rental("x", 1))
            .send()
            .await
            .unwrap();
        assert!(body(answer, 401).await["detail"].is_string());
    }
    assert_eq!(stage.simulator.launches(Provider::VOLTAGEPARK), []);
    let unknown = stage
        .anonymous(Provider::VOLTAGEPARK, Method::GET, "/virtual-machines/")
        .send()
        .await
        .unwrap();
    assert!(body(unknown, 404).await["detail"].is_string());
    let put = stage
        .request(Provider::VOLTAGEPARK, Method::PUT, "/bare-metal/")
        .send()
        .await
        .unwrap();
    assert!(body(put, 405).await["detail"].is_string());
}

#[tokio::test]
async fn a_rental_that_breaks_the_rules_is_refused_and_makes_nothing() {
    let stage = Stage::new().await;
    let invalid = [
        but(rental("x", 1), "gpu_count", 12),
        but(rental("x", 1), "gpu_count", 0),
        but(rental("x", 1), "name", Value::Null),
        but(rental("x", 1), "network_type", "token ring"),
        but(
            rental("x", 1),
            "organization_ssh_keys",
            json!({ "mode": "some" }),
        ),
        but(rental("x", 1), "ssh_keys", json!([""])),
    ];
    for order in invalid {
        let answer = body(stage.voltagepark_rent(&order).send().await.unwrap(), 422).await;
        assert!(answer["detail"][0]["msg"].is_string(), "{answer}");
        assert_eq!(answer["detail"][0]["loc"][0], "body", "{answer}");
    }
    let unknown = but(
        rental("x", 1),
        "location_id",
        "00000000-0000-4000-8000-000000000000",
    );
    assert!(
        body(stage.voltagepark_rent(&unknown).send().await.unwrap(), 404).await["detail"]
            .is_string()
    );
    let too_many = stage
        .voltagepark_rent(&rental("x", 9))
        .send()
        .await
        .unwrap();
    assert!(body(too_many, 400).await["detail"].is_string());
    stage
        .simulator
        .set_capacity(Provider::VOLTAGEPARK, INFINIBAND, 9)
        .unwrap();
    stage.rent(&rental("x", 9)).await;
    assert_eq!(stage.simulator.launches(Provider::VOLTAGEPARK).len(), 1);
}

#[tokio::test]
async fn a_rental_that_names_no_network_gets_ethernet() {
    let stage = Stage::new().await;
    let mut order = rental("x", 1);
    order.as_object_mut().unwrap().remove("network_type");
    let id = stage.rent(&order).await;
    let read = stage.voltagepark(&format!("/bare-metal/{id}")).await;
    assert_eq!(
        (&read["network_type"], &read["rate_hourly"]),
        (&json!("ethernet"), &json!("15.92"))
    );
}
