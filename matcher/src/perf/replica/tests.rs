use market::demand::Model;

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
            rates.prompt_token_seconds(1_000.0),
        )
    };
    // An H200 is an H100 with 1.43 times the bandwidth.
    let (h100, h200) = (rates("H100-SXM"), rates("H200-SXM"));
    assert!(h200.0 < 0.85 * h100.0);
    assert!((h200.1 / h100.1 - 1.0).abs() < 0.05);
}
