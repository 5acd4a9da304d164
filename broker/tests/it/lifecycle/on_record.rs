//! The records of providers, from the plan to the end of a reservation.

use broker::flow::reserve::{self, ReserveError};
use broker::platform::config::ProviderConfig;
use chrono::{DateTime, Utc};
use market::ids::ProviderId;
use market::provider_facts::ProviderFacts;
use serde_json::json;
use simulator::Provider;
use store::fixture::for_each_database;

use super::scene::Scene;

/// Restarts the broker with this last day of a certificate of each provider.
async fn with_evidence(scene: &mut Scene, until: &[(Provider, &str)]) {
    let settings = until.iter().map(|(provider, day)| {
        let certified = json!({"name": "c5", "evidence": "doc 7", "valid_until": day});
        let facts: ProviderFacts =
            serde_json::from_value(json!({"certifications": [certified]})).expect("facts");
        let settings = ProviderConfig {
            certifications: facts.certifications,
            ..ProviderConfig::default()
        };
        let id = ProviderId::parse(provider.as_str()).expect("a provider");
        (id, settings)
    });
    let settings: Vec<_> = settings.collect();
    scene
        .restart_as(|config| config.providers.extend(settings), |_| true)
        .await;
}

// S50
#[tokio::test(flavor = "multi_thread")]
async fn what_runs_under_a_policy_is_kept_and_replaced_within_it() {
    for_each_database(async |store| {
        let mut scene = Scene::open(store).await;
        let dates = [
            (Provider::LAMBDA, "2026-03-13"),
            (Provider::VOLTAGEPARK, "2026-03-11"),
        ];
        with_evidence(&mut scene, &dates).await;
        let id = scene
            .reserve_until_active(json!({
                "kind": "gpus", "gpu": "H100-SXM", "count": 8, "window": {"end": "2026-03-12T09:00:00Z"},
                "policy": {"certifications": ["c5"]},
            }))
            .await;
        let at = |lease: &store::leases::Lease| lease.offer.provider.to_string();
        let first = scene.leases(id).await.remove(0);
        assert_eq!(at(&first), "lambda", "the cheaper one's evidence ends today");

        let extend = async |end: &str| {
            let end: DateTime<Utc> = end.parse().expect("a time");
            reserve::extend(scene.broker(), scene.tenant, id, end, None).await
        };
        extend("2026-03-13T23:00:00Z").await.expect("still within it");
        let refused = extend("2026-03-14T01:00:00Z").await.expect_err("past it");
        assert!(
            matches!(&refused, ReserveError::OutsidePolicy { .. }),
            "{refused}"
        );
        assert!(refused.to_string().contains("until 2026-03-13"), "{refused}");

        scene.take_away(&first).await;
        scene.turn(600).await;
        scene.turn(600).await;
        let leases = scene.leases(id).await;
        assert!(leases.len() > 1, "it was replaced");
        for lease in &leases {
            assert_eq!(at(lease), "lambda");
        }
        scene.release_and_close(id).await;
        scene.close().await;
    })
    .await;
}
