//! How the engines of fleets are started: as the prediction has them.

use market::demand::Model;
use market::gpu::Gpu;

use super::serve::chat;
use super::*;
use crate::launch::EngineLaunch;
use crate::models::ModelFigures;
use crate::perf::chip::Chip;
use crate::perf::constants::Constants;
use crate::perf::serving::usable_bytes;
use crate::plan::Facts;
use crate::samples::offer;

/// The only candidate on one offer, with the launch of its only line.
fn launch_of(offer: Offer, demand: &Demand) -> (Facts, EngineLaunch) {
    let plan = find(vec![offer], demand);
    let best = &plan.candidates[0];
    let [launch] = best.launch.as_slice() else {
        panic!("one line, one launch")
    };
    (best.facts, launch.clone())
}

fn contents(launch: &EngineLaunch) -> String {
    let config = launch.config.as_ref().expect("a file");
    let named = format!("--extra_llm_api_options {} ", config.file);
    assert!(launch.command.contains(&named), "{}", launch.command);
    config.contents.clone()
}

/// The number after a flag of a command line, or after a key of a file of settings.
fn flag(command: &str, name: &str) -> f64 {
    let mut words = command.split_whitespace().skip_while(|word| *word != name);
    let value = words.nth(1).expect("the flag and its value");
    value.parse().expect("a number")
}

#[test]
fn an_engine_is_given_the_memory_that_the_prediction_counts_on() {
    let fields = json!({"requests_per_second": 1, "weights": "fp8", "kv_cache": "fp8"});
    let launch = |gpu: &str| {
        let demand = chat("Llama 3 70B", fields.clone());
        launch_of(offer("one", gpu, 1, "2.99"), &demand).1
    };
    let constants = &Constants::product().inference;
    let near = |a: f64, b: f64| (a - b).abs() <= 5.1e-4;
    // A share of the memory that is free beside the weights.
    let nvidia = flag(&contents(&launch("H100-SXM")), "free_gpu_memory_fraction:");
    assert!(near(nvidia, constants.cache_memory_share), "{nvidia}");
    // A share of all memory: 71 GB of weights, the cache, and the overhead.
    let amd = flag(&launch("MI300X").command, "--gpu-memory-utilization");
    let chip = Chip::of_spec(Gpu::parse("MI300X").expect("a GPU").spec()).expect("a chip");
    let model = ModelFigures::of(&Model::Named("Llama 3 70B".into())).expect("a known model");
    let free = usable_bytes(constants, &chip, 1) - model.params_total;
    let unused = free * (1.0 - constants.cache_memory_share) / chip.reported_memory_bytes;
    assert!(near(amd, constants.memory_share - unused), "{amd} {unused}");
}

#[test]
fn a_fleet_says_how_its_engines_are_started_and_where_they_listen() {
    let fields = json!({"requests_per_second": 1, "weights": "fp8", "kv_cache": "fp8"});
    let wide = chat("Llama 3 70B", fields);
    let of = |gpu: &str| launch_of(offer("x", gpu, 8, "23.92"), &wide);
    let (facts, nvidia) = of("H100-SXM");
    let gpus = facts.gpus_per_replica.expect("a width");
    assert_eq!(nvidia.engine, "TensorRT-LLM");
    for words in [
        format!("--tp_size {gpus}"),
        "trtllm-serve meta-llama/".to_owned(),
        "--max_seq_len 768".to_owned(),
        "--port 8000".to_owned(),
    ] {
        assert!(
            nvidia.command.contains(&words),
            "{words}: {}",
            nvidia.command
        );
    }
    let copies = facts.replicas.expect("copies");
    assert_eq!(nvidia.ports.len(), copies as usize);
    assert_eq!(nvidia.ports[0], 8_000);
    let (_, launch) = of("MI300X");
    assert_eq!(launch.engine, "vLLM");
    assert!(launch.command.contains("--kv-cache-dtype fp8"));
    assert_eq!(launch.config, None);
}

/// The demand of an example.
fn example(text: &str) -> Demand {
    serde_json::from_str(text).expect("a demand")
}

/// The prediction: each GPU attends to its own sequences, schedules them itself, and has its share of the
/// experts. The engine counts the batch of one GPU.
#[test]
fn a_mixture_attends_on_each_gpu_and_shares_its_experts_as_it_was_predicted() {
    let demand = example(include_str!("../../../../docs/demands/deepseek-v3.json"));
    let (facts, launch) = launch_of(offer("wide", "H200-SXM", 8, "28.00"), &demand);
    assert_eq!(facts.gpus_per_replica, Some(8));
    assert_eq!(flag(&launch.command, "--tp_size"), 8.0);
    assert_eq!(flag(&launch.command, "--ep_size"), 8.0);
    let contents = contents(&launch);
    for line in [
        "enable_attention_dp: true",
        "  dtype: fp8",
        "  enable_padding: true",
    ] {
        assert!(contents.lines().any(|one| one == line), "{contents}");
    }
    let together = facts.sequences_per_replica.expect("a batch").floor();
    let of_one_gpu = flag(&launch.command, "--max_batch_size");
    assert!(
        of_one_gpu * 8.0 >= together && (of_one_gpu - 1.0) * 8.0 < together,
        "{of_one_gpu} of {together}"
    );
    assert_eq!(flag(&contents, "max_batch_size:"), of_one_gpu);
}

#[test]
fn what_is_no_mixture_or_stands_on_one_gpu_attends_as_one() {
    let fields = json!({"requests_per_second": 1});
    let whole = [
        ("Llama 3 70B", offer("two", "H100-SXM", 2, "5.98")),
        ("Mixtral 8x7B", offer("one", "H200-SXM", 1, "3.50")),
    ];
    for (model, on) in whole {
        let (facts, launch) = launch_of(on, &chat(model, fields.clone()));
        assert!(!launch.command.contains("--ep_size"), "{}", launch.command);
        let contents = contents(&launch);
        assert!(!contents.contains("attention_dp"), "{contents}");
        // The precision of the cache is that of the weights' own numbers.
        assert!(contents.contains("dtype: auto"), "{contents}");
        let together = facts.sequences_per_replica.expect("a batch").floor();
        assert_eq!(flag(&launch.command, "--max_batch_size"), together);
    }
}

/// The cache of a latent model is split over the GPUs in the prediction; vLLM does so where each GPU
/// attends to its own sequences, and not where all share a matrix.
#[test]
fn a_latent_mixture_on_vllm_keeps_each_sequence_on_one_gpu() {
    let demand = example(include_str!("../../../../docs/demands/deepseek-v3.json"));
    let (facts, launch) = launch_of(offer("amd", "MI300X", 8, "20.00"), &demand);
    let gpus = f64::from(facts.gpus_per_replica.expect("a width"));
    assert!(gpus > 1.0);
    assert_eq!(flag(&launch.command, "--data-parallel-size"), gpus);
    assert!(launch.command.contains(" --enable-expert-parallel "));
    assert!(!launch.command.contains("--tensor-parallel-size"));
    let together = facts.sequences_per_replica.expect("a batch").floor();
    assert_eq!(
        flag(&launch.command, "--max-num-seqs"),
        (together / gpus).ceil()
    );
    // Keys of other models are split with their heads.
    let fields = json!({"requests_per_second": 1});
    let (_, grouped) = launch_of(
        offer("amd", "MI300X", 8, "20.00"),
        &chat("Mixtral 8x22B", fields),
    );
    assert!(grouped.command.contains("--tensor-parallel-size"));
}

/// Stages of a pipeline alternate between the parts of a batch.
#[test]
fn an_engine_in_stages_is_told_the_batch_of_one_stage() {
    let fields = json!({"requests_per_second": 1});
    let (facts, launch) = launch_of(
        offer("pcie", "L40S", 8, "8.00"),
        &chat("Llama 3 70B", fields),
    );
    let stages = flag(&launch.command, "--pp_size");
    let together = facts.sequences_per_replica.expect("a batch").floor();
    assert!(stages > 1.0, "{}", launch.command);
    assert_eq!(
        flag(&launch.command, "--max_batch_size"),
        (together / stages).ceil()
    );
}
