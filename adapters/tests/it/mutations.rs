//! Recordings with something wrong in them, by chance: an adapter reads what it can, and never panics, hangs or
//! makes an offer at an absurd price.

use std::path::{Path, PathBuf};
use std::time::Duration;

use adapters::{Adapter, Http, registry};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::recorded::{fixtures, now};

/// How many mutations are read in all; `MUTATIONS` names another number.
const USUAL: usize = 2_000;

/// US dollars per GPU-hour between which a price may be: the gate's own bounds.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 0.009_999..=1_000.001;

/// A recording in a directory of its own, of which one file at a time is broken.
struct Recording {
    directory: tempfile::TempDir,
    files: Vec<(PathBuf, String)>,
}

impl Recording {
    /// Of the recorded exchanges that are reads.
    fn of(folder: &Path) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).ok()? {
            let path = entry.expect("an entry").path();
            let text = std::fs::read_to_string(&path).expect("text");
            let copy = directory.path().join(path.file_name().expect("a name"));
            std::fs::write(&copy, &text).expect("a file");
            if !text.contains("\"method\": \"POST\"") && !text.contains("\"method\": \"DELETE\"") {
                files.push((copy, text));
            }
        }
        files.sort();
        (!files.is_empty()).then_some(Self { directory, files })
    }

    /// The recording with one of its answers broken; what was broken, for the message of a failure.
    fn broken(&self, random: &mut StdRng) -> (Http, String) {
        let (path, text) = self.files.choose(random).expect("a file");
        let mut exchange: Value = serde_json::from_str(text).expect("JSON");
        let is_exchange = exchange.get("method").is_some() && exchange.get("body").is_some();
        let body = match is_exchange {
            true => &mut exchange["body"],
            false => &mut exchange,
        };
        for _ in 0..random.random_range(1..=3) {
            mutate(body, random);
        }
        let written = exchange.to_string();
        std::fs::write(path, &written).expect("a file");
        // A recording is read when it is opened, so the file can be mended at once.
        let http = Http::replay(self.directory.path()).expect("a recording");
        std::fs::write(path, text).expect("a file");
        (http, written)
    }
}

/// Changes something at a place in a document that chance finds.
fn mutate(value: &mut Value, random: &mut StdRng) {
    let deeper = random.random_bool(0.85);
    match value {
        Value::Object(members) if deeper && !members.is_empty() => {
            let names: Vec<String> = members.keys().cloned().collect();
            let name = names.choose(random).expect("a name");
            if random.random_bool(0.1) {
                members.remove(name);
            } else {
                mutate(&mut members[name.as_str()], random);
            }
        }
        Value::Array(items) if deeper && !items.is_empty() => {
            let at = random.random_range(0..items.len());
            match random.random_range(0..10) {
                0 => drop(items.remove(at)),
                1 => items.push(items[at].clone()),
                _ => mutate(&mut items[at], random),
            }
        }
        Value::Number(number) if random.random_bool(0.5) => {
            let factor = [0.0, -1.0, 0.001, 100.0, 1e6, 1e300].choose(random);
            let scaled = number.as_f64().unwrap_or(1.0) * factor.expect("a factor");
            *value = json!(scaled);
        }
        Value::String(text) if random.random_bool(0.5) => {
            let cut = text.floor_char_boundary(random.random_range(0..=text.len()));
            text.truncate(cut);
        }
        other => *other = odd(random),
    }
}

/// A value that nobody expects.
fn odd(random: &mut StdRng) -> Value {
    match random.random_range(0..14) {
        0 => Value::Null,
        1 => json!(-1),
        2 => json!(u64::MAX),
        3 => json!(i64::MIN),
        4 => json!(1e-300),
        5 => json!(1e308),
        6 => json!(true),
        7 => json!(""),
        8 => json!("NaN"),
        9 => json!("0x10 \u{0}\u{202e}"),
        10 => json!("9".repeat(400)),
        11 => json!("x".repeat(70_000)),
        12 => json!([]),
        _ => json!({"amount": {"unit": [1, 2, 3]}}),
    }
}

async fn check(adapter: &'static dyn Adapter, http: Http, broken: &str) {
    let reading = tokio::spawn(async move { adapter.read_catalog(&http, now()).await });
    let reading = tokio::time::timeout(Duration::from_secs(60), reading).await;
    let provider = adapter.profile().id;
    let ended = reading.unwrap_or_else(|_| panic!("{provider} hangs on {broken}"));
    let ended = ended.unwrap_or_else(|_| panic!("{provider} panics on {broken}"));
    let Ok(reading) = ended else { return };
    for offer in &reading.offers {
        let rate = offer.rate().expect("a rate").money_per_gpu_hour();
        let dollars = rate.units() as f64 / 1e8;
        assert!(
            PLAUSIBLE.contains(&dollars),
            "{provider} sells {} at {dollars} USD per GPU-hour of {broken}",
            offer.sku
        );
        for word in [&offer.sku, &offer.raw_gpu_name] {
            assert!(
                word.len() <= 400,
                "{provider} has a name of {} bytes",
                word.len()
            );
        }
    }
}

async fn check_leases(adapter: &'static dyn Adapter, http: Http, broken: &str) {
    let listed = tokio::spawn(async move { adapter.list_leases(&http).await });
    let ended = tokio::time::timeout(Duration::from_secs(60), listed).await;
    let provider = adapter.profile().id;
    let ended = ended.unwrap_or_else(|_| panic!("{provider} hangs on {broken}"));
    let ended = ended.unwrap_or_else(|_| panic!("{provider} panics on {broken}"));
    for lease in ended.into_iter().flatten() {
        let id = &lease.id.0;
        assert!(
            !id.is_empty() && id.len() < 400,
            "{provider} lists `{id}` of {broken}"
        );
        let has_host = lease.nodes.iter().all(|node| !node.host.is_empty());
        assert!(
            has_host,
            "{provider} shows a node without a host of {broken}"
        );
    }
}

#[tokio::test]
async fn a_recording_with_faults_by_chance_makes_no_panic_and_no_absurd_offer() {
    let wanted = std::env::var("MUTATIONS").ok();
    let wanted = wanted.map(|count| count.parse().expect("a number"));
    let adapters = registry::all();
    let each = wanted.unwrap_or(USUAL).div_ceil(adapters.len());
    for (seed, adapter) in (1..).zip(adapters) {
        let folder = fixtures(adapter.profile().id);
        let mut random = StdRng::seed_from_u64(seed);
        let catalog = Recording::of(&folder.join("catalog")).expect("a recorded catalogue");
        let leases = Recording::of(&folder.join("lease")).expect("recorded leases");
        for nth in 0..each {
            // Every fourth one is about machines.
            if nth % 4 == 3 {
                let (http, broken) = leases.broken(&mut random);
                check_leases(*adapter, http, &broken).await;
            } else {
                let (http, broken) = catalog.broken(&mut random);
                check(*adapter, http, &broken).await;
            }
        }
    }
}
