//! Commands that change something, one after the other.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::TimeDelta;
use market::identity::Role;
use serde_json::{Value, json};

use super::{WIDTHS, faults, filled, hybrid, ids};
use crate::access::{fleet, reserve};
use crate::belongings::Belongings;
use crate::client::Shell;
use crate::service::{Key, Service, orderable_demand};

/// In their order; `{made}` and `{last}` are the first and the last id that was printed last. A command that works only once has a key, under
/// which it is answered again at the next width.
pub(super) const ALL: [&str; 23] = [
    "login --server {url} --key-file {key}",
    "ssh-keys add {public_key}",
    "ssh-keys delete {made}",
    "projects add project-{n}",
    "commitments add --provider lambda --gpu H100-SXM --nodes 1 --until 2030-01-01T00:00:00Z --name c{n}",
    "commitments remove {made}",
    "quote {plan}",
    "reserve --quote {made} --name a-name-of-some-length",
    "confirm {made}",
    "cancel {made}",
    "quote --demand {later}",
    "reserve --quote {made} --max-usd-per-gpu-hour 0.10",
    "confirm {made}",
    "cancel {made}",
    "reserve --demand {hybrid}",
    "confirm {made} {last}",
    "cancel {made}",
    "extend {ending} --until 2027-01-02T00:00:00Z --idempotency-key longer",
    "report node {in_use} 0 --reason slow --idempotency-key slow",
    "release {in_use} --idempotency-key over",
    "token create --tenant acme --login {url} --data-dir {fresh} --profile other",
    "logout --profile other",
    "logout --profile default",
];

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_something_keeps_to_the_terminal() {
    let service = Service::start_with_nodes().await;
    let member = service.key("acme", Role::Member).await;
    let admin = service.key("acme", Role::Admin).await;
    let things = Belongings::make(&service, &member, &admin, "a name").await;
    let mut ending = fleet(1);
    ending["window"] = json!({ "duration_hours": 12 });
    let ending = reserve(&service, &member, &ending).await;
    let ending = ending.rsplit('/').next().expect("an id");
    let mut later = orderable_demand(&service).await;
    let start = service.world.broker().now() + TimeDelta::days(3);
    later["window"] = json!({ "start_earliest": start, "duration_hours": 12 });
    let files = Shell::new();
    let written = |name: &str, demand: &Value| files.write(name, &demand.to_string());
    let later = written("later.json", &later);
    let hybrid = written("hybrid.json", &hybrid());
    let mut wrong = Vec::new();
    for (number, width) in (1_u8..).zip(WIDTHS) {
        let names = [
            ("url", service.world.base_url().to_owned()),
            ("plan", things.plan.clone()),
            ("in_use", things.in_use.clone()),
            ("ending", ending.to_owned()),
            ("later", later.clone()),
            ("hybrid", hybrid.clone()),
            ("n", number.to_string()),
        ];
        wrong.extend(run_all(&admin, &names, number, width).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    service.stop().await;
}

async fn run_all(
    admin: &Key,
    names: &[(&'static str, String)],
    number: u8,
    width: usize,
) -> Vec<String> {
    let shell = Shell::new().with("COLUMNS", &width.to_string());
    let fresh = shell.home.path().join("fresh");
    let mut names = names.to_vec();
    names.extend([
        ("key", shell.write("key", &admin.secret)),
        ("public_key", shell.write("laptop.pub", &public_key(number))),
        ("fresh", fresh.display().to_string()),
    ]);
    let (mut made, mut last, mut wrong) = (String::new(), String::new(), Vec::new());
    for command in ALL {
        let command = command.replace("{made}", &made).replace("{last}", &last);
        let command = filled(&command, &names);
        let ended = shell.run(&command).await;
        assert_ne!(ended.status, Some(2), "{command}: {ended:?}");
        assert_ne!(ended.stdout, "", "{command}: {ended:?}");
        wrong.extend(faults(&command, width, &ended.stdout));
        if let Some(id) = ids(&ended.stdout).next() {
            id.clone_into(&mut made);
        }
        if let Some(id) = ids(&ended.stdout).last() {
            id.clone_into(&mut last);
        }
    }
    wrong
}

/// A public key of which each number has another.
fn public_key(number: u8) -> String {
    let key = ed25519_dalek::SigningKey::from_bytes(&[number; 32]).verifying_key();
    let mut blob = Vec::new();
    for part in [b"ssh-ed25519".as_slice(), key.as_bytes()] {
        let length = u32::try_from(part.len()).expect("a short text");
        blob.extend_from_slice(&length.to_be_bytes());
        blob.extend_from_slice(part);
    }
    format!("ssh-ed25519 {} ada@laptop", STANDARD.encode(blob))
}
