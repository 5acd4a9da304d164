//! Pretend nodes: the environment of their scripts, how they end, and which scripts never run.

use std::fs;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use simulator::Provider;
use simulator::{Fault, FaultKind, NodeEnd, NodeRunner};

use crate::eventually::eventually;
use crate::stage::{Stage, a10, body, but, rental};

const SHOW: &str = "#!/bin/sh\ncat \"$SIMULATED_NODE\"\n";

/// All fields of a description of the form `simulated-node-1`: its reader refuses more.
const FIELDS: [&str; 16] = [
    "bad_words",
    "driver",
    "gpu",
    "gpus",
    "host",
    "internode",
    "memory_gib",
    "memory_mib",
    "memory_speed",
    "nics",
    "node_index",
    "schema",
    "slow_link_to",
    "ssh_host_keys",
    "uuids",
    "vcpus",
];

async fn running() -> Stage {
    let stage = Stage::with(|config| config.node_runner = NodeRunner::Run).await;
    stage.add_key().await;
    stage
}

fn hardware(stage: &Stage, id: &str, node: usize) -> Value {
    let output = stage.simulator.node_output(id, node).unwrap();
    assert_eq!(output.end, Some(NodeEnd::Exited(0)), "{output:?}");
    serde_json::from_str(&output.stdout).unwrap()
}

#[tokio::test]
async fn a_script_runs_once_when_its_machine_is_up_and_not_before() {
    let stage = running().await;
    let directory = tempfile::tempdir().unwrap();
    let seen = directory.path().join("seen");
    let script = format!(
        "#!/bin/sh\necho ran >> {}\necho hello\necho trouble >&2\nexit 3\n",
        seen.display()
    );
    let id = stage.launch(&but(a10("one"), "user_data", script)).await;
    stage.clock.turn(299);
    stage.simulator.settle().await;
    assert!(!seen.exists());
    assert_eq!(stage.simulator.node_output(&id, 0), None);
    stage.clock.turn(1);
    stage.simulator.settle().await;
    stage.simulator.settle().await;
    assert_eq!(fs::read_to_string(&seen).unwrap(), "ran\n");
    let output = stage.simulator.node_output(&id, 0).unwrap();
    assert_eq!(
        (output.stdout.as_str(), output.stderr.as_str()),
        ("hello\n", "trouble\n")
    );
    assert_eq!(output.end, Some(NodeEnd::Exited(3)));
}

#[tokio::test]
async fn a_script_sees_a_clean_environment_and_a_directory_of_its_own() {
    let stage = running().await;
    let script = "#!/bin/sh\nenv | sed 's/=.*//' | sort\npwd\necho \"$HOME\"\nls\n";
    let id = stage.launch(&but(a10("one"), "user_data", script)).await;
    stage.clock.turn(300);
    stage.simulator.settle().await;
    let output = stage.simulator.node_output(&id, 0).unwrap().stdout;
    let lines: Vec<&str> = output.lines().collect();
    let (variables, rest) =
        lines.split_at(lines.iter().position(|line| line.starts_with('/')).unwrap());
    // PWD, OLDPWD, SHLVL and _ are the shell's own.
    let given: Vec<&&str> = variables
        .iter()
        .filter(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name))
        .collect();
    assert_eq!(given, [&"HOME", &"PATH", &"SIMULATED_NODE"]);
    assert_eq!(rest[0], rest[1], "works in its home");
    assert_eq!(rest[2..], ["simulated-node.json", "start-up-script"]);
    assert!(fs::exists(rest[0]).unwrap());
    stage.simulator.stop().await;
    assert!(
        !fs::exists(rest[0]).unwrap(),
        "directories go when the simulator stops"
    );
}

#[tokio::test]
async fn each_node_of_a_rental_runs_the_script_on_its_own_hardware() {
    let stage = running().await;
    let id = stage
        .rent(&but(rental("gang", 5), "cloudinit_script", SHOW))
        .await;
    stage.clock.turn(900);
    stage.simulator.settle().await;
    let read = stage.voltagepark(&format!("/bare-metal/{id}")).await;
    let mut uuids = Vec::new();
    for index in 0..5 {
        let node = hardware(&stage, &id, index);
        let fields: Vec<&String> = node.as_object().unwrap().keys().collect();
        assert_eq!(fields, FIELDS);
        assert_eq!(node["schema"], "simulated-node-1");
        assert_eq!(node["node_index"], index);
        assert_eq!(node["host"], read["node_networking"][index]["public_ip"]);
        assert_eq!(
            (&node["gpu"], &node["gpus"], &node["memory_mib"]),
            (&json!("H100-SXM"), &json!(8), &json!(81_559))
        );
        assert_eq!(
            (&node["memory_speed"], &node["internode"]),
            (&json!(1.0), &json!("infiniband_ndr400"))
        );
        assert_eq!(
            (&node["vcpus"], &node["memory_gib"], &node["bad_words"]),
            (&json!(104), &json!(1024), &json!(0))
        );
        uuids.extend(
            node["uuids"]
                .as_array()
                .unwrap()
                .iter()
                .map(|uuid| uuid.as_str().unwrap().to_owned()),
        );
    }
    uuids.sort();
    uuids.dedup();
    assert_eq!(uuids.len(), 40);
    assert!(uuids.iter().all(|uuid| uuid.starts_with("GPU-")));
}

#[tokio::test]
async fn a_start_up_given_as_commands_is_run_as_a_script() {
    let stage = running().await;
    let commands = json!({ "runcmd": ["greeting=hello", "echo $greeting"] });
    let id = stage
        .rent(&but(rental("x", 1), "cloudinit_script", commands))
        .await;
    stage.clock.turn(900);
    stage.simulator.settle().await;
    assert_eq!(
        stage.simulator.node_output(&id, 0).unwrap().stdout,
        "hello\n"
    );
}

#[tokio::test]
async fn the_script_among_the_parts_of_user_data_is_run() {
    let stage = running().await;
    let parts = "Content-Type: multipart/mixed; boundary=\"==edge\"\nMIME-Version: 1.0\n\n\
        --==edge\nContent-Type: text/cloud-config\n\n#cloud-config\nssh_authorized_keys: []\n\n\
        --==edge\nContent-Type: text/x-shellscript\n\n#!/bin/sh\necho hello\n\n--==edge--\n";
    let id = stage.launch(&but(a10("one"), "user_data", parts)).await;
    stage.clock.turn(300);
    stage.simulator.settle().await;
    assert_eq!(
        stage.simulator.node_output(&id, 0).unwrap().stdout,
        "hello\n"
    );
}

#[tokio::test]
async fn a_flaw_shows_on_the_last_node_and_not_in_the_api() {
    let stage = running().await;
    let cases = [
        (FaultKind::SlowMemory, "memory_speed", json!(0.4)),
        (FaultKind::MissingGpu, "gpus", json!(7)),
        (FaultKind::SlowLink, "slow_link_to", json!(1)),
        (FaultKind::WrongModel, "gpu", json!("H100-PCIe")),
    ];
    for (kind, field, value) in cases {
        stage
            .simulator
            .break_next(Fault::new(Provider::VOLTAGEPARK, kind))
            .unwrap();
        let id = stage
            .rent(&but(rental("x", 2), "cloudinit_script", SHOW))
            .await;
        stage.clock.turn(900);
        stage.simulator.settle().await;
        assert_ne!(hardware(&stage, &id, 0)[field], value);
        assert_eq!(hardware(&stage, &id, 1)[field], value);
        let specs = stage.voltagepark(&format!("/bare-metal/{id}")).await["specs_per_node"].clone();
        assert_eq!(
            (&specs["gpu_model"], &specs["gpu_count"]),
            (&json!("h100-sxm5-80gb"), &json!(8))
        );
        stage.end_rental(&id).await;
    }
}

#[tokio::test]
async fn a_node_that_is_another_one_again_shows_the_same_gpus() {
    let stage = running().await;
    let fault = Fault::new(Provider::VOLTAGEPARK, FaultKind::SameNodeTwice);
    stage.simulator.break_next(fault).unwrap();
    let id = stage
        .rent(&but(rental("x", 3), "cloudinit_script", SHOW))
        .await;
    stage.clock.turn(900);
    stage.simulator.settle().await;
    let [first, second, last] = [0, 1, 2].map(|node| hardware(&stage, &id, node));
    assert_eq!(last["uuids"], first["uuids"]);
    assert_ne!(last["host"], first["host"]);
    assert_ne!(second["uuids"], first["uuids"]);
}

#[tokio::test]
async fn a_node_shows_the_gpus_of_one_made_before_it() {
    let stage = running().await;
    let rent = async |kind: Option<FaultKind>| {
        if let Some(kind) = kind {
            let fault = Fault::new(Provider::VOLTAGEPARK, kind);
            stage.simulator.break_next(fault).unwrap();
        }
        let id = stage
            .rent(&but(rental("x", 2), "cloudinit_script", SHOW))
            .await;
        stage.clock.turn(900);
        stage.simulator.settle().await;
        [0, 1].map(|node| hardware(&stage, &id, node))
    };
    let [_, before] = rent(None).await;
    let [first, last] = rent(Some(FaultKind::GpusOfBefore)).await;
    assert_eq!(last["uuids"], before["uuids"]);
    assert_ne!(last["host"], before["host"]);
    assert_ne!(first["uuids"], before["uuids"]);
}

#[tokio::test]
async fn nothing_is_run_for_a_foreign_credential_a_foreign_machine_a_silent_node_or_no_script() {
    let stage = running().await;
    stage
        .simulator
        .admit_foreign_credential(Provider::LAMBDA, "a-colleague");
    let launch = stage
        .anonymous(
            Provider::LAMBDA,
            Method::POST,
            "/instance-operations/launch",
        )
        .bearer_auth("a-colleague");
    let answer = launch
        .json(&but(a10("theirs"), "user_data", SHOW))
        .send()
        .await
        .unwrap();
    let foreign = body(answer, 200).await["data"]["instance_ids"][0]
        .as_str()
        .unwrap()
        .to_owned();
    stage
        .simulator
        .break_next(Fault::new(Provider::LAMBDA, FaultKind::NeverCallsHome))
        .unwrap();
    let silent = stage.launch(&but(a10("silent"), "user_data", SHOW)).await;
    let no_script = stage
        .launch(&but(
            a10("config"),
            "user_data",
            "#cloud-config\nruncmd: [ls]\n",
        ))
        .await;
    let broken = stage
        .simulator
        .break_next(Fault::new(Provider::LAMBDA, FaultKind::AcceptedThenFailed));
    broken.unwrap();
    let failed = stage.launch(&but(a10("failed"), "user_data", SHOW)).await;
    let ours = stage.launch(&but(a10("ours"), "user_data", SHOW)).await;
    stage.clock.turn(300);
    stage.simulator.settle().await;
    for id in [&foreign, &silent, &no_script, &failed] {
        assert_eq!(stage.simulator.node_output(id, 0), None);
    }
    assert!(stage.simulator.node_output(&ours, 0).is_some());
    let foreign: Vec<bool> = stage
        .simulator
        .running_machines()
        .iter()
        .map(|machine| machine.foreign)
        .collect();
    assert_eq!(foreign, [true, false, false, false, false]);
}

#[tokio::test]
async fn a_script_past_its_deadline_is_killed_with_everything_it_started() {
    let stage = Stage::with(|config| config.node_deadline = Duration::from_secs(5)).await;
    stage.add_key().await;
    let script = "#!/bin/sh\nsleep 1000 &\necho $$ $!\nsleep 1000\n";
    let id = stage.launch(&but(a10("one"), "user_data", script)).await;
    stage.clock.turn(300);
    stage.simulator.settle().await;
    let output = stage.simulator.node_output(&id, 0).unwrap();
    assert_eq!(output.end, Some(NodeEnd::DeadlinePassed));
    let pids: Vec<&str> = output.stdout.split_whitespace().collect();
    assert_eq!(pids.len(), 2, "{output:?}");
    for pid in pids {
        is_ended(pid).await;
    }
}

#[tokio::test]
async fn what_a_script_leaves_behind_ends_with_it() {
    let stage = running().await;
    let script = "#!/bin/sh\nsleep 1000 &\necho $!\n";
    let id = stage.launch(&but(a10("one"), "user_data", script)).await;
    stage.clock.turn(300);
    stage.simulator.settle().await;
    let output = stage.simulator.node_output(&id, 0).unwrap();
    assert_eq!(output.end, Some(NodeEnd::Exited(0)));
    is_ended(output.stdout.trim()).await;
}

/// Whether a process is running; a dead one that was not waited for is not.
fn alive(pid: &str) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    !status
        .rsplit(')')
        .next()
        .unwrap()
        .trim_start()
        .starts_with('Z')
}

/// A killed process that nobody here waits for takes a moment to end.
async fn is_ended(pid: &str) {
    eventually(&format!("the end of {pid}"), || !alive(pid)).await;
}

async fn started(stage: &Stage, id: &str) -> String {
    let mut said = String::new();
    eventually("what a node says first", || {
        stage.simulator.tick();
        let output = stage.simulator.node_output(id, 0);
        said = output.map_or_else(String::new, |output| output.stdout);
        said.ends_with('\n')
    })
    .await;
    said.trim().to_owned()
}

#[tokio::test]
async fn ending_a_machine_ends_what_its_nodes_run() {
    let stage = running().await;
    let id = stage
        .launch(&but(
            a10("one"),
            "user_data",
            "#!/bin/sh\necho $$\nsleep 1000\n",
        ))
        .await;
    stage.clock.turn(300);
    let pid = started(&stage, &id).await;
    assert!(alive(&pid));
    stage.terminate(&id).await;
    stage.simulator.settle().await;
    assert!(!alive(&pid));
    assert_eq!(
        stage.simulator.node_output(&id, 0).unwrap().end,
        Some(NodeEnd::Stopped)
    );
}

#[tokio::test]
async fn dropping_the_simulator_ends_every_process_and_removes_every_directory() {
    let stage = running().await;
    let id = stage
        .launch(&but(
            a10("one"),
            "user_data",
            "#!/bin/sh\necho $$ $HOME\nsleep 1000\n",
        ))
        .await;
    stage.clock.turn(300);
    let line = started(&stage, &id).await;
    let (pid, home) = line.split_once(' ').unwrap();
    assert!(alive(pid) && fs::exists(home).unwrap());
    drop(stage);
    assert!(!alive(pid));
    assert!(!fs::exists(home).unwrap());
}

#[tokio::test]
async fn only_so_many_scripts_run_at_once_and_all_of_them_run() {
    let stage = Stage::with(|config| config.nodes_at_once = 1).await;
    stage.add_key().await;
    let directory = tempfile::tempdir().unwrap();
    let lock = directory.path().join("lock");
    let script = format!(
        "#!/bin/sh\nmkdir {0} || exit 9\nsleep 0.05\nrmdir {0}\n",
        lock.display()
    );
    let mut ids = Vec::new();
    for name in ["a", "b", "c", "d"] {
        ids.push(
            stage
                .launch(&but(a10(name), "user_data", script.as_str()))
                .await,
        );
    }
    stage.clock.turn(300);
    stage.simulator.settle().await;
    for id in ids {
        assert_eq!(
            stage.simulator.node_output(&id, 0).unwrap().end,
            Some(NodeEnd::Exited(0))
        );
    }
}

#[tokio::test]
async fn the_nodes_of_a_machine_run_together_even_when_fewer_run_at_once() {
    let stage = Stage::with(|config| config.nodes_at_once = 2).await;
    let directory = tempfile::tempdir().unwrap();
    // Each waits until all four are there.
    let script = format!(
        "#!/bin/sh\ntouch {0}/$$\nwhile [ $(ls {0} | wc -l) -lt 4 ]; do sleep 0.05; done\n",
        directory.path().display()
    );
    let id = stage
        .rent(&but(rental("x", 4), "cloudinit_script", script))
        .await;
    stage.clock.turn(900);
    stage.simulator.settle().await;
    for index in 0..4 {
        assert_eq!(
            stage.simulator.node_output(&id, index).unwrap().end,
            Some(NodeEnd::Exited(0))
        );
    }
}

#[tokio::test]
async fn only_the_end_of_a_long_output_is_kept() {
    let stage = running().await;
    let script = "#!/bin/sh\ni=0\nwhile [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done\n";
    let id = stage.launch(&but(a10("one"), "user_data", script)).await;
    stage.clock.turn(300);
    stage.simulator.settle().await;
    let output = stage.simulator.node_output(&id, 0).unwrap().stdout;
    assert!(
        output.len() <= 16 * 1024 && output.ends_with("line 4999\n"),
        "{} bytes",
        output.len()
    );
}
