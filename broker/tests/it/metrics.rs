//! `/metrics`: its readers, that its content agrees with the table, and that docs, dashboard and alerts name
//! nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use broker::platform::metrics::{METRICS, Metric};
use market::identity::Role;
use secrecy::SecretString;
use simulator::Provider;

use crate::service::{Service, hold, orderable_demand};

const TOKEN: &str = "a-scraper-may-hold-this";

async fn scrape(service: &Service) -> String {
    let answer = service.bearer(TOKEN).get("/metrics").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(
        answer.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    answer.text
}

async fn watched() -> Service {
    Service::start_configured(|config| {
        config.server.metrics_token = Some(SecretString::from(TOKEN));
    })
    .await
}

/// The value of a series whose line begins so.
fn value(text: &str, series: &str) -> Option<f64> {
    text.lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
        .map(|value| value.parse().expect("a number"))
}

/// The sum of all series of this name whose labels hold these.
fn sum(text: &str, name: &str, labels: &[&str]) -> f64 {
    let of =
        |line: &&str| line.starts_with(name) && labels.iter().all(|label| line.contains(label));
    let number = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
    text.lines().filter(of).filter_map(number).sum()
}

/// Each family that a text holds, with the labels of its series.
fn families(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut families: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let name = rest.split(' ').next().expect("a name");
            families.entry(name.to_owned()).or_default();
        }
        if line.starts_with('#') {
            continue;
        }
        let name = line.split(['{', ' ']).next().expect("a name");
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|part| {
                name.strip_suffix(part)
                    .filter(|name| families.contains_key(*name))
            })
            .unwrap_or(name)
            .to_owned();
        let inside = line
            .split_once('{')
            .and_then(|(_, rest)| rest.rsplit_once('}'));
        let labels = inside.map_or("", |(labels, _)| labels).split("\",");
        let names = labels.filter_map(|label| label.split_once('=').map(|(name, _)| name));
        let known = families.get_mut(&family);
        let known = known.unwrap_or_else(|| panic!("{family} has no type"));
        known.extend(names.filter(|name| *name != "le").map(str::to_owned));
    }
    families
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_for_administrators_and_for_the_configured_token() {
    let service = watched().await;
    service
        .anyone()
        .get("/metrics")
        .await
        .refused(401, "token_missing");
    let wrong = service.bearer("another-token").get("/metrics").await;
    wrong.refused(401, "invalid_token");
    let member = service.key("acme", Role::Member).await;
    let refused = service.with(&member).get("/metrics").await;
    refused.refused(403, "access_denied");
    let admin = service.key("acme", Role::Admin).await;
    assert_eq!(service.with(&admin).get("/metrics").await.status, 200);
    scrape(&service).await;
    // The token opens nothing else.
    let other = service.bearer(TOKEN).get("/v1/reservations").await;
    other.refused(401, "invalid_token");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_in_the_configuration_only_administrators_read_metrics() {
    let service = Service::start().await;
    for token in ["", TOKEN] {
        let answer = service.bearer(token).get("/metrics").await;
        answer.refused(401, "invalid_token");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_stands_in_the_table_with_its_labels_and_names_no_tenant() {
    let service = watched().await;
    let key = service.key("acme-the-tenant", Role::Member).await;
    let reservation = hold(&service, &key).await;
    service.anyone().get("/no/such/route/acme-the-tenant").await;
    let text = scrape(&service).await;
    let table: BTreeMap<&str, &Metric> = METRICS.iter().map(|one| (one.name, one)).collect();
    for (family, labels) in families(&text) {
        let metric = table
            .get(family.as_str())
            .unwrap_or_else(|| panic!("{family} is not in the table"));
        let kind = format!("# TYPE {family} {}\n", metric.kind.as_str());
        assert!(text.contains(&kind), "{family} is another kind");
        assert!(text.contains(&format!("# HELP {family} ")), "{family}");
        let known: BTreeSet<String> = metric.labels.iter().map(|one| (*one).to_owned()).collect();
        assert!(labels.is_subset(&known), "{family} has {labels:?}");
    }
    for secret in ["acme-the-tenant", &reservation, &key.secret] {
        assert!(!text.contains(secret), "{secret} is in the metrics");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gauges_say_how_supply_and_work_stand() {
    let service = watched().await;
    let key = service.key("acme", Role::Member).await;
    hold(&service, &key).await;
    let text = scrape(&service).await;
    let age = "broker_provider_reading_age_seconds{provider=\"lambda\"}";
    let young = value(&text, age).expect("the age of a reading");
    assert!(value(&text, "broker_provider_offers{provider=\"lambda\"}") > Some(0.0));
    assert_eq!(
        value(&text, "broker_reservations{state=\"held\"}"),
        Some(1.0)
    );
    assert_eq!(
        value(&text, "broker_reservations{state=\"active\"}"),
        Some(0.0)
    );
    assert_eq!(value(&text, "broker_work_waiting"), Some(1.0));
    assert_eq!(value(&text, "broker_work_due"), Some(0.0));
    assert_eq!(value(&text, "broker_snapshot_behind_readings"), Some(0.0));
    assert_eq!(value(&text, "broker_database_up"), Some(1.0));
    assert_eq!(value(&text, "broker_hot_state_lost"), Some(0.0));

    // The hold lapses after 15 minutes, and nobody works here.
    service
        .world
        .clock()
        .advance(chrono::TimeDelta::minutes(20));
    let text = scrape(&service).await;
    assert_eq!(value(&text, age), Some(young + 20.0 * 60.0));
    assert_eq!(value(&text, "broker_work_due"), Some(1.0));
    assert_eq!(
        value(&text, "broker_work_oldest_due_seconds"),
        Some(5.0 * 60.0)
    );
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_holds_are_counted_by_route_and_outcome() {
    let service = watched().await;
    let key = service.key("acme", Role::Member).await;
    // The recorder is the process's, and other tests count along: only the growth is known.
    let requests =
        "broker_http_requests_total{method=\"POST\",route=\"/v1/reservations\",status=\"201\"}";
    let unmatched =
        "broker_http_requests_total{method=\"other\",route=\"unmatched\",status=\"404\"}";
    let held = "broker_holds_total{outcome=\"held\"}";
    let before = scrape(&service).await;
    hold(&service, &key).await;
    let strange = service.anyone().send("BREW", "/no/such/pot", None).await;
    strange.refused(404, "route_not_found");
    let after = scrape(&service).await;
    for series in [requests, unmatched, held] {
        assert!(value(&after, series) > value(&before, series), "{series}");
    }
    let took =
        "broker_http_request_duration_seconds_count{method=\"POST\",route=\"/v1/reservations\"}";
    assert!(value(&after, took) >= Some(1.0));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_that_is_fulfilled_is_counted_on_its_way() {
    let service = Service::start_with_nodes().await;
    let admin = service.key("acme", Role::Admin).await;
    let key = service.key("acme", Role::Member).await;
    crate::service::ssh_key(&service, &key).await;
    let before = service.with(&admin).get("/metrics").await.text;
    let ask = serde_json::json!({
        "demand": orderable_demand(&service).await, "auto_confirm": true,
    });
    let made = service.with(&key).post("/v1/reservations", &ask).await;
    let path = format!(
        "/v1/reservations/{}",
        made.expect(201)["id"].as_str().expect("an id")
    );
    for _ in 0..60 {
        service
            .world
            .live_on(chrono::TimeDelta::seconds(30))
            .await
            .expect("a turn");
        if service.with(&key).get(&path).await.expect(200)["state"] == "active" {
            break;
        }
    }
    let after = service.with(&admin).get("/metrics").await.text;
    for (name, label) in [
        ("broker_orders_total{", "outcome=\"accepted\""),
        ("broker_verifications_total{", "outcome=\"passed\""),
        ("broker_verification_duration_seconds_count{", "passed"),
        ("broker_handoff_duration_seconds_count{", "kind=\"gpus\""),
        ("broker_readings_total{", "outcome=\"ok\""),
    ] {
        let (was, is) = (sum(&before, name, &[label]), sum(&after, name, &[label]));
        assert!(is > was, "{name} {label}: {was}, then {is}");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_for_what_was_shown_and_is_not_there_is_counted_as_a_phantom() {
    let service = watched().await;
    let key = service.key("acme", Role::Member).await;
    crate::service::ssh_key(&service, &key).await;
    let ask = serde_json::json!({
        "demand": {
            "kind": "gpus", "gpu": "A10", "count": 1, "policy": { "allow_providers": ["lambda"] },
        },
        "auto_confirm": true,
    });
    let made = service.with(&key).post("/v1/reservations", &ask).await;
    made.expect(201);
    // Sold to somebody else since the list was read.
    service
        .world
        .simulator()
        .set_capacity(Provider::LAMBDA, "gpu_1x_a10", 0)
        .expect("it is sold");
    let before = scrape(&service).await;
    let work = broker::flow::fulfil::work_until_idle(service.world.broker()).await;
    work.expect("the database answers");
    let after = scrape(&service).await;
    let phantom = [
        "provider=\"lambda\"",
        "shown=\"present\"",
        "outcome=\"out_of_stock\"",
    ];
    let name = "broker_orders_total{";
    assert!(sum(&after, name, &phantom) > sum(&before, name, &phantom));
    service.stop().await;
}

fn docs(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(file)
}

#[test]
fn the_table_in_the_docs_is_the_one_in_the_code() {
    const HEAD: &str = "| metric | kind | labels | says |\n|---|---|---|---|\n";
    let mut table = HEAD.to_owned();
    for metric in METRICS {
        let labels: Vec<_> = metric
            .labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        let (name, kind, labels) = (metric.name, metric.kind.as_str(), labels.join(", "));
        writeln!(table, "| `{name}` | {kind} | {labels} | {} |", metric.help).expect("text");
    }
    let file = docs("metrics.md");
    let text = fs::read_to_string(&file).expect("docs/metrics.md");
    let start = text.find(HEAD).expect("the table");
    let end = text[start..]
        .find("\n\n")
        .map_or(text.len(), |end| start + end + 1);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let text = format!("{}{table}{}", &text[..start], &text[end..]);
        fs::write(&file, text).expect("the table is written");
        return;
    }
    assert!(
        text[start..end] == table,
        "docs/metrics.md is out of date; run `cargo xtask generate` and review it"
    );
}

#[test]
fn metrics_are_named_by_the_conventions() {
    let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(
        names.len(),
        METRICS.len(),
        "a metric stands in the table twice"
    );
    for metric in METRICS {
        let (name, kind) = (metric.name, metric.kind.as_str());
        assert!(name.starts_with("broker_"), "{name}");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        assert!(kind != "histogram" || name.ends_with("_seconds"), "{name}");
    }
}

/// Every name of ours in a text, without the suffixes of a histogram's parts.
fn names_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("broker_"))
        .map(|word| {
            let parts = ["_bucket", "_sum", "_count"].iter();
            parts
                .filter_map(|part| word.strip_suffix(part))
                .find(|name| METRICS.iter().any(|metric| metric.name == *name))
                .unwrap_or(word)
        })
        .collect()
}

#[test]
fn the_dashboard_shows_every_metric_and_names_no_other() {
    let text = fs::read_to_string(docs("grafana/broker.json")).expect("the dashboard");
    let board: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let mut shown = BTreeSet::new();
    for panel in board["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().unwrap_or(&Vec::new()) {
            let query = target["expr"].as_str().expect("a query");
            let names = names_in(query);
            assert!(!names.is_empty(), "{query} shows nothing of ours");
            shown.extend(names.into_iter().map(str::to_owned));
        }
    }
    let limit = "broker_provider_freshness_limit_seconds";
    let all: BTreeSet<_> = METRICS
        .iter()
        .map(|metric| metric.name.to_owned())
        // Only compared with the age, in an alert.
        .filter(|name| name != limit)
        .collect();
    assert_eq!(shown, all);
}

#[test]
fn alerts_and_docs_name_only_metrics_that_are_there() {
    let known: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
    for file in ["grafana/alerts.yml", "metrics.md"] {
        let text = fs::read_to_string(docs(file)).expect("a file of the docs");
        let names = names_in(&text);
        assert!(names.len() > 10, "{file} was not read");
        let unknown: Vec<_> = names.difference(&known).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}");
    }
}
