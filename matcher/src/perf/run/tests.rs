use market::demand::Model;
use market::gpu::Gpu;
use proptest::prelude::*;

use super::*;
use crate::perf::step_time::Strategy;

fn work(name: &str, method: TrainMethod) -> RunWork {
    RunWork {
        model: ModelFigures::of(&Model::Named(name.into())).expect("a known model"),
        method,
        precision: Precision::Bf16,
        sequence_length: 4_096,
        step_sequences: None,
        tokens: 10_000_000_000,
        checkpoint_interval_seconds: None,
    }
}

fn nodes(gpu: &str, internode: Internode) -> RunNodes {
    let spec = Gpu::parse(gpu).expect("a GPU").spec();
    RunNodes::new(spec, 8, internode).expect("published rates")
}

fn run(name: &str, gpu: &str, internode: Internode, count: u32) -> Run {
    work(name, TrainMethod::Full)
        .best_on(Constants::product(), &nodes(gpu, internode), count)
        .expect("it fits")
}

// S08
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
    let ratio = hours(Internode::Ethernet) / hours(Internode::InfinibandNdr400);
    assert!((1.0..1.1).contains(&ratio), "{ratio}");
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
    let least = llama.least_memory(8, true);
    let tightest = layouts::choices(&llama, &metal, 24)
        .map(|choice| choice.bytes_per_gpu)
        .fold(f64::INFINITY, f64::min);
    assert!((tightest / (least.total_bytes(24) / 24.0) - 1.0).abs() < 1e-12);
    let fewest = least.fewest_gpus(80.0).expect("some number does");
    let enough = (fewest / 8.0).ceil() as u32;
    let on = |count| llama.best_on(Constants::product(), &metal, count);
    assert!(on(enough).is_some() && on(enough - 1).is_none());
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

proptest! {
    #[test]
    fn the_fewest_nodes_in_time_are_those_that_counting_up_finds(
        hours in 20.0_f64..400.0, at_least in 1_u32..6,
        internode in prop::sample::select(vec![Internode::InfinibandNdr400, Internode::Ethernet]),
    ) {
        let (work, nodes) = (work("Llama 3 8B", TrainMethod::Full), nodes("A100-SXM-80", internode));
        let run_on = |count| work.best_on(Constants::product(), &nodes, count);
        let found = RunWork::fewest_in_time(run_on, at_least, 40, hours);
        let counted = (at_least..=40).find(|count| run_on(*count).is_some_and(|run| run.hours <= hours));
        prop_assert_eq!(found, counted);
    }

    // The oracle: every layout of the set is written down once more in plain loops.
    #[test]
    fn no_layout_that_fits_is_faster_than_the_one_that_is_taken(
        name in prop::sample::select(vec!["Llama 3 8B", "Llama 3 70B", "Mixtral 8x7B", "Qwen2.5 7B"]),
        gpu in prop::sample::select(vec!["H100-SXM", "H200-SXM", "A100-SXM-80", "L40S"]),
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

fn naive(work: &RunWork, nodes: &RunNodes, count: u32) -> Option<f64> {
    let (model, gpus) = (&work.model, count * 8);
    let (params, seq, hidden) = (
        model.params_total,
        f64::from(work.sequence_length),
        f64::from(model.hidden),
    );
    let batch = work
        .step_sequences
        .map_or((4_194_304.0 / seq).round(), f64::from);
    let mut fastest = None;
    for tensor in 1..=8_u32 {
        // Llama 3 8B, 70B and Mixtral split over eight, Qwen's 28 heads over four.
        let widest = if !nodes.joined {
            1
        } else if model.heads == 28 {
            4
        } else {
            8
        };
        if widest % tensor != 0 {
            continue;
        }
        for pipeline in [1, 2, 4, 8, 16_u32] {
            if pipeline > 1 && !nodes.pipelines {
                continue;
            }
            if model.layers % pipeline != 0 || gpus % (tensor * pipeline) != 0 {
                continue;
            }
            for strategy in [Strategy::FullShard, Strategy::OptimiserShard] {
                for expert in [1, 8 / tensor] {
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
                            if state + activations + 3e9 > nodes.chip.memory_bytes * 0.92 {
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
                                domain_gpus: 8.0,
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
