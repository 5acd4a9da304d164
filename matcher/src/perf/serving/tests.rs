use market::demand::{Model, ModelShape};
use market::gpu::Gpu;
use proptest::prelude::*;

use super::*;
use crate::perf::constants::Constants;

fn work(name: &str, weights: Precision) -> ServingWork {
    ServingWork {
        model: ModelFigures::of(&Model::Named(name.into())).expect("a known model"),
        weights: weight_format(weights).expect("served"),
        cache: cache_format(weights).expect("served"),
        input_tokens: 512.0,
        output_tokens: 256.0,
        latency: LatencyObjective::default(),
    }
}

fn chip(name: &str) -> Chip {
    Chip::of_spec(Gpu::parse(name).expect("a GPU").spec()).expect("a chip")
}

fn constants() -> &'static InferenceConstants {
    &Constants::product().inference
}

fn replica(work: &ServingWork, gpu: &str, gpus: u32) -> Result<Replica, CannotServe> {
    work.replica(constants(), &chip(gpu), gpus, 0.0)
}

fn fewest(work: &ServingWork, gpu: &str, most: u32) -> Option<u32> {
    work.fewest_gpus(constants(), &chip(gpu), most)
}

/// A dense 7B whose 16-bit weights are 14 GB.
fn seven_b() -> ModelFigures {
    let shape = ModelShape {
        params_total_b: 7.0,
        params_active_b: None,
        layers: 32,
        hidden: 4_096,
        heads: None,
        kv_heads: 32,
        head_dim: 128,
    };
    ModelFigures::of(&Model::Shaped(shape)).expect("a shape")
}

// S09
#[test]
fn a_7b_at_16_bits_writes_no_more_than_its_weights_can_be_read() {
    for (gpu, bound) in [("H100-SXM", 239), ("L40S", 62), ("L4", 21)] {
        let bandwidth = Gpu::parse(gpu).expect("a GPU").spec().memory_bandwidth_gbps;
        // Every weight is read once a token, in two bytes.
        let tokens = bandwidth * 1e9 / (2.0 * seven_b().params_active);
        assert!(
            tokens < f64::from(bound) + 0.5 && tokens > f64::from(bound) - 0.8,
            "{gpu}: {tokens}"
        );
        let alone = ServingWork {
            model: seven_b(),
            ..work("Llama 2 7B", Precision::Fp16)
        };
        let (_, per_token) = alone.seconds_alone(constants(), &chip(gpu), 1);
        assert!(1.0 / per_token <= tokens && 1.0 / per_token > tokens / 2.0);
    }
}

// S55
#[test]
fn a_7b_at_16_bits_and_its_cache_fit_24_gb_at_the_stated_context() {
    let small = ServingWork {
        model: seven_b(),
        input_tokens: 3_072.0,
        output_tokens: 1_024.0,
        ..work("Llama 2 7B", Precision::Fp16)
    };
    // 14 GB of weights, and 2.3 GB for 4,392 tokens of 32 full heads.
    assert_eq!(fewest(&small, "L4", 8), Some(1));
    assert_eq!(fewest(&small, "L40S", 8), Some(1));
    assert_eq!(fewest(&small, "T4", 8), Some(2));
}

// S56
#[test]
fn a_70b_needs_two_of_80_gb_at_16_bits_and_one_at_8_bits_or_of_192_gb() {
    let wide = work("Llama 3 70B", Precision::Fp16);
    assert_eq!(fewest(&wide, "H100-SXM", 8), Some(2));
    assert_eq!(fewest(&wide, "MI300X", 8), Some(1));
    assert_eq!(replica(&wide, "H100-SXM", 1), Err(CannotServe::TooLarge));
    let narrow = work("Llama 3 70B", Precision::Fp8);
    assert_eq!(fewest(&narrow, "H100-SXM", 8), Some(1));
    // With a long context its cache no longer fits beside the weights.
    let long = ServingWork {
        input_tokens: 80_000.0,
        ..narrow
    };
    assert_eq!(fewest(&long, "H100-SXM", 8), Some(2));
}

#[test]
fn a_copy_whose_needs_are_said_to_be_met_serves_and_no_other() {
    for (name, gpu, gpus, step_tokens) in [
        ("Llama 3 70B", "H100-SXM", 1, 500.0),
        ("Llama 3 70B", "L40S", 4, 5_000.0),
        // Each of its four KV heads is kept twice.
        ("Qwen3 235B-A22B", "MI300X", 8, 50_000.0),
    ] {
        let mut narrow = work(name, Precision::Fp8);
        let usable = usable_bytes(constants(), &chip(gpu), gpus);
        let mut seen = [0, 0];
        for step in 0..200 {
            narrow.input_tokens = f64::from(step) * step_tokens;
            let met = narrow.needed_bytes(constants(), &chip(gpu), gpus) <= usable;
            let served = replica(&narrow, gpu, gpus) != Err(CannotServe::TooLarge);
            assert_eq!(met, served, "{} tokens", narrow.input_tokens);
            assert_eq!(met, fewest(&narrow, gpu, gpus).is_some());
            seen[usize::from(met)] += 1;
        }
        assert!(seen.iter().all(|count| *count > 0), "{name}: {seen:?}");
    }
}

// S57
#[test]
fn a_405b_at_8_bits_fits_eight_of_80_gb_or_four_of_141_gb() {
    let large = work("Llama 3.1 405B", Precision::Fp8);
    assert_eq!(fewest(&large, "H100-SXM", 8), Some(8));
    assert_eq!(fewest(&large, "H200-SXM", 8), Some(4));
    assert_eq!(fewest(&large, "H100-SXM", 4), None);
}

// S12
#[test]
fn a_tighter_objective_means_a_smaller_batch_and_at_last_none() {
    let mut chat = work("Llama 3 8B", Precision::Bf16);
    let free = replica(&chat, "H100-SXM", 1).expect("it fits");
    chat.latency.per_token_ms = Some(20.0);
    let tight = replica(&chat, "H100-SXM", 1).expect("it can");
    assert!(tight.batch < free.batch && tight.tokens_per_second < free.tokens_per_second);
    assert!(tight.per_token_seconds <= 0.020);
    chat.latency.per_token_ms = Some(1.0);
    assert_eq!(replica(&chat, "H100-SXM", 1), Err(CannotServe::TooSlow));
}

#[test]
fn a_prompt_that_takes_too_long_to_read_or_to_send_misses_the_first_token() {
    let mut chat = ServingWork {
        input_tokens: 8_000.0,
        ..work("Llama 3 8B", Precision::Bf16)
    };
    chat.latency.first_token_ms = Some(1_000.0);
    assert!(replica(&chat, "H100-SXM", 1).is_ok());
    assert_eq!(replica(&chat, "L4", 1), Err(CannotServe::TooSlow));
    let far = chat.replica(constants(), &chip("H100-SXM"), 1, 0.9);
    assert_eq!(far, Err(CannotServe::TooSlow));
}

#[test]
fn a_copy_shares_its_matrices_within_the_fast_link_alone() {
    let wide = work("Llama 3 70B", Precision::Fp8);
    let tensor = |gpu, gpus| replica(&wide, gpu, gpus).map(|replica| replica.tensor);
    assert_eq!(tensor("H100-SXM", 8), Ok(8));
    // Its link connects four: eight need at least two stages.
    assert!(tensor("V100-SXM2-32", 8).expect("it fits") <= 4);
    // 14 heads can be split evenly over two and no more.
    let odd = work("Qwen2.5 0.5B", Precision::Bf16);
    assert_eq!(replica(&odd, "H100-SXM", 4), Err(CannotServe::TooLarge));
    assert!(replica(&odd, "H100-SXM", 2).is_ok());
}

#[test]
fn a_mixture_of_experts_writes_alone_at_the_rate_of_its_active_weights() {
    let per_second = |name| {
        let (_, per_token) =
            work(name, Precision::Bf16).seconds_alone(constants(), &chip("H200-SXM"), 1);
        1.0 / per_token
    };
    assert!(per_second("Qwen3 30B-A3B") > 2.0 * per_second("Qwen3 32B"));
}

proptest! {
    #[test]
    fn a_batch_that_is_found_meets_the_objective_and_a_larger_one_does_not(
        per_token_ms in 12.0_f64..200.0,
        input_tokens in 1_u32..4_000,
        output_tokens in 1_u32..2_000,
    ) {
        let chat = ServingWork {
            input_tokens: f64::from(input_tokens),
            output_tokens: f64::from(output_tokens),
            latency: LatencyObjective { per_token_ms: Some(per_token_ms), ..LatencyObjective::default() },
            ..work("Llama 3 8B", Precision::Bf16)
        };
        let a100 = chip("A100-SXM-80");
        let setup = chat.setup(&a100, 1, 1);
        let limit = per_token_ms / 1e3 * constants().objective_share;
        let most = setup.capacity(constants()).min(constants().largest_batch);
        let per_token = |batch: f64| {
            let limits = Limits { concurrency: Some(batch), ..Limits::default() };
            serve(constants(), &setup, &limits).map_or(f64::INFINITY, |served| served.per_token_seconds)
        };
        match chat.replica(constants(), &a100, 1, 0.0) {
            Ok(found) => {
                prop_assert!(per_token(found.batch) <= limit * (1.0 + 1e-9));
                prop_assert!(found.batch >= most || per_token(found.batch + 1.0) > limit);
            }
            Err(_) => prop_assert!(per_token(1.0) > limit),
        }
    }

    #[test]
    fn relaxing_the_objective_never_lowers_the_throughput(a in 2.0_f64..300.0, b in 2.0_f64..300.0) {
        let rate = |ms: f64| {
            let mut chat = work("Llama 3 8B", Precision::Bf16);
            chat.latency.per_token_ms = Some(ms);
            replica(&chat, "H100-SXM", 1).map_or(0.0, |replica| replica.tokens_per_second)
        };
        prop_assert!(rate(a.min(b)) <= rate(a.max(b)) * (1.0 + 1e-9));
    }
}

/// The ways to lay a replica out on so many GPUs: those that share a matrix, and the stages.
fn ways(model: &ModelFigures, gpu: &str, gpus: u32) -> Vec<(f64, f64)> {
    let work = ServingWork {
        model: model.clone(),
        ..work("Llama 2 7B", Precision::Fp8)
    };
    let chip = chip(gpu);
    let layouts = work.layouts(&chip, gpus);
    layouts.map(|way| (way.tensor, way.pipeline)).collect()
}

#[test]
fn a_model_that_is_given_by_its_shape_is_laid_out_as_by_its_name() {
    for named in crate::models::all() {
        let shaped = |heads| {
            let shape = ModelShape {
                params_total_b: named.params_total / 1e9,
                params_active_b: Some(named.params_active / 1e9),
                layers: named.layers,
                hidden: named.hidden,
                heads,
                kv_heads: named.kv_heads,
                head_dim: named.head_dim,
            };
            ModelFigures::of(&Model::Shaped(shape)).expect("a shape")
        };
        let (told, assumed) = (shaped(Some(named.heads)), shaped(None));
        assert_eq!(
            (told.heads, told.query_group()),
            (named.heads, named.query_group())
        );
        assert!(assumed.heads.is_multiple_of(named.kv_heads));
        for (gpu, gpus) in [("H100-SXM", [1, 2, 4, 8]), ("L40S", [1, 2, 4, 8])] {
            for gpus in gpus {
                let of_name = ways(&named, gpu, gpus);
                assert_eq!(ways(&told, gpu, gpus), of_name, "{} on {gpus}", named.name);
                // The assumption lets heads be split at least until each GPU has keys of its own.
                if named.kv_heads.is_multiple_of(gpus) {
                    assert_eq!(
                        ways(&assumed, gpu, gpus),
                        of_name,
                        "{} on {gpus}",
                        named.name
                    );
                }
            }
        }
        // Those that need several GPUs are served by all eight of a board.
        if named.params_total > 100e9 {
            assert_ne!(ways(&assumed, "H100-SXM", 8), [], "{}", named.name);
        }
    }
}
