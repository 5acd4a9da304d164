//! `broker keys` and `broker audit`, on a database of their own.

use serde_json::Value;

use super::Place;

#[test]
fn keys_are_listed_rotated_and_sealed_anew_and_the_log_tells() {
    let place = Place::new();
    let made = place.broker(["token", "create", "--tenant", "acme", "--data-dir", "d"]);
    assert_eq!(made.status, Some(0), "{made:?}");
    let keys = || {
        place
            .broker(["keys", "list", "--json", "--data-dir", "d"])
            .json(0)
    };
    assert_eq!(
        keys()["keys"],
        Value::Array(Vec::new()),
        "none before the first start"
    );
    let first = place.broker(["keys", "rotate", "--data-dir", "d"]);
    assert_eq!(first.status, Some(0), "{first:?}");
    let second = place.broker(["keys", "rotate", "--data-dir", "d"]);
    let listed = keys();
    let listed = listed["keys"].as_array().expect("keys");
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0]["kid"], first.stdout.trim());
    assert!(listed[0]["retired_at"].is_string() && listed[1]["retired_at"].is_null());
    assert_eq!(listed[1]["kid"], second.stdout.trim());

    let reseal = [
        "keys",
        "reseal",
        "--new-key-file",
        "new.key",
        "--data-dir",
        "d",
    ];
    let done = place.broker(reseal);
    assert_eq!(done.status, Some(0), "{done:?}");
    assert!(
        done.stdout.contains("2 secrets") && done.stdout.contains("secret.key"),
        "{done:?}"
    );
    // The old key opens nothing any more, the new one all.
    let refused = place.broker(["keys", "rotate", "--data-dir", "d"]);
    assert_ne!(refused.status, Some(0), "{refused:?}");
    std::fs::rename(
        place.path().join("new.key"),
        place.path().join("d/secret.key"),
    )
    .expect("put in place");
    let rotated = place.broker(["keys", "rotate", "--data-dir", "d"]);
    assert_eq!(rotated.status, Some(0), "{rotated:?}");

    let checked = place
        .broker(["audit", "check", "--json", "--data-dir", "d"])
        .json(0);
    let chains = checked["chains"].as_array().expect("chains");
    let entries: Vec<_> = chains
        .iter()
        .map(|chain| chain["entries"].as_i64())
        .collect();
    assert_eq!(entries, [Some(4), Some(1)], "{chains:?}");
    assert_eq!(chains[0]["chain"], "service");
}
