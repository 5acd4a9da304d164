//! Answers of the service from memory, and the end of their validity.

use broker::flow::ingest;
use chrono::TimeDelta;
use market::identity::Role;
use market::ids::ProviderId;
use serde_json::json;
use store::providers::{Cause, ProviderChange};

use crate::service::{Answer, Key, Service, orderable_demand, ssh_key};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_another_replica_revoked_is_refused_a_second_later() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    service.with(&key).get("/v1/api-keys").await.expect(200);
    let broker = service.world.broker();
    let keys = broker.store().api_keys().of(key.tenant);
    keys.revoke(key.id, broker.now(), None)
        .await
        .expect("revoked behind the back of the service");
    service.world.clock().advance(TimeDelta::seconds(1));
    let answer = service.with(&key).get("/v1/api-keys").await;
    answer.refused(401, "invalid_token");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_refused_the_moment_that_its_time_is_over() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let lives_on = serde_json::json!({ "overlap_seconds": 1 });
    let path = format!("/v1/api-keys/{}/rotate", key.id);
    let caller = service.with(&key).once("rotate");
    caller.post(&path, &lives_on).await.expect(201);
    service.world.clock().advance(TimeDelta::milliseconds(500));
    service.with(&key).get("/v1/api-keys").await.expect(200);
    service.world.clock().advance(TimeDelta::milliseconds(500));
    let answer = service.with(&key).get("/v1/api-keys").await;
    answer.refused(401, "token_expired");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_plan_is_the_same_answer_and_another_tenants_is_another() {
    let service = Service::start().await;
    let demand = orderable_demand(&service).await;
    let (acme, other) = (
        service.key("acme", Role::Member).await,
        service.key("other", Role::Member).await,
    );
    let first = service.with(&acme).post("/v1/plans", &demand).await;
    let again = service.with(&acme).post("/v1/plans", &demand).await;
    assert_eq!((first.status, &first.text), (201, &again.text));
    let path = format!("/v1/plans/{}", first.body["id"].as_str().expect("an id"));
    let shown = service.with(&acme).get(&path).await;
    assert_eq!(shown.text, first.text);
    let foreign = service.with(&other).post("/v1/plans", &demand).await;
    assert_eq!(foreign.status, 201);
    assert_ne!(foreign.body["id"], first.body["id"]);
    service
        .with(&other)
        .get(&path)
        .await
        .refused(404, "not_found");
    service.stop().await;
}

fn enabled_or_not(enabled: bool) -> ProviderChange {
    ProviderChange {
        enabled: Some(enabled),
        ..ProviderChange::default()
    }
}

/// Plans a demand as it is written here, and gives the answer.
async fn plan(service: &Service, key: &Key, text: &str) -> Answer {
    let body = Some(("application/json", text.as_bytes().to_vec()));
    service.with(key).send("POST", "/v1/plans", body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demand_in_the_same_words_is_answered_anew_once_its_supply_changed_or_grew_old() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let demand = orderable_demand(&service).await;
    let text = demand.to_string();
    let id = async || plan(&service, &key, &text).await.expect(201)["id"].clone();
    let first = id().await;
    assert_eq!(id().await, first);
    service.world.clock().advance(TimeDelta::seconds(59));
    assert_eq!(id().await, first, "young enough");
    service.world.clock().advance(TimeDelta::seconds(1));
    let second = id().await;
    assert_ne!(second, first, "a minute is over");

    let broker = service.world.broker();
    let generation = broker.snapshot().generation();
    service.world.clock().advance(TimeDelta::seconds(1));
    let faults = service.world.read_providers().await;
    assert!(faults.is_empty(), "{faults:?}");
    let third = id().await;
    let moved = broker.snapshot().generation() != generation;
    assert_eq!(third != second, moved, "as often as the market moves");

    // A provider that is switched off makes no generation, and is sold no more.
    let (providers, generation) = (broker.store().providers(), broker.snapshot().generation());
    let name = &demand["policy"]["allow_providers"][0];
    let provider = ProviderId::parse(name.as_str().expect("a name")).expect("a provider");
    let switch = async |enabled| {
        let (change, by) = (enabled_or_not(enabled), Cause::Request(key.tenant, None));
        let changed = providers.change(&provider, &change, &by).await;
        changed.expect("switched");
        ingest::refresh_snapshot(broker).await.expect("a snapshot");
    };
    switch(false).await;
    assert_eq!(broker.snapshot().generation(), generation);
    let off = plan(&service, &key, &text).await.expect(201);
    assert_ne!(off["id"], third);
    assert_eq!(
        off["candidates"],
        json!([]),
        "nothing of a provider that is off"
    );
    let spaced = plan(&service, &key, &format!(" {text}")).await.expect(201);
    assert_eq!(spaced, off, "the same demand in other words");
    switch(true).await;
    assert_ne!(id().await, off["id"]);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demand_that_can_no_longer_be_met_is_refused_however_lately_it_was_planned() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let mut demand = orderable_demand(&service).await;
    let now = service.world.broker().now();
    let end = (now + TimeDelta::seconds(30)).to_rfc3339();
    demand["window"] = json!({ "end": end });
    let text = demand.to_string();
    plan(&service, &key, &text).await.expect(201);
    plan(&service, &key, &text).await.expect(201);
    service.world.clock().advance(TimeDelta::seconds(40));
    let said = plan(&service, &key, &text).await;
    said.refused(422, "invalid_demand");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_known_is_given_only_to_whom_and_as_it_was_asked_for() {
    let service = Service::start().await;
    let (acme, viewer, other, admin) = (
        service.key("acme", Role::Member).await,
        service.key("acme", Role::Viewer).await,
        service.key("other", Role::Member).await,
        service.key("operator", Role::Admin).await,
    );
    let text = orderable_demand(&service).await.to_string();
    let known = plan(&service, &acme, &text).await.expect(201);
    assert_eq!(plan(&service, &acme, &text).await.expect(201), known);

    let body = || Some(("application/json", text.as_bytes().to_vec()));
    let answer = service.anyone().send("POST", "/v1/plans", body()).await;
    answer.refused(401, "token_missing");
    let refused = plan(&service, &viewer, &text).await;
    refused.refused(403, "access_denied");
    let plain = Some(("text/plain", text.as_bytes().to_vec()));
    let answer = service.with(&acme).send("POST", "/v1/plans", plain).await;
    answer.refused(415, "unsupported_media_type");
    let foreign = plan(&service, &other, &text).await.expect(201);
    assert_ne!(foreign["id"], known["id"]);

    // An administrator gets the plan of the tenant that is named, and one of their own.
    let path = format!("/v1/plans?tenant={}", acme.tenant);
    let named = service.with(&admin).send("POST", &path, body()).await;
    assert_eq!(named.expect(201), known);
    let own = plan(&service, &admin, &text).await.expect(201);
    assert_ne!(own["id"], known["id"]);

    // A budget is no part of a plan: the plan stays as it was, and buying from it is refused.
    let budget = json!({ "period": "day", "cap_usd": "0.01", "mode": "block_new" });
    let path = format!("/v1/budgets?tenant={}", acme.tenant);
    service.with(&admin).post(&path, &budget).await.expect(201);
    ssh_key(&service, &acme).await;
    assert_eq!(plan(&service, &acme, &text).await.expect(201), known);
    let ask = json!({ "plan_id": known["id"], "candidate": 1 });
    let quote = service.with(&acme).post("/v1/quotes", &ask).await;
    let ask = json!({ "quote_id": quote.expect(201)["id"] });
    let held = service.with(&acme).post("/v1/reservations", &ask).await;
    held.refused(409, "budget_exceeded");
    service.stop().await;
}
