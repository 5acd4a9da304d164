//! The way to nodes in use, through the API and with the client that tenants use.

use std::env;
use std::io::Write as _;
use std::path::Path;
use std::process::Output;

use chrono::TimeDelta;
use market::identity::Role;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::eventually::in_time;
use crate::service::{Key, Service, ssh_key};

/// So many small machines at lambda: a fleet.
pub(crate) fn fleet(nodes: u32) -> Value {
    json!({
        "kind": "gpus", "gpu": "A10", "count": 1, "nodes": nodes,
        "policy": { "allow_providers": ["lambda"] },
    })
}

/// A training run on two nodes of bare metal, joined by `InfiniBand`.
pub(crate) fn gang() -> Value {
    json!({
        "kind": "train", "model": "Llama 3 8B", "tokens": 20_000_000_000_u64, "gpus": 16,
        "sequence_length": 8192, "tenancy": ["bare_metal"],
    })
}

/// Reserves, and advances the clock until the tenant has it; returns the path of the reservation.
pub(crate) async fn reserve(service: &Service, key: &Key, demand: &Value) -> String {
    let ask = json!({ "demand": demand, "auto_confirm": true });
    let placed = service.with(key).post("/v1/reservations", &ask).await;
    let placed = placed.expect(201);
    let path = format!("/v1/reservations/{}", placed["id"].as_str().expect("an id"));
    until_active(service, key, &path).await;
    path
}

/// Advances the clock until the tenant has it.
pub(crate) async fn until_active(service: &Service, key: &Key, path: &str) {
    for _ in 0..120 {
        let turned = service.world.live_on(TimeDelta::seconds(60)).await;
        turned.expect("the clock turns");
        let now = service.with(key).get(path).await.expect(200);
        if now["state"] == "active" {
            return;
        }
    }
    panic!("{path} did not become active within two hours of the clock");
}

pub(crate) async fn access(service: &Service, key: &Key, path: &str) -> Value {
    let access = service.with(key).get(&format!("{path}/access")).await;
    access.expect(200)
}

/// Looks at every node in use, as the prober does.
pub(crate) async fn probe(service: &Service) -> (usize, usize) {
    let round = broker::flow::reach::probe_all(service.world.broker()).await;
    let round = round.expect("the database answers");
    (round.reached, round.failed)
}

/// A key pair of the tenant in a folder; none, with a printed notice, where there is no OpenSSH client.
async fn key_pair() -> Option<TempDir> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
    let made = keygen.arg(folder.path().join("key")).status();
    let made = in_time("a key pair", made).await;
    if made.is_ok_and(|status| status.success()) {
        return Some(folder);
    }
    let required = env::var("REQUIRE_SERVICES").is_ok_and(|set| set == "1");
    assert!(
        !required,
        "REQUIRE_SERVICES=1, but there is no OpenSSH client"
    );
    // Not a print macro: those of a passing test are kept from the reader.
    let _ = writeln!(std::io::stderr(), "skipped: needs an OpenSSH client");
    None
}

/// Runs a command on a node by the files that the service wrote.
async fn ssh(folder: &Path, name: &str, command: &str) -> Output {
    let mut ssh = Command::new("ssh");
    ssh.arg("-F").arg(folder.join("config"));
    ssh.args(["-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-i"]);
    ssh.arg(folder.join("key")).args([name, command]);
    let ran = ssh.env_remove("SSH_AUTH_SOCK").kill_on_drop(true).output();
    let ran = in_time("the end of a login", ran).await;
    ran.expect("the client starts")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_logs_in_at_every_node_by_the_files_that_it_is_given() {
    let Some(folder) = key_pair().await else {
        return;
    };
    let folder = folder.path();
    let service = Service::start_with_nodes().await;
    let key = service.key("acme", Role::Member).await;
    let public_key = std::fs::read_to_string(folder.join("key.pub")).expect("a key");
    let ask = json!({ "name": "laptop", "public_key": public_key.trim() });
    let added = service.with(&key).post("/v1/ssh-keys", &ask).await;
    added.expect(201);
    for demand in [gang(), fleet(1)] {
        let path = reserve(&service, &key, &demand).await;
        let text = async |format: &str| {
            let form = format!("{path}/access?format={format}");
            let answer = service.with(&key).get(&form).await;
            assert_eq!(
                (answer.status, answer.header("content-type")),
                (200, Some("text/plain; charset=utf-8")),
                "{}",
                answer.text
            );
            answer.text
        };
        let config = text("ssh_config").await;
        let home = format!("{}/", folder.display());
        let config = config.replace("~/.ssh/", &home);
        std::fs::write(folder.join("config"), &config).expect("written");
        let id = path.rsplit('/').next().expect("an id");
        let short = format!("gpb-{}", &id[id.len() - 8..]);
        let known = text("known_hosts").await;
        std::fs::write(folder.join(format!("known_hosts.{short}")), &known).expect("written");

        let shown = access(&service, &key, &path).await;
        assert_eq!(shown["known_hosts"], known);
        let nodes = shown["nodes"].as_array().expect("nodes");
        assert_eq!(known.lines().count(), nodes.len());
        for node in nodes {
            let name = format!("{short}-{}", node["node"]);
            let said = ssh(folder, &name, "hostname").await;
            assert!(said.status.success(), "{said:?}");
            let host = node["host"].as_str().expect("a host").replace('.', "-");
            assert_eq!(
                String::from_utf8_lossy(&said.stdout),
                format!("node-{host}\n")
            );
            let gpus = ssh(folder, &name, "nvidia-smi -L").await;
            let gpus = String::from_utf8_lossy(&gpus.stdout).into_owned();
            let order = node["gpu_order"].as_array().expect("an order");
            assert_eq!(gpus.lines().count(), order.len());
            for (line, uuid) in gpus.lines().zip(order) {
                assert!(line.contains(uuid.as_str().expect("an id")), "{line}");
            }
        }
        let hostfile = text("hostfile").await;
        assert_eq!(shown["hostfile"], hostfile);
        assert_eq!(hostfile.lines().count(), nodes.len());
        assert_eq!(text("torchrun").await.lines().count(), nodes.len());
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn access_says_how_each_node_is_known_and_when_it_was_last_reached() {
    let service = Service::start_with_nodes().await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let path = reserve(&service, &key, &gang()).await;
    let before = access(&service, &key, &path).await;
    let nodes = before["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 2);
    for node in nodes {
        assert_eq!(node["host_key_source"], "verification");
        let host_key = &node["host_keys"][0];
        let fingerprint = host_key["fingerprint"].as_str().expect("one");
        assert!(fingerprint.starts_with("SHA256:"), "{fingerprint}");
        let place = format!(
            "[{}]:{} ssh-ed25519 ",
            node["host"].as_str().expect("a host"),
            node["port"]
        );
        let line = host_key["known_hosts"].as_str().expect("a line");
        assert!(line.starts_with(&place), "{line}");
        assert_eq!(node["gpu_order"].as_array().map(Vec::len), Some(8));
        assert_eq!(node["nic_order"][1], "mlx5_1");
        assert_eq!(node["last_reachable_at"], Value::Null);
    }
    assert_eq!(before["torchrun"]["nnodes"], 2);
    let endpoint = before["torchrun"]["rendezvous_endpoint"].as_str();
    let first = nodes[0]["private_address"].as_str().expect("an address");
    assert_eq!(endpoint, Some(format!("{first}:29500").as_str()));

    assert_eq!(probe(&service).await, (2, 0));
    let now = service.world.broker().now();
    let after = access(&service, &key, &path).await;
    for node in after["nodes"].as_array().expect("nodes") {
        assert_eq!(node["last_reachable_at"], json!(now));
        assert_eq!(node["unreachable_since"], Value::Null);
    }
    let odd = format!("{path}/access?format=yaml");
    let odd = service.with(&key).get(&odd).await;
    assert_eq!(odd.status, 422, "{}", odd.text);
    service.stop().await;
}
