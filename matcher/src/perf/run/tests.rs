use market::demand::Model;
use market::gpu::Gpu;
use proptest::prelude::*;

use super::*;
use crate::perf::step_time::Strategy;

pub(super) fn work(name: &str, method: TrainMethod) -> RunWork {
    RunWork {
        model: ModelFigures::of(&Model::Named(name.into())).expect("a known model"),
        method,
        precision: Precision::Bf16,
        sequence_length: 4_096,
        step_sequences: None,
        tokens: 10_000_000_000,
        checkpoint_interval_seconds: None,
        checkpoint_bytes: None,
    }
}

pub(super) fn nodes(gpu: &str, internode: Internode) -> RunNodes {
    let spec = Gpu::parse(gpu).expect("a GPU").spec();
    RunNodes::new(spec, 8, internode).expect("published rates")
}

fn run(name: &str, gpu: &str, internode: Internode, count: u32) -> Run {
    work(name, TrainMethod::Full)
        .best_on(Constants::product(), &nodes(gpu, internode), count)
        .expect("it fits")
}

// S08, S32
#[test]
fn on_256_gpus_plain_ethernet_costs_a_70b_most_of_its_rate() {
    let rdma = run("Llama 3 70B", "H100-SXM", Internode::InfinibandNdr400, 32);
    let plain = run("Llama 3 70B", "H100-SXM", Internode::Ethernet, 32);
    assert!(rdma.utilisation() > 0.35, "{}", rdma.utilisation());
    assert!(
        plain.hours > 4.0 * rdma.hours,
        "{} {}",
        plain.hours,
        rdma.hours
    );
    assert!(plain.step.exposed_share() > rdma.step.exposed_share());
}

#[test]
fn adapters_take_the_same_time_on_any_fabric() {
    let hours = |internode| {
        work("Llama 3 70B", TrainMethod::Lora)
            .best_on(Constants::product(), &nodes("H100-SXM", internode), 4)
            .expect("it fits")
            .hours
    };
    assert_eq!(
        hours(Internode::Ethernet),
        hours(Internode::InfinibandNdr400)
    );
}

#[test]
fn adapters_over_weights_that_no_node_holds_wait_for_the_fabric() {
    let on = |gpu: &str, internode| {
        let work = work("Llama 3.1 405B", TrainMethod::Lora);
        let run = work.best_on(Constants::product(), &nodes(gpu, internode), 2);
        run.expect("it fits")
    };
    let [slow, fast] =
        [Internode::Ethernet, Internode::InfinibandNdr400].map(|fabric| on("H100-SXM", fabric));
    assert_eq!(slow.layout.strategy, Strategy::FrozenShard);
    assert!(
        slow.hours > 2.0 * fast.hours,
        "{} {}",
        slow.hours,
        fast.hours
    );
    // A node of H200 holds them, and nothing of them leaves it.
    let [slow, fast] =
        [Internode::Ethernet, Internode::InfinibandNdr400].map(|fabric| on("H200-SXM", fabric));
    assert_eq!(slow, fast);
    assert!(slow.layout.strategy != Strategy::FrozenShard);
}

#[test]
fn a_70b_on_15_trillion_tokens_takes_millions_of_gpu_hours() {
    let llama = RunWork {
        tokens: 15_000_000_000_000,
        ..work("Llama 3 70B", TrainMethod::Full)
    };
    let fabric = nodes("H100-SXM", Internode::InfinibandNdr400);
    let run = llama
        .best_on(Constants::product(), &fabric, 64)
        .expect("it fits");
    // The published figure of the 70B run is 6.4 million, on far more GPUs.
    assert!(
        (4.0e6..6.4e6).contains(&run.gpu_hours()),
        "{}",
        run.gpu_hours()
    );
}

#[test]
fn a_gpu_without_a_published_rate_has_no_peak() {
    let ampere = Gpu::parse("A100-SXM-80").expect("a GPU").spec();
    assert_eq!(peak_tflops(ampere, Precision::Bf16), Some(312.0));
    assert_eq!(peak_tflops(ampere, Precision::Fp8), None);
    let volta = Gpu::parse("V100-SXM2-32").expect("a GPU").spec();
    assert_eq!(peak_tflops(volta, Precision::Bf16), None);
}

#[test]
fn the_tightest_layout_takes_what_the_memory_filter_says() {
    let llama = work("Llama 3 70B", TrainMethod::Full);
    let metal = nodes("H100-SXM", Internode::InfinibandNdr400);
    let least = llama.least_memory(8, 8);
    let tightest = layouts::choices(&llama, &metal, 24)
        .map(|choice| choice.bytes_per_gpu)
        .fold(f64::INFINITY, f64::min);
    assert!((tightest / (least.total_bytes(24) / 24.0) - 1.0).abs() < 1e-12);
    let fewest = least.fewest_gpus(80.0).expect("some number does");
    let enough = (fewest / 8.0).ceil() as u32;
    let on = |count| llama.best_on(Constants::product(), &metal, count);
    assert!(on(enough).is_some() && on(enough - 1).is_none());
}

// S04
#[test]
fn no_matrix_is_shared_by_gpus_that_nvlink_does_not_join() {
    let llama = work("Llama 3 8B", TrainMethod::Full);
    for (gpu, domain) in [("V100-SXM2-32", 4), ("A100-SXM-80", 8), ("L40S", 1)] {
        let board = nodes(gpu, Internode::InfinibandNdr400);
        let choices = layouts::choices(&llama, &board, 32);
        let widest = choices
            .map(|choice| choice.layout.tensor)
            .fold(0.0, f64::max);
        assert_eq!(widest, f64::from(domain), "{gpu}");
        let least = llama.least_memory(8, board.tensor_domain_gpus);
        let shared = TrainingMemory::of(&llama.model, TrainMethod::Full, 4_096, domain);
        assert_eq!(least, shared, "{gpu}");
    }
}

// S32
#[test]
fn one_node_of_eight_trains_nearly_eight_times_as_fast_as_one_gpu() {
    let small = work("Llama 3.2 1B", TrainMethod::Full);
    let spec = Gpu::parse("H100-SXM").expect("a GPU").spec();
    let rate = |gpus| {
        let nodes = RunNodes::new(spec, gpus, Internode::None).expect("published rates");
        let run = small.best_on(Constants::product(), &nodes, 1);
        run.expect("it fits").tokens_per_second
    };
    let efficiency = rate(8) / (8.0 * rate(1));
    assert!((0.9..=1.0).contains(&efficiency), "{efficiency}");
}

#[test]
fn a_step_of_fewer_sequences_than_copies_leaves_gpus_without_work() {
    let of_batch = |sequences| {
        let work = RunWork {
            step_sequences: Some(sequences),
            ..work("Llama 3 8B", TrainMethod::Full)
        };
        let metal = nodes("H100-SXM", Internode::InfinibandNdr400);
        work.best_on(Constants::product(), &metal, 8)
            .expect("it fits")
            .tokens_per_second
    };
    assert!(of_batch(4) < of_batch(64) / 4.0);
}

// S25, S32. Over the whole range, where a layout on few nodes and one on many are far apart.
#[test]
fn no_number_of_a_thousand_nodes_is_cheaper_than_what_is_found() {
    for (name, internode) in [
        ("Llama 3 70B", Internode::InfinibandNdr400),
        ("Llama 3 8B", Internode::Ethernet),
    ] {
        let (work, nodes) = (work(name, TrainMethod::Full), nodes("H100-SXM", internode));
        let counts = Counts {
            at_least: 1,
            at_most: 1_000,
            within_hours: f64::INFINITY,
            speed: 1.0,
        };
        let found = work.ever_cheaper(Constants::product(), &nodes, &counts);
        let on = |count| work.best_on(Constants::product(), &nodes, count);
        let all = (1..=1_000).filter_map(on);
        let least = all.min_by_key(|run| (run.gpu_seconds(), run.gpus));
        assert_eq!(found.last(), least.as_ref());
    }
}

proptest! {
    // The oracle: every number of nodes by itself, with every layout.
    #[test]
    fn what_is_ever_cheaper_is_what_counting_up_finds(
        name in prop::sample::select(vec!["Llama 3 8B", "Llama 3 70B", "Mixtral 8x7B", "Qwen2.5 7B", "Llama 3.1 405B"]),
        gpu in prop::sample::select(vec!["H100-SXM", "H200-SXM", "B200-SXM", "A100-SXM-80", "V100-SXM2-32", "L40S"]),
        internode in prop::sample::select(vec![Internode::InfinibandNdr400, Internode::Ethernet]),
        method in prop::sample::select(vec![TrainMethod::Full, TrainMethod::Full, TrainMethod::Lora]),
        batch in prop::option::of(1_u32..3_000),
        minutes in prop::option::of(5_u32..300),
        (at_least, more) in (1_u32..8, 0_u32..60),
        hours in prop::option::of(1.0_f64..2_000.0),
        speed in prop::sample::select(vec![1.0, 0.7]),
    ) {
        let work = RunWork {
            step_sequences: batch,
            checkpoint_interval_seconds: minutes.map(|minutes| f64::from(minutes) * 60.0),
            ..work(name, method)
        };
        let nodes = nodes(gpu, internode);
        let counts = Counts {
            at_least,
            at_most: at_least + more,
            within_hours: hours.unwrap_or(f64::INFINITY),
            speed,
        };
        let found = work.ever_cheaper(Constants::product(), &nodes, &counts);
        let mut least = i64::MAX;
        let mut counted = Vec::new();
        for count in at_least..=at_least + more {
            let run = work.best_on(Constants::product(), &nodes, count);
            let Some(run) = run.map(|run| run.at_speed(speed)) else { continue };
            let seconds = (run.hours * f64::from(count * 8) * 3_600.0).ceil() as i64;
            if run.hours.is_finite() && hours.is_none_or(|hours| run.hours <= hours) && seconds < least {
                least = seconds;
                counted.push(run);
            }
        }
        prop_assert_eq!(found, counted);
    }

    // The oracle: every layout of the set is written down once more in plain loops.
    #[test]
    fn no_layout_that_fits_is_faster_than_the_one_that_is_taken(
        name in prop::sample::select(vec!["Llama 3 8B", "Llama 3 70B", "Mixtral 8x7B", "Qwen2.5 7B"]),
        gpu in prop::sample::select(vec!["H100-SXM", "H200-SXM", "A100-SXM-80", "V100-SXM2-32", "L40S"]),
        internode in prop::sample::select(vec![Internode::InfinibandNdr400, Internode::Ethernet]),
        count in 1_u32..20,
        batch in prop::option::of(1_u32..3_000),
    ) {
        let work = RunWork { step_sequences: batch, ..work(name, TrainMethod::Full) };
        let nodes = nodes(gpu, internode);
        let found = work.best_on(Constants::product(), &nodes, count);
        let fastest = naive(&work, &nodes, count);
        prop_assert_eq!(found.map(|run| run.tokens_per_second), fastest);
    }
}

/// Tokens per second of full training in the fastest layout that fits.
pub(crate) fn naive(work: &RunWork, nodes: &RunNodes, count: u32) -> Option<f64> {
    let (model, each) = (&work.model, nodes.gpus_per_node);
    let gpus = count * each;
    let (params, seq, hidden) = (
        model.params_total,
        f64::from(work.sequence_length),
        f64::from(model.hidden),
    );
    let batch = work
        .step_sequences
        .map_or((4_194_304.0 / seq).round(), f64::from);
    let mut fastest = None;
    for tensor in 1..=each {
        // Llama 3 8B, 70B and Mixtral split over eight, Qwen's 28 heads over four.
        let of_heads = if model.heads == 28 { 4 } else { 8 };
        let widest = each.min(of_heads).min(match nodes.chip.name.as_str() {
            "V100-SXM2-32" => 4,
            "L40S" | "H100-PCIe" => 1,
            _ => 8,
        });
        if widest % tensor != 0 {
            continue;
        }
        for pipeline in [1, 2, 4, 8, 16_u32] {
            if pipeline > 1 && !nodes.pipelines {
                continue;
            }
            if model.layers % pipeline != 0 || !gpus.is_multiple_of(tensor * pipeline) {
                continue;
            }
            for strategy in [Strategy::FullShard, Strategy::OptimiserShard] {
                for expert in [1, each / tensor] {
                    let spreads = model.experts.is_some_and(|e| e.per_layer % expert == 0);
                    if (strategy == Strategy::FullShard && pipeline > 1) || (expert > 1 && !spreads)
                    {
                        continue;
                    }
                    for micro_batch in [1.0, 2.0, 4.0, 8.0, 16.0] {
                        let copies = f64::from(gpus / tensor / pipeline);
                        if micro_batch > 1.0 && copies * micro_batch > batch {
                            continue;
                        }
                        for recompute in [Recompute::None, Recompute::Full] {
                            let micro_batches = (batch / (copies * micro_batch)).ceil();
                            let layout = Layout {
                                tensor: tensor.into(),
                                pipeline: pipeline.into(),
                                chunks: 1.0,
                                context: 1.0,
                                expert: expert.into(),
                                strategy,
                                micro_batches,
                            };
                            let experts = model.experts.map_or(0.0, |e| e.params);
                            let shards = f64::from(tensor * pipeline);
                            let held = (params - experts + experts / f64::from(expert)) / shards;
                            let state = match strategy {
                                Strategy::FullShard => 16.0 * params / f64::from(gpus),
                                _ => 4.0 * held + 12.0 * params / f64::from(gpus),
                            };
                            let units = micro_batch * seq * hidden / f64::from(tensor);
                            let layers = f64::from(model.layers) / f64::from(pipeline)
                                * f64::from(pipeline).min(micro_batches);
                            let activations = match recompute {
                                Recompute::Full => units * (2.0 * layers + 34.0),
                                _ => units * 34.0 * layers,
                            };
                            if state + activations + 3e9 > nodes.memory_bytes * 0.92 {
                                continue;
                            }
                            let choice = layouts::Choice {
                                layout,
                                micro_batch,
                                recompute,
                                bytes_per_gpu: 0.0,
                            };
                            let cluster = Cluster {
                                chip: &nodes.chip,
                                gpus: gpus.into(),
                                domain_gpus: f64::from(each),
                                net_bytes_per_second: nodes.net_bytes_per_second,
                            };
                            let step = step_time(
                                &Constants::product().training,
                                &cluster,
                                &work.job(&choice),
                                &layout,
                            );
                            let learnt = (copies * micro_batch * micro_batches).min(batch) * seq;
                            let rate = learnt / step.seconds;
                            if fastest.is_none_or(|fastest| rate > fastest) {
                                fastest = Some(rate);
                            }
                        }
                    }
                }
            }
        }
    }
    fastest
}
