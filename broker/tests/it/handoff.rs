//! From the hand-off on, through the API alone: access, nodes, proof, extension, release, cost.

use broker::tools::simulation::SimulatedMarketOptions;
use chrono::{DateTime, TimeDelta, Utc};
use market::identity::Role;
use market::ids::ProviderId;
use market::money::Money;
use market::provider_facts::ProviderFacts;
use serde_json::{Value, json};
use simulator::{Fault, FaultKind, Provider};
use store::fixture::execute_raw;
use verifier::attest::verify_attestation;
use verifier::jws::PublicKey;

use crate::access::{fleet, until_active};
use crate::service::{Key, Service, orderable_demand, ssh_key, usual_world};

/// Advances the clock until the reservation is in `state`.
async fn until(service: &Service, key: &Key, path: &str, state: &str) -> Value {
    for _ in 0..120 {
        service
            .world
            .turn(TimeDelta::seconds(60))
            .await
            .expect("the clock turns");
        let now = service.with(key).get(path).await.expect(200);
        if now["state"] == state {
            return now;
        }
    }
    panic!("the reservation did not become {state} within two hours of the clock");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_handed_off_is_reached_proved_extended_released_and_paid() {
    let service = Service::start_with_nodes().await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let mut demand = orderable_demand(&service).await;
    demand["window"] = json!({ "duration_hours": 5 });
    demand["tags"] = json!({ "team": "research" });
    let ask = json!({ "demand": demand, "auto_confirm": true });
    let placed = service
        .with(&key)
        .post("/v1/reservations", &ask)
        .await
        .expect(201);
    let path = format!("/v1/reservations/{}", placed["id"].as_str().expect("an id"));
    let active = until(&service, &key, &path, "active").await;
    let happened: Vec<&str> = active["history"]
        .as_array()
        .expect("history")
        .iter()
        .filter_map(|entry| entry["what"].as_str())
        .collect();
    for what in [
        "held",
        "confirmed",
        "requested",
        "accepted",
        "up",
        "handed_off",
        "active",
    ] {
        assert!(
            happened.contains(&what),
            "{what} is missing in {happened:?}"
        );
    }

    let access = service
        .with(&key)
        .get(&format!("{path}/access"))
        .await
        .expect(200);
    assert_eq!(access["nodes"].as_array().map(Vec::len), Some(1));
    assert!(access["nodes"][0]["host"].is_string() && access["nodes"][0]["user"].is_string());
    assert!(
        access["hostfile"]
            .as_str()
            .is_some_and(|file| file.contains(" slots="))
    );

    let nodes = service
        .with(&key)
        .get(&format!("{path}/nodes"))
        .await
        .expect(200);
    assert_eq!(
        (&nodes["items"][0]["node"], &nodes["items"][0]["verdict"]),
        (&json!(0), &json!("pass"))
    );
    proof_holds(&service, &key, &nodes["items"][0]).await;

    let end: DateTime<Utc> = active["window_end"]
        .as_str()
        .expect("an end")
        .parse()
        .expect("a time");
    let extend = format!("{path}/extend");
    let earlier = json!({ "end": end - TimeDelta::hours(1) });
    service
        .with(&key)
        .post(&extend, &earlier)
        .await
        .refused(422, "invalid_body");
    let later = json!({ "end": end + TimeDelta::hours(2) });
    let extended = service.with(&key).post(&extend, &later).await.expect(200);
    assert_eq!(
        extended["window_end"]
            .as_str()
            .expect("an end")
            .parse::<DateTime<Utc>>(),
        Ok(end + TimeDelta::hours(2))
    );

    service
        .with(&key)
        .send("POST", &format!("{path}/release"), None)
        .await
        .expect(200);
    let closed = until(&service, &key, &path, "closed").await;
    assert_eq!(closed["reason"], "released");
    service
        .with(&key)
        .get(&format!("{path}/access"))
        .await
        .refused(409, "not_handed_off");
    what_was_used_is_charged(&service, &key).await;
    a_report_of_many_months_adds_up(&service, &key).await;
    service.stop().await;
}

// Its nodes are simulated and have no storage: the promised storage is asked of them and not shown.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_promised_of_storage_is_asked_of_a_node() {
    let promised = json!({ "storage": [{ "read_mb_per_s": 5_000 }] });
    let facts: ProviderFacts = serde_json::from_value(promised).expect("facts");
    let usual = usual_world();
    let configure = usual.configure;
    let service = Service::start_as(SimulatedMarketOptions {
        configure: Box::new(move |config| {
            configure(config);
            for provider in Provider::DEMONSTRATION {
                let id = ProviderId::parse(provider.as_str()).expect("a provider");
                config.providers.entry(id).or_default().storage = facts.storage.clone();
            }
        }),
        ..usual_world()
    })
    .await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let ask = json!({ "demand": orderable_demand(&service).await, "auto_confirm": true });
    let placed = service.with(&key).post("/v1/reservations", &ask).await;
    let placed = placed.expect(201);
    let path = format!("/v1/reservations/{}", placed["id"].as_str().expect("an id"));
    until(&service, &key, &path, "active").await;
    let nodes = service.with(&key).get(&format!("{path}/nodes")).await;
    let id = nodes.expect(200)["items"][0]["attestation_id"].clone();
    let shown = format!("/v1/attestations/{}", id.as_str().expect("an attestation"));
    let shown = service.with(&key).get(&shown).await.expect(200);
    let document = &shown["document"];
    let storage = &document["expected"]["storage"];
    assert_eq!(storage, &json!({ "read_bytes_per_s": 5_000_000_000_u64 }));
    let found = |code: &str| {
        let findings = document["findings"].as_array().expect("findings");
        let found = findings.iter().find(|found| found["code"] == code);
        found.expect("a finding")["outcome"].clone()
    };
    assert_eq!(found("storage.read"), "not_run");
    assert_eq!(found("storage.write"), "noted");
    service.stop().await;
}

/// Its tenant's keys are on a machine before the hand-off, so its address is not shown until then.
#[tokio::test(flavor = "multi_thread")]
async fn the_document_of_a_node_is_told_with_the_hand_off_and_not_before() {
    let service = Service::start_with_nodes().await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let never = Fault::new(Provider::LAMBDA, FaultKind::NeverCallsHome);
    let broken = service.world.simulator().break_next(never);
    broken.expect("a fault that fits");
    let ask = json!({ "demand": fleet(2), "auto_confirm": true });
    let placed = service.with(&key).post("/v1/reservations", &ask).await;
    let placed = placed.expect(201);
    let path = format!("/v1/reservations/{}", placed["id"].as_str().expect("an id"));
    let mut passed = None;
    for _ in 0..20 {
        let turned = service.world.live_on(TimeDelta::seconds(60)).await;
        turned.expect("the clock turns");
        let nodes = service.with(&key).get(&format!("{path}/nodes")).await;
        let nodes = nodes.expect(200);
        let nodes = nodes["items"].as_array().expect("items").iter();
        passed = nodes
            .clone()
            .find(|node| node["verdict"] == "pass")
            .cloned();
        if passed.is_some() {
            break;
        }
    }
    let passed = passed.expect("one node passes while the other is waited for");
    assert_ne!(passed["state"], "handed_off");
    let id = passed["attestation_id"].as_str().expect("an attestation");
    let document = format!("/v1/attestations/{id}");
    let refused = service.with(&key).get(&document).await;
    refused.refused(409, "not_handed_off");
    until_active(&service, &key, &path).await;
    let shown = service.with(&key).get(&document).await.expect(200);
    assert_eq!(shown["lease_id"], passed["lease_id"]);
    service.stop().await;
}

/// The signed result is shown to its tenant alone, and its signature holds offline.
async fn proof_holds(service: &Service, key: &Key, node: &Value) {
    let path = format!(
        "/v1/attestations/{}",
        node["attestation_id"].as_str().expect("an attestation")
    );
    let shown = service.with(key).get(&path).await.expect(200);
    assert_eq!(
        (&shown["verdict"], &shown["simulated"]),
        (&json!("pass"), &json!(true))
    );
    assert_eq!(shown["document"]["lease_id"], node["lease_id"]);
    let jwks = service
        .anyone()
        .get("/.well-known/jwks.json")
        .await
        .expect(200);
    let keys = jwks["keys"].as_array().expect("keys");
    let signer = keys
        .iter()
        .find(|key| key["purpose"] == "attestation")
        .expect("the signing key");
    let signer = PublicKey::parse(signer["x"].as_str().expect("a key")).expect("a key");
    let read =
        verify_attestation(shown["jws"].as_str().expect("a JWS"), &signer).expect("it is signed");
    assert_eq!(
        serde_json::to_value(&read).expect("json"),
        shown["document"]
    );
    let stranger = service.key("other", Role::Member).await;
    service
        .with(&stranger)
        .get(&path)
        .await
        .refused(404, "not_found");
}

/// Of more days and charges over a midnight than are read at once.
async fn a_report_of_many_months_adds_up(service: &Service, key: &Key) {
    let moment = |day: &str, time: &str| {
        let day = format!("strftime('%Y-%m-%dT{time}', charged_at, '-' || ({day}) || ' days')");
        // No two at the same moment.
        format!("{day} || printf('.%06d+00:00', n)")
    };
    // Forty a day that end the day after, for seventy days, and one that does not.
    let charges = format!(
        "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 2870)
         INSERT INTO charges
         SELECT substr(usage_id, 1, 24) || printf('%012x', n), tenant_id, project_id, reservation_id,
             lease_id, line, provider_id, gpu, workload, gpus,
             {from}, CASE n % 41 WHEN 0 THEN {same_day} ELSE {next_day} END,
             gpus * CASE n % 41 WHEN 0 THEN 1740 ELSE 3600 END, rate_units, amount_units + n, currency, tags, attribution, charged_at
         FROM (SELECT * FROM charges LIMIT 1), numbers",
        from = moment("2 + n / 41", "23:30:00"),
        same_day = moment("2 + n / 41", "23:59:00"),
        next_day = moment("1 + n / 41", "00:30:00"),
    );
    let store = service.world.broker().store();
    execute_raw(store, &charges).await.expect("charged");
    let charges = store.charges().of(key.tenant);
    let all = charges.between(DateTime::UNIX_EPOCH, service.world.broker().now());
    let all = all.await.expect("reads");
    assert!(all.len() > 2_870, "{}", all.len());
    let gpu_seconds: i64 = all.iter().map(|charge| charge.usage.gpu_seconds()).sum();
    let units: i64 = all.iter().map(|charge| charge.amount.units()).sum();
    let costs = "/v1/reports/costs?group_by=provider";
    let report = service.with(key).get(costs).await.expect(200);
    assert_eq!(report["total_gpu_seconds"], gpu_seconds);
    assert_eq!(report["total_usd"], json!(Money::usd_units(units)));
    assert_eq!(report["rows"].as_array().map(Vec::len), Some(1), "{report}");
}

async fn what_was_used_is_charged(service: &Service, key: &Key) {
    let costs = "/v1/reports/costs?group_by=workload,tag:team";
    let report = service.with(key).get(costs).await.expect(200);
    assert_eq!(report["rows"].as_array().map(Vec::len), Some(1), "{report}");
    assert_eq!(report["rows"][0]["group"][1]["value"], "research");
    assert!(report["total_gpu_seconds"].as_u64() > Some(0));
    let csv = service.with(key).get(&format!("{costs}&format=csv")).await;
    assert!(
        csv.text
            .lines()
            .any(|line| line.starts_with("gpus,research,")),
        "{}",
        csv.text
    );

    let stranger = service.key("other", Role::Finance).await;
    assert_eq!(
        service.with(&stranger).get(costs).await.expect(200)["rows"],
        json!([])
    );
    let operator = service.key("operators", Role::Admin).await;
    let everybody = service.with(&operator).get(costs).await.expect(200);
    assert_eq!(
        everybody["total_usd"], report["total_usd"],
        "an administrator sees every tenant's"
    );
    let named = service
        .with(&operator)
        .get(&format!("{costs}&tenant={}", operator.tenant))
        .await
        .expect(200);
    assert_eq!(named["rows"], json!([]));
}
