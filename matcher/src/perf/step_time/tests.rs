use market::demand::Model;

use super::*;
use crate::perf::constants::Constants;

fn model(name: &str) -> ModelFigures {
    ModelFigures::of(&Model::Named(name.into())).expect("a known model")
}

/// Tokens per second and GPU, and the share of the step that waits for other replicas: Llama 3 70B
/// in 16 bits on 256 H100, one sequence of 8,192 tokens a micro batch.
fn on_fabric(net_gb_s: f64, micro_batch: f64) -> (f64, f64) {
    let model = model("Llama 3 70B");
    let cluster = Cluster {
        chip: Chip::of_row_name("H100-SXM").expect("a chip"),
        gpus: 256.0,
        domain_gpus: 8.0,
        net_bytes_per_second: net_gb_s * 1e9,
    };
    let step = step_time(
        &Constants::reference().training,
        &cluster,
        &job(&model, micro_batch),
        &alone(Strategy::FullShard),
    );
    (
        step.tokens_per_second_gpu(),
        step.exposed_seconds / step.seconds,
    )
}

fn job(model: &ModelFigures, micro_batch: f64) -> Job<'_> {
    Job {
        model,
        sequence_tokens: 8_192.0,
        micro_batch,
        product: Product::Bf16,
        recompute: Recompute::Full,
        flop_per_param: 6.0,
        frozen_weight_bytes: 2.0,
        stack: Stack::PytorchFsdp,
        release: Release::Recent,
    }
}

fn alone(strategy: Strategy) -> Layout {
    Layout {
        tensor: 1.0,
        pipeline: 1.0,
        chunks: 1.0,
        context: 1.0,
        expert: 1.0,
        strategy,
        micro_batches: 1.0,
    }
}

// S08
#[test]
fn the_fabric_decides_how_fast_a_70b_trains_and_the_batch_how_much_of_it_is_needed() {
    // 8 x 400 Gb/s RDMA, 8 x 200, 4 x 100, 100GbE with RDMA, with TCP, 25GbE with TCP.
    for (net_gb_s, tokens, exposed_percent) in [
        (400.0, 940.0, 0.0),
        (200.0, 935.0, 1.0),
        (50.0, 722.0, 23.0),
        (12.5, 220.0, 75.0),
        (7.0, 124.0, 85.0),
        (2.5, 44.0, 93.0),
    ] {
        let (found, exposed) = on_fabric(net_gb_s, 1.0);
        assert!((found / tokens - 1.0).abs() < 0.02, "{net_gb_s}: {found}");
        assert!(
            (exposed * 100.0 - exposed_percent).abs() < 1.5,
            "{net_gb_s}: {exposed}"
        );
    }
    // Four times the work for the same traffic.
    assert!((on_fabric(50.0, 4.0).0 / 942.0 - 1.0).abs() < 0.02);
    assert!((on_fabric(12.5, 4.0).0 / 731.0 - 1.0).abs() < 0.02);
}

#[test]
fn adapters_do_not_depend_on_the_fabric() {
    let model = model("Llama 3 70B");
    let rate = |net: f64| {
        let cluster = Cluster {
            chip: Chip::of_row_name("H100-SXM").expect("a chip"),
            gpus: 64.0,
            domain_gpus: 8.0,
            net_bytes_per_second: net,
        };
        let job = Job {
            flop_per_param: 4.0,
            ..job(&model, 1.0)
        };
        let constants = &Constants::reference().training;
        step_time(constants, &cluster, &job, &alone(Strategy::Adapters)).tokens_per_second_gpu()
    };
    assert!((rate(400e9) / rate(2.5e9) - 1.0).abs() < 1e-9);
}

#[test]
fn no_layout_uses_more_than_the_peak() {
    for chip in crate::perf::chip::chips() {
        let model = model("Llama 3 8B");
        let cluster = Cluster {
            chip,
            gpus: 8.0,
            domain_gpus: 8.0,
            net_bytes_per_second: 0.0,
        };
        for product in [Product::Bf16, Product::Fp8, Product::Fp4] {
            let job = Job {
                product,
                ..job(&model, 4.0)
            };
            let constants = &Constants::product().training;
            let step = step_time(constants, &cluster, &job, &alone(Strategy::OptimiserShard));
            let used = step.utilisation();
            assert!((0.01..0.95).contains(&used), "{}: {used}", chip.name);
        }
    }
}

#[test]
fn deeper_pipelines_wait_longer_and_more_micro_batches_hide_it() {
    let model = model("Llama 3.1 405B");
    let cluster = Cluster {
        chip: Chip::of_row_name("H200-SXM").expect("a chip"),
        gpus: 512.0,
        domain_gpus: 8.0,
        net_bytes_per_second: 400e9,
    };
    let bubble = |pipeline: f64, micro_batches: f64| {
        let layout = Layout {
            tensor: 8.0,
            pipeline,
            micro_batches,
            ..alone(Strategy::OptimiserShard)
        };
        let constants = &Constants::reference().training;
        let step = step_time(constants, &cluster, &job(&model, 1.0), &layout);
        step.bubble_seconds / step.seconds
    };
    assert_eq!(bubble(1.0, 8.0), 0.0);
    assert!(bubble(16.0, 8.0) > bubble(4.0, 8.0));
    assert!(bubble(16.0, 64.0) < bubble(16.0, 8.0) / 3.0);
}

#[test]
fn rings_within_a_node_of_bridged_cards_are_no_faster_than_pci_express() {
    let model = model("Llama 3 8B");
    let bridged = Chip::of_row_name("H200-NVL").expect("a chip");
    let without = Chip {
        scale_up: crate::perf::chip::ScaleUp::Pcie5,
        domain_gpus: 1,
        ..bridged.clone()
    };
    let seconds = |chip: &Chip, gpus: f64, layout: Layout| {
        let cluster = Cluster {
            chip,
            gpus,
            domain_gpus: gpus,
            net_bytes_per_second: 0.0,
        };
        let product = &Constants::product().training;
        step_time(product, &cluster, &job(&model, 1.0), &layout).seconds
    };
    let sharded = alone(Strategy::FullShard);
    // A bridge connects four: all of a node of four, half of one of eight.
    assert!(seconds(bridged, 4.0, sharded) < 0.9 * seconds(&without, 4.0, sharded));
    assert_eq!(
        seconds(bridged, 8.0, sharded),
        seconds(&without, 8.0, sharded)
    );
    let tensor = |tensor| Layout { tensor, ..sharded };
    assert_eq!(
        seconds(bridged, 8.0, tensor(8.0)),
        seconds(&without, 8.0, tensor(8.0))
    );
    // Those that share a matrix stay on one bridge, and their replicas cross.
    assert!(seconds(bridged, 8.0, tensor(4.0)) < seconds(&without, 8.0, tensor(4.0)));
}
