//! Demands of life-cycle tests.

use serde_json::{Value, json};
use simulator::Provider;

/// A training run on so many GPUs, eight to a node: a gang.
pub(crate) fn training(gpus: u32) -> Value {
    json!({
        "kind": "train", "model": "Llama 3 8B", "tokens": 20_000_000_000_u64, "gpus": gpus,
        "sequence_length": 8192, "tenancy": ["bare_metal"], "tags": { "team": "research" },
    })
}

/// One GPU in a container at runpod.
pub(crate) fn container() -> Value {
    json!({
        "kind": "gpus", "gpu": "H100-SXM", "count": 1,
        "policy": { "allow_providers": ["runpod"] },
    })
}

/// A small demand that the provider can satisfy; its content does not matter to the test.
pub(crate) fn anything_at(provider: Provider) -> Value {
    match provider.as_str() {
        "lambda" => fleet(1),
        "runpod" => container(),
        "voltagepark" => training(8),
        other => panic!("name a demand for {other}"),
    }
}

/// So many small machines at lambda: a fleet.
pub(crate) fn fleet(nodes: u32) -> Value {
    json!({
        "kind": "gpus", "gpu": "A10", "count": 1, "nodes": nodes,
        "policy": { "allow_providers": ["lambda"] },
    })
}
