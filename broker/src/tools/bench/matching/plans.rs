//! How long plans take: training runs, fleets, and both in one.

use std::hint::black_box;

use ::market::demand::Demand;
use anyhow::Context as _;
use serde_json::{Value, json};

use super::{Scene, times};

fn demands(all: &[Value]) -> anyhow::Result<Vec<Demand>> {
    let read = all
        .iter()
        .map(|demand| serde_json::from_value(demand.clone()));
    read.collect::<Result<_, _>>()
        .context("a demand of the measurement cannot be read")
}

/// Training runs: one node, some nodes, a large one, and one that is as large as it costs least.
fn runs() -> [Value; 4] {
    [
        json!({"kind": "train", "model": "Llama 3.1 8B", "tokens": 1_000_000_000_u64, "method": "lora"}),
        json!({"kind": "train", "model": "Llama 3.1 8B", "tokens": 20_000_000_000_u64,
               "window": {"duration_hours": 100}}),
        json!({"kind": "train", "model": "Llama 3 70B", "tokens": 10_000_000_000_u64, "gpus": 256}),
        json!({"kind": "train", "model": "Llama 3 70B", "tokens": 100_000_000_000_u64,
               "window": {"duration_hours": 720}, "places": {"countries": ["US", "CA", "DE", "NL", "FI"]}}),
    ]
}

/// Training runs. The median, in milliseconds.
pub(super) fn train(scene: &Scene) -> anyhow::Result<f64> {
    Ok(scene.time_searches(&demands(&runs())?)?.micros(50) / 1e3)
}

fn fleets() -> [Value; 4] {
    let chat = json!({"kind": "serve_realtime", "model": "Llama 3.1 8B", "requests_per_second": 60,
        "input_tokens": 900, "output_tokens": 300,
        "users": [{"country": "US", "share": 0.5}, {"country": "DE", "share": 0.5}],
        "latency": {"first_token_ms": 1_000, "per_token_ms": 50, "percentile": 95}});
    let mut spread = chat.clone();
    spread["survive"] = "provider".into();
    [
        chat,
        spread,
        json!({"kind": "serve_realtime", "model": "Llama 3 70B", "concurrency": 200,
               "input_tokens": 2_000, "output_tokens": 500, "latency": {"per_token_ms": 60}}),
        json!({"kind": "serve_realtime", "model": "Llama 3 8B", "weights": "fp8", "concurrency": 50,
               "input_tokens": 512, "output_tokens": 256}),
    ]
}

/// Fleets, with the tail latency of this many of the best simulated. The median, in milliseconds.
pub(super) fn serve(scene: &Scene, simulated: usize) -> anyhow::Result<f64> {
    let demands = demands(&fleets())?;
    let mut failed = None;
    let times = times(&demands, |demand| match scene.search(demand, simulated) {
        Ok(plan) => drop(black_box(plan)),
        Err(error) => failed = Some(error),
    });
    failed.map_or(Ok(times.micros(50) / 1e3), Err)
}

/// A training run and the fleet that follows it.
fn both() -> Value {
    let [chat, ..] = fleets();
    let train = json!({"model": "Llama 3.1 8B", "tokens": 20_000_000_000_u64,
        "window": {"duration_hours": 100}});
    json!({"kind": "hybrid", "train": train, "serve": chat})
}

/// A training run and the fleet that follows it. The median, in milliseconds.
pub(super) fn hybrid(scene: &Scene) -> anyhow::Result<f64> {
    Ok(scene.time_searches(&demands(&[both()])?)?.micros(50) / 1e3)
}

/// The time of each kind of plan alone, measured as the service makes it: with more candidates, those that
/// can be ordered, other precisions, and tail latency. A line each.
pub(super) fn one_by_one(scene: &Scene) -> anyhow::Result<Vec<String>> {
    let names = [
        "adapters of an 8B",
        "an 8B in 100 hours",
        "a 70B on 256 GPUs",
        "a 70B in 720 hours",
        "chat in two countries",
        "chat that survives a provider",
        "200 conversations with a 70B",
        "50 conversations with an 8B",
        "a run and its fleet",
    ];
    let asked: Vec<Value> = (runs().into_iter().chain(fleets()).chain([both()])).collect();
    let told = names.into_iter().zip(demands(&asked)?);
    told.map(|(name, demand)| {
        let bare = scene.time_searches(std::slice::from_ref(&demand))?;
        let whole = scene.time_plans(&demand)?;
        Ok(format!(
            "{name}: {:.1} ms; as the service plans it {:.1} ms",
            bare.micros(50) / 1e3,
            whole.micros(50) / 1e3
        ))
    })
    .collect()
}
