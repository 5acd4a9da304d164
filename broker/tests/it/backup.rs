//! A backup taken while tenants buy, restored elsewhere: the ledger balances, one reconciliation ends
//! everything that the restored database does not know, and the service starts on it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use broker::tools::simulation::SimulatedMarketOptions;
use chrono::{SecondsFormat, TimeDelta};
use market::identity::Role;
use market::ids::LeaseId;
use serde_json::{Value, json};
use store::fixture::TestDatabase;
use tempfile::TempDir;

use crate::chaos::replica::{Replica, Setting};
use crate::eventually::{PATIENCE, output_of};
use crate::lifecycle::scene::fleet;
use crate::service::{Key, Service, hold, quote, ssh_key, usual_world};

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
    output_of(&mut command)
}

fn said(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

/// The commands for PostgreSQL of the operator's page: those that back up, and those that restore.
fn page_commands() -> [String; 2] {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/backup-and-upgrade.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let blocks = page.split("```sh postgresql\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap_or_default().to_owned());
    let blocks: Vec<_> = blocks.collect();
    blocks.try_into().expect("a block for each")
}

/// Runs commands as a page has them, with these variables set.
#[track_caller]
fn typed(commands: &str, folder: &Path, set: &[(&str, &str)]) {
    let mut shell = Command::new("sh");
    shell
        .args(["-e", "-c", commands])
        .current_dir(folder)
        .envs(set.iter().copied());
    let output = output_of(&mut shell);
    assert!(output.status.success(), "{commands}: {output:?}");
}

/// The address of the database that every server has, and the name of the one that this address
/// names.
fn named(url: &str) -> (String, &str) {
    let (address, _) = url.split_once('?').unwrap_or((url, ""));
    let (_, name) = address.rsplit_once('/').expect("a name");
    (url.replace(&format!("/{name}"), "/postgres"), name)
}

async fn start(store: Option<store::Store>) -> (Service, Key) {
    let service = Service::start_as(SimulatedMarketOptions {
        store,
        ..usual_world()
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

/// Backs up by `back_up` under load: one caller places holds and cancels them, running machines are charged,
/// and other callers, of this tenant and of another, get quotes and make projects.
async fn back_up_under_load(service: &Service, key: &Key, back_up: impl FnOnce() + Send + 'static) {
    let other = service.key("other", Role::Member).await;
    let is_over = AtomicBool::new(false);
    let goes_on = |written: u32| written < 3 || !is_over.load(Ordering::Relaxed);
    let holding = async {
        let mut written = 0;
        while goes_on(written) {
            let id = hold(service, key).await;
            let path = format!("/v1/reservations/{id}/cancel");
            let cancelled = service.with(key).send("POST", &path, None).await;
            assert!(cancelled.status < 300, "{cancelled:?}");
            // Here, so that no hold lapses meanwhile.
            let metered = service.world.live_on(TimeDelta::minutes(2)).await;
            metered.expect("a turn");
            written += 1;
        }
        written
    };
    let quoting = async {
        let mut written = 0;
        while goes_on(written) {
            quote(service, &other).await;
            written += 1;
        }
        written
    };
    let making = async |of: &Key| {
        let mut written = 0;
        while goes_on(written) {
            let body = json!({ "name": format!("project {written}") });
            let made = service.with(of).post("/v1/projects", &body).await;
            made.expect(201);
            written += 1;
        }
        written
    };
    let backing_up = async {
        let taken = tokio::task::spawn_blocking(back_up).await;
        is_over.store(true, Ordering::Relaxed);
        taken.expect("the backup is taken");
    };
    let ((), holds, quotes, projects, others) =
        tokio::join!(backing_up, holding, quoting, making(key), making(&other));
    eprintln!(
        "backed up while {holds} holds, {quotes} quotes, {projects} + {others} projects were made"
    );
}

/// Starts the service on the restored database, waits until it is ready, and checks its answers, the ledger
/// and the running machines while it runs.
async fn serves(environment: &Environment, folder: &Path, key: &Key) {
    let environment = environment
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()));
    let setting = Arc::new(Setting {
        environment: environment.collect(),
        folder: folder.to_owned(),
    });
    let mut replica = Replica::start(&setting, "restored");
    let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE);
    let http = http.build().expect("a client");
    let (begun, mut said) = (Instant::now(), String::new());
    let url = loop {
        let log = || std::fs::read_to_string(folder.join("restored.log")).unwrap_or_default();
        assert!(replica.lives(), "it ended by itself: {}", log());
        assert!(begun.elapsed() < PATIENCE, "{said}\n{}", log());
        let address = *replica.address().lock().expect("sound");
        if let Some(address) = address {
            let url = format!("http://{address}");
            let answer = http.get(format!("{url}/readyz")).send().await;
            let answer = answer.expect("an answer");
            let is_ready = answer.status() == 200;
            said = answer.text().await.expect("a text");
            if is_ready {
                break url;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let parts = said["parts"].as_array().expect("parts");
    for part in ["database", "migrations", "snapshot", "providers"] {
        let is_well = |one: &&Value| one["name"] == part && one["status"] == "ok";
        assert_eq!(parts.iter().filter(is_well).count(), 1, "{part}: {said}");
    }
    let listed = http
        .get(format!("{url}/v1/reservations?state=active"))
        .bearer_auth(&key.secret)
        .send()
        .await;
    let listed: Value = listed.expect("an answer").json().await.expect("JSON");
    assert_eq!(
        listed["items"].as_array().map(Vec::len),
        Some(1),
        "{listed}"
    );
}

fn running(service: &Service) -> Vec<String> {
    let machines = service.world.simulator().running_machines();
    machines.into_iter().map(|machine| machine.id).collect()
}

/// Buys, backs up under load, buys again, restores, and checks the broker on the restored database. `restore`
/// gives the environment in which the binary works on it.
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

    // Machines bought since might be another broker's: they are left alone until a person decides.
    let swept = run(&["sweep", "--json"]);
    assert_eq!(swept.status.code(), Some(1), "{swept:?}");
    assert_eq!(
        said(&swept),
        json!({
            "ended": 0, "unknown": 1, "returned": 0, "foreign": 0, "missing": 0, "unreadable": 0,
            "removed_attachments": 0, "unknown_attachments": 0,
        })
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
        json!({
            "ended": 1, "unknown": 0, "returned": 0, "foreign": 0, "missing": 0, "unreadable": 0,
            "removed_attachments": 0, "unknown_attachments": 0,
        })
    );
    assert_eq!(running(service), kept, "what the backup knows runs on");
    let nobody = LeaseId::from_uuid(service.world.broker().new_uuid()).to_string();
    let swept = run(&["sweep", "--json", "--end-returned", &nobody]);
    assert_eq!(swept.status.code(), Some(1), "{swept:?}");
    let why = String::from_utf8_lossy(&swept.stderr).into_owned();
    assert!(why.contains(&nobody) && why.contains("returned"), "{why}");
    serves(&environment, folder.path(), key).await;
    for look in [
        ["ledger", "check"],
        ["sweep", "--json"],
        ["sweep", "--ends"],
    ] {
        let looked = run(&look);
        assert!(looked.status.success(), "{looked:?}");
    }
    assert_eq!(running(service), kept, "the restored service let it run on");
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
        // A backup never overwrites a file.
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
    let store::Database::Url(from) = database.database.clone() else {
        panic!("PostgreSQL has a URL");
    };
    // The page makes a database of another name.
    let (_, taken) = named(&from);
    let to = from.replacen(taken, &format!("{taken}_restored"), 1);
    let (server, name) = named(&to);
    let [dump, restore_anew] = page_commands();
    let (service, key) = start(Some(database.store.clone())).await;
    let place = TempDir::new().expect("a folder");
    let folder = place.path().to_owned();
    let back_up = move || typed(&dump, &folder, &[("DATABASE_URL", &from)]);
    let sealing_key = data_dir(&service).join("secret.key");
    let restore = || {
        let set = [
            ("SERVER_URL", server.as_str()),
            ("NAME", name),
            ("DATABASE_URL", to.as_str()),
        ];
        typed(&restore_anew, place.path(), &set);
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
    let end = r#"dropdb --force --maintenance-db="$SERVER_URL" "$NAME""#;
    typed(
        end,
        place.path(),
        &[("SERVER_URL", &server), ("NAME", name)],
    );
}
