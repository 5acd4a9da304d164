//! What the service answers from memory, and when it no longer does.

use chrono::TimeDelta;
use market::identity::Role;

use crate::service::{Service, orderable_demand};

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
