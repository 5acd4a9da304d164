//! A hybrid demand through the API: one plan, a quote for each half, two reservations.

use market::identity::Role;
use serde_json::{Value, json};

use crate::service::{Service, ssh_key};

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

#[tokio::test(flavor = "multi_thread")]
async fn a_hybrid_is_not_reserved_in_one_call() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    ssh_key(&service, &key).await;
    let client = service.with(&key);
    let ask = json!({ "demand": demand() });
    let detail = client.post("/v1/reservations", &ask).await;
    let detail = detail.refused(422, "kind_not_supported");
    assert!(detail.contains("POST /v1/plans"), "{detail}");
    let listed = client.get("/v1/reservations").await.expect(200);
    assert_eq!(listed["items"], json!([]));
    service.stop().await;
}
