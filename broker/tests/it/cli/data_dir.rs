//! The directory of the embedded database: who may work on it, who may read it, and that nothing is
//! left in a wrong one.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use store::fixture::execute_raw;
use store::{Database, Store};

use super::serve::{Running, simulated};
use super::{Ended, Place};
use crate::eventually::output_of;

fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).expect("a directory");
    entries
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.into_string().expect("text"))
        .collect()
}

fn create(place: &Place, dir: &str) -> Ended {
    let args = ["token", "create", "--tenant", "acme", "--data-dir", dir];
    let made = place.broker(args);
    assert_eq!(made.status, Some(0), "{made:?}");
    made
}

#[test]
fn a_second_service_on_a_data_directory_is_refused_until_the_first_has_ended_even_by_force() {
    let place = Place::new();
    let first = simulated(&place);
    first.told("Serving at ");
    let args = ["serve", "--simulate", "--listen", "127.0.0.1:0"];
    let second = place.broker(args.iter().chain(&["--data-dir", "db"]));
    let why = second.refused();
    let dir = fs::canonicalize(place.path().join("db")).expect("it is there");
    for said in [
        "another service runs on",
        dir.to_str().expect("text"),
        "--data-dir",
        "DATABASE_URL",
    ] {
        assert!(why.contains(said), "{said}: {why}");
    }
    create(&place, "db");
    for beside in [
        &["ledger", "check"][..],
        &["providers", "list"],
        &["audit", "check"],
        &["keys", "list"],
        &["migrate", "status"],
        &["backup", "--to", "copy.db"],
    ] {
        let ended = place.broker(beside.iter().chain(&["--data-dir", "db"]));
        assert_eq!(ended.status, Some(0), "{beside:?}: {ended:?}");
    }
    let elsewhere = place.command(args.iter().chain(&["--data-dir", "other"]));
    let elsewhere = Running::start(elsewhere);
    elsewhere.told("Serving at ");

    assert_eq!(first.end_by("KILL").status, None);
    let again = simulated(&place);
    again.told("Serving at ");
    assert_eq!(again.end_by("TERM").status, Some(0));
    let after = simulated(&place);
    after.told("Serving at ");
}

#[test]
fn only_its_owner_reads_what_a_service_keeps_in_a_directory_that_others_may_enter() {
    let place = Place::new();
    let dir = place.path().join("db");
    fs::create_dir(&dir).expect("a directory");
    let open = Permissions::from_mode(0o755);
    fs::set_permissions(&dir, open.clone()).expect("changed");
    create(&place, "db");
    fs::set_permissions(dir.join("broker.db"), open).expect("changed");
    let serving = simulated(&place);
    serving.told("Serving at ");
    let kept = names(&dir);
    for file in ["broker.db", "broker.db-shm", "broker.db-wal", "secret.key"] {
        assert!(kept.contains(file), "{file}: {kept:?}");
    }
    for file in &kept {
        let found = fs::metadata(dir.join(file)).expect("it is there");
        assert_eq!(found.permissions().mode() & 0o077, 0, "{file}");
    }
    let rights = fs::metadata(&dir).expect("it is there").permissions();
    assert_eq!(rights.mode() & 0o777, 0o755, "the directory is not ours");
}

#[tokio::test]
async fn a_database_from_before_the_schema_was_rewritten_is_refused_and_not_changed() {
    let older = "UPDATE seaql_migrations SET version = 'm20261121_000001_settings'
                 WHERE version = 'm20261128_000001_settings'";
    let words = [
        "m20261121_000001_settings",
        "nothing was changed",
        "new data directory",
    ];
    is_refused_and_not_changed(older, &words).await;
}

#[tokio::test]
async fn a_database_of_a_newer_release_is_called_that_and_not_changed() {
    let newer =
        "INSERT INTO seaql_migrations (version, applied_at) VALUES ('m20991231_000001_later', 0)";
    let words = [
        "m20991231_000001_later",
        "nothing was changed",
        "upgraded by a newer version",
        "use that version",
    ];
    is_refused_and_not_changed(newer, &words).await;
}

async fn is_refused_and_not_changed(statement: &str, expected: &[&str]) {
    let place = Place::new();
    create(&place, "db");
    let path = place.path().join("db/broker.db");
    let store = Store::connect(Database::Sqlite { path: path.clone() }).await;
    let store = store.expect("it opens");
    execute_raw(&store, statement).await.expect("written");
    store.close().await.expect("closes");
    let kept = fs::read(&path).expect("the file");
    let mut said = BTreeSet::new();
    for args in [
        &["serve", "--simulate", "--listen", "127.0.0.1:0"][..],
        &["token", "create", "--tenant", "acme"],
        &["migrate", "up"],
        &["migrate", "down"],
        &["migrate", "status"],
        &["ledger", "check"],
        &["backup", "--to", "copy.db"],
    ] {
        let ended = place.broker(args.iter().chain(&["--data-dir", "db"]));
        said.insert(ended.refused().to_owned());
    }
    let only = said.first().expect("a sentence");
    assert_eq!(said.len(), 1, "{said:?}");
    for words in expected {
        assert!(only.contains(words), "{words}: {only}");
    }
    assert!(fs::read(&path).expect("the file") == kept, "it was written");
    assert!(
        !path.with_file_name("broker.db-wal").exists(),
        "it was written"
    );
}

#[test]
fn what_others_can_write_is_refused_with_how_to_take_that_away() {
    let place = Place::new();
    create(&place, "db");
    assert_eq!(
        place.broker(["keys", "rotate", "--data-dir", "db"]).status,
        Some(0)
    );
    let serve = [
        "serve",
        "--simulate",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        "db",
    ];
    let list = ["keys", "list", "--data-dir", "db"];
    for name in ["db", "db/broker.db", "db/secret.key"] {
        let path = place.path().join(name);
        let usual = fs::metadata(&path).expect("it is there").permissions();
        fs::set_permissions(&path, Permissions::from_mode(usual.mode() | 0o002)).expect("changed");
        for args in [&serve[..], &list[..]] {
            let refused = place.broker(args);
            let why = refused.refused();
            assert!(
                why.contains(&format!("chmod go-w {name}`")),
                "{name}: {why}"
            );
        }
        let left = fs::metadata(&path).expect("it is there").permissions();
        assert_ne!(
            left.mode() & 0o002,
            0,
            "{name}: that it was so stays to be seen"
        );
        fs::set_permissions(&path, usual).expect("changed");
    }
    assert_eq!(place.broker(list).status, Some(0));
    // A key that lies elsewhere.
    let key = place.write("elsewhere.key", &"7".repeat(64));
    fs::set_permissions(&key, Permissions::from_mode(0o666)).expect("changed");
    let mut rotate = place.command(["keys", "rotate", "--data-dir", "new"]);
    let refused = Ended::of(output_of(rotate.env("BROKER__SECRETS__KEY_FILE", &key)));
    assert!(
        refused.stderr.contains("new/broker.db"),
        "nothing is there yet: {refused:?}"
    );
    let mut serve = place.command(["serve", "--listen", "127.0.0.1:0", "--data-dir", "new"]);
    let refused = Ended::of(output_of(serve.env("BROKER__SECRETS__KEY_FILE", &key)));
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("elsewhere.key`"), "{refused:?}");
}

#[tokio::test]
async fn an_empty_or_cut_database_beside_its_key_is_refused_and_left_as_it_is() {
    let place = Place::new();
    create(&place, "db");
    assert_eq!(
        place.broker(["keys", "rotate", "--data-dir", "db"]).status,
        Some(0)
    );
    let path = place.path().join("db/broker.db");
    // The rest of its log goes into the file.
    let store = Store::connect(Database::Sqlite { path: path.clone() }).await;
    store.expect("it opens").close().await.expect("closes");
    let whole = fs::read(&path).expect("the file");
    for length in [0, 40, 4_096, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).expect("cut");
        for args in [
            &["serve", "--simulate", "--listen", "127.0.0.1:0"][..],
            &["token", "create", "--tenant", "acme"],
            &["ledger", "check"],
        ] {
            let refused = place.broker(args.iter().chain(&["--data-dir", "db"]));
            let why = refused.refused();
            for said in ["broker.db", "backup", "secret.key"] {
                assert!(why.contains(said), "{length}: {why}");
            }
        }
        let left = fs::metadata(&path).expect("the file").len();
        assert_eq!(left, length as u64, "it was written");
    }
    fs::write(&path, &whole).expect("put back");
    assert_eq!(
        place.broker(["ledger", "check", "--data-dir", "db"]).status,
        Some(0)
    );
    // Without a key nothing was kept yet: a first start that ended at once.
    fs::create_dir(place.path().join("new")).expect("a directory");
    place.write("new/broker.db", "");
    create(&place, "new");
}

#[test]
fn a_command_that_looks_at_a_database_refuses_a_directory_without_one_and_leaves_nothing() {
    let place = Place::new();
    fs::create_dir(place.path().join("empty")).expect("a directory");
    for dir in ["empty", "nowhere"] {
        let mut said = BTreeSet::new();
        for args in [
            &["keys", "list"][..],
            &["keys", "rotate"],
            &["keys", "reseal", "--new-key-file", "new.key"],
            &["audit", "check"],
            &["migrate", "status"],
            &["migrate", "down"],
            &["ledger", "check"],
            &["providers", "list"],
            &["backup", "--to", "copy.db"],
            &["sweep"],
        ] {
            let ended = place.broker(args.iter().chain(&["--data-dir", dir]));
            said.insert(ended.refused().to_owned());
        }
        let only = said.first().expect("a sentence");
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            only.contains(&format!("{dir}/broker.db")) && only.contains("--data-dir"),
            "{only}"
        );
        assert_eq!(names(place.path()), BTreeSet::from(["empty".to_owned()]));
        assert_eq!(names(&place.path().join("empty")), BTreeSet::new());
    }
}

#[test]
fn a_command_that_makes_a_database_says_so_and_where() {
    let place = Place::new();
    let root = fs::canonicalize(place.path()).expect("it is there");
    let first = create(&place, "d").stderr;
    let file = root.join("d/broker.db").display().to_string();
    assert!(
        first.starts_with("note: ") && first.contains(&file) && first.lines().count() == 1,
        "{first}"
    );
    assert_eq!(create(&place, "d").stderr, "", "it was there");
    let up = |dir| place.broker(["migrate", "up", "--json", "--data-dir", dir]);
    let made = up("e");
    made.json(0);
    assert!(made.stderr.contains("e/broker.db"), "{made:?}");
    assert_eq!(up("e").stderr, "");
}

#[test]
fn a_database_whose_sealing_key_is_missing_gets_no_other_and_a_key_that_seals_nothing_goes() {
    let place = Place::new();
    create(&place, "db");
    let run = |args: &[&str]| place.broker(args.iter().chain(&["--data-dir", "db"]));
    let rotate = &["keys", "rotate"][..];
    let reseal = &["keys", "reseal", "--new-key-file", "new.key"][..];
    assert_eq!(run(rotate).status, Some(0), "nothing was sealed before");
    let (key, aside) = (
        place.path().join("db/secret.key"),
        place.path().join("aside"),
    );
    fs::rename(&key, &aside).expect("taken away");
    for args in [
        rotate,
        reseal,
        &["serve", "--simulate", "--listen", "127.0.0.1:0"],
    ] {
        let ended = run(args);
        assert_eq!(ended.status, Some(2), "{args:?}: {ended:?}");
        let why = ended.stderr.lines().last().unwrap_or_default();
        assert!(why.contains("secret.key is missing"), "{args:?}: {why}");
        assert!(!key.exists(), "{args:?}");
    }
    // With the wrong key, nothing is sealed again.
    place.write("db/secret.key", &"7".repeat(64));
    let refused = run(reseal);
    assert!(
        refused.refused().contains("cannot be opened"),
        "{refused:?}"
    );
    assert!(!place.path().join("new.key").exists());
    // One that was there before is not ours to take away.
    let mine = place.write("new.key", &"8".repeat(64));
    run(reseal).refused();
    assert!(mine.exists());
    fs::rename(&aside, &key).expect("put back");
    assert_eq!(run(reseal).status, Some(0));
}

#[test]
fn a_database_that_cannot_be_opened_is_named_once_with_why_and_without_a_password() {
    let place = Place::new();
    let once = |ended: &Ended, said: &[&str]| {
        assert_eq!(ended.status, Some(2), "{ended:?}");
        let why = ended.stderr.lines().last().unwrap_or_default();
        for said in said {
            assert_eq!(why.matches(said).count(), 1, "{said}: {ended:?}");
        }
        for secret in ["robin", "canary"] {
            assert!(!ended.stderr.contains(secret), "{ended:?}");
        }
    };
    place.write("file", "");
    fs::create_dir_all(place.path().join("d/broker.db")).expect("a directory");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data-dir"];
    let not_one = place.broker(serve.iter().chain(&["file"]));
    once(&not_one, &["the directory file cannot be used", "exists"]);
    let closed = place.broker(serve.iter().chain(&["d"]));
    once(&closed, &["d/broker.db", "unable to open database file"]);

    // A port that nobody listens at: it was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = free.local_addr().expect("an address").to_string();
    drop(free);
    let unreached = format!("postgres://robin:canary@{at}/books");
    let unknown = "mysql://robin:canary@host/books".to_owned();
    for args in [&["ledger", "check"][..], &serve[..3]] {
        for (url, said) in [
            (
                &unreached,
                &[at.as_str(), "`books`", "refused", "DATABASE_URL"][..],
            ),
            (&unknown, &["postgres://user:password@host:port/name"]),
        ] {
            let mut command = place.command(args);
            once(
                &Ended::of(output_of(command.env("DATABASE_URL", url))),
                said,
            );
        }
    }
}
