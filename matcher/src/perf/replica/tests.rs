use market::demand::Model;
use proptest::prelude::*;

use super::*;
use crate::perf::constants::Constants;

fn model(name: &str) -> ModelFigures {
    ModelFigures::of(&Model::Named(name.into())).expect("a known model")
}

fn setup<'a>(model: &'a ModelFigures, gpu: &str, tensor: f64) -> Setup<'a> {
    Setup {
        model,
        chip: Chip::of_row_name(gpu).expect("a chip"),
        tensor,
        pipeline: 1.0,
        weights: WeightFormat::Bf16,
        cache: CacheFormat::Bf16,
        engine: Engine::TensorRtLlm,
        input_tokens: 1_000.0,
        output_tokens: 1_000.0,
    }
}

fn constants() -> &'static InferenceConstants {
    &Constants::product().inference
}

#[test]
fn a_copy_that_does_not_fit_is_refused_and_more_gpus_hold_it() {
    let llama = model("Llama 3 70B");
    let one = serve(
        constants(),
        &setup(&llama, "H100-SXM", 1.0),
        &Limits::default(),
    );
    assert_eq!(one, Err(CannotServe::TooLarge));
    let four = serve(
        constants(),
        &setup(&llama, "H100-SXM", 4.0),
        &Limits::default(),
    );
    assert!(four.expect("it fits").capacity > 10.0);
}

#[test]
fn a_tighter_limit_leaves_a_smaller_batch_and_the_tightest_none() {
    let llama = model("Llama 3 8B");
    let setup = setup(&llama, "H100-SXM", 1.0);
    let within = |seconds: f64| {
        let limits = Limits {
            per_token_seconds: Some(seconds),
            ..Limits::default()
        };
        serve(constants(), &setup, &limits)
    };
    let (loose, tight) = (within(0.1).expect("served"), within(0.02).expect("served"));
    assert!(tight.batch < loose.batch && tight.tokens_per_second < loose.tokens_per_second);
    assert!(tight.per_token_seconds <= 0.02);
    assert_eq!(within(0.001), Err(CannotServe::TooSlow));
    let first = Limits {
        first_token_seconds: Some(0.001),
        ..Limits::default()
    };
    assert_eq!(
        serve(constants(), &setup, &first),
        Err(CannotServe::TooSlow)
    );
}

// S09
#[test]
fn alone_no_request_is_written_faster_than_its_active_weights_are_read() {
    for (name, gpu) in [
        ("Llama 3 8B", "H100-SXM"),
        ("Llama 3 8B", "L4"),
        ("Mixtral 8x7B", "H200-SXM"),
        ("gpt-oss-20b", "H100-SXM"),
    ] {
        let model = model(name);
        let setup = setup(&model, gpu, 1.0);
        let seconds = Rates::new(constants(), &setup).step_seconds(1.0, 100.0);
        let read = (model.params_active - model.embedding_params) * setup.weights.bytes();
        assert!(
            seconds >= read / setup.chip.memory_bytes_per_second,
            "{name} on {gpu}"
        );
    }
}

#[test]
fn windows_and_latents_leave_room_for_more_sequences() {
    let gpt = model("gpt-oss-20b");
    let all = ModelFigures {
        sliding: None,
        ..gpt.clone()
    };
    let capacity = |model: &ModelFigures| setup(model, "H100-SXM", 1.0).capacity(constants());
    assert!(capacity(&gpt) > 1.5 * capacity(&all));
    let deepseek = model("DeepSeek V3");
    let llama = model("Llama 3.1 405B");
    let bytes = |model: &ModelFigures| setup(model, "H200-SXM", 8.0).cache_bytes(1.0);
    assert!(bytes(&deepseek) < bytes(&llama) / 7.0);
}

#[test]
fn memory_bandwidth_decides_small_batches_and_matrix_rates_prompts() {
    let llama = model("Llama 3 8B");
    let rates = |gpu: &str| {
        let setup = setup(&llama, gpu, 1.0);
        let rates = Rates::new(constants(), &setup);
        (
            rates.step_seconds(1.0, 1_000.0),
            rates.prompt(1_000.0).alone,
        )
    };
    // An H200 is an H100 with 1.43 times the bandwidth.
    let (h100, h200) = (rates("H100-SXM"), rates("H200-SXM"));
    assert!(h200.0 < 0.85 * h100.0);
    assert!((h200.1 / h100.1 - 1.0).abs() < 0.05);
}

// S10: 2 x layers x heads x width x bytes x tokens, and less with windows and latents.
#[test]
fn the_cache_of_known_models_is_what_their_configurations_say() {
    let per_token = |name| setup(&model(name), "H100-SXM", 1.0).cache_bytes(1.0);
    assert_eq!(per_token("Llama 3 70B"), 2.0 * 80.0 * 8.0 * 128.0 * 2.0);
    assert_eq!(per_token("Llama 2 7B"), 2.0 * 32.0 * 32.0 * 128.0 * 2.0);
    // Multi-head latent attention keeps 512 + 64 numbers per layer.
    assert_eq!(per_token("DeepSeek V3"), 61.0 * 576.0 * 2.0);
    // Half of the layers look back 128 tokens.
    let gpt = model("gpt-oss-20b");
    let narrow = |cache| Setup {
        cache,
        ..setup(&gpt, "H100-SXM", 1.0)
    };
    let kept = 24_576.0 * (0.5 * 8_128.0 + 0.5 * 128.0);
    assert_eq!(narrow(CacheFormat::Fp8).cache_bytes(8_128.0), kept);
    // Four bits carry their scales.
    assert_eq!(narrow(CacheFormat::Fp4).cache_bytes(8_128.0), kept * 0.5625);
}

#[test]
fn gpus_that_share_fewer_heads_of_keys_keep_copies_of_them() {
    let qwen = model("Qwen3 235B-A22B");
    let latent = model("DeepSeek V3");
    let copies = |model: &ModelFigures, engine, tensor| {
        let setup = Setup {
            engine,
            ..setup(model, "MI300X", tensor)
        };
        setup.cache_copies(constants())
    };
    // Four KV heads.
    for (tensor, kept) in [(1.0, 1.0), (4.0, 1.0), (8.0, 2.0)] {
        assert_eq!(copies(&qwen, Engine::VllmAmd, tensor), kept);
        // Here each GPU attends to sequences of its own.
        assert_eq!(copies(&qwen, Engine::TensorRtLlm10, tensor), 1.0);
        assert_eq!(copies(&latent, Engine::VllmAmd, tensor), 1.0);
        // A latent vector is one head's.
        assert_eq!(copies(&latent, Engine::Vllm2024, tensor), tensor);
    }
    let eight = |constants: &InferenceConstants| {
        let setup = Setup {
            engine: Engine::VllmAmd,
            ..setup(&qwen, "MI300X", 8.0)
        };
        let rates = Rates::new(constants, &setup);
        let read = |context| rates.step_seconds(64.0, context);
        (setup.capacity(constants), read(9_000.0) - read(1_000.0))
    };
    let shared = InferenceConstants {
        cache_copies: 0.0,
        ..constants().clone()
    };
    let ((kept, slow), (wished, fast)) = (eight(constants()), eight(&shared));
    assert!((wished / kept - 2.0).abs() < 1e-9 && (slow / fast - 2.0).abs() < 1e-9);
}

#[test]
fn a_prompt_alone_passes_all_stages_in_turn_and_many_fill_them() {
    let llama = model("Llama 3 70B");
    let prompt = |stages| {
        let setup = Setup {
            pipeline: stages,
            weights: WeightFormat::Fp8,
            cache: CacheFormat::Fp8,
            ..setup(&llama, "L40S", 2.0)
        };
        Rates::new(constants(), &setup).prompt(4_000.0)
    };
    let (one, four) = (prompt(1.0), prompt(4.0));
    assert_eq!(one.each, one.alone);
    assert!((four.alone / one.alone - 1.0).abs() < 1e-9);
    assert_eq!(four.together(1.0), four.alone);
    assert!(four.each >= one.each / 4.0);
    assert_eq!(four.together(100.0), 100.0 * four.each);
}

#[test]
fn the_first_token_comes_no_sooner_for_stages_that_share_the_layers() {
    let llama = model("Llama 3 70B");
    let first = |stages| {
        let setup = Setup {
            pipeline: stages,
            weights: WeightFormat::Fp8,
            cache: CacheFormat::Fp8,
            input_tokens: 4_000.0,
            output_tokens: 256.0,
            ..setup(&llama, "L40S", 2.0)
        };
        let one = Limits {
            concurrency: Some(1.0),
            ..Limits::default()
        };
        serve(constants(), &setup, &one).expect("it fits")
    };
    let (one, four) = (first(1.0), first(4.0));
    assert!(four.first_token_seconds >= one.first_token_seconds);
    assert!(four.per_token_seconds >= one.per_token_seconds);
}

proptest! {
    #[test]
    fn a_longer_sequence_never_keeps_less(short in 0_u32..100_000, more in 0_u32..100_000) {
        for name in ["gpt-oss-120b", "Llama 3 8B", "DeepSeek V3"] {
            let model = model(name);
            let setup = setup(&model, "H100-SXM", 1.0);
            let kept = |tokens: u32| setup.cache_bytes(f64::from(tokens));
            prop_assert!(kept(short) <= kept(short + more));
        }
    }
}
