//! The small commands: keys, schema, document, recordings; and the response of all of them to wrong input.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use super::{Ended, HEADER, OFFER_FIELDS, Place, fields};
use crate::eventually::{ended, output_of};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../adapters/fixtures")
}

fn read(place: &Place, adapter: &str, replay: &Path) -> Ended {
    let replay = replay.to_str().expect("a path");
    place.broker(["adapters", "read", adapter, "--replay", replay])
}

#[test]
fn token_create_prints_the_key_alone_and_keeps_the_database_where_it_was_told() {
    let place = Place::new();
    let created = place.broker(["token", "create", "--tenant", "acme", "--data-dir", "kept"]);
    assert_eq!(created.status, Some(0), "{created:?}");
    assert!(
        created
            .stderr
            .starts_with("note: created a new database at ")
            && created.stderr.contains("kept/broker.db; ")
            && created.stderr.lines().count() == 1,
        "{created:?}"
    );
    let key = created.stdout.strip_suffix('\n').expect("one line");
    assert!(
        key.starts_with("gpb_") && key.len() > 40 && !key.contains(char::is_whitespace),
        "{key}"
    );
    let other = place.broker([
        "token",
        "create",
        "--tenant",
        "acme",
        "--role",
        "admin",
        "--data-dir",
        "kept",
    ]);
    assert_eq!(other.status, Some(0));
    assert_ne!(other.stdout, created.stdout, "each key is its own");
    assert!(place.path().join("kept/broker.db").is_file());
    let kept = std::fs::read(place.path().join("kept/broker.db")).expect("the database");
    let secret = &key.as_bytes()[12..];
    assert!(
        !kept.windows(secret.len()).any(|window| window == secret),
        "only its hash is kept"
    );
}

#[test]
fn a_role_or_tenant_that_cannot_be_is_refused_and_nothing_is_written() {
    let place = Place::new();
    let king = place.broker(["token", "create", "--tenant", "acme", "--role", "king"]);
    assert_eq!((king.status, king.stdout.as_str()), (Some(2), ""));
    assert!(
        king.stderr
            .contains("admin, provider, member, finance, viewer"),
        "{}",
        king.stderr
    );
    place.broker(["token", "create", "--tenant", " "]).refused();
    let days = place.broker([
        "token",
        "create",
        "--tenant",
        "acme",
        "--expires-in-days",
        "0",
    ]);
    assert_eq!(days.status, Some(2));
    assert_eq!(
        std::fs::read_dir(place.path())
            .expect("the directory")
            .count(),
        0
    );
}

/// How many changes are applied and how many pending, in the order in which they are listed.
fn states(ended: &Ended) -> Vec<&str> {
    assert_eq!(ended.status, Some(0), "{ended:?}");
    ended
        .stdout
        .lines()
        .map(|line| line.split("  ").next().expect("a state"))
        .collect()
}

#[test]
fn migrate_shows_applies_and_takes_back_the_changes_of_the_schema() {
    let place = Place::new();
    let migrate = |args: &[&str]| {
        let args = ["migrate"]
            .iter()
            .chain(args)
            .chain(&["--data-dir", "db"])
            .copied();
        place.broker(args.collect::<Vec<_>>())
    };
    let nothing = migrate(&["status"]);
    assert!(nothing.refused().contains("no database"), "{nothing:?}");
    let fresh = migrate(&["up"]);
    let count = states(&fresh).len();
    assert!(
        count > 3 && states(&fresh).iter().all(|state| *state == "applied"),
        "{fresh:?}"
    );
    let all = count.to_string();
    let empty = migrate(&["down", "--steps", &all]);
    assert_eq!(states(&empty), vec!["pending"; count]);
    assert_eq!(states(&migrate(&["status"])), vec!["pending"; count]);
    assert_eq!(states(&migrate(&["up"])), vec!["applied"; count]);
    let mut after_down = vec!["applied"; count];
    after_down[count - 2..].fill("pending");
    assert_eq!(states(&migrate(&["down", "--steps", "2"])), after_down);
    assert_eq!(states(&migrate(&["status"])), after_down);
    let told = migrate(&["status", "--json"]).json(0);
    let told = told["changes"].as_array().expect("changes");
    let applied = told.iter().map(|change| change["applied"] == true);
    let listed = after_down.iter().map(|state| *state == "applied");
    assert!(applied.eq(listed), "{told:?}");
    assert!(told[0]["name"].is_string(), "{told:?}");
    assert_eq!(states(&migrate(&["up"])), vec!["applied"; count]);
    assert_eq!(migrate(&["sideways"]).status, Some(2));
}

#[test]
fn openapi_prints_the_document_that_is_committed() {
    let printed = Place::new().broker(["openapi"]);
    assert_eq!((printed.status, printed.stderr.as_str()), (Some(0), ""));
    let document: Value = serde_json::from_str(&printed.stdout).expect("JSON");
    assert!(
        document["openapi"]
            .as_str()
            .is_some_and(|version| version.starts_with("3.1"))
    );
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../openapi/broker.json");
    let committed = std::fs::read_to_string(committed).expect("the committed document");
    assert!(
        printed.stdout == committed,
        "run `cargo xtask generate` and commit what it changed"
    );
}

#[test]
fn a_reader_that_goes_away_early_is_no_failure() {
    let place = Place::new();
    let mut command = place.command(["openapi"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    // Far more than a pipe holds is printed, so that the writer is sure to notice.
    drop(child.stdout.take());
    let ended = Ended::of(ended("the end of the command", child));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
}

#[test]
fn adapters_read_shows_the_offers_of_a_recording_in_the_one_offer_json() {
    let place = Place::new();
    let all_calls = fixtures().join("lambda/catalog");
    let main_answer = all_calls.join("01-get-instance-types.json");
    for (adapter, replay) in [
        ("lambda", &all_calls),
        ("lambda", &main_answer),
        ("voltagepark", &fixtures().join("voltagepark/catalog")),
    ] {
        let answer = read(&place, adapter, replay).json(0);
        assert_eq!(fields(&answer), ["offers", "skipped"]);
        let offers = answer["offers"].as_array().expect("offers");
        assert!(!offers.is_empty(), "{adapter} sells something");
        for offer in offers {
            assert_eq!(fields(offer), OFFER_FIELDS);
            assert_eq!(
                (offer["provider"].as_str(), offer["nodes"].as_u64()),
                (Some(adapter), Some(1))
            );
        }
    }
    let list = place.write(
        "list.csv",
        &format!("{HEADER}\nnebius,a,L4,1,8,32,23034,0.44,0.2,eu-north1,\n"),
    );
    let answer = read(&place, "pricesheet", &list).json(0);
    let ids = |answer: &Value| {
        let offers = answer["offers"].as_array().expect("offers").iter();
        offers
            .map(|offer| offer["offer_id"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&answer).len(), 2);
    assert_eq!(
        ids(&read(&place, "pricesheet", place.path()).json(0)),
        ids(&answer)
    );
}

#[test]
fn a_recording_that_cannot_be_read_is_refused_in_words_that_help() {
    let place = Place::new();
    let (nowhere, garbage) = (
        place.path().join("nowhere"),
        place.write("garbage.json", "{\"data\":"),
    );
    let unknown = read(&place, "acme-cloud", &garbage);
    assert!(
        unknown
            .refused()
            .contains("lambda, runpod, shadeform, verda, voltagepark, vultr, pricesheet"),
        "{unknown:?}"
    );
    let missing = read(&place, "lambda", &nowhere);
    assert!(missing.refused().contains("nowhere"), "{missing:?}");
    read(&place, "lambda", &garbage).refused();
    let empty = tempfile::tempdir().expect("a directory");
    let none = read(&place, "pricesheet", empty.path());
    assert!(none.refused().contains("no CSV file"), "{none:?}");
}

#[test]
fn every_command_has_help_and_an_unknown_one_is_refused() {
    let place = Place::new();
    for command in [
        &["demo"][..],
        &["serve"],
        &["match"],
        &["adapters", "read"],
        &["migrate"],
        &["openapi"],
        &["token", "create"],
    ] {
        let help = place.broker(command.iter().chain(&["--help"]));
        assert_eq!(
            (help.status, help.stderr.as_str()),
            (Some(0), ""),
            "{command:?}"
        );
        assert!(help.stdout.contains("Usage: broker "), "{}", help.stdout);
    }
    assert_eq!(place.broker(["sell"]).status, Some(2));
    assert_eq!(place.broker([""; 0]).status, Some(2));
}

#[test]
fn a_secret_in_the_environment_does_not_reach_stderr() {
    let place = Place::new();
    for (name, value) in [
        ("DATABASE_URL", "mysql://user:31415926@host/name"),
        ("DATABASE_URL", "postgres://user:31415926 @host:99999/name"),
        ("BROKER__DATABASE__URL", "31415926"),
        ("BROKER__PROVIDERS__LAMBDA__CREDENTIAL", "31415926"),
        ("BROKER__SECRETS__KEY", "31415926"),
    ] {
        let mut command = place.command(["serve", "--listen", "127.0.0.1:0"]);
        let ended = Ended::of(output_of(command.env(name, value)));
        let last = ended.stderr.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("error: ") && ended.status == Some(2),
            "{name}: {ended:?}"
        );
        assert!(
            !ended.stderr.contains("31415926"),
            "{name}: {}",
            ended.stderr
        );
    }
}
