//! A policy on operators and certifications, over HTTP: the record decides, and is shown.

use broker::platform::config::ProviderConfig;
use broker::tools::simulation::SimulatedMarketOptions;
use chrono::TimeDelta;
use market::identity::Role;
use market::provider_facts::ProviderFacts;
use serde_json::{Value, json};
use simulator::NodeRunner;

use crate::service::{Service, ssh_key};

/// A service that starts just before the last day of a certificate of voltagepark ends.
async fn before_midnight() -> Service {
    let facts = json!({
        "operator": {"company": "Example Operator SAS", "country": "FR"},
        "certifications": [{"name": "BSI C5", "evidence": "doc 7", "valid_until": "2026-03-11"}],
    });
    let facts: ProviderFacts = serde_json::from_value(facts).expect("facts");
    let place = tempfile::tempdir().expect("a folder");
    Service::start_as(SimulatedMarketOptions {
        nodes: NodeRunner::Off,
        start: "2026-03-11T23:57:00Z".parse().expect("a time"),
        configure: Box::new(move |config| {
            let settings = ProviderConfig {
                operator: facts.operator.clone(),
                certifications: facts.certifications.clone(),
                ..ProviderConfig::default()
            };
            let id = "voltagepark".parse().expect("a provider");
            config.providers.insert(id, settings);
            config.rate_limits.enabled = false;
        }),
        ..SimulatedMarketOptions::new(place.path())
    })
    .await
}

fn demand() -> Value {
    json!({
        "kind": "gpus", "gpu": "H100-SXM", "count": 8,
        "policy": {"operator_countries": ["DE", "FR"], "certifications": ["c5"]},
    })
}

// S50
#[tokio::test(flavor = "multi_thread")]
async fn evidence_that_ended_between_the_plan_and_the_hold_refuses_the_hold() {
    let service = before_midnight().await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let plan = service
        .with(&key)
        .post("/v1/plans", &demand())
        .await
        .expect(201);
    let candidates = plan["candidates"].as_array().expect("candidates");
    assert!(!candidates.is_empty());
    for candidate in candidates {
        assert_eq!(candidate["lines"][0]["provider"], "voltagepark");
        let told = candidate["reasons"].to_string();
        for reason in [
            "Example Operator SAS operates it, under the law of FR",
            "It has c5 with evidence (doc 7) valid until 2026-03-11",
        ] {
            assert!(told.contains(reason), "{told}");
        }
    }
    assert!(plan["rejected"]["by_reason"]["operator"].as_u64() > Some(0));
    let orderable = candidates
        .iter()
        .find(|one| one["lines"][0]["orderable"] == true);
    let ask = json!({"plan_id": plan["id"], "candidate": orderable.expect("one")["rank"]});
    let quoted = service
        .with(&key)
        .post("/v1/quotes", &ask)
        .await
        .expect(201);
    service.world.clock().advance(TimeDelta::minutes(4));
    let held = service
        .with(&key)
        .post("/v1/reservations", &json!({"quote_id": quoted["id"]}))
        .await;
    let detail = held.refused(409, "outside_policy");
    assert!(
        detail.contains("voltagepark") && detail.contains("(doc 7) is valid until 2026-03-11"),
        "{detail}"
    );
    service.stop().await;
}

// S50
#[tokio::test(flavor = "multi_thread")]
async fn what_is_on_record_of_a_provider_is_shown() {
    let service = before_midnight().await;
    let key = service.key("acme", Role::Viewer).await;
    let shown = async |provider: &str| {
        let path = format!("/v1/providers/{provider}");
        service.with(&key).get(&path).await.expect(200)
    };
    let known = shown("voltagepark").await;
    assert_eq!(known["operator"]["country"], "FR");
    assert_eq!(
        known["certifications"],
        json!([{"name": "c5", "evidence": "doc 7", "valid_until": "2026-03-11"}])
    );
    let unknown = shown("lambda").await;
    assert_eq!(
        (&unknown["operator"], &unknown["certifications"]),
        (&Value::Null, &json!([]))
    );
    service.stop().await;
}
