//! Known answers about memory and bandwidth, as plans give them.

use super::*;
use crate::samples::{metal, offer};

/// A demand to serve a model, with these extra fields.
fn serving(model: &str, weights: &str, fields: Value) -> Demand {
    let mut all = json!({
        "model": model, "weights": weights, "kv_cache": weights, "concurrency": 1,
        "input_tokens": 3_072, "output_tokens": 1_024,
    });
    let fields = fields.as_object().expect("an object").clone();
    all.as_object_mut().expect("an object").extend(fields);
    demand("serve_realtime", all)
}

/// The machines on which a demand is met, and those that are refused for their memory or else.
fn sorted_out(demand: &Demand, machines: &[(&str, u32)]) -> (Vec<String>, Vec<(String, Refused)>) {
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for (gpu, gpus) in machines {
        let name = format!("{gpus} x {gpu}");
        let market = snapshot(vec![offer(&name, gpu, *gpus, "9.00")]);
        let options = SearchOptions::default();
        let found = search(&market, demand, &Held::new(), now(), &options);
        let mut plan = found.expect("a plan");
        match plan.refused.pop() {
            None => taken.push(name),
            Some(why) => refused.push((name, why)),
        }
    }
    (taken, refused)
}

#[track_caller]
fn fits_on(demand: &Demand, on: &[(&str, u32)], and_not_on: &[(&str, u32)]) {
    let (taken, refused) = sorted_out(demand, &[on, and_not_on].concat());
    let named = |list: &[(&str, u32)]| -> Vec<String> {
        let names = list.iter().map(|(gpu, gpus)| format!("{gpus} x {gpu}"));
        names.collect()
    };
    assert_eq!(taken, named(on));
    for (at, (name, why)) in refused.iter().enumerate() {
        assert_eq!(*name, named(and_not_on)[at]);
        assert_eq!(why.reason, ReasonCode::Memory, "{name}: {}", why.why);
    }
}

// S09
#[test]
fn no_plan_writes_a_lone_request_faster_than_its_active_weights_can_be_read() {
    // Tokens a second if nothing but weights is read: those of all experts, and the active ones.
    for (model, gpu, whole, active) in [
        ("Llama 2 7B", "H100-SXM", 239.0, 239.0),
        ("Llama 2 7B", "L40S", 62.0, 62.0),
        ("Llama 2 7B", "L4", 21.0, 21.0),
        // 46.7e9 parameters of which a token reads 12.9e9, from 4.8e12 bytes per second.
        ("Mixtral 8x7B", "H200-SXM", 51.4, 186.0),
    ] {
        let faster = json!({"latency": {"per_token_ms": 1e3 / (active * 1.01)}});
        let demand = serving(model, "fp16", faster);
        let (taken, mut refused) = sorted_out(&demand, &[(gpu, 1)]);
        assert_eq!(taken, Vec::<String>::new(), "{model} on {gpu}");
        let (_, why) = refused.remove(0);
        assert_eq!(why.reason, ReasonCode::Latency);
        let told = why.why.split_once(" ms for its first token and ");
        let (told, _) = told
            .and_then(|(_, rest)| rest.split_once(" ms"))
            .expect("ms");
        let ms: f64 = told.parse().expect("a number");
        assert!(ms >= 1e3 / active - 0.1, "{model} on {gpu}: {ms}");
        // And not much slower: a mixture reads only its active parameters.
        let least = if whole < active { whole } else { active / 2.0 };
        assert!(ms < 1e3 / least, "{model} on {gpu}: {ms}");
    }
}

// S55
#[test]
fn a_7b_at_16_bits_is_planned_on_one_card_of_24_or_48_gb() {
    let small = serving("Llama 2 7B", "fp16", json!({}));
    fits_on(&small, &[("L4", 1), ("A10", 1), ("L40S", 1)], &[("T4", 1)]);
}

// S56
#[test]
fn a_70b_is_planned_on_two_cards_of_80_gb_one_at_8_bits_or_one_of_192_gb() {
    let wide = serving("Llama 3 70B", "fp16", json!({}));
    fits_on(&wide, &[("H100-SXM", 2), ("MI300X", 1)], &[("H100-SXM", 1)]);
    let narrow = serving("Llama 3 70B", "fp8", json!({}));
    fits_on(&narrow, &[("H100-SXM", 1)], &[("L40S", 1)]);
}

// S57
#[test]
fn a_405b_at_8_bits_is_planned_within_one_node_however_many_there_are() {
    let large = serving("Llama 3.1 405B", "fp8", json!({}));
    let (whole, half) = (
        [("H100-SXM", 8), ("H200-SXM", 4)],
        [("H100-SXM", 4), ("H200-SXM", 2)],
    );
    fits_on(&large, &whole, &half);
}

// S04
#[test]
fn a_sequence_that_takes_eight_joined_cards_is_not_trained_where_nvlink_joins_four() {
    let body = json!({
        "model": "Llama 3 8B", "tokens": 1_000_000_000_u64, "precision": "fp16",
        "sequence_length": 400_000, "gpus": 64,
    });
    let demand = demand("train", body);
    // 98 bytes for each token and hidden unit: 20 GB on each of eight cards, 40 GB of four.
    let joined = find(vec![metal("board", "A100-SXM-40", "9.00")], &demand);
    let layout = joined.candidates[0].facts.layout.as_ref();
    assert_eq!(layout.expect("a layout").tensor_parallel, 8);
    let by_fours = find(vec![metal("board", "V100-SXM2-32", "9.00")], &demand);
    assert_eq!(by_fours.refused[0].reason, ReasonCode::Memory);
}

// S06
#[test]
fn a_405b_trains_on_64_cards_of_141_gb_and_not_of_80_gb() {
    let body = json!({"model": "Llama 3.1 405B", "tokens": 1_000_000_000_u64, "gpus": 64});
    let demand = demand("train", body);
    let plan = |gpu: &str| {
        let market = snapshot(vec![metal("board", gpu, "30.00")]);
        let options = SearchOptions::default();
        search(&market, &demand, &Held::new(), now(), &options).expect("a plan")
    };
    assert_eq!(plan("H200-SXM").eligible, 1);
    assert_eq!(plan("H100-SXM").refused[0].reason, ReasonCode::Memory);
}
