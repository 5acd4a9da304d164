use std::sync::LazyLock;

use market::gpu::Gpu;
use market::verification::Level;

use super::trials::{CLEAN_RUNS, FAULT_RUNS, Staged};
use super::*;
use crate::floors::{Floors, Metric};
use crate::reference::NodeDescription;

const SMALL: Size = Size {
    memory_bytes: 1 << 20,
    block_bytes: 4_096,
    samples: 3,
    n: 32,
    timed: 1,
    checked: 2,
    burn: Duration::ZERO,
};

fn node(bad_words: u32) -> Node {
    let description = serde_json::json!({
        "schema": "simulated-node-1", "node_index": 0, "host": "127.0.0.1", "gpu": "H100-SXM",
        "gpus": 2, "memory_mib": 81_559, "vcpus": 8, "memory_gib": 64,
        "uuids": ["GPU-0", "GPU-1"], "driver": "580.65", "internode": "none",
        "bad_words": bad_words,
    });
    let description = NodeDescription::parse(&description.to_string()).expect("a node");
    description.node()
}

/// Measured once for all tests: the slow fill takes a CPU its time.
fn measured() -> Calibration {
    static GOOD: LazyLock<Calibration> = LazyLock::new(|| measured_with(0));
    GOOD.clone()
}

fn measured_with(bad_words: u32) -> Calibration {
    let mut node = node(bad_words);
    Calibration::begin(&mut node, Digest([7; 32]), SMALL).measure(&mut node, &|_| {})
}

/// So many runs with the same thing staged, all of which ended as they should.
fn right(staged: Staged, level: Level, runs: u32) -> Trial {
    let spoke = match staged {
        Staged::Nothing => None,
        _ => Some(("mem.proof".to_owned(), runs)),
    };
    Trial {
        runs,
        right: runs,
        spoke: spoke.into_iter().collect(),
        elapsed_ms: vec![40_000; runs as usize],
        ..Trial::new(staged, level, Vec::new())
    }
}

/// As many runs as floors need.
fn all_runs() -> Vec<Trial> {
    let faults = Staged::FAULTS.map(|fault| right(fault, Level::Quick, FAULT_RUNS));
    let clean = [
        right(Staged::Nothing, Level::Standard, 1),
        right(Staged::Nothing, Level::Quick, CLEAN_RUNS),
    ];
    clean.into_iter().chain(faults).collect()
}

#[test]
fn a_good_card_gives_rows_that_the_floors_take() {
    let mut calibration = measured();
    assert_eq!(floors(&calibration, 3), Err(NoReference::Simulated));
    calibration.simulated = false;
    assert_eq!(floors(&calibration, 3), Err(NoReference::Shortened));
    calibration.size = Size::FULL;
    assert_eq!(
        floors(&calibration, 3),
        Err(NoReference::TooFewRuns {
            staged: Staged::Nothing,
            runs: 0,
            wanted: 50
        })
    );
    calibration.trials = all_runs();
    let rows = floors(&calibration, 3).expect("rows");
    let head = "version,gpu,metric,kernel,expected,floor_permille,floor_of,calibration,source\n";
    let floors = Floors::read(&format!("{head}{rows}")).expect("a table");
    let gpu = Gpu::parse("H100-SXM").expect("known");
    for metric in [
        Metric::HbmCopy,
        Metric::HostLink,
        Metric::Gemm16Bit,
        Metric::GemmFp8,
        Metric::MemoryProof,
        Metric::ExactChain,
    ] {
        let floor = floors
            .of(gpu, metric, Some(&calibration.kernels))
            .expect("a floor");
        let expected = floor.expected.expect("a figure");
        match metric {
            // The limit leaves twice the time.
            Metric::MemoryProof => assert_eq!(floor.floor, expected / 2, "{floor:?}"),
            // And of a chain four thirds.
            Metric::ExactChain => assert_eq!(floor.floor, expected * 3 / 4, "{floor:?}"),
            _ => assert!(
                floor.floor < expected && floor.floor > expected * 8 / 10,
                "{floor:?}"
            ),
        }
    }
    assert_eq!(rows.lines().count(), 8);
}

#[test]
fn a_card_with_wrong_results_gives_no_floor() {
    assert!(matches!(
        floors(&measured_with(3), 3),
        Err(NoReference::Memory { gpu: 0, bad_words }) if bad_words > 0
    ));
    let mut unsteady = measured();
    unsteady.gpus[1].tensor[1].different = 1;
    assert_eq!(floors(&unsteady, 3), Err(NoReference::Unsteady { gpu: 1 }));
    let mut inexact = measured();
    inexact.gpus[0].tensor[0].checksum = Some(Word64(1));
    let format = Format::Bf16;
    assert_eq!(
        floors(&inexact, 3),
        Err(NoReference::Inexact { gpu: 0, format })
    );
    // The same wrong one each time, as small integers too.
    let mut inexact = measured();
    assert!(inexact.gpus[1].tensor[1].integers.is_some());
    inexact.gpus[1].tensor[1].checksum = Some(Word64(1));
    let format = Format::Fp8;
    assert_eq!(
        floors(&inexact, 3),
        Err(NoReference::Inexact { gpu: 1, format })
    );
    let page = page(&inexact);
    assert!(page.contains("No floor follows from it"), "{page}");
}

#[test]
fn fewer_runs_than_are_wanted_give_no_floor_whichever_they_are() {
    let mut calibration = measured();
    (calibration.simulated, calibration.size) = (false, Size::FULL);
    for at in 1..all_runs().len() {
        calibration.trials = all_runs();
        assert!(floors(&calibration, 3).is_ok());
        let trial = &mut calibration.trials[at];
        (trial.runs, trial.right) = (trial.runs - 1, trial.right - 1);
        let fewer = trial.staged;
        assert!(
            matches!(floors(&calibration, 3), Err(NoReference::TooFewRuns { staged, .. }) if staged == fewer)
        );
    }
}

#[test]
fn runs_that_left_a_gpu_out_give_no_floor_for_it() {
    let mut calibration = measured();
    (calibration.simulated, calibration.size) = (false, Size::FULL);
    for at in 1..all_runs().len() {
        calibration.trials = all_runs();
        calibration.trials[at].left_out = vec![0];
        assert!(
            matches!(
                floors(&calibration, 3),
                Err(NoReference::TooFewRuns { runs: 0, .. })
            ),
            "trial {at}"
        );
    }
}

#[test]
fn a_vector_that_comes_out_wrong_and_a_card_that_is_given_up_give_no_floor() {
    let mut calibration = measured();
    assert!(calibration.gpus[1].vectors.len() >= 12);
    assert!(
        calibration.gpus[1]
            .vectors
            .iter()
            .all(|v| v.is_equal() == Some(true))
    );
    calibration.gpus[1].vectors[3].gave = Some(Word64(1));
    let name = calibration.gpus[1].vectors[3].to_string();
    assert_eq!(
        floors(&calibration, 3),
        Err(NoReference::Vector { gpu: 1, name })
    );
    let why = "it is lost".to_owned();
    calibration.gpus[0].stopped = Some(why.clone());
    assert_eq!(
        floors(&calibration, 3),
        Err(NoReference::Stopped { gpu: 0, why })
    );
    assert_eq!(calibration.given_up(), [0]);
    assert!(!calibration.is_measured());
    assert!(missing(&calibration).contains(&"GPU 0: it was given up: it is lost".to_owned()));
}

/// What is reached of each goal.
fn reached(calibration: &Calibration) -> Vec<Reached> {
    let goals = goals(calibration).into_iter();
    goals.map(|goal| goal.reached).collect()
}

/// One GPU that shows exactly what is wanted.
fn just_enough() -> Calibration {
    let mut calibration = measured();
    calibration.gpus.truncate(1);
    calibration.trials = all_runs();
    let shown = &mut calibration.gpus[0];
    (shown.copy_mb_per_s, shown.driver_copy_mb_per_s) = (vec![970], vec![1_000]);
    for (tensor, gflops) in shown.tensor.iter_mut().zip([900, 850]) {
        tensor.gflops = vec![gflops];
        tensor.library = vec![LibraryRun::Measured {
            library: "cuBLASLt".to_owned(),
            way: "algorithm 1".to_owned(),
            gflops: 1_000,
        }];
    }
    calibration
}

#[test]
fn each_goal_is_met_missed_or_not_measured() {
    use Reached::{Met, Missed, NotMeasured};
    assert_eq!(reached(&just_enough()), [Met; 7]);
    let page = page(&just_enough());
    assert!(
        page.contains("| 0.970 (GPU 0), of the driver's own where no framework copied | met |"),
        "{page}"
    );
    type Change = fn(&mut Calibration);
    let cases: [(Change, usize, Reached); 17] = [
        (|c| c.gpus[0].copy_mb_per_s = vec![969], 0, Missed),
        (|c| c.gpus[0].driver_copy_mb_per_s.clear(), 0, NotMeasured),
        // A framework that copies faster is what counts.
        (
            |c| {
                c.gpus[0].framework = Some(FrameworkRun::Measured {
                    framework: "torch".to_owned(),
                    mb_per_s: vec![1_001],
                });
            },
            0,
            Missed,
        ),
        (|c| c.gpus[0].tensor[0].gflops = vec![899], 1, Missed),
        (|c| c.gpus[0].tensor[0].library.clear(), 1, NotMeasured),
        (|c| c.gpus[0].tensor[1].gflops = vec![849], 2, Missed),
        (|c| c.gpus[0].tensor.truncate(1), 2, NotMeasured),
        (|c| c.trials[0].elapsed_ms = vec![60_000], 3, Missed),
        // A run that failed after five seconds was not fast, on however many GPUs.
        (
            |c| (c.trials[0].right, c.trials[0].elapsed_ms) = (0, vec![5_000]),
            3,
            Missed,
        ),
        (
            |c| c.trials[0].not_staged = Some("it did not end".to_owned()),
            3,
            Missed,
        ),
        (|c| drop(c.trials.remove(0)), 3, NotMeasured),
        (|c| c.trials[7].spoke.clear(), 4, Missed),
        (
            |c| (c.trials[7].runs, c.trials[7].right) = (0, 0),
            4,
            NotMeasured,
        ),
        (|c| c.trials[2].right -= 1, 5, Missed),
        (|c| c.trials.truncate(2), 5, NotMeasured),
        (|c| c.trials[1].right -= 1, 6, Missed),
        (
            |c| (c.trials[1].runs, c.trials[1].right) = (40, 40),
            6,
            NotMeasured,
        ),
    ];
    for (change, goal, wanted) in cases {
        let mut calibration = just_enough();
        change(&mut calibration);
        assert_eq!(reached(&calibration)[goal], wanted, "goal {goal}");
    }
}

#[test]
fn a_calibration_of_which_any_part_is_smaller_gives_no_floor() {
    assert!(Size::FULL.is_full());
    let shortened: [fn(&mut Size); 7] = [
        |size| size.memory_bytes -= 1,
        |size| size.block_bytes -= 1,
        |size| size.samples -= 1,
        |size| size.n -= 1,
        |size| size.timed -= 1,
        |size| size.checked -= 1,
        |size| size.burn -= Duration::from_millis(1),
    ];
    for shorten in shortened {
        let mut size = Size::FULL;
        shorten(&mut size);
        assert!(!size.is_full(), "{size:?}");
    }
}

#[test]
fn a_calibration_goes_on_from_one_of_the_same_gpus_agent_and_sizes_and_from_no_other() {
    let begun = measured();
    assert!(begun.is_measured() && begun.goes_on_from(&measured()));
    let others: [fn(&mut Calibration); 6] = [
        |c| c.kernels = Digest([8; 32]),
        |c| c.agent_sha256 = Digest([8; 32]),
        |c| c.driver = "581".to_owned(),
        |c| c.size.samples += 1,
        |c| c.gpus[1].claim.uuid = "GPU-2".to_owned(),
        |c| drop(c.gpus.pop()),
    ];
    for change in others {
        let mut before = measured();
        change(&mut before);
        assert!(!begun.goes_on_from(&before));
    }
}

#[test]
fn a_gpu_goes_on_where_it_was_given_up_and_comes_to_the_same() {
    let whole = measured();
    let mut cut = whole.clone();
    let shown = &mut cut.gpus[1];
    // Given up in the midst of the rates, with some of them there.
    (shown.parts, shown.stopped) = (3, Some("it was lost".to_owned()));
    shown.read_mb_per_s.truncate(1);
    shown.tensor.clear();
    let mut node = node(0);
    let resumed = cut.measure(&mut node, &|_| {});
    let figures = |calibration: &Calibration| {
        let shown = &calibration.gpus[1];
        let rates = (shown.copy_mb_per_s.clone(), shown.read_mb_per_s.clone());
        let mut of_gpu = rows::figures(shown);
        // The host's clock times chains, which are done once more.
        of_gpu.retain(|(_, metric, _)| *metric != Metric::ExactChain);
        let chained = shown.chain.as_ref().map(|chain| chain.elapsed_us.len());
        (rates, of_gpu, chained, shown.vectors.clone())
    };
    assert_eq!(figures(&resumed), figures(&whole));
    assert!(resumed.is_measured());
}

#[test]
fn links_give_rows_where_they_are_those_of_a_switch_and_nothing_was_wrong() {
    use market::verification::{CollectiveAlgorithm, CollectiveOperation, PairRate};
    let mut calibration = measured();
    (calibration.simulated, calibration.size) = (false, Size::FULL);
    calibration.trials = all_runs();
    let pair = |from, to, mb_per_s| PairRate { from, to, mb_per_s };
    let sum = |algorithm, wrong_elements| CollectiveRate {
        operation: CollectiveOperation::AllReduce,
        algorithm,
        payload_bytes: 1 << 30,
        bus_mb_per_s: 300_000,
        wrong_elements,
    };
    calibration.links = Some(LinkCalibration {
        rates: Some(LinkRates {
            pairs: vec![pair(0, 1, 380_000), pair(1, 0, 370_000)],
            collective: Some(sum(CollectiveAlgorithm::OwnRing, 1)),
        }),
        library: vec![
            sum(CollectiveAlgorithm::NcclDefault, 0),
            CollectiveRate {
                bus_mb_per_s: 250_000,
                ..sum(CollectiveAlgorithm::NcclRing, 0)
            },
        ],
    });
    let rows = floors(&calibration, 3).expect("rows");
    let kernels = calibration.kernels;
    let row = |metric: &str, figure, share| {
        format!("3,H100-SXM,{metric},{kernels},{figure},{share},expected,calibrated,")
    };
    assert!(rows.contains(&row("gpu_link", 370_000, 920)), "{rows}");
    assert!(
        rows.contains(&row("allreduce_nccl_default", 300_000, 930)),
        "{rows}"
    );
    assert!(
        rows.contains(&row("allreduce_nccl_ring", 250_000, 930)),
        "{rows}"
    );
    assert!(!rows.contains("allreduce_own_ring"), "{rows}");
    calibration.gpus[1].claim.name = "NVIDIA L4".to_owned();
    let rows = floors(&calibration, 3).expect("rows");
    assert!(!rows.contains("gpu_link"), "{rows}");
}
