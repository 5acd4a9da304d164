//! `broker providers`, on a database of its own and a simulated market.

use std::sync::Arc;

use broker::platform::clock::SystemClock;
use serde_json::json;
use simulator::{Config, Provider, Simulator};
use store::settings::DatabaseMode;
use store::{Database, Store};

use super::{Ended, Place};
use crate::service::install_tls;

/// A database made for simulation in the directory `d`.
async fn simulation(place: &Place) {
    std::fs::create_dir(place.path().join("d")).expect("a directory");
    let path = place.path().join("d/broker.db");
    let store = Store::connect(Database::Sqlite { path }).await;
    let store = store.expect("it opens");
    store.migrate_up().await.expect("a schema");
    let now = broker::platform::clock::Clock::now(&SystemClock);
    let settings = store.settings();
    let settled = settings.settle_mode(DatabaseMode::Simulation, now).await;
    settled.expect("settled");
    store.close().await.expect("closes");
}

fn providers(place: &Place, args: &[&str]) -> Ended {
    let args = [&["providers"], args, &["--data-dir", "d"]].concat();
    place.broker(args)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_is_added_checked_closed_and_opened_from_the_command_line() {
    install_tls();
    let (place, provider) = (Place::new(), Provider::RUNPOD);
    simulation(&place).await;
    let clock = Arc::new(SystemClock) as Arc<dyn simulator::Clock>;
    let market = Simulator::start(Config::new(clock)).await;
    let market = market.expect("a market");
    let (url, credential) = (market.url(provider), market.credential(provider));
    place.write("good.key", &format!("{credential}\n"));
    place.write("bad.key", "canary-in-the-mine");

    let add = |file| {
        let args = [
            "add",
            "runpod",
            "--base-url",
            &url,
            "--credential-file",
            file,
        ];
        providers(&place, &args)
    };
    let refused = add("bad.key");
    assert_eq!(refused.status, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("nothing was stored"), "{refused:?}");
    assert!(!refused.stderr.contains("canary"), "{refused:?}");
    let added = add("good.key");
    assert_eq!(added.status, Some(0), "{added:?}");
    assert!(
        added.stdout.contains("Added runpod. Its catalogue holds "),
        "{added:?}"
    );
    assert!(!format!("{added:?}").contains(&credential), "{added:?}");
    let again = add("good.key");
    assert_eq!(again.status, Some(1), "{again:?}");
    assert!(
        again.stderr.contains("broker providers rotate runpod"),
        "{again:?}"
    );

    let checked = providers(&place, &["check", "runpod", "--json"]).json(0);
    assert_eq!(checked["ok"], true, "{checked}");
    let bad = ["check", "runpod", "--credential-file", "bad.key"];
    let bad = providers(&place, &bad);
    assert_eq!(bad.status, Some(1), "{bad:?}");
    let rotate = [
        "rotate",
        "runpod",
        "--credential-file",
        "good.key",
        "--json",
    ];
    let rotated = providers(&place, &rotate).json(0);
    assert_eq!(rotated["connected_by"], "entry");

    let shown = || {
        let listed = providers(&place, &["list", "--json"]).json(0);
        let items = listed["items"].as_array().expect("items").clone();
        assert_eq!(items.len(), 1, "{listed}");
        items[0].clone()
    };
    for (command, enabled) in [("disable", false), ("enable", true)] {
        let done = providers(&place, &[command, "runpod"]);
        assert_eq!(done.status, Some(0), "{done:?}");
        assert_eq!(shown()["enabled"], enabled);
    }
    let until = (chrono::Utc::now() + chrono::TimeDelta::hours(1)).to_rfc3339();
    let begin = [
        "quarantine",
        "runpod",
        "--reason",
        "it lies",
        "--until",
        &until,
    ];
    let begun = providers(&place, &begin);
    assert_eq!(begun.status, Some(0), "{begun:?}");
    assert_eq!(shown()["quarantine"]["reason"], "it lies");
    let listed = providers(&place, &["list"]);
    assert!(listed.stdout.contains("it lies"), "{listed:?}");
    let ended = providers(&place, &["quarantine", "runpod", "--end", "--json"]);
    assert_eq!(ended.json(0)["quarantine"], json!(null));
    let refused = providers(&place, &["forget", "runpod"]);
    assert_eq!(refused.status, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("disable it"), "{refused:?}");
    let disabled = providers(&place, &["disable", "runpod"]);
    assert_eq!(disabled.status, Some(0), "{disabled:?}");
    let forgotten = providers(&place, &["forget", "runpod", "--json"]).json(0);
    assert_eq!(forgotten["connected_by"], "nothing");
    let again = providers(&place, &["forget", "runpod"]);
    assert_eq!(again.status, Some(1), "{again:?}");
    assert!(again.stderr.contains("none to forget"), "{again:?}");
    let checked = providers(&place, &["check", "runpod"]);
    assert_eq!(checked.status, Some(1), "{checked:?}");
    let next = "POST /v1/providers/runpod/check";
    assert!(checked.stderr.contains(next), "{checked:?}");

    let audit = place.broker(["audit", "check", "--json", "--data-dir", "d"]);
    let chains = audit.json(0)["chains"].clone();
    assert_eq!(chains[0]["entries"], 8, "{chains}");
    market.stop().await;
}

#[test]
fn what_cannot_be_meant_is_refused_in_one_sentence() {
    let place = Place::new();
    let made = place.broker(["token", "create", "--tenant", "acme", "--data-dir", "d"]);
    assert_eq!(made.status, Some(0), "{made:?}");
    place.write("key", "x");
    for (args, says) in [
        (
            &["add", "nobody", "--credential-file", "key"][..],
            "lambda, runpod",
        ),
        (
            &["add", "lambda", "--credential-file", "nowhere"],
            "nowhere",
        ),
        (
            &[
                "add",
                "lambda",
                "--credential-file",
                "key",
                "--base-url",
                "http://127.0.0.1:1",
            ],
            "simulations",
        ),
        (&["check", "lambda"], "providers list"),
        (&["disable", "lambda"], "providers list"),
    ] {
        let ended = providers(&place, args);
        let sentence = ended.refused();
        assert!(sentence.contains(says), "{args:?}: {sentence}");
    }
}
