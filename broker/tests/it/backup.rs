//! A backup taken while tenants buy, restored elsewhere: the books balance, and one sweep leaves
//! nothing running that the restored database does not know.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use broker::simulation::WorldOptions;
use chrono::{SecondsFormat, TimeDelta};
use market::identity::Role;
use serde_json::{Value, json};
use store::fixture::TestDatabase;
use tempfile::TempDir;

use crate::lifecycle::scene::fleet;
use crate::service::{Key, Service, hold, ssh_key};

/// The environment in which the real binary works on a database.
type Environment = Vec<(&'static str, String)>;

/// Runs the binary in this folder with nothing else in its environment.
fn broker(folder: &Path, environment: &Environment, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_broker"));
    command
        .args(args)
        .current_dir(folder)
        .env_clear()
        .envs(environment.iter().cloned())
        .stdin(Stdio::null());
    command.output().expect("the command runs")
}

fn said(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

#[track_caller]
fn succeeds(mut command: Command) {
    let output = command.output().expect("the command runs");
    assert!(output.status.success(), "{output:?}");
}

async fn start(store: Option<store::Store>) -> (Service, Key) {
    let service = Service::start_as(WorldOptions {
        store,
        ..WorldOptions::new(Path::new(""))
    })
    .await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    (service, key)
}

fn data_dir(service: &Service) -> PathBuf {
    service.world.broker().config().data_dir.clone()
}

/// Buys one small machine and waits until it is handed off.
async fn buy(service: &Service, key: &Key) {
    let body = json!({ "demand": fleet(1), "auto_confirm": true });
    let bought = service.with(key).post("/v1/reservations", &body).await;
    let bought = bought.expect(201);
    let path = format!("/v1/reservations/{}", bought["id"].as_str().expect("an id"));
    for _ in 0..20 {
        service
            .world
            .live_on(TimeDelta::seconds(120))
            .await
            .expect("a turn");
        if service.with(key).get(&path).await.expect(200)["state"] == "active" {
            return;
        }
    }
    panic!("it is not handed off");
}

/// Backs up by `back_up` while holds are placed and called off.
async fn back_up_under_load(service: &Service, key: &Key, back_up: impl FnOnce() + Send + 'static) {
    let backing_up = tokio::task::spawn_blocking(back_up);
    let mut written = 0;
    while !backing_up.is_finished() || written < 3 {
        let id = hold(service, key).await;
        let path = format!("/v1/reservations/{id}/cancel");
        let cancelled = service.with(key).send("POST", &path, None).await;
        assert!(cancelled.status < 300, "{cancelled:?}");
        written += 1;
    }
    backing_up.await.expect("the backup is taken");
    eprintln!("backed up while {written} holds were placed and called off");
}

fn running(service: &Service) -> Vec<String> {
    let machines = service.world.simulator().running_machines();
    machines.into_iter().map(|machine| machine.id).collect()
}

/// Buys, backs up under load, buys again, restores, and checks what the restored database makes of
/// it. `restore` gives the environment in which the binary works on it.
async fn restored_after(
    service: &Service,
    key: &Key,
    back_up: impl FnOnce() + Send + 'static,
    restore: impl FnOnce() -> Environment,
) {
    buy(service, key).await;
    let kept = running(service);
    back_up_under_load(service, key, back_up).await;
    let taken_at = service.world.broker().now() + TimeDelta::milliseconds(1);
    service.world.clock().advance(TimeDelta::seconds(1));
    buy(service, key).await;
    assert_eq!(running(service).len(), 2);

    let mut environment = restore();
    let simulator = service.world.simulator();
    environment.extend([
        ("BROKER__SIMULATION__MARKET_URL", simulator.control_url()),
        (
            "BROKER__SIMULATION__CREDENTIAL",
            simulator.control_credential(),
        ),
    ]);
    let folder = tempfile::tempdir().expect("a folder");
    let run = |args: &[&str]| broker(folder.path(), &environment, args);
    let checked = run(&["ledger", "check", "--json"]);
    assert!(checked.status.success(), "{checked:?}");
    assert_eq!(said(&checked)["balanced"], true);

    // What was bought since might be another broker's: it is left alone until a person says so.
    let swept = run(&["sweep", "--json"]);
    assert_eq!(swept.status.code(), Some(1), "{swept:?}");
    assert_eq!(
        said(&swept),
        json!({ "ended": 0, "unknown": 1, "foreign": 0, "missing": 0, "unreadable": 0 })
    );
    assert_eq!(running(service).len(), 2);
    let later = (taken_at + TimeDelta::days(1)).to_rfc3339_opts(SecondsFormat::Millis, true);
    let swept = run(&["sweep", "--json", "--end-unknown-since", &later]);
    assert_eq!(said(&swept)["ended"], 0, "it was made before that");
    let since = taken_at.to_rfc3339_opts(SecondsFormat::Millis, true);
    let swept = run(&["sweep", "--json", "--end-unknown-since", &since]);
    assert!(swept.status.success(), "{swept:?}");
    assert_eq!(
        said(&swept),
        json!({ "ended": 1, "unknown": 0, "foreign": 0, "missing": 0, "unreadable": 0 })
    );
    assert_eq!(running(service), kept, "what the backup knows runs on");
    let swept = run(&["sweep", "--json"]);
    assert!(swept.status.success(), "{swept:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_database_is_backed_up_under_load_and_restored_without_a_leak() {
    let (service, key) = start(None).await;
    let from = data_dir(&service);
    let place = TempDir::new().expect("a folder");
    let (copy, restored) = (place.path().join("copy.db"), place.path().join("restored"));
    let (to, of) = (copy.clone(), from.clone());
    let back_up = move || {
        let (to, of) = (to.to_str().expect("text"), of.to_str().expect("text"));
        let args = ["backup", "--to", to, "--data-dir", of, "--json"];
        let taken = broker(Path::new(of), &Vec::new(), &args);
        assert!(taken.status.success(), "{taken:?}");
        let told = said(&taken);
        let key = told["sealing_key"].as_str().expect("where the key is");
        assert!(Path::new(key).is_file(), "{key}");
        // A copy is never written over.
        let again = broker(Path::new(of), &Vec::new(), &args);
        assert_eq!(again.status.code(), Some(2), "{again:?}");
    };
    let restore = || {
        std::fs::create_dir(&restored).expect("a folder");
        std::fs::copy(&copy, restored.join("broker.db")).expect("the database");
        std::fs::copy(from.join("secret.key"), restored.join("secret.key")).expect("the key");
        vec![("BROKER__DATA_DIR", restored.display().to_string())]
    };
    restored_after(&service, &key, back_up, restore).await;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&copy)
            .expect("the copy")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "it holds every tenant's rows");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgresql_database_is_backed_up_under_load_and_restored_without_a_leak() {
    let Some(database) = TestDatabase::postgres().await else {
        return;
    };
    let fresh = TestDatabase::postgres().await.expect("as the first one");
    let url = |of: &TestDatabase| match &of.database {
        store::Database::Url(url) => url.clone(),
        store::Database::Sqlite { .. } => panic!("PostgreSQL has a URL"),
    };
    let (from, to) = (url(&database), url(&fresh));
    let (service, key) = start(Some(database.store.clone())).await;
    let place = TempDir::new().expect("a folder");
    let copy = place.path().join("broker.dump");
    let target = copy.clone();
    let back_up = move || {
        let mut dump = Command::new("pg_dump");
        dump.args(["--format=custom", "--file"]).arg(&target);
        dump.arg("--dbname").arg(&from);
        succeeds(dump);
    };
    let sealing_key = data_dir(&service).join("secret.key");
    let restore = || {
        let mut restore = Command::new("pg_restore");
        restore.args([
            "--clean",
            "--if-exists",
            "--no-owner",
            "--single-transaction",
        ]);
        restore.arg("--dbname").arg(&to).arg(&copy);
        succeeds(restore);
        vec![
            ("DATABASE_URL", to.clone()),
            (
                "BROKER__SECRETS__KEY_FILE",
                sealing_key.display().to_string(),
            ),
        ]
    };
    restored_after(&service, &key, back_up, restore).await;
    service.stop().await;
    database.remove().await;
    fresh.remove().await;
}
