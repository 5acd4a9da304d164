//! `broker audit replay`: a plan of the service is found again in the market as it was then.

use std::process::{Command, Output, Stdio};

use chrono::TimeDelta;
use market::identity::Role;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use simulator::Provider;
use store::fixture::execute_raw;

use crate::eventually::output_of;
use crate::service::{Service, hold, orderable_demand, ssh_key};

fn demands(gpus: Value) -> [Value; 4] {
    let served = json!({
        "kind": "serve_realtime", "model": "Llama 3 8B", "requests_per_second": 4,
        "input_tokens": 1024, "output_tokens": 256, "window": { "duration_hours": 720 },
    });
    let trained = json!({ "model": "Llama 3 8B", "tokens": 1_000_000_000_u64, "gpus": 16 });
    let mut train = trained.clone();
    train["kind"] = json!("train");
    let hybrid = json!({ "kind": "hybrid", "train": trained, "serve": served });
    [gpus, train, served, hybrid]
}

fn broker(service: &Service, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_broker"));
    command
        .args(args)
        .current_dir(&service.world.broker().config().data_dir)
        .env_clear()
        .stdin(Stdio::null());
    output_of(&mut command)
}

#[track_caller]
fn same(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(said["same"], true);
    said["candidates"].clone()
}

// S91, S109
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_replays_from_the_store_whatever_became_of_its_market_since() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let gpus = orderable_demand(&service).await;
    let admin = service.key("acme", Role::Admin).await;
    let provider = &gpus["policy"]["allow_providers"][0];
    let paid_for = json!({
        "name": "contract 4711", "provider": provider, "gpu": gpus["gpu"],
        "gpus": gpus["count"], "nodes": 1, "expires_at": "2030-01-01T00:00:00Z",
    });
    let agreed = json!({
        "name": "frame contract", "provider": provider,
        "prices": [{ "gpu": gpus["gpu"], "price_usd_gpu_hour": "1.12345678" }],
    });
    for (path, ask) in [("commitments", &paid_for), ("provider-accounts", &agreed)] {
        let path = format!("/v1/{path}");
        service.with(&admin).post(&path, ask).await.expect(201);
    }
    // Another tenant holds the nodes that the plans would take.
    let other = service.key("other", Role::Member).await;
    hold(&service, &other).await;

    let mut plans = Vec::new();
    let mut told = Vec::new();
    let mut before = Value::Null;
    for demand in demands(gpus.clone()) {
        let made = service.with(&key).post("/v1/plans", &demand).await;
        let made = made.expect(201);
        let candidates = made["candidates"].as_array().expect("candidates").len();
        assert!(candidates > 0, "{demand}");
        let id = made["id"].as_str().expect("an id").to_owned();
        // Of the best candidate, and of one offer for each reason.
        let hybrid = made.get("hybrid").is_some();
        let first = &made["candidates"][0];
        let expected =
            json!({ "outcome": "candidate", "candidate": 1, "why": "It is part of candidate 1" });
        let best = (
            first["half"].clone(),
            first["lines"][0]["offer_id"].clone(),
            expected,
        );
        let refused = made["refused"].as_array().expect("refused");
        let refused = refused.iter().map(|one| {
            let expected =
                json!({ "outcome": "refused", "reason": one["reason"], "why": one["why"] });
            (one["half"].clone(), one["offer_id"].clone(), expected)
        });
        for (half, offer, mut expected) in refused.chain([best]) {
            if hybrid {
                expected["half"] = half;
            }
            let offer = offer.as_str().expect("an offer");
            told.push((format!("/v1/plans/{id}/offers/{offer}"), expected));
        }
        plans.push((id, candidates));
        if before.is_null() {
            before = made;
        }
    }
    assert!(told.len() > 10, "{told:?}");
    let check = async || {
        for (path, expected) in &told {
            let said = service.with(&key).get(path).await.expect(200);
            let verdicts = said["verdicts"].as_array().expect("verdicts");
            assert!(
                verdicts.contains(expected),
                "{path}: {said}, not {expected}"
            );
        }
    };
    check().await;
    let stranger = service.key("third", Role::Member).await;
    let (path, _) = &told[0];
    service
        .with(&stranger)
        .get(path)
        .await
        .refused(404, "not_found");
    let nowhere = format!(
        "/v1/plans/{}/offers/off_00000000000000000000000000000000",
        plans[0].0
    );
    let nowhere = service.with(&key).get(&nowhere).await;
    assert!(nowhere.refused(404, "not_found").contains("not on sale"));

    // All inputs change: prices, stock, holds, paid capacity, agreed prices.
    let offers = service.anyone().get("/v1/offers?limit=200").await;
    for offer in offers.expect(200)["items"].as_array().expect("items") {
        if offer["orderable"] == true {
            let sku = offer["sku"].as_str().expect("a SKU");
            for seller in Provider::DEMONSTRATION {
                // A seller without an offer of this name is left as it is.
                let _ = service
                    .world
                    .simulator()
                    .set_price(seller, sku, Decimal::from(99));
            }
        }
    }
    hold(&service, &other).await;
    service.world.clock().advance(TimeDelta::hours(2));
    assert!(service.world.read_providers().await.is_empty());
    for path in ["commitments", "provider-accounts"] {
        let path = format!("/v1/{path}");
        let there = service.with(&admin).get(&path).await.expect(200);
        let id = there["items"][0]["id"].as_str().expect("an id");
        let path = format!("{path}/{id}");
        service.with(&admin).delete(&path).await.expect(204);
    }
    let after = service
        .with(&key)
        .post("/v1/plans", &gpus)
        .await
        .expect(201);
    let price = |plan: &Value| plan["candidates"][0]["price_usd_hour"].clone();
    assert_ne!(price(&after), price(&before), "the market is another");
    assert!(after["generation"].as_u64() > before["generation"].as_u64());

    for (id, candidates) in &plans {
        let args = ["audit", "replay", id, "--data-dir", ".", "--json"];
        let args = [&args[..], &["--record", "record.json"]].concat();
        assert_eq!(same(&broker(&service, &args)), *candidates, "{id}");
        // The file alone does, wherever it is taken to.
        let args = ["match", "--replay", "record.json", "--json"];
        assert_eq!(same(&broker(&service, &args)), *candidates, "{id}");
    }

    check().await;

    // A plan kept by another release is reported as that.
    let store = service.world.broker().store();
    let (id, _) = &plans[0];
    let replay = || broker(&service, &["audit", "replay", id, "--data-dir", "."]);
    let form = |of: u32, to: u32| {
        format!(
            "UPDATE plans SET decided_from = \
             replace(decided_from, '\"format\":{of}', '\"format\":{to}')"
        )
    };
    execute_raw(store, &form(4, 1)).await.expect("runs");
    let ended = replay();
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("another release"));
    execute_raw(store, &form(1, 4)).await.expect("runs");

    // A record with other inputs is detected.
    let forged = "UPDATE plans SET decided_from = replace(replace(decided_from, \
                  '\"limit\":50', '\"limit\":1'), '\"orderable_kept\":10', '\"orderable_kept\":0')";
    execute_raw(store, forged).await.expect("runs");
    let ended = replay();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.contains("first at `plan.candidates"), "{said}");

    let unknown = "pln_00000000000000000000000000000000";
    let ended = broker(&service, &["audit", "replay", unknown, "--data-dir", "."]);
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    service.stop().await;
}
