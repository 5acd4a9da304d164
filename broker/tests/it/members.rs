//! `/v1/members`: who may act for a tenant, each once however many keys it has had.

use chrono::TimeDelta;
use market::identity::Role;
use serde_json::{Value, json};

use crate::service::{Service, hold};

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_followed_one_another_are_one_member() {
    let service = Service::start().await;
    let member = service.key("acme", Role::Member).await;
    let viewer = service.key("acme", Role::Viewer).await;
    service.key("other", Role::Member).await;
    let id = hold(&service, &member).await;
    let held = service.with(&member).get(&format!("/v1/reservations/{id}"));
    let maker = held.await.expect(200)["created_by"].clone();
    let keys = service.with(&member).get("/v1/api-keys").await.expect(200);
    let keys = keys["items"].as_array().expect("items");
    let first = keys.iter().find(|key| key["id"] == member.id.to_string());
    let first_made = first.expect("the first key")["created_at"].clone();
    service.world.clock().advance(TimeDelta::seconds(1));
    let rotate = format!("/v1/api-keys/{}/rotate", member.id);
    let rotated = service.with(&member).post(&rotate, &json!({})).await;
    rotated.expect(201);
    let revoke = format!("/v1/api-keys/{}", viewer.id);
    let not_theirs = service.with(&member).delete(&revoke).await;
    not_theirs.refused(403, "not_yours");
    let operator = service.key("operators", Role::Admin).await;
    let there = format!("{revoke}?tenant={}", member.tenant);
    service.with(&operator).delete(&there).await.expect(204);
    let list = async |query: &str| {
        let path = format!("/v1/members{query}");
        service.with(&member).get(&path).await.expect(200)
    };
    let of = |page: &Value, field: &str| -> Vec<Value> {
        let items = page["items"].as_array().expect("items");
        items.iter().map(|item| item[field].clone()).collect()
    };
    let all = list("").await;
    assert_eq!(of(&all, "role"), ["viewer", "member"]);
    assert_eq!(of(&all, "usable_keys"), [0, 2]);
    assert_eq!(of(&all, "principal_id")[1], maker);
    assert_eq!(of(&all, "name"), ["test", "test"]);
    assert_eq!(of(&all, "since")[1], first_made, "its first key's");
    assert!(of(&all, "last_used_at")[1].is_string());
    let first = list("?limit=1").await;
    let cursor = first["next_cursor"].as_str().expect("another page");
    let second = list(&format!("?limit=1&cursor={cursor}")).await;
    assert_eq!(of(&second, "principal_id"), [maker]);
    // The old key lives on for a day.
    service.world.clock().advance(TimeDelta::hours(23));
    assert_eq!(of(&list("").await, "usable_keys"), [0, 2]);
    service.stop().await;
}
