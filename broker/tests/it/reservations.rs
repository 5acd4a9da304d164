//! `/v1/reservations` up to the hand-off: placing, reading, relabelling, confirming, cancelling.

use chrono::TimeDelta;
use market::identity::Role;
use serde_json::{Value, json};

use crate::service::{Service, hold, orderable_demand, quote, ssh_key};

#[tokio::test(flavor = "multi_thread")]
async fn a_quote_becomes_a_hold_and_is_taken_once() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let (plan, quoted) = quote(&service, &key).await;
    service
        .with(&key)
        .post("/v1/reservations", &json!({ "quote_id": quoted }))
        .await
        .refused(409, "no_ssh_key");
    ssh_key(&service, &key).await;
    let ask = json!({
        "quote_id": quoted, "name": "run 7", "tags": { "team": "research" },
        "attribution": { "cost_centre": "42" },
    });
    let held = service
        .with(&key)
        .post("/v1/reservations", &ask)
        .await
        .expect(201);
    assert_eq!(
        (held["state"].as_str(), held["name"].as_str()),
        (Some("held"), Some("run 7"))
    );
    assert_eq!(
        (held["plan_id"].as_str(), held["quote_id"].as_str()),
        (Some(&*plan), Some(&*quoted))
    );
    assert_eq!(
        (&held["tags"]["team"], &held["attribution"]["cost_centre"]),
        (&json!("research"), &json!("42"))
    );
    let shown = service
        .with(&key)
        .get(&format!("/v1/quotes/{quoted}"))
        .await
        .expect(200);
    assert_eq!(
        held["lines"], shown["lines"],
        "the rate is the one that was quoted"
    );
    service
        .with(&key)
        .post("/v1/reservations", &ask)
        .await
        .refused(409, "quote_taken");

    let one = service
        .with(&key)
        .get(&format!(
            "/v1/reservations/{}",
            held["id"].as_str().expect("an id")
        ))
        .await;
    let one = one.expect(200);
    assert_eq!(
        (&one["leases"], one["history"][0]["what"].as_str()),
        (&json!([]), Some("held"))
    );
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lapsed_quote_is_refused_and_nothing_is_held() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let (_, quoted) = quote(&service, &key).await;
    service.world.clock().advance(TimeDelta::hours(1));
    let ask = json!({ "quote_id": quoted });
    service
        .with(&key)
        .post("/v1/reservations", &ask)
        .await
        .refused(409, "quote_lapsed");
    let listed = service.with(&key).get("/v1/reservations").await.expect(200);
    assert_eq!(listed["items"], json!([]));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_tenant_holds_is_in_its_next_plan() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let demand = orderable_demand(&service).await;
    let plan = async || {
        let made = service.with(&key).post("/v1/plans", &demand).await;
        made.expect(201)["id"].clone()
    };
    let before = plan().await;
    assert_eq!(plan().await, before);
    let id = hold(&service, &key).await;
    let held = plan().await;
    assert_ne!(held, before);
    assert_eq!(plan().await, held);
    let cancel = format!("/v1/reservations/{id}/cancel");
    let cancelled = service.with(&key).send("POST", &cancel, None).await;
    cancelled.expect(200);
    assert_ne!(plan().await, held);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_names_nobody_is_refused_and_says_where() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let refused = async |demand: &Value| {
        let made = service.with(&key).post("/v1/plans", demand).await;
        made.refused(422, "invalid_demand")
    };
    for list in ["deny_providers", "allow_providers"] {
        let mut demand = json!({ "kind": "gpus", "gpu": "A10", "count": 1 });
        demand["policy"] = json!({ list: ["lambda", "lamda"] });
        let said = refused(&demand).await;
        let names_it = said.contains(&format!("`policy.{list}` names `lamda`"));
        assert!(names_it && !said.contains("`lambda`"), "{said}");
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/demands/hybrid.json");
    let hybrid = std::fs::read_to_string(file).expect("the demand");
    let mut hybrid: Value = serde_json::from_str(&hybrid).expect("JSON");
    hybrid["serve"]["policy"] = json!({ "deny_providers": ["lamda"] });
    let said = refused(&hybrid).await;
    assert!(said.contains("`serve.policy.deny_providers`"), "{said}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_tenant_took_meanwhile_is_refused_and_is_in_no_plan_after_that() {
    let service = Service::start().await;
    let [acme, globex] = [
        service.key("acme", Role::Member).await,
        service.key("globex", Role::Member).await,
    ];
    for key in [&acme, &globex] {
        ssh_key(&service, key).await;
    }
    // Sold at two places, without a count: to one reservation at a time.
    let demand = json!({
        "kind": "gpus", "gpu": "A10", "count": 1, "policy": { "allow_providers": ["lambda"] },
    });
    let (mine, theirs) = (service.with(&globex), service.with(&acme));
    let plan = mine.post("/v1/plans", &demand).await.expect(201);
    assert_eq!(plan["eligible"], 2);
    for _ in 0..2 {
        let taken = theirs.post("/v1/reservations", &json!({ "demand": demand }));
        taken.await.expect(201);
    }
    let ask = json!({ "plan_id": plan["id"], "candidate": 1 });
    let quote = mine.post("/v1/quotes", &ask).await.expect(201);
    let ask = json!({ "quote_id": quote["id"] });
    let refused = mine.post("/v1/reservations", &ask).await;
    refused.refused(409, "capacity_taken");
    let again = mine.post("/v1/plans", &demand).await.expect(201);
    assert_eq!(again["eligible"], 0, "{again}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_is_sold_at_once_without_a_count_is_not_quoted() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let caller = service.with(&key);
    let demand = |nodes: u32| {
        json!({
            "kind": "gpus", "gpu": "H100-SXM", "count": 8, "nodes": nodes,
            "policy": { "allow_providers": ["lambda"] },
        })
    };
    let ask = async |nodes: u32| {
        let plan = caller.post("/v1/plans", &demand(nodes)).await.expect(201);
        let ask = json!({ "plan_id": plan["id"], "candidate": 1 });
        caller.post("/v1/quotes", &ask).await
    };
    ask(16).await.expect(201);
    let detail = ask(17).await.refused(409, "offer_not_orderable");
    assert!(detail.contains("`sales.soft_nodes_per_hold`"), "{detail}");
    let at_once = json!({ "demand": demand(17) });
    let refused = caller.post("/v1/reservations", &at_once).await;
    refused.refused(409, "nothing_matches");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lapsed_hold_cannot_be_confirmed() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let id = hold(&service, &key).await;
    service.world.clock().advance(TimeDelta::hours(1));
    let answer = service
        .with(&key)
        .send("POST", &format!("/v1/reservations/{id}/confirm"), None)
        .await;
    answer.refused(409, "hold_lapsed");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_do_not_fit_the_state_are_refused() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let id = hold(&service, &key).await;
    let command = |verb: &str| {
        service
            .with(&key)
            .send("POST", &format!("/v1/reservations/{id}/{verb}"), None)
    };
    command("release").await.refused(409, "wrong_state");
    let end = json!({ "end": service.world.broker().now() + TimeDelta::days(9) });
    let extend = format!("/v1/reservations/{id}/extend");
    for absurd in ["9999-12-31T00:00:00Z", "+262142-12-31T00:00:00Z"] {
        let answer = service
            .with(&key)
            .post(&extend, &json!({ "end": absurd }))
            .await;
        assert!(answer.refused(422, "invalid_body").contains("ten years"));
    }
    service
        .with(&key)
        .post(&extend, &end)
        .await
        .refused(409, "wrong_state");
    service
        .with(&key)
        .get(&format!("/v1/reservations/{id}/access"))
        .await
        .refused(409, "not_handed_off");
    let cancelled = command("cancel").await.expect(200);
    assert_eq!(
        (cancelled["state"].as_str(), cancelled["reason"].as_str()),
        (Some("closed"), Some("cancelled"))
    );
    command("confirm").await.refused(409, "wrong_state");
    command("cancel").await.refused(409, "wrong_state");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_plans_quotes_holds_and_confirms() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let demand = orderable_demand(&service).await;
    let ask =
        json!({ "demand": demand, "ceiling": { "usd_per_gpu_hour": "99" }, "auto_confirm": true });
    let placed = service
        .with(&key)
        .post("/v1/reservations", &ask)
        .await
        .expect(201);
    assert_eq!(
        (placed["state"].as_str(), placed["kind"].as_str()),
        (Some("confirmed"), Some("gpus"))
    );
    assert_eq!(placed["ceiling"]["usd_per_gpu_hour"], "99.00");
    let twice = json!({ "demand": { "kind": "gpus", "gpu": "any", "count": 1, "ceiling": { "usd_per_hour": "9" } },
        "ceiling": { "usd_per_hour": "9" } });
    service
        .with(&key)
        .post("/v1/reservations", &twice)
        .await
        .refused(422, "invalid_body");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_change_and_lists_are_filtered_and_paged() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let first = hold(&service, &key).await;
    service
        .with(&key)
        .send("POST", &format!("/v1/reservations/{first}/cancel"), None)
        .await
        .expect(200);
    let second = hold(&service, &key).await;
    let path = format!("/v1/reservations/{second}");
    let relabelled = service
        .with(&key)
        .patch(&path, &json!({ "name": "new", "tags": { "a": "b" } }))
        .await
        .expect(200);
    assert_eq!(
        (relabelled["name"].as_str(), &relabelled["tags"]),
        (Some("new"), &json!({ "a": "b" }))
    );
    let kept = service
        .with(&key)
        .patch(&path, &json!({ "tags": {} }))
        .await
        .expect(200);
    assert_eq!(
        (kept["name"].as_str(), &kept["tags"]),
        (Some("new"), &json!({}))
    );
    service
        .with(&key)
        .patch(&path, &json!({}))
        .await
        .refused(422, "invalid_body");
    service
        .with(&key)
        .patch(&path, &json!({ "state": "active" }))
        .await
        .refused(422, "invalid_body");

    let ids = async |query: &str| -> Vec<String> {
        let page = service
            .with(&key)
            .get(&format!("/v1/reservations?{query}"))
            .await
            .expect(200);
        page["items"]
            .as_array()
            .expect("items")
            .iter()
            .map(|row| row["id"].as_str().expect("an id").to_owned())
            .collect()
    };
    assert_eq!(
        ids("").await,
        [second.as_str(), first.as_str()],
        "the newest first"
    );
    assert_eq!(ids("state=held").await, [second.as_str()]);
    assert_eq!(ids("open_only=true").await, [second.as_str()]);
    assert_eq!(ids("kind=train").await, [""; 0]);
    let page = service
        .with(&key)
        .get("/v1/reservations?limit=1")
        .await
        .expect(200);
    let cursor = page["next_cursor"].as_str().expect("another page");
    assert_eq!(ids(&format!("limit=1&cursor={cursor}")).await, [first]);
    let nodes = service
        .with(&key)
        .get(&format!("{path}/nodes"))
        .await
        .expect(200);
    assert_eq!(nodes["items"], json!([]));
    service.stop().await;
}
