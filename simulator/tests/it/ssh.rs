//! The SSH servers of pretend nodes, tested with the client that tenants use.

use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use simulator::NodeRunner;
use simulator::Provider;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::eventually::in_time;
use crate::stage::{Stage, body, but, rental};

const SHOW: &str = "#!/bin/sh\ncat \"$SIMULATED_NODE\"\n";

/// A key pair in a folder of its own.
struct Pair(TempDir);

impl Pair {
    /// None, with a message, where there is no OpenSSH client.
    async fn make() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
        let made = keygen.arg(folder.path().join("key")).status();
        let made = in_time("a key pair", made).await;
        if made.is_ok_and(|status| status.success()) {
            return Some(Self(folder));
        }
        let required = env::var("REQUIRE_SERVICES").is_ok_and(|set| set == "1");
        assert!(
            !required,
            "REQUIRE_SERVICES=1, but there is no OpenSSH client"
        );
        // Not a print macro: the output of a passing test is not shown.
        let _ = writeln!(std::io::stderr(), "skipped: needs an OpenSSH client");
        None
    }

    fn private(&self) -> PathBuf {
        self.0.path().join("key")
    }

    fn public(&self) -> String {
        std::fs::read_to_string(self.0.path().join("key.pub")).unwrap()
    }

    /// The public half without its comment.
    fn material(&self) -> String {
        let public = self.public();
        public.split(' ').take(2).collect::<Vec<_>>().join(" ")
    }
}

/// A node as a tenant sees it.
struct Node {
    host: String,
    port: u16,
    known_hosts: TempDir,
}

impl Node {
    /// A machine that knows the address that it is reached at.
    fn of(stage: &Stage, id: &str, index: usize) -> Self {
        let hardware = hardware(stage, id, index);
        let address = (
            hardware["host"].as_str().unwrap(),
            stage.simulator.ssh_port(),
        );
        Self::at(address, &hardware)
    }

    /// The provider's address of a pod: a container does not know its own.
    async fn of_pod(stage: &Stage, id: &str) -> Self {
        let shown = stage.request(Provider::RUNPOD, Method::GET, &format!("/v2/pods/{id}"));
        let shown = body(shown.send().await.unwrap(), 200).await;
        let direct = &shown["ssh"]["direct"];
        let host = direct["host"].as_str().unwrap();
        let port = direct["port"].as_u64().unwrap().try_into().unwrap();
        Self::at((host, port), &hardware(stage, id, 0))
    }

    fn at((host, port): (&str, u16), hardware: &Value) -> Self {
        let key = hardware["ssh_host_keys"][0].as_str().unwrap();
        let known_hosts = tempfile::tempdir().unwrap();
        let line = format!("[{host}]:{port} {key}\n");
        std::fs::write(known_hosts.path().join("known"), line).unwrap();
        Self {
            host: host.to_owned(),
            port,
            known_hosts,
        }
    }

    async fn ssh(&self, key: &Path, user: &str, command: &str) -> Output {
        let mut ssh = self.command(key, user, command);
        in_time("the end of a login", ssh.kill_on_drop(true).output())
            .await
            .unwrap()
    }

    fn command(&self, key: &Path, user: &str, command: &str) -> Command {
        let known = self.known_hosts.path().join("known");
        let mut ssh = Command::new("ssh");
        ssh.args([
            "-F",
            "/dev/null",
            "-o",
            "BatchMode=yes",
            "-o",
            "StrictHostKeyChecking=yes",
        ]);
        ssh.args(["-o", "IdentitiesOnly=yes", "-o", "ConnectTimeout=10", "-i"])
            .arg(key);
        ssh.arg("-o")
            .arg(format!("UserKnownHostsFile={}", known.display()));
        ssh.args([
            "-p",
            &self.port.to_string(),
            &format!("{user}@{}", self.host),
            command,
        ]);
        ssh.env_remove("SSH_AUTH_SOCK").stdin(Stdio::null());
        ssh
    }

    async fn says(&self, key: &Path, user: &str, command: &str) -> String {
        let output = self.ssh(key, user, command).await;
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The node's own hardware description.
fn hardware(stage: &Stage, id: &str, index: usize) -> Value {
    let output = stage.simulator.node_output(id, index).unwrap();
    serde_json::from_str(&output.stdout).unwrap()
}

/// Two running nodes, for this key.
async fn two_nodes(key: &Pair) -> (Stage, String) {
    let stage = Stage::with(|config| config.node_runner = NodeRunner::Run).await;
    let order = but(rental("pair", 2), "ssh_keys", json!([key.public()]));
    let id = stage.rent(&but(order, "cloudinit_script", SHOW)).await;
    stage.clock.turn(900);
    stage.simulator.settle().await;
    (stage, id)
}

#[tokio::test]
async fn a_node_lets_in_the_keys_of_its_order_under_its_user_and_nobody_else() {
    let (Some(ours), Some(other)) = (Pair::make().await, Pair::make().await) else {
        return;
    };
    let (stage, id) = two_nodes(&ours).await;
    let (first, second) = (Node::of(&stage, &id, 0), Node::of(&stage, &id, 1));
    assert_ne!(first.host, second.host);
    let name = first.says(&ours.private(), "ubuntu", "hostname").await;
    assert_eq!(name, format!("node-{}\n", first.host.replace('.', "-")));
    let gpus = second
        .says(&ours.private(), "ubuntu", "nvidia-smi -L")
        .await;
    assert_eq!(gpus.lines().count(), 8, "{gpus}");
    assert!(gpus.starts_with("GPU 0: H100-SXM (UUID: GPU-"), "{gpus}");
    let unknown = first.ssh(&ours.private(), "ubuntu", "reboot").await;
    assert_eq!(unknown.status.code(), Some(127));
    for (key, user) in [(&other, "ubuntu"), (&ours, "root")] {
        let refused = first.ssh(&key.private(), user, "hostname").await;
        assert_eq!(refused.status.code(), Some(255));
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        // Only keys are offered: no password, no prompt.
        assert!(why.contains("Permission denied (publickey)"), "{why}");
    }
    stage.end_rental(&id).await;
    let gone = first.ssh(&ours.private(), "ubuntu", "hostname").await;
    assert_eq!(
        gone.status.code(),
        Some(255),
        "a machine that was ended is left"
    );
    stage.simulator.stop().await;
}

#[tokio::test]
async fn a_machine_drops_off_the_network_and_comes_back_and_may_change_its_host_key() {
    let Some(key) = Pair::make().await else {
        return;
    };
    let (stage, id) = two_nodes(&key).await;
    let node = Node::of(&stage, &id, 0);
    stage.simulator.drop_off_network(&id).unwrap();
    let lost = node.ssh(&key.private(), "ubuntu", "true").await;
    assert_eq!(lost.status.code(), Some(255));
    assert_eq!(
        stage.simulator.running_machines().len(),
        1,
        "it is billed on"
    );
    stage.simulator.return_to_network(&id).unwrap();
    assert_eq!(
        node.says(&key.private(), "ubuntu", "echo back").await,
        "back\n"
    );
    stage.simulator.change_host_keys(&id).unwrap();
    let stranger = node.ssh(&key.private(), "ubuntu", "true").await;
    let why = String::from_utf8_lossy(&stranger.stderr).into_owned();
    assert!(why.contains("HOST IDENTIFICATION HAS CHANGED"), "{why}");
    assert!(stage.simulator.drop_off_network("no-such").is_err());
    stage.simulator.stop().await;
}

/// A running pod with this name that accepts these keys.
async fn pod(name: &str, keys: &str) -> (Stage, String) {
    let stage = Stage::with(|config| config.node_runner = NodeRunner::Run).await;
    let pod = json!({
        "name": name, "cloud": "SECURE", "gpu": { "id": "NVIDIA H100 80GB HBM3", "count": 1 },
        "image": "any:1", "disk": 50, "ports": ["22/tcp"], "dataCenterIds": ["US-KS-2"],
        "env": { "PUBLIC_KEY": keys }, "entrypoint": ["sh", "-c"], "cmd": ["cat \"$SIMULATED_NODE\""],
    });
    let request = stage
        .request(Provider::RUNPOD, Method::POST, "/v2/pods")
        .json(&pod);
    let made = body(request.send().await.unwrap(), 201).await;
    stage.clock.turn(120);
    stage.simulator.settle().await;
    (stage, made["id"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_pod_is_reached_where_its_provider_says() {
    let Some(key) = Pair::make().await else {
        return;
    };
    let (stage, id) = pod("pod", &key.public()).await;
    let node = Node::of_pod(&stage, &id).await;
    let within = hardware(&stage, &id, 0);
    assert_ne!(within["host"], json!(node.host), "an address of its inside");
    node.says(&key.private(), "root", "hostname").await;
    stage.simulator.stop().await;
}

#[tokio::test]
async fn the_key_with_the_mark_of_its_order_has_a_shell_on_a_node_and_no_other_key_has() {
    let (Some(ours), Some(tenants)) = (Pair::make().await, Pair::make().await) else {
        return;
    };
    let marked = format!("{} gpub-7", ours.material());
    let keys = format!("{}\n{marked}", tenants.public().trim());
    let (stage, id) = pod("gpub-7", &keys).await;
    let node = Node::of_pod(&stage, &id).await;
    let said = node
        .says(
            &ours.private(),
            "root",
            "cd; pwd; wc -l < .ssh/authorized_keys; exit 0",
        )
        .await;
    let home = format!("{id}-0\n2\n");
    assert!(said.ends_with(&home), "{said}");
    let failed = node.ssh(&ours.private(), "root", "cat >&2; exit 3").await;
    assert_eq!(failed.status.code(), Some(3));
    let refused = node.ssh(&tenants.private(), "root", "cd; pwd").await;
    assert_eq!(refused.status.code(), Some(127), "{refused:?}");

    // A command whose caller has hung up continues, and ends with its machine.
    let began = Instant::now();
    let stay = "echo $$; exec >/dev/null 2>&1 </dev/null; timeout 600 sleep 600";
    let process = {
        let mut ssh = node.command(&ours.private(), "root", stay);
        let child = ssh.stdout(Stdio::piped()).kill_on_drop(true).spawn();
        let mut child = child.unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        in_time("its number", said.read_line(&mut line))
            .await
            .unwrap();
        child.kill().await.unwrap();
        PathBuf::from("/proc").join(line.trim())
    };
    assert!(process.exists(), "{}", process.display());
    let without_ours = "grep -v gpub-7 .ssh/authorized_keys > new; mv new .ssh/authorized_keys";
    node.says(&ours.private(), "root", without_ours).await;
    let refused = node.ssh(&ours.private(), "root", "true").await;
    assert_eq!(refused.status.code(), Some(255), "a key that was taken out");
    node.says(&tenants.private(), "root", "true").await;
    stage.simulator.stop().await;
    assert!(!process.exists(), "it ends with its machine");
    // It would have run for ten minutes.
    assert!(began.elapsed() < Duration::from_secs(500));
}
