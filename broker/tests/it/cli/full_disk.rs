//! `broker serve` on the embedded database while its files cannot grow: its answers are true, it reports that
//! it is not ready, and it recovers by itself once there is room.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::Place;
use super::serve::{Running, ask_until};
use crate::eventually::{PATIENCE, output_of};
use crate::service::install_tls;

/// The room for the files to grow. Units: bytes.
const ROOM: u64 = 64 * 1024;
/// More projects than there is room for.
const MOST: usize = 1_000;

/// `broker serve`, which keeps running where it may not write, as on a full disk, instead of being ended.
fn serve(place: &Place) -> Running {
    let serve = [
        "-c",
        "trap '' XFSZ; exec \"$0\" \"$@\"",
        env!("CARGO_BIN_EXE_broker"),
        "serve",
        "--simulate",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        "db",
    ];
    let mut command = Command::new("sh");
    command
        .args(serve)
        .current_dir(place.path())
        .env_clear()
        .stdin(Stdio::null());
    Running::start(command)
}

/// Sets how large a file of a process may be.
fn limit(serving: &Running, size: &str) {
    let mut command = Command::new("prlimit");
    command.args([
        format!("--pid={}", serving.id()),
        format!("--fsize={size}:"),
    ]);
    let set = output_of(&mut command);
    assert!(set.status.success(), "{set:?}");
}

struct Caller {
    client: reqwest::Client,
    key: String,
}

impl Caller {
    /// Adds a project; returns whether it was added. `None` when that is unknown before the next start,
    /// because an I/O error may have left a complete commit.
    async fn adds(&self, url: &str, name: &str) -> Option<bool> {
        let ask = self.client.post(format!("{url}/v1/projects"));
        let ask = ask.bearer_auth(&self.key).json(&json!({ "name": name }));
        let answer = ask.send().await.expect("an answer");
        let (status, text) = (answer.status(), answer.text().await.expect("a body"));
        if status == StatusCode::CREATED {
            return Some(true);
        }
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
        if text.contains("outcome_unknown") {
            return None;
        }
        assert!(text.contains("database_unavailable"), "{text}");
        Some(false)
    }

    async fn projects(&self, url: &str) -> BTreeSet<String> {
        let list = self.client.get(format!("{url}/v1/projects?limit=200"));
        let answer = list.bearer_auth(&self.key).send().await.expect("an answer");
        let body: Value = answer.json().await.expect("JSON");
        assert_eq!(body["next_cursor"], Value::Null);
        let items = body["items"].as_array().expect("items").iter();
        let name = |item: &Value| item["name"].as_str().expect("a name").to_owned();
        items.map(name).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_answered_while_the_disk_is_full_is_what_is_there_after_a_kill() {
    install_tls();
    let place = Place::new();
    let made = place.broker(["token", "create", "--tenant", "acme", "--data-dir", "db"]);
    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE);
    let caller = Caller {
        client: client.build().expect("a client"),
        key: made.stdout.trim_end().to_owned(),
    };
    let serving = serve(&place);
    let url = serving.told("Serving at ");
    let ready = format!("{url}/readyz");
    ask_until(&ready, None, |status, _| status == 200).await;

    let log = place.path().join("db/broker.db-wal");
    let full = fs::metadata(&log).expect("the write-ahead log").len() + ROOM;
    let (mut answered, mut unknown) = (caller.projects(&url).await, BTreeSet::new());
    for round in ["first", "second"] {
        limit(&serving, &full.to_string());
        let mut refused = 0;
        for number in 0..MOST {
            let name = format!("{round} {number}");
            match caller.adds(&url, &name).await {
                Some(true) => _ = answered.insert(name),
                Some(false) => refused += 1,
                None => {
                    refused += 1;
                    unknown.insert(name);
                }
            }
            if refused == 10 {
                break;
            }
        }
        assert_eq!(refused, 10);
        assert_eq!(caller.projects(&url).await, answered);
        let told = ask_until(&ready, None, |status, _| status == 503).await;
        assert!(told.to_string().contains("takes no writes"), "{told}");
        if round == "first" {
            limit(&serving, "unlimited");
            ask_until(&ready, None, |status, _| status == 200).await;
            let name = "with room again";
            assert_eq!(caller.adds(&url, name).await, Some(true));
            answered.insert(name.to_owned());
        }
    }
    assert_eq!(serving.end_by("KILL").status, None);

    let serving = serve(&place);
    let url = serving.told("Serving at ");
    let there = caller.projects(&url).await;
    assert!(answered.is_subset(&there), "{answered:?} of {there:?}");
    let more: Vec<_> = there.difference(&answered).collect();
    assert!(more.iter().all(|name| unknown.contains(*name)), "{more:?}");
    assert_eq!(serving.end_by("TERM").status, Some(0));
}
