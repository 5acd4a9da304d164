//! The walk-through of the README does what it says: its lines, as they stand there, in one shell.

use std::env;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// How a block that is run begins.
const MARK: &str = "```sh walk";

fn readme() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    std::fs::read_to_string(file).expect("the README")
}

/// The marked blocks of a page, in order.
fn marked(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while lines.any(|line| line == MARK) {
        let block = lines.by_ref().take_while(|line| *line != "```");
        blocks.push(block.map(|line| format!("{line}\n")).collect());
    }
    blocks
}

/// What the walk needs and this machine does not have.
fn missing() -> Option<&'static str> {
    let path = env::var_os("PATH").unwrap_or_default();
    let has = |name: &str| env::split_paths(&path).any(|folder| folder.join(name).is_file());
    if let Some(name) = ["bash", "curl", "ssh", "ssh-keygen"]
        .into_iter()
        .find(|name| !has(name))
    {
        return Some(name);
    }
    // The README names the port that the service takes when nothing is said.
    let port = TcpListener::bind("127.0.0.1:8080");
    port.is_err().then_some("port 8080 of this machine")
}

#[test]
fn the_walk_of_the_readme_with_the_client_is_less_than_ten_lines() {
    let blocks = marked(&readme());
    let [_service, client, _curl] = blocks.as_slice() else {
        panic!("three marked blocks, not {}", blocks.len());
    };
    assert!((1..10).contains(&client.lines().count()), "{client}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lines_of_the_readme_lead_from_nothing_to_a_node_and_a_cost_report() {
    if let Some(missing) = missing() {
        let required = env::var("REQUIRE_SERVICES").is_ok_and(|set| set == "1");
        assert!(!required, "REQUIRE_SERVICES=1, but there is no {missing}");
        eprintln!("skipped: needs {missing}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let walk = folder.path().join("walk.sh");
    std::fs::write(&walk, marked(&readme()).concat()).expect("the lines are written");
    let binary = Path::new(env!("CARGO_BIN_EXE_broker"));
    let mut path = vec![binary.parent().expect("a folder").to_owned()];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let mut shell = Command::new("bash");
    shell
        .args(["-e", "-o", "pipefail", "-c"])
        .arg("trap 'kill $(jobs -p) 2>/dev/null || true' EXIT; source ./walk.sh")
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", env::join_paths(path).expect("a search path"))
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ended = timeout(Duration::from_secs(300), shell.output()).await;
    let ended = ended.expect("within five minutes").expect("a shell");
    let said = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    let log = std::fs::read_to_string(folder.path().join("broker.log")).unwrap_or_default();
    assert!(ended.status.success(), "{said}\n{errors}\n{log}");
    for expected in ["GPU 7: ", "GPU-hours", "\"total_usd\""] {
        assert!(
            said.contains(expected),
            "no {expected}: {said}\n{errors}\n{log}"
        );
    }
}
