//! `broker keys` and `broker audit`, on a database of their own.

use serde_json::Value;

use super::{Ended, Place};
use crate::eventually::output_of;

#[test]
fn keys_are_listed_rotated_and_sealed_anew_and_the_log_tells() {
    let place = Place::new();
    let words = ["token", "create", "--tenant", "acme", "--data-dir", "d"];
    let made = place.broker(words.into_iter().chain(["--json"])).json(0);
    for (field, start) in [("id", "key_"), ("tenant_id", "ten_"), ("secret", "gpb_")] {
        let text = made[field].as_str().expect(field);
        assert!(text.starts_with(start), "{field}: {made}");
    }
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
    let second = place.broker(["keys", "rotate", "--json", "--data-dir", "d"]);
    let second = second.json(0);
    assert_eq!(second["purpose"], "token");
    let listed = keys();
    let listed = listed["keys"].as_array().expect("keys");
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0]["kid"], first.stdout.trim());
    assert!(listed[0]["retired_at"].is_string() && listed[1]["retired_at"].is_null());
    assert_eq!(listed[1]["kid"], second["kid"]);

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
    let again = reseal.map(|word| if word == "new.key" { "newer.key" } else { word });
    let again = place.broker(again.into_iter().chain(["--json"]));
    assert_eq!(
        again.json(0),
        serde_json::json!({ "secrets": 3, "new_key_file": "newer.key" })
    );

    let checked = place
        .broker(["audit", "check", "--json", "--data-dir", "d"])
        .json(0);
    let chains = checked["chains"].as_array().expect("chains");
    let entries: Vec<_> = chains
        .iter()
        .map(|chain| chain["entries"].as_i64())
        .collect();
    assert_eq!(entries, [Some(5), Some(1)], "{chains:?}");
    assert_eq!(chains[0]["chain"], "service");
}

/// Runs `keys reseal` with the new key in `new.key` and the old one in the environment.
fn reseal_with_key_of_environment(place: &Place, database: (&str, &str)) -> Ended {
    let mut command = place.command(["keys", "reseal", "--new-key-file", "new.key"]);
    command
        .env("BROKER__SECRETS__KEY", "7".repeat(64))
        .env(database.0, database.1);
    Ended::of(output_of(&mut command))
}

#[test]
fn no_sealing_key_is_made_beside_a_database_on_a_server() {
    let place = Place::new();
    // Nobody listens there: the file is searched for first.
    let server = ("DATABASE_URL", "postgres://robin:canary@127.0.0.1:1/books");
    let missing = reseal_with_key_of_environment(&place, server);
    let why = missing.refused();
    assert!(
        why.contains("no new.key") && why.contains("(umask 077; openssl rand -hex 32 > new.key)"),
        "{why}"
    );
    assert!(!place.path().join("new.key").exists());
    place.write("new.key", &"8".repeat(64));
    let unreached = reseal_with_key_of_environment(&place, server);
    assert!(unreached.refused().contains("refused"), "{unreached:?}");
}

#[test]
fn a_sealing_key_of_the_environment_is_replaced_where_it_stands() {
    let place = Place::new();
    let up = place.broker(["migrate", "up", "--data-dir", "d"]);
    assert_eq!(up.status, Some(0), "{up:?}");
    let done = reseal_with_key_of_environment(&place, ("BROKER__DATA_DIR", "d"));
    assert_eq!(done.status, Some(0), "{done:?}");
    // The file would not be read beside it.
    assert!(
        done.stdout.contains("in BROKER__SECRETS__KEY.") && !done.stdout.contains("KEY_FILE"),
        "{done:?}"
    );
    assert!(place.path().join("new.key").exists());
}

#[tokio::test]
async fn a_key_of_a_provider_names_it_and_no_other_key_does() {
    let place = Place::new();
    let create = |more: &[&str]| {
        let args = ["token", "create", "--tenant", "acme", "--data-dir", "d"];
        place.broker([&args[..], more].concat())
    };
    for (more, said) in [
        (&["--role", "provider"][..], "--provider <PROVIDER>"),
        (
            &["--role", "provider", "--provider", "nobody"],
            "broker providers list",
        ),
        (
            &["--role", "viewer", "--provider", "lambda"],
            "--role provider",
        ),
    ] {
        let refused = create(more);
        assert_eq!(refused.status, Some(2), "{more:?}: {refused:?}");
        assert!(refused.stderr.contains(said), "{more:?}: {refused:?}");
    }
    let made = create(&["--role", "provider", "--provider", "lambda"]);
    assert_eq!(made.status, Some(0), "{made:?}");
    let path = place.path().join("d/broker.db");
    let store = store::Store::connect(store::Database::Sqlite { path }).await;
    let store = store.expect("it opens");
    let acme = store.tenants().find_named("acme").await.expect("reads");
    let keys = store
        .api_keys()
        .of(acme.expect("the tenant").id)
        .list()
        .await;
    let bound: Vec<_> = keys
        .expect("reads")
        .into_iter()
        .map(|key| key.provider)
        .collect();
    assert_eq!(bound, [Some("lambda".parse().expect("a provider"))]);
}

#[tokio::test]
async fn a_key_is_made_for_projects_by_name_or_id() {
    let place = Place::new();
    let create = |more: &[&str]| {
        let args = ["token", "create", "--tenant", "acme", "--data-dir", "d"];
        place.broker([&args[..], more].concat())
    };
    let made = create(&[
        "--project",
        "vision",
        "--project",
        "default",
        "--project",
        "vision",
    ]);
    assert_eq!(made.status, Some(0), "{made:?}");
    let path = place.path().join("d/broker.db");
    let store = store::Store::connect(store::Database::Sqlite { path }).await;
    let store = store.expect("it opens");
    let acme = store.tenants().find_named("acme").await.expect("reads");
    let acme = acme.expect("the tenant").id;
    let projects = store.tenants().projects(acme).await.expect("reads");
    let names: Vec<_> = projects
        .iter()
        .map(|project| project.name.as_str())
        .collect();
    assert_eq!(names, ["default", "vision"]);
    let keys = store.api_keys().of(acme).list().await.expect("reads");
    let ids = projects.iter().map(|project| project.id).collect();
    assert_eq!(keys[0].projects, market::identity::Projects::Only(ids));
    let id = projects[0].id.to_string();
    let by_id = create(&["--project", &id]);
    assert_eq!(by_id.status, Some(0), "{by_id:?}");
    let keys = store.api_keys().of(acme).list().await.expect("reads");
    assert_eq!(
        keys[0]
            .projects
            .named()
            .map(std::collections::BTreeSet::len),
        Some(1)
    );

    let unknown = format!("prj_{}", "0".repeat(32));
    for (args, says) in [
        (&["--project", unknown.as_str()][..], "has no project"),
        (&["--project", "vision", "--role", "admin"], "`admin`"),
        (&["--project", " "], "1 to 100"),
    ] {
        let ended = create(args);
        assert!(ended.refused().contains(says), "{ended:?}");
    }
    let kept = store.api_keys().of(acme).list().await.expect("reads");
    assert_eq!(kept.len(), 2);
    store.close().await.expect("closes");
}
