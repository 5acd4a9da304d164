use market::demand::{Model, ModelShape};
use market::gpu::Gpu;
use proptest::prelude::*;

use super::*;

fn work(name: &str, weights: Precision) -> ServingWork {
    ServingWork {
        model: ModelFigures::of(&Model::Named(name.into())).expect("a known model"),
        weights,
        cache: weights,
        input_tokens: 512.0,
        output_tokens: 256.0,
        latency: LatencyObjective::default(),
    }
}

fn spec(name: &str) -> &'static GpuSpec {
    Gpu::parse(name).expect("a GPU").spec()
}

fn replica(work: &ServingWork, gpu: &str, gpus: u32) -> Result<Replica, NoReplica> {
    let spec = spec(gpu);
    work.replica(spec, peak_tflops(spec, work.weights).expect("a rate"), gpus)
}

/// A dense 7B whose 16-bit weights are 14 GB.
fn seven_b() -> ModelFigures {
    let shape = ModelShape {
        params_total_b: 7.0,
        params_active_b: None,
        layers: 32,
        hidden: 4_096,
        kv_heads: 32,
        head_dim: 128,
    };
    ModelFigures::of(&Model::Shaped(shape)).expect("a shape")
}

// S09
#[test]
fn a_7b_at_16_bits_writes_no_more_than_its_weights_can_be_read() {
    for (gpu, bound) in [("H100-SXM", 239), ("L40S", 62), ("L4", 21)] {
        let bandwidth = spec(gpu).memory_bandwidth_gbps;
        let tokens = tokens_per_second_bound(&seven_b(), Precision::Fp16, bandwidth);
        assert!(
            tokens < f64::from(bound) + 0.5 && tokens > f64::from(bound) - 0.8,
            "{gpu}: {tokens}"
        );
        let mut alone = ServingWork {
            model: seven_b(),
            ..work("Llama 2 7B", Precision::Fp16)
        };
        alone.latency.per_token_ms = Some(1e3 / (f64::from(bound) * 0.6));
        let served = replica(&alone, gpu, 1).expect("it fits");
        assert!(1.0 / served.per_token_seconds <= tokens);
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
    assert_eq!(weight_bytes(&small.model, Precision::Fp16), 14e9);
    // 4,096 tokens of 32 full heads are 2.1 GB.
    assert_eq!(small.fewest_gpus(24.0, 8), Some(1));
    assert_eq!(small.fewest_gpus(48.0, 8), Some(1));
    assert_eq!(small.fewest_gpus(16.0, 8), Some(2));
}

// S56
#[test]
fn a_70b_needs_two_of_80_gb_at_16_bits_and_one_at_8_bits_or_of_192_gb() {
    let wide = work("Llama 3 70B", Precision::Fp16);
    assert_eq!(wide.fewest_gpus(80.0, 8), Some(2));
    assert_eq!(wide.fewest_gpus(192.0, 8), Some(1));
    assert_eq!(replica(&wide, "H100-SXM", 1), Err(NoReplica::TooLarge));
    let narrow = work("Llama 3 70B", Precision::Fp8);
    assert_eq!(narrow.fewest_gpus(80.0, 8), Some(1));
    // With a long context its cache no longer fits beside the weights.
    let long = ServingWork {
        input_tokens: 16_000.0,
        ..narrow
    };
    assert_eq!(long.fewest_gpus(80.0, 8), Some(2));
}

// S57
#[test]
fn a_405b_at_8_bits_fits_eight_of_80_gb_or_four_of_141_gb() {
    let large = work("Llama 3.1 405B", Precision::Fp8);
    assert_eq!(large.fewest_gpus(80.0, 8), Some(8));
    assert_eq!(large.fewest_gpus(141.0, 8), Some(4));
    assert_eq!(large.fewest_gpus(80.0, 4), None);
}

// S12
#[test]
fn a_tighter_objective_means_a_smaller_batch_and_at_last_none() {
    let mut chat = work("Llama 3 8B", Precision::Bf16);
    let free = replica(&chat, "H100-SXM", 1).expect("it fits");
    chat.latency.per_token_ms = Some(15.0);
    let tight = replica(&chat, "H100-SXM", 1).expect("it can");
    assert!(tight.batch < free.batch && tight.tokens_per_second < free.tokens_per_second);
    assert!(tight.per_token_seconds <= 0.015);
    chat.latency.per_token_ms = Some(1.0);
    assert_eq!(replica(&chat, "H100-SXM", 1), Err(NoReplica::TooSlow));
}

#[test]
fn a_prompt_that_takes_too_long_to_read_misses_the_first_token() {
    let mut chat = ServingWork {
        input_tokens: 8_000.0,
        ..work("Llama 3 8B", Precision::Bf16)
    };
    chat.latency.first_token_ms = Some(1_000.0);
    assert!(replica(&chat, "H100-SXM", 1).is_ok());
    assert_eq!(
        replica(&chat, "L4", 4).map(|r| r.batch),
        Err(NoReplica::TooSlow)
    );
}

#[test]
fn a_mixture_of_experts_reads_its_active_weights_alone_and_all_of_them_in_a_large_batch() {
    let mixture = work("Qwen3 30B-A3B", Precision::Bf16);
    let dense = work("Qwen3 32B", Precision::Bf16);
    let rate = |work: &ServingWork| {
        let spec = spec("H200-SXM");
        let speed = Speed::new(work, spec, 989.0, 1);
        (
            1.0 / speed.step_seconds(1.0),
            256.0 / speed.step_seconds(256.0),
        )
    };
    let ((alone, _), (dense_alone, _)) = (rate(&mixture), rate(&dense));
    assert!(alone > 5.0 * dense_alone, "{alone} {dense_alone}");
}

proptest! {
    #[test]
    fn a_batch_that_is_found_is_the_largest_that_meets_the_objective(
        per_token_ms in 3.0_f64..200.0,
        input_tokens in 1.0_f64..4_000.0,
        output_tokens in 1.0_f64..2_000.0,
    ) {
        let mut chat = work("Llama 3 8B", Precision::Bf16);
        (chat.input_tokens, chat.output_tokens) = (input_tokens.floor(), output_tokens.floor());
        chat.latency.per_token_ms = Some(per_token_ms);
        let spec = spec("A100-SXM-80");
        let speed = Speed::new(&chat, spec, 312.0, 1);
        let free = 0.9 * 80e9 - weight_bytes(&chat.model, chat.weights);
        let most = (free / chat.sequence_bytes()).floor().clamp(1.0, LARGEST_BATCH) as u32;
        // The naive way: every batch, one after the other.
        let best = (1..=most).filter(|batch| speed.per_token_seconds(f64::from(*batch)) * 1e3 <= per_token_ms).max();
        let found = chat.replica(spec, 312.0, 1).ok().map(|replica| replica.batch as u32);
        prop_assert_eq!(found, best);
    }

    #[test]
    fn relaxing_the_objective_never_lowers_the_throughput(a in 2.0_f64..300.0, b in 2.0_f64..300.0) {
        let rate = |ms: f64| {
            let mut chat = work("Llama 3 8B", Precision::Bf16);
            chat.latency.per_token_ms = Some(ms);
            replica(&chat, "H100-SXM", 1).map_or(0.0, |replica| replica.tokens_per_second)
        };
        prop_assert!(rate(a.min(b)) <= rate(a.max(b)) * (1.0 + 1e-12));
    }
}
