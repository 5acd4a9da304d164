//! `Idempotency-Key`: done once, answered alike.

use chrono::TimeDelta;
use market::identity::Role;
use serde_json::json;

use crate::service::{Service, hold, orderable_demand, quote, ssh_key};

#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_under_one_key_is_done_once_and_answered_alike() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let demand = orderable_demand(&service).await;
    let ask = json!({ "demand": demand, "name": "run" });
    let first = service
        .with(&key)
        .once("k1")
        .post("/v1/reservations", &ask)
        .await;
    assert_eq!(
        (first.status, first.header("idempotency-replayed")),
        (201, None),
        "{}",
        first.text
    );
    let again = service
        .with(&key)
        .once("k1")
        .post("/v1/reservations", &ask)
        .await;
    assert_eq!(
        (again.status, again.header("idempotency-replayed")),
        (201, Some("true"))
    );
    assert_eq!(again.text, first.text, "byte for byte");
    let listed = service.with(&key).get("/v1/reservations").await.expect(200);
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1));

    let other = json!({ "demand": demand, "name": "another" });
    service
        .with(&key)
        .once("k1")
        .post("/v1/reservations", &other)
        .await
        .refused(422, "idempotency_key_reused");
    let id = first.body["id"].as_str().expect("an id");
    let confirm = format!("/v1/reservations/{id}/confirm");
    service
        .with(&key)
        .once("k1")
        .send("POST", &confirm, None)
        .await
        .refused(422, "idempotency_key_reused");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_confirm_is_a_conflict_but_its_repetition_is_not() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let id = hold(&service, &key).await;
    let path = format!("/v1/reservations/{id}/confirm");
    let first = service
        .with(&key)
        .once("c1")
        .send("POST", &path, None)
        .await;
    assert_eq!(first.status, 200, "{}", first.text);
    let again = service
        .with(&key)
        .once("c1")
        .send("POST", &path, None)
        .await;
    assert_eq!((again.status, &again.text), (200, &first.text));
    service
        .with(&key)
        .once("c2")
        .send("POST", &path, None)
        .await
        .refused(409, "wrong_state");
    service
        .with(&key)
        .send("POST", &path, None)
        .await
        .refused(409, "wrong_state");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_gives_its_key_back() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let (_, quoted) = quote(&service, &key).await;
    let ask = json!({ "quote_id": quoted, "ssh_key_ids": [format!("ssh_{}", "1".repeat(32))] });
    service
        .with(&key)
        .once("k1")
        .post("/v1/reservations", &ask)
        .await
        .refused(422, "unknown_reference");
    let ask = json!({ "quote_id": quoted });
    service
        .with(&key)
        .once("k1")
        .post("/v1/reservations", &ask)
        .await
        .expect(201);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_of_two_tenants_is_two_keys_and_lasts_a_day() {
    let service = Service::start().await;
    let (acme, other) = (
        service.key("acme", Role::Admin).await,
        service.key("other", Role::Admin).await,
    );
    let ask = json!({ "name": "ci", "role": "viewer" });
    let first = service
        .with(&acme)
        .once("k1")
        .post("/v1/api-keys", &ask)
        .await
        .expect(201);
    let theirs = service
        .with(&other)
        .once("k1")
        .post("/v1/api-keys", &ask)
        .await
        .expect(201);
    assert_ne!(first["id"], theirs["id"]);
    service.world.clock().advance(TimeDelta::hours(23));
    let again = service
        .with(&acme)
        .once("k1")
        .post("/v1/api-keys", &ask)
        .await
        .expect(201);
    assert_eq!(first["id"], again["id"]);
    service.world.clock().advance(TimeDelta::hours(2));
    let next_day = service
        .with(&acme)
        .once("k1")
        .post("/v1/api-keys", &ask)
        .await
        .expect(201);
    assert_ne!(first["id"], next_day["id"]);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_still_runs_is_not_run_a_second_time() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Admin).await;
    let ask = json!({ "name": "ci", "role": "viewer" });
    let body = ask.to_string();
    let broker = service.world.broker();
    let keys = broker.store().idempotency().of(key.tenant);
    let hash = blake3::hash(body.as_bytes()).to_hex();
    keys.begin("k1", "POST /v1/api-keys", hash.as_str(), broker.now())
        .await
        .expect("begun");
    let answer = service
        .with(&key)
        .once("k1")
        .post("/v1/api-keys", &ask)
        .await;
    answer.refused(409, "idempotency_in_progress");
    assert_eq!(answer.header("retry-after"), Some("1"));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_query_names_is_a_part_of_the_request() {
    let service = Service::start().await;
    let admin = service.key("operators", Role::Admin).await;
    let acme = service.key("acme", Role::Member).await;
    let project = async |name: &str| {
        let made = service
            .with(&acme)
            .post("/v1/projects", &json!({ "name": name }));
        made.await.expect(201)["id"]
            .as_str()
            .expect("an id")
            .to_owned()
    };
    let (vision, speech) = (project("vision").await, project("speech").await);
    let limit = async |project: &str| {
        let path = format!(
            "/v1/spending-limits?tenant={}&project_id={project}",
            acme.tenant
        );
        let limit = json!({ "open_holds": 3 });
        service.with(&admin).once("k1").patch(&path, &limit).await
    };
    limit(&vision).await.expect(200);
    limit(&vision).await.expect(200);
    limit(&speech).await.refused(422, "idempotency_key_reused");
    service.stop().await;
}
