//! `/v1/commitments` and `/v1/provider-accounts`: paid capacity goes first, and agreed prices apply.

use market::identity::Role;
use serde_json::{Value, json};

use crate::service::{Key, Service, orderable_demand, ssh_key};

/// One node of the thing that the demand is for, paid for until 2030.
fn paid_for(demand: &Value, nodes: u32) -> Value {
    json!({
        "name": "contract 4711", "provider": demand["policy"]["allow_providers"][0],
        "gpu": demand["gpu"], "gpus": demand["count"], "nodes": nodes,
        "expires_at": "2030-01-01T00:00:00Z",
    })
}

async fn plan(service: &Service, key: &Key, demand: &Value) -> Value {
    let made = service.with(key).post("/v1/plans", demand).await;
    made.expect(201)
}

async fn quote(service: &Service, key: &Key, plan: &Value) -> Value {
    let ask = json!({ "plan_id": plan["id"] });
    service.with(key).post("/v1/quotes", &ask).await.expect(201)
}

fn prices(plan: &Value) -> Vec<Value> {
    let candidates = plan["candidates"].as_array().expect("candidates");
    let prices = candidates.iter().map(|one| one["price_usd_hour"].clone());
    prices.collect()
}

fn is_free(price: &Value) -> bool {
    let text = price.as_str().expect("a price");
    text.chars().all(|letter| matches!(letter, '0' | '.'))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_paid_for_is_planned_first_quoted_as_paid_and_used_once() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let caller = service.with(&key);
    let admin = service.key("acme", Role::Admin).await;
    let admin = service.with(&admin);
    ssh_key(&service, &key).await;
    let demand = orderable_demand(&service).await;
    let before = plan(&service, &key, &demand).await;
    assert!(before["candidates"][0].get("covered").is_none());
    assert!(!is_free(&before["candidates"][0]["price_usd_hour"]));

    let ask = paid_for(&demand, 1);
    let made = admin.post("/v1/commitments", &ask).await.expect(201);
    assert_eq!(
        (&made["nodes_left"], &made["nodes"]),
        (&json!(1), &json!(1))
    );
    let first = plan(&service, &key, &demand).await;
    assert_ne!(first["id"], before["id"], "it is another plan from then on");
    let best = &first["candidates"][0];
    let covered = &best["covered"][0];
    assert_eq!(
        (&covered["line"], &covered["nodes"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(covered["commitment_id"], made["id"]);
    assert_eq!(covered["until"], "2030-01-01T00:00:00Z");
    assert!(is_free(&best["price_usd_hour"]), "{best}");
    let id = made["id"].as_str().expect("an id");
    let said = best["reasons"][0].as_str().expect("a reason");
    for part in [
        id,
        "contract 4711",
        "1 of 1 node",
        "h from now",
        "expires at 2030",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // A stranger pays as before.
    let stranger = service.key("other", Role::Member).await;
    let theirs = plan(&service, &stranger, &demand).await;
    assert_eq!(
        theirs["candidates"][0]["price_usd_hour"],
        before["candidates"][0]["price_usd_hour"]
    );

    let (one, two) = (
        quote(&service, &key, &first).await,
        quote(&service, &key, &first).await,
    );
    assert!(is_free(&one["price_usd_hour"]));
    assert_eq!(one["lines"][0]["covered"]["commitment_id"], made["id"]);
    assert_eq!(
        one["lines"][0]["rate_usd_gpu_hour"], before["candidates"][0]["price_usd_gpu_hour"],
        "from then on it costs what the offer costs"
    );
    let take = async |quote: &Value| {
        let ask = json!({ "quote_id": quote["id"] });
        caller.post("/v1/reservations", &ask).await
    };
    let held = take(&one).await.expect(201);
    take(&two).await.refused(409, "commitment_used");
    let path = format!("/v1/commitments/{id}");
    let left = async || caller.get(&path).await.expect(200)["nodes_left"].clone();
    assert_eq!(left().await, json!(0));
    let mut tagged = demand.clone();
    tagged["tags"] = json!({ "team": "second" });
    let second = plan(&service, &key, &tagged).await;
    let some = second["candidates"].as_array().expect("candidates");
    assert!(some.iter().all(|one| one.get("covered").is_none()));

    let cancel = format!(
        "/v1/reservations/{}/cancel",
        held["id"].as_str().expect("an id")
    );
    caller.post(&cancel, &json!({})).await.expect(200);
    assert_eq!(
        left().await,
        json!(1),
        "nothing was handed off, so nothing was used"
    );
    admin.delete(&path).await.expect(204);
    let after = plan(&service, &key, &demand).await;
    assert!(after["candidates"][0].get("covered").is_none());
    caller.get(&path).await.refused(404, "not_found");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_counts_what_is_paid_for_at_what_it_still_costs() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let caller = service.with(&key);
    let admin = service.key("acme", Role::Admin).await;
    let admin = service.with(&admin);
    ssh_key(&service, &key).await;
    let demand = orderable_demand(&service).await;
    let ask = json!({ "period": "month", "cap_usd": "0.01", "mode": "block_new" });
    admin.post("/v1/budgets", &ask).await.expect(201);
    let take = async |quote: &Value| {
        let ask = json!({ "quote_id": quote["id"] });
        caller.post("/v1/reservations", &ask).await
    };
    let listed = plan(&service, &key, &demand).await;
    let listed = quote(&service, &key, &listed).await;
    take(&listed).await.refused(409, "budget_exceeded");

    admin
        .post("/v1/commitments", &paid_for(&demand, 1))
        .await
        .expect(201);
    let paid = plan(&service, &key, &demand).await;
    let paid = quote(&service, &key, &paid).await;
    let held = take(&paid).await.expect(201);
    let confirm = format!(
        "/v1/reservations/{}/confirm",
        held["id"].as_str().expect("an id")
    );
    caller.post(&confirm, &json!({})).await.expect(200);
    let balance = caller.get("/v1/balance").await.expect(200);
    assert!(is_free(&balance["open_this_month_usd"]), "{balance}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agreed_price_stands_in_place_of_the_list_price_in_plan_and_quote() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let caller = service.with(&key);
    let admin = service.key("acme", Role::Admin).await;
    let admin = service.with(&admin);
    let demand = orderable_demand(&service).await;
    let before = plan(&service, &key, &demand).await;
    let price = json!({ "gpu": demand["gpu"], "price_usd_gpu_hour": "0.12345678" });
    let ask = json!({
        "name": "frame contract", "provider": demand["policy"]["allow_providers"][0],
        "prices": [price],
    });
    let made = admin.post("/v1/provider-accounts", &ask).await.expect(201);
    let planned = plan(&service, &key, &demand).await;
    let best = &planned["candidates"][0];
    assert_eq!(best["price_usd_gpu_hour"], "0.12345678");
    let id = made["id"].as_str().expect("an id");
    let reasons = best["reasons"].as_array().expect("reasons");
    let mut said = reasons.iter().filter_map(Value::as_str);
    assert!(said.any(|reason| reason.contains(id)), "{reasons:?}");
    let quoted = quote(&service, &key, &planned).await;
    assert_eq!(quoted["lines"][0]["rate_usd_gpu_hour"], "0.12345678");

    let stranger = service.key("other", Role::Member).await;
    let theirs = plan(&service, &stranger, &demand).await;
    assert_eq!(prices(&theirs), prices(&before));
    let path = format!("/v1/provider-accounts/{id}");
    assert_eq!(caller.get(&path).await.expect(200), made);
    admin.delete(&path).await.expect(204);
    let again = plan(&service, &key, &demand).await;
    assert_eq!(prices(&again), prices(&before));
    // The plan at the agreed price answers no more.
    let ask = json!({ "plan_id": planned["id"] });
    let late = caller.post("/v1/quotes", &ask).await;
    late.refused(409, "offer_changed");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_meant_is_refused_in_one_sentence() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Admin).await;
    let caller = service.with(&key);
    let good = paid_for(&orderable_demand(&service).await, 1);
    for (field, value, code) in [
        ("provider", json!("nobody-sells-here"), "unknown_reference"),
        ("nodes", json!(0), "invalid_body"),
        ("node_hours", json!(0), "invalid_body"),
        ("sku", json!("both"), "invalid_body"),
        ("gpu", Value::Null, "invalid_body"),
        ("expires_at", json!("2020-01-01T00:00:00Z"), "invalid_body"),
        ("price_usd_node_hour", json!("-1"), "invalid_body"),
    ] {
        let mut bad = good.clone();
        bad[field] = value;
        let answer = caller.post("/v1/commitments", &bad).await;
        answer.refused(422, code);
    }
    let price = json!({ "gpu": good["gpu"], "price_usd_gpu_hour": "0" });
    for prices in [json!([]), json!([price])] {
        let bad = json!({ "name": "x", "provider": good["provider"], "prices": prices });
        let answer = caller.post("/v1/provider-accounts", &bad).await;
        answer.refused(422, "invalid_body");
    }
    let listed = caller.get("/v1/commitments").await.expect(200);
    assert_eq!(listed["items"], json!([]));
    service.stop().await;
}
