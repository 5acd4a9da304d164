//! Health, readiness, providers, keys, and the headers of every answer.

use std::time::Duration;

use broker::flow::ingest::{catch_up, read_provider};
use broker::platform::background::Background;
use broker::tools::simulation::SimulatedMarketOptions;
use chrono::TimeDelta;
use market::identity::Role;
use serde_json::json;
use simulator::NodeRunner;

use crate::eventually::eventually;
use crate::hot::server::RedisServer;
use crate::service::{Service, usual_world};

#[tokio::test(flavor = "multi_thread")]
async fn readiness_is_the_truth_and_health_is_only_life() {
    let service = Service::start().await;
    let ready = service.anyone().get("/readyz").await.expect(200);
    assert_eq!(ready["status"], "ready");
    let parts = ready["parts"].as_array().expect("parts");
    let named: Vec<_> = parts.iter().map(|part| part["name"].as_str()).collect();
    let all = [
        "process",
        "database",
        "migrations",
        "snapshot",
        "providers",
        "background",
        "clock",
        "hot_state",
    ];
    assert_eq!(named, all.map(Some));
    assert!(parts.iter().all(|part| part["status"] == "ok"), "{ready}");
    service.world.clock().advance(TimeDelta::days(800));
    // Any other replica would answer the same, and running machines must still be released.
    let stale = service.anyone().get("/readyz").await.expect(200);
    let parts = stale["parts"].as_array().expect("parts");
    let troubled: Vec<_> = parts.iter().filter(|part| part["status"] != "ok").collect();
    assert_eq!(troubled.len(), 1, "{stale}");
    assert_eq!(
        (&troubled[0]["name"], &troubled[0]["status"]),
        (&json!("providers"), &json!("degraded"))
    );
    service.anyone().get("/healthz").await.expect(200);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_tasks_are_silent_or_that_stops_is_not_ready() {
    let service = Service::start().await;
    let broker = service.world.broker();
    let part = async |name: &str| {
        let ready = service.anyone().get("/readyz").await.expect(200);
        let parts = ready["parts"].as_array().expect("parts").clone();
        let found = parts.into_iter().find(|part| part["name"] == name);
        found.expect("the part")
    };
    // A promise of no time at all is broken at once.
    broker.pulses().beat("poll:lambda", Duration::ZERO);
    let poller = part("background").await;
    assert_eq!(poller["status"], "degraded", "others go on: {poller}");
    broker.pulses().beat("fulfil", Duration::ZERO);
    let silent = service.anyone().get("/readyz").await;
    silent.refused(503, "not_ready");
    assert_eq!(silent.body["faults"][0]["field"], "background");
    broker.pulses().beat("fulfil", Duration::from_secs(600));
    assert_eq!(part("background").await["status"], "degraded");

    Background::of(broker).stop().await;
    let stopping = service.anyone().get("/readyz").await;
    stopping.refused(503, "not_ready");
    assert_eq!(stopping.body["faults"][0]["field"], "process");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_snapshot_stays_behind_is_not_ready() {
    let service = Service::start().await;
    let (broker, clock) = (service.world.broker(), service.world.clock());
    clock.advance(TimeDelta::seconds(5));
    // Read and applied, as by another replica: our snapshot is not notified.
    let link = &broker.providers()[0];
    read_provider(broker, link).await.expect("a reading");
    service.anyone().get("/readyz").await.expect(200);
    clock.advance(TimeDelta::seconds(31));
    let behind = service.anyone().get("/readyz").await;
    behind.refused(503, "not_ready");
    assert_eq!(behind.body["faults"][0]["field"], "snapshot");
    catch_up(broker).await.expect("the database");
    // However many ask, the database is asked once a second.
    let behind = service.anyone().get("/readyz").await;
    behind.refused(503, "not_ready");
    clock.advance(TimeDelta::seconds(1));
    service.anyone().get("/readyz").await.expect(200);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_without_its_database_lives_and_is_not_ready() {
    let service = Service::start().await;
    service.anyone().get("/readyz").await.expect(200);
    let store = service.world.broker().store().clone();
    store.close().await.expect("the database closes");
    service.world.clock().advance(TimeDelta::seconds(1));
    let lost = service.anyone().get("/readyz").await;
    lost.refused(503, "not_ready");
    assert_eq!(lost.body["faults"][0]["field"], "database");
    assert_eq!(lost.body["faults"].as_array().map(Vec::len), Some(1));
    assert_eq!(lost.header("retry-after"), Some("5"));
    service.anyone().get("/healthz").await.expect(200);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_lost_its_redis_is_ready_and_says_so() {
    let Some(mut redis) = RedisServer::private() else {
        return;
    };
    let url = redis.url();
    let service = Service::start_as(SimulatedMarketOptions {
        nodes: NodeRunner::Off,
        configure: Box::new(move |config| {
            config.rate_limits.enabled = false;
            config.redis.url = Some(url.clone());
        }),
        ..usual_world()
    })
    .await;
    let stands = async |status: &str| {
        let what = format!("coordination that is {status}");
        eventually(&what, async || {
            // The users of the coordination state notice its loss.
            let hot = service.world.broker().hot();
            hot.cache("look", b"up", Duration::from_secs(60)).await;
            let ready = service.anyone().get("/readyz").await.expect(200);
            assert_eq!(ready["status"], "ready");
            let parts = ready["parts"].as_array().expect("parts");
            let part = parts.iter().find(|part| part["name"] == "hot_state");
            part.expect("the part")["status"] == status
        })
        .await;
    };
    stands("ok").await;
    redis.kill();
    stands("degraded").await;
    redis.start();
    stands("ok").await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn providers_show_how_fresh_they_are() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Viewer).await;
    let listed = service.with(&key).get("/v1/providers").await.expect(200);
    let items = listed["items"].as_array().expect("items");
    let lambda = items
        .iter()
        .find(|item| item["id"] == "lambda")
        .expect("the simulated provider");
    assert_eq!(
        (
            &lambda["fresh"],
            &lambda["orderable"],
            &lambda["stale_reason"]
        ),
        (&json!(true), &json!(true), &json!(null))
    );
    assert!(lambda["live_offers"].as_u64() > Some(0));
    assert!(
        items.iter().any(|item| item["orderable"] == false),
        "price lists are only compared with"
    );
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_set_verifies_and_every_answer_is_guarded() {
    let service = Service::start().await;
    let answer = service.anyone().get("/.well-known/jwks.json").await;
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let keys = answer.expect(200);
    let keys = keys["keys"].as_array().expect("keys");
    assert!(
        keys.iter()
            .all(|key| key["kty"] == "OKP" && key.get("d").is_none()),
        "{keys:?}"
    );
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cost_report_comes_as_json_or_csv() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Finance).await;
    let path = "/v1/reports/costs?group_by=project,tag:team";
    let report = service.with(&key).get(path).await.expect(200);
    assert_eq!(
        (&report["rows"], report["total_usd"].as_str()),
        (&json!([]), Some("0.00"))
    );
    let by_header = service
        .with(&key)
        .header("accept", "text/csv")
        .get(path)
        .await;
    let by_word = service.with(&key).get(&format!("{path}&format=csv")).await;
    for csv in [&by_header, &by_word] {
        assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
        assert!(csv.text.starts_with("project,tag:team,"), "{}", csv.text);
    }
    service.stop().await;
}
