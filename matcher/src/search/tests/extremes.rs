//! Demands at the bounds of the schema: even absurd ones get an answer.

use market::offer::Availability;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::samples::{offer, provider};

/// Four providers, some with a count of their nodes.
fn supply() -> Vec<Offer> {
    let of = |seller: &str, offer: Offer| Offer {
        offer_id: OfferId::of_identity(&[seller, &offer.sku]),
        provider: provider(seller),
        ..offer
    };
    let few = Offer {
        availability: Availability::exactly(3),
        ..offer("few", "H100-SXM", 8, "15.92")
    };
    vec![
        of("a", offer("one", "L40S", 1, "0.99")),
        of("a", offer("board", "H100-SXM", 8, "23.92")),
        of("b", few),
        of("c", offer("amd", "MI300X", 8, "19.92")),
        of("d", offer("old", "V100-SXM2-16", 1, "0.10")),
    ]
}

fn plan_of(demand: &Demand) -> Plan {
    assert_eq!(demand.check(now()), Ok(()), "{demand:?}");
    let options = SearchOptions {
        alternatives: true,
        simulated: 1,
        ..SearchOptions::default()
    };
    let offers = supply();
    let count = offers.len();
    let plan = search(&snapshot(offers), demand, &Held::new(), now(), &options).expect("a plan");
    assert_eq!(plan.eligible + plan.rejected.total, count);
    for candidate in &plan.candidates {
        assert!(candidate.nodes() > 0 && candidate.cost_per_hour.is_positive());
    }
    plan
}

#[test]
fn the_largest_load_that_nobody_may_carry_is_nothing_and_takes_nothing() {
    for load in ["concurrency", "requests_per_second"] {
        let mut fields = json!({
            "model": "Llama 3 8B", "input_tokens": 512, "output_tokens": 10_000_000,
            "growth": 1_000, "policy": {"allow_providers": ["nobody"]},
        });
        let most = if load == "concurrency" {
            10_000_000
        } else {
            1_000_000
        };
        fields[load] = most.into();
        let plan = plan_of(&demand("serve_realtime", fields));
        assert!(plan.candidates.is_empty());
        let all = BTreeMap::from([(ReasonCode::ProviderPolicy, supply().len())]);
        assert_eq!(plan.rejected.by_reason, all);
    }
}

/// A model by name, or one at the bounds of a shape.
fn model() -> impl Strategy<Value = Value> {
    let shape = (
        select(vec![0.001, 8.0, 100_000.0]),
        select(vec![1, 1_000]),
        // The widest heads, and the most of them, that a stream of this width may have.
        select(vec![
            (1, 1, 1),
            (1, 4, 1),
            (8_192, 1, 128),
            (8_192, 256, 128),
            (8_192, 4, 8_192),
            (1_000_000, 10_000, 1),
            (1_000_000, 10_000, 400),
            (1_000_000, 400, 10_000),
        ]),
    );
    let shaped = shape.prop_map(|(params, layers, (hidden, kv_heads, head_dim))| {
        json!({
            "params_total_b": params, "layers": layers, "hidden": hidden, "kv_heads": kv_heads,
            "head_dim": head_dim,
        })
    });
    prop_oneof![
        select(vec!["Llama 3 8B", "DeepSeek V3"]).prop_map(Value::from),
        shaped
    ]
}

fn tokens() -> impl Strategy<Value = u32> {
    select(vec![1, 512, 10_000_000])
}

fn precision() -> impl Strategy<Value = &'static str> {
    select(vec!["bf16", "fp8", "int8", "fp4", "int4"])
}

fn realtime() -> impl Strategy<Value = Demand> {
    let load = prop_oneof![
        select(vec![1, 300, 10_000_000]).prop_map(|count| ("concurrency", json!(count))),
        select(vec![0.001, 10.0, 1e6]).prop_map(|rate| ("requests_per_second", json!(rate))),
    ];
    let latency = (
        select(vec![None, Some(1.0), Some(3.6e6)]),
        select(vec![None, Some(0.1), Some(3.6e6)]),
        select(vec![None, Some(1.0), Some(99.999)]),
    );
    let fleet = (
        select(vec![None, Some("zone"), Some("provider")]),
        select(vec![1.0, 1_000.0]),
        select(vec![0, 1, 250]),
    );
    let work = (model(), precision(), tokens(), tokens());
    (work, load, latency, fleet).prop_map(|(work, load, latency, fleet)| {
        let mut fields = json!({
            "model": work.0, "weights": work.1, "input_tokens": work.2, "output_tokens": work.3,
            "growth": fleet.1, "latency": {},
        });
        fields[load.0] = load.1;
        let given = [
            ("first_token_ms", latency.0),
            ("per_token_ms", latency.1),
            ("percentile", latency.2),
        ];
        for (name, value) in given {
            if let Some(value) = value {
                fields["latency"][name] = value.into();
            }
        }
        if let Some(survive) = fleet.0 {
            fields["survive"] = survive.into();
        }
        let user = json!({"country": "DE", "share": 1.0 / f64::from(fleet.2.max(1))});
        fields["users"] = (0..fleet.2).map(|_| user.clone()).collect();
        demand("serve_realtime", fields)
    })
}

fn batch() -> impl Strategy<Value = Demand> {
    let requests = select(vec![1, 1_000_000_000_000_u64]);
    let seconds = select(vec![None, Some(1), Some(315_000_000)]);
    let work = (model(), precision(), tokens(), tokens());
    (work, requests, seconds).prop_map(|(work, requests, seconds)| {
        let mut fields = json!({
            "model": work.0, "weights": work.1, "input_tokens": work.2, "output_tokens": work.3,
            "requests": requests,
        });
        if let Some(seconds) = seconds {
            let deadline = now() + chrono::TimeDelta::seconds(seconds);
            fields["deadline"] = deadline.to_rfc3339().into();
        }
        demand("serve_batch", fields)
    })
}

fn training() -> impl Strategy<Value = Demand> {
    let batch = select(vec![None, Some(1), Some(10_000_000)]);
    let gpus = select(vec![None, Some(8), Some(100_000)]);
    let tokens_of_run = select(vec![1, 1_000_000_000_000_000_u64]);
    let method = select(vec!["full", "lora", "qlora"]);
    let seconds = select(vec![None, Some(1), Some(315_000_000)]);
    let run = (tokens_of_run, batch, gpus, method, seconds);
    (model(), tokens(), run).prop_map(|(model, length, run)| {
        let mut fields = json!({
            "model": model, "sequence_length": length, "tokens": run.0, "method": run.3,
        });
        if let Some(batch) = run.1 {
            fields["global_batch_sequences"] = batch.into();
        }
        if let Some(gpus) = run.2 {
            fields["gpus"] = gpus.into();
        }
        if let Some(seconds) = run.4 {
            let deadline = now() + chrono::TimeDelta::seconds(seconds);
            fields["deadline"] = deadline.to_rfc3339().into();
        }
        demand("train", fields)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn absurd_demands_are_answered(demand in prop_oneof![2 => realtime(), 1 => batch(), 1 => training()]) {
        plan_of(&demand);
    }
}
