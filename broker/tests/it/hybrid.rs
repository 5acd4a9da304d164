//! A hybrid demand through the API: one plan, a quote for each half, two reservations.

use chrono::TimeDelta;
use market::identity::Role;
use serde_json::{Value, json};

use crate::service::{Caller, Service, ssh_key};

fn demand() -> Value {
    json!({
        "kind": "hybrid",
        "train": { "model": "Llama 3 8B", "tokens": 1_000_000_000_u64, "gpus": 16 },
        "serve": {
            "kind": "serve_realtime", "model": "Llama 3 8B", "requests_per_second": 4,
            "input_tokens": 1024, "output_tokens": 256, "window": { "duration_hours": 720 },
        },
        "tags": { "team": "research" },
    })
}

// S17
#[tokio::test(flavor = "multi_thread")]
async fn a_hybrid_plan_is_quoted_and_reserved_by_halves() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let client = service.with(&key);
    let plan = client.post("/v1/plans", &demand()).await.expect(201);
    let pairs = plan["hybrid"]["pairs"].as_array().expect("pairs");
    let candidate = |rank: &Value| {
        let rank = rank.as_u64().expect("a rank") as usize;
        &plan["candidates"][rank - 1]
    };
    let orderable = |rank: &Value| {
        let lines = candidate(rank)["lines"].as_array().expect("lines");
        lines.iter().all(|line| line["orderable"] == true)
    };
    let pair = pairs
        .iter()
        .find(|pair| orderable(&pair["train_candidate"]) && orderable(&pair["serve_candidate"]))
        .expect("a pair that can be ordered");
    let mut kinds = Vec::new();
    for (rank, half) in [("train_candidate", "train"), ("serve_candidate", "serve")] {
        assert_eq!(candidate(&pair[rank])["half"], half);
        let ask = json!({ "plan_id": plan["id"], "candidate": pair[rank] });
        let quote = client.post("/v1/quotes", &ask).await.expect(201);
        let ask = json!({ "quote_id": quote["id"] });
        let held = client.post("/v1/reservations", &ask).await.expect(201);
        assert_eq!(held["plan_id"], plan["id"]);
        assert_eq!(held["tags"]["team"], "research");
        kinds.push(held["kind"].clone());
    }
    assert_eq!(kinds, ["train", "serve_realtime"]);
    service.stop().await;
}

/// Plans the demand and quotes its first pair that can be ordered; returns the plan and the quotes' ids.
async fn quoted(client: &Caller<'_>) -> (Value, [Value; 2]) {
    let plan = client.post("/v1/plans", &demand()).await.expect(201);
    let pairs = plan["hybrid"]["pairs"].as_array().expect("pairs").len();
    for rank in 1..=pairs {
        let ask = json!({ "plan_id": plan["id"], "pair": rank });
        let answer = client.post("/v1/quotes", &ask).await;
        if answer.status == 201 {
            let quotes = answer.expect(201)["quotes"].clone();
            assert_eq!(quotes[0].get("starts_at"), None);
            assert_eq!(quotes[0]["price_is"], "frozen");
            assert_eq!(quotes[1]["price_is"], "at_most");
            assert_eq!(quotes[1]["follows"], quotes[0]["id"]);
            let bill = &plan["hybrid"]["pairs"][rank - 1];
            assert_eq!(quotes[1]["starts_at"], bill["serves_from"]);
            let line = &quotes[1]["lines"][0];
            assert_eq!(line["rate_at_most"], line["rate_usd_gpu_hour"]);
            let ids = [quotes[0]["id"].clone(), quotes[1]["id"].clone()];
            return (plan, ids);
        }
    }
    panic!("no pair can be ordered");
}

// S17, S121
#[tokio::test(flavor = "multi_thread")]
async fn a_pair_is_reserved_and_confirmed_as_one_under_one_key_each() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let client = service.with(&key);
    let (_, quotes) = quoted(&client).await;
    let ask = json!({ "quotes": quotes });
    let once = service.with(&key).once("pair-1");
    let pair = once.post("/v1/reservations", &ask).await.expect(201);
    let again = once.post("/v1/reservations", &ask).await.expect(201);
    assert_eq!(pair, again, "the same answer, and nothing twice");
    let rows = pair["reservations"].as_array().expect("two").clone();
    let kinds: Vec<_> = rows.iter().map(|row| row["kind"].clone()).collect();
    assert_eq!(kinds, ["train", "serve_realtime"]);
    assert_eq!(rows[1]["follows"], rows[0]["id"]);
    let listed = client.get("/v1/reservations").await.expect(200);
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(2));

    let ids = [rows[0]["id"].clone(), rows[1]["id"].clone()];
    let twice = json!({ "ids": [ids[0], ids[0]] });
    let twice = client.post("/v1/reservations/confirm", &twice).await;
    twice.refused(422, "invalid_body");
    let both = json!({ "ids": ids });
    let once = service.with(&key).once("confirm-1");
    let confirmed = once
        .post("/v1/reservations/confirm", &both)
        .await
        .expect(200);
    let replayed = once
        .post("/v1/reservations/confirm", &both)
        .await
        .expect(200);
    assert_eq!(confirmed, replayed);
    assert_eq!(confirmed["reservations"][1]["state"], "scheduled");
    let again = client.post("/v1/reservations/confirm", &both).await;
    again.refused(409, "wrong_state");
    let fleet = ids[1].as_str().expect("an id");
    let one = client.post(&format!("/v1/reservations/{fleet}/confirm"), &json!({}));
    one.await.refused(409, "wrong_state");
    let cancel = client.post(&format!("/v1/reservations/{fleet}/cancel"), &json!({}));
    assert_eq!(cancel.await.expect(200)["state"], "closed");
    service.stop().await;
}

// S17
#[tokio::test(flavor = "multi_thread")]
async fn a_hybrid_demand_in_one_call_makes_the_run_and_the_fleet_behind_it() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let client = service.with(&key);
    let ask = json!({ "demand": demand(), "auto_confirm": true, "tags": { "run": "7" } });
    let pair = client.post("/v1/reservations", &ask).await.expect(201);
    let [run, fleet] = [0, 1].map(|place| pair["reservations"][place].clone());
    assert_eq!(
        (&run["state"], &fleet["state"]),
        (&json!("confirmed"), &json!("scheduled"))
    );
    assert_eq!(fleet["follows"], run["id"]);
    for half in [&run, &fleet] {
        assert_eq!(half["tags"], json!({ "team": "research", "run": "7" }));
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_pair_and_what_cannot_be_followed_is_refused_and_writes_nothing() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let client = service.with(&key);
    let (plan, [run, fleet]) = quoted(&client).await;
    let (_, [other_run, _]) = quoted(&client).await;
    let reserve = async |body: Value| client.post("/v1/reservations", &body).await;
    for (body, status, code, says) in [
        (
            json!({ "quotes": [other_run, fleet] }),
            422,
            "invalid_body",
            "not of one pair",
        ),
        (
            json!({ "quotes": [run, run] }),
            422,
            "invalid_body",
            "not of one pair",
        ),
        (json!({ "quotes": [run] }), 422, "invalid_body", ""),
        (
            json!({ "quotes": [run, fleet], "quote_id": run }),
            422,
            "invalid_body",
            "give one of",
        ),
        (
            json!({ "quotes": [run, fleet], "ceiling": { "usd_per_hour": "9" } }),
            422,
            "invalid_body",
            "cannot be given with `quotes`",
        ),
        (
            json!({ "quote_id": fleet }),
            409,
            "wrong_state",
            "reserve it first",
        ),
        (
            json!({ "quote_id": fleet, "follows": "rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718" }),
            422,
            "unknown_reference",
            "to follow",
        ),
    ] {
        let detail = reserve(body.clone()).await.refused(status, code);
        assert!(detail.contains(says), "{body}: {detail}");
    }
    for (body, code) in [
        (
            json!({ "plan_id": plan["id"], "pair": 999 }),
            "unknown_reference",
        ),
        (
            json!({ "plan_id": plan["id"], "pair": 1, "candidate": 1 }),
            "invalid_body",
        ),
    ] {
        client.post("/v1/quotes", &body).await.refused(422, code);
    }
    let listed = client.get("/v1/reservations").await.expect(200);
    assert_eq!(listed["items"], json!([]), "nothing is written");

    // Another tenant's run is unknown, and what starts at once follows nothing.
    let theirs = service.key("rival", Role::Member).await;
    ssh_key(&service, &theirs).await;
    let theirs = service.with(&theirs);
    let at_once = json!({ "demand": { "kind": "gpus", "gpu": "any", "count": 1 } });
    let foreign = theirs.post("/v1/reservations", &at_once).await.expect(201);
    let body = json!({ "quote_id": fleet, "follows": foreign["id"] });
    reserve(body).await.refused(422, "unknown_reference");
    let mine = client.post("/v1/reservations", &at_once).await.expect(201);
    let mut follows = at_once.clone();
    follows["follows"] = mine["id"].clone();
    let detail = reserve(follows).await.refused(422, "invalid_body");
    assert!(detail.contains("start_earliest"), "{detail}");

    // A half after the other: the fleet follows the reservation that took the quote of its run.
    let run = reserve(json!({ "quote_id": run })).await.expect(201);
    let fleet = reserve(json!({ "quote_id": fleet })).await.expect(201);
    assert_eq!(fleet["follows"], run["id"]);
    // What is over is followed by nothing.
    let id = run["id"].as_str().expect("an id");
    let cancel = client.post(&format!("/v1/reservations/{id}/cancel"), &json!({}));
    cancel.await.expect(200);
    let (_, [_, fleet]) = quoted(&client).await;
    let body = json!({ "quote_id": fleet, "follows": run["id"] });
    reserve(body).await.refused(409, "run_over");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_below_todays_price_is_taken_for_a_later_start() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let client = service.with(&key);
    let starts_at = service.world.broker().now() + TimeDelta::days(2);
    let demand = json!({
        "kind": "gpus", "gpu": "A10", "count": 1, "window": { "start_earliest": starts_at },
    });
    let plan = client.post("/v1/plans", &demand).await.expect(201);
    let ask = json!({ "plan_id": plan["id"] });
    let quote = client.post("/v1/quotes", &ask).await.expect(201);
    assert_eq!(quote["starts_at"], json!(starts_at));
    let bound = json!({ "usd_per_gpu_hour": "0.01" });
    let ask = json!({ "quote_id": quote["id"], "ceiling": bound, "auto_confirm": true });
    let held = client.post("/v1/reservations", &ask).await.expect(201);
    assert_eq!(held["state"], "scheduled");
    assert_eq!(held["lines"][0]["rate_at_most"], "0.01");
    assert_eq!(
        held["lines"][0]["rate_usd_gpu_hour"],
        quote["lines"][0]["rate_usd_gpu_hour"]
    );
    for (window, says) in [
        (
            json!({ "start_earliest": "2020-01-01T00:00:00Z" }),
            "in the past",
        ),
        (
            json!({ "start_earliest": starts_at, "end": starts_at }),
            "after the start",
        ),
        (
            json!({ "start_earliest": starts_at + TimeDelta::days(365) }),
            "more than a year ahead",
        ),
    ] {
        let mut demand = demand.clone();
        demand["window"] = window;
        let refused = client.post("/v1/plans", &demand).await;
        let faults = refused.body["faults"].to_string();
        assert!(faults.contains(says), "{faults}");
        refused.refused(422, "invalid_demand");
    }
    service.stop().await;
}
