//! Orders at Shadeform.

use std::io::Write as _;
use std::process::{Command, Stdio};

use adapters::Disposition;
use market::machine::MachineRequest;
use market::order::LeaseOrder;

use super::*;
use crate::recorded::{SSH_KEY, order};
use crate::server::{Server, Turn};

pub(super) const CLUSTER_SKU: &str = "denvr/H100_sxm5x8/cluster-2";
const OTHER_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBBB it's another";

pub(super) async fn an_order() -> LeaseOrder {
    order(
        &an_offer("hyperstack/H100_sxm5x8", Terms::OnDemand).await,
        1,
    )
}

/// An order of a cluster with the key of its holder, who pushes the agent.
pub(super) async fn an_order_of_a_cluster() -> LeaseOrder {
    let mut order = order(&an_offer(CLUSTER_SKU, Terms::OnDemand).await, 2);
    order.startup_script.clear();
    let own = format!(
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICCC {}",
        order.client_token
    );
    order.ssh_public_keys.push(own);
    order
}

/// Every request of this order: method and path, and the body.
async fn sent(order: &LeaseOrder) -> Vec<(String, Value)> {
    let answers = [
        json!({"ssh_keys": []}),
        json!({"id": "key-1"}),
        json!({"id": "id-1"}),
    ];
    let turns = answers.map(|body| Turn::Answer(200, "", body.to_string()));
    let server = Server::start(turns.into()).await;
    Shadeform
        .request_lease(&server.http(), order)
        .await
        .expect("a lease");
    let requests = server.requests();
    let parts = requests.iter().map(|request| {
        let (head, body) = request.split_once("\r\n\r\n").expect("a head");
        let line = head.split(" HTTP/").next().expect("a line").to_owned();
        (line, serde_json::from_str(body).unwrap_or_default())
    });
    parts.collect()
}

fn decoded(base64: &str) -> String {
    let mut child = Command::new("base64")
        .arg("-d")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("base64");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(base64.as_bytes())
        .expect("written");
    String::from_utf8(child.wait_with_output().expect("an end").stdout).expect("UTF-8")
}

#[tokio::test]
async fn an_order_of_a_machine_names_all_that_the_launch_needs() {
    let order = an_order().await;
    let requests = sent(&order).await;
    let lines: Vec<_> = requests.iter().map(|(line, _)| line.as_str()).collect();
    assert_eq!(
        lines,
        [
            "GET /api/v1/sshkeys",
            "POST /api/v1/sshkeys/add",
            "POST /api/v1/instances/create"
        ]
    );
    assert_eq!(requests[1].1["public_key"], json!(SSH_KEY));
    assert!(
        requests[1].1["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("gpb-key-"))
    );
    let script =
        requests[2].1["launch_configuration"]["script_configuration"]["base64_script"].clone();
    let token = order.client_token.as_str();
    assert_eq!(
        requests[2].1,
        json!({
            "cloud": "hyperstack", "region": "montreal-canada-2", "shade_instance_type": "H100_sxm5x8", "shade_cloud": true,
            "name": token, "tags": [token], "ssh_key_id": "key-1",
            "launch_configuration": {"type": "script", "script_configuration": {"base64_script": script}},
        })
    );
    assert_eq!(
        decoded(script.as_str().expect("a text")),
        order.startup_script
    );
    let spot = self::order(&an_offer("hyperstack/H100_sxm5x8", Terms::Spot).await, 1);
    assert_eq!(sent(&spot).await[2].1["rental_type"], json!("spot"));
}

#[tokio::test]
async fn an_order_of_a_cluster_names_its_size_and_the_key_of_whoever_pushes() {
    let order = an_order_of_a_cluster().await;
    let requests = sent(&order).await;
    let token = order.client_token.as_str();
    assert_eq!(
        requests[1].1,
        json!({"name": token, "public_key": order.ssh_public_keys[1]})
    );
    assert_eq!(
        requests[2],
        (
            "POST /api/v1/clusters/create".to_owned(),
            json!({
                "cloud": "denvr", "region": "houston-usa-1", "cluster_type": "H100_sxm5x8", "num_instances": 2, "name": token,
                "ssh_key_id": "key-1",
            })
        )
    );
}

#[tokio::test]
async fn a_known_key_is_not_registered_again_and_a_taken_name_is_looked_up() {
    let order = an_order().await;
    let keys = json!({"ssh_keys": [{"id": "k-7", "name": "theirs", "public_key": SSH_KEY.replace("somebody", "else")}]});
    let known = |first: Value| {
        made_up(&[
            ("GET", "/sshkeys", 200, first),
            ("GET", "/sshkeys", 200, keys.clone()),
            (
                "POST",
                "/sshkeys/add",
                400,
                json!({"error": "name must be unique"}),
            ),
            ("POST", "/instances/create", 200, json!({"id": "i-1"})),
        ])
    };
    for first in [keys.clone(), json!({"ssh_keys": []})] {
        Shadeform
            .request_lease(&known(first), &order)
            .await
            .expect("a machine");
    }
    let refused = made_up(&[
        ("GET", "/sshkeys", 200, json!({"ssh_keys": []})),
        (
            "POST",
            "/sshkeys/add",
            400,
            json!({"error": "key is malformed"}),
        ),
    ]);
    let error = Shadeform
        .request_lease(&refused, &order)
        .await
        .expect_err("no key");
    assert!(error.is_refusal(), "{error}");
}

#[tokio::test]
async fn the_script_lets_the_other_keys_in_where_the_registered_one_stands() {
    let mut order = an_order().await;
    order.ssh_public_keys.push(OTHER_KEY.to_owned());
    let body = &sent(&order).await[2].1;
    let script = body["launch_configuration"]["script_configuration"]["base64_script"].as_str();
    let script = decoded(script.expect("a script"));
    let home = tempfile::tempdir().expect("a directory");
    let file = |user: &str| home.path().join(user).join(".ssh/authorized_keys");
    for (user, line) in [("shadeform", SSH_KEY), ("service", "ssh-rsa CCCC service")] {
        std::fs::create_dir_all(file(user).parent().expect("a parent")).expect("a directory");
        std::fs::write(file(user), format!("{line}\n")).expect("a file");
    }
    let here = script.replace("/home/*", &format!("{}/*", home.path().display()));
    let output = Command::new("/bin/sh")
        .args(["-c", &here])
        .output()
        .expect("a shell");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "once-only-4711\n");
    let lines = |user| std::fs::read_to_string(file(user)).expect("a file");
    assert_eq!(lines("shadeform"), format!("{SSH_KEY}\n\n{OTHER_KEY}\n"));
    assert_eq!(lines("service"), "ssh-rsa CCCC service\n");
}

#[tokio::test]
async fn an_image_is_one_that_the_machine_is_offered_with() {
    let with_image = async |sku: &str, image: &str| {
        let mut order = order(&an_offer(sku, Terms::OnDemand).await, 1);
        order.machine.image = Some(image.parse().expect("an image"));
        if sku == CLUSTER_SKU {
            (order.nodes, order.startup_script) = (2, String::new());
        }
        order
    };
    for (sku, image, os) in [
        (
            "hyperstack/H100_sxm5x8",
            "ubuntu-22.04-cuda-12",
            "ubuntu22.04_cuda12.2_shade_os",
        ),
        ("hyperstack/H100_sxm5x8", "ubuntu-22.04", "ubuntu22.04"),
        (
            "hyperstack/H100_sxm5x8",
            "provider:ubuntu22.04",
            "ubuntu22.04",
        ),
        (
            CLUSTER_SKU,
            "ubuntu-22.04-cuda-12",
            "ubuntu22.04_cuda12.4_shade_os",
        ),
    ] {
        let order = with_image(sku, image).await;
        assert_eq!(sent(&order).await[2].1["os"], json!(os), "{image}");
    }
    let nobody = made_up(&[("GET", "/nothing", 200, json!(null))]);
    let container = format!("nvidia/cuda@sha256:{}", "0f".repeat(32));
    for (sku, image) in [
        ("hotaisle/MI300Xx8", "ubuntu-22.04-cuda-12"),
        ("hyperstack/H100_sxm5x8", "ubuntu-24.04"),
        ("hyperstack/H100_sxm5x8", "provider:windows"),
        (CLUSTER_SKU, "provider:ubuntu22.04_cuda12.2_shade_os"),
        ("hyperstack/H100_sxm5x8", &container),
    ] {
        let error = Shadeform
            .request_lease(&nobody, &with_image(sku, image).await)
            .await;
        assert!(
            matches!(error, Err(AdapterError::CannotOrder(_))),
            "{image}: {error:?}"
        );
    }
}

#[tokio::test]
async fn what_the_order_answers_decides_what_may_be_done_next() {
    let order = an_order().await;
    let answered = async |status: u16, body: Value| {
        let keys = json!({"ssh_keys": [{"id": "k", "name": "n", "public_key": SSH_KEY}]});
        let http = made_up(&[
            ("GET", "/sshkeys", 200, keys),
            ("POST", "/instances/create", status, body),
        ]);
        Shadeform
            .request_lease(&http, &order)
            .await
            .expect_err("no machine")
    };
    for (status, words, next) in [
        (
            400,
            "The instance type is not available in this region",
            Disposition::TryNextCandidate,
        ),
        (400, "out of stock", Disposition::TryNextCandidate),
        (403, "Quota exceeded", Disposition::TryNextCandidate),
        (402, "Insufficient wallet balance", Disposition::GiveUp),
        (401, "Unauthorized", Disposition::GiveUp),
        (400, "unknown cloud", Disposition::Fault),
    ] {
        let error = answered(status, json!({ "error": words })).await;
        assert!(error.is_refusal() && !error.is_outcome_unknown(), "{error}");
        assert_eq!(error.disposition(), next, "{error}");
    }
    for (status, body) in [
        (500, json!({})),
        (
            409,
            json!({"message": "Instance type is not available in this region"}),
        ),
        (200, json!({"name": "x"})),
        (200, json!({"id": ""})),
        (200, json!("{\"id\": \"3b1")),
        (307, json!("")),
    ] {
        assert!(
            answered(status, body.clone()).await.is_outcome_unknown(),
            "{status} {body}"
        );
    }
}

#[tokio::test]
async fn an_echo_of_the_order_does_not_show_its_script() {
    let order = an_order().await;
    let keys = json!({"ssh_keys": [{"id": "k", "name": "n", "public_key": SSH_KEY}]}).to_string();
    let script = sent(&order).await[2].1["launch_configuration"].clone();
    let base64 = script["script_configuration"]["base64_script"]
        .as_str()
        .expect("a text")
        .to_owned();
    for body in [
        json!({"error": "no", "request": script}).to_string(),
        format!("cannot take {base64}"),
    ] {
        let turns = vec![
            Turn::Answer(200, "", keys.clone()),
            Turn::Answer(400, "", body),
        ];
        let server = Server::start(turns).await;
        let error = Shadeform
            .request_lease(&server.http(), &order)
            .await
            .expect_err("a refusal");
        assert!(
            !format!("{error} {error:?}").contains(&base64[..24]),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn an_order_that_cannot_be_right_is_never_sent() {
    let nobody = made_up(&[("GET", "/nothing", 200, json!(null))]);
    let (machine, cluster) = (an_order().await, an_order_of_a_cluster().await);
    let changed = |order: &LeaseOrder, change: fn(&mut LeaseOrder)| {
        let mut order = order.clone();
        change(&mut order);
        order
    };
    for order in [
        changed(&machine, |order| order.nodes = 0),
        changed(&machine, |order| order.nodes = 2),
        changed(&machine, |order| order.offer.place.region = None),
        changed(&machine, |order| order.ssh_public_keys.clear()),
        changed(&machine, |order| {
            order.ssh_public_keys.push("two\nlines".to_owned())
        }),
        changed(&machine, |order| {
            order.machine = MachineRequest {
                disk_gib: Some(1),
                ..MachineRequest::default()
            }
        }),
        changed(&machine, |order| order.machine.ports = vec![80]),
        changed(&cluster, |order| order.nodes = 1),
        changed(&cluster, |order| order.nodes = 3),
        changed(&cluster, |order| {
            order.startup_script = "#!/bin/sh\n".to_owned()
        }),
    ] {
        let error = Shadeform
            .request_lease(&nobody, &order)
            .await
            .expect_err("an impossible order");
        assert!(matches!(error, AdapterError::CannotOrder(_)), "{error}");
    }
}
