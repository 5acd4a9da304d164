//! The `ssh` command that `access` prints logs in as printed, by the key that is known here.

use std::env;
use std::path::Path;

use market::identity::Role;
use tokio::process::Command;

use super::Shell;
use crate::access::{fleet, reserve};
use crate::eventually::in_time;
use crate::service::Service;

/// Makes a key pair; `false`, with a printed notice, where there is no OpenSSH client, unless one is
/// required.
async fn make_key_pair(file: &Path) -> bool {
    let mut keygen = Command::new("ssh-keygen");
    keygen
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(file);
    let made = in_time("a key pair", keygen.status()).await;
    if made.is_ok_and(|status| status.success()) {
        return true;
    }
    let required = env::var("REQUIRE_SERVICES").is_ok_and(|set| set == "1");
    assert!(
        !required,
        "REQUIRE_SERVICES=1, but there is no OpenSSH client"
    );
    eprintln!("skipped: needs an OpenSSH client");
    false
}

/// Whether the next command logs in, and the output beside it.
async fn logs_in(shell: &Shell, access: &str) -> (bool, String) {
    let ended = shell.run(access).await;
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let next = ended.stdout.strip_prefix("Next: ssh ").expect("a command");
    let mut ssh = Command::new("sh");
    let line = format!("ssh -o BatchMode=yes {} hostname", next.trim_end());
    ssh.args(["-c", &line])
        .env_remove("SSH_AUTH_SOCK")
        .kill_on_drop(true);
    let said = in_time("the end of a login", ssh.output()).await;
    let said = said.expect("the client starts");
    let is_node = String::from_utf8_lossy(&said.stdout).starts_with("node-");
    (said.status.success() && is_node, ended.stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_that_access_prints_logs_in_with_the_key_that_is_known() {
    let service = Service::start_with_nodes().await;
    let key = service.key("acme", Role::Member).await;
    let home = tempfile::Builder::new().prefix("it's a home ").tempdir();
    let adder = Shell {
        home: home.expect("a directory"),
        ..Shell::of(&service, &key)
    };
    let private = adder.home.path().join("cluster-key");
    if !make_key_pair(&private).await {
        return;
    }
    adder.told("ssh-keys add cluster-key.pub").await;
    let path = reserve(&service, &key, &fleet(1)).await;
    let id = path.rsplit('/').next().expect("an id");
    let access = format!("access {id} --ssh-dir nodes");
    let (logged_in, told) = logs_in(&adder, &access).await;
    assert!(
        logged_in && told.is_empty(),
        "the user who added it: {told}"
    );

    let usual = Shell::of(&service, &key);
    let folder = usual.home.path().join(".ssh");
    std::fs::create_dir(&folder).expect("a folder");
    for end in ["", ".pub"] {
        let from = format!("{}{end}", private.display());
        std::fs::copy(from, folder.join(format!("id_cluster{end}"))).expect("a copy");
    }
    let (logged_in, told) = logs_in(&usual, &access).await;
    assert!(logged_in && told.is_empty(), "one of `~/.ssh`: {told}");

    let stranger = Shell::of(&service, &key);
    let (logged_in, told) = logs_in(&stranger, &access).await;
    assert!(!logged_in && told.contains("--identity FILE"), "{told}");
    let private = folder.join("id_cluster");
    let named = format!("{access} --identity {}", private.display());
    let (logged_in, told) = logs_in(&stranger, &named).await;
    assert!(logged_in && told.is_empty(), "one that is named: {told}");
    let nowhere = stranger.run(&format!("{access} --identity nowhere")).await;
    assert!(nowhere.sentence(2).contains("nowhere"), "{nowhere:?}");
    service.stop().await;
}
