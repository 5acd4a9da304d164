//! The unmodified `verifier calibrate` on a driver whose GPUs do not exist.

use std::path::Path;
use std::process::{Command, Output};

use fake_driver::script::{Card, Fault, Script, VARIABLE};
use market::verification::{Digest, Pattern};
use serde_json::Value;
use sha2::Digest as _;
use tempfile::TempDir;
use verifier::gemm::GemmInputs;
use verifier::prf::{Purpose, Stream};
use verifier::tensor::{Format, expected_checksum};

use crate::eventually::output_of;
use crate::machine::Machine;

/// Rows and columns of the products: no multiple of any tile.
const PRODUCT: u32 = 130;

/// Sizes of which tensor units leave nothing idle.
pub const LEAST: [&str; 6] = ["--samples", "1", "--products", "1", "--product", "128"];

/// What a Hopper plays: three products of BF16 by two kernels of integers and two of tensor units in four
/// ways, two of FP8 by one in four; five memories in two ways, one of them turned too; three streams from
/// three places by three kernels, two of them by the ring too.
const VECTORS: usize = 3 * (2 * 2 + 2 * 4) + 2 * 4 + 7 * 2 + 2 + 3 * 3 * 3 + 2 * 3;

pub struct Calibrated {
    pub output: Output,
    pub folder: TempDir,
}

impl Calibrated {
    pub fn text(&self, name: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::read_to_string(&path)
            .unwrap_or_else(|why| panic!("{name}: {why}: {:?}", self.output))
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text("calibration.json")).expect("json")
    }

    pub fn said(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

/// The command with nothing in its environment but the driver's libraries.
pub fn command(machine: &Machine, out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verifier"));
    command
        .env_clear()
        .env("LD_LIBRARY_PATH", machine.folder.path())
        .env(VARIABLE, machine.path("script.json"))
        .args(["calibrate", "--floors-version", "3", "--out"])
        .arg(out)
        // A shell's usual folders: the C compiler needs them.
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .args(["--memory-mib", "2", "--burn-seconds", "1"]);
    command
}

fn calibrate(script: &Script) -> Calibrated {
    calibrate_on(&Machine::new(script))
}

fn calibrate_on(machine: &Machine) -> Calibrated {
    let product = PRODUCT.to_string();
    let sizes = ["--samples", "3", "--products", "4", "--product", &product];
    run(machine, &sizes, (0, 0))
}

pub fn run(machine: &Machine, sizes: &[&str], (clean, faults): (u32, u32)) -> Calibrated {
    let folder = tempfile::tempdir().expect("a folder");
    let output = output_of(command(machine, folder.path()).args(sizes).args([
        "--clean-runs",
        &clean.to_string(),
        "--fault-runs",
        &faults.to_string(),
    ]));
    Calibrated { output, folder }
}

pub fn one(change: impl FnOnce(&mut Card)) -> Script {
    let mut card = Card::h100(0);
    change(&mut card);
    Script {
        gpus: vec![card],
        ..Script::default()
    }
}

fn hex(value: &Value) -> &str {
    value.as_str().expect("a word")
}

#[test]
fn a_calibration_runs_to_its_end_and_writes_what_the_card_showed() {
    let done = calibrate(&one(|_| {}));
    // Less was done than a floor needs, and it says so.
    assert_eq!(done.output.status.code(), Some(1), "{}", done.said());
    assert!(
        done.said().contains("less was done than a whole"),
        "{}",
        done.said()
    );
    assert!(!done.folder.path().join("floors.csv").exists());
    let json = done.json();
    assert_eq!(json["gpus"].as_array().expect("GPUs").len(), 1);
    let gpu = &json["gpus"][0];
    assert_eq!(gpu["claim"]["name"], "NVIDIA H100 80GB HBM3");
    for (rates, lowest, highest) in [
        ("copy_mb_per_s", 2_990_000, 3_000_000),
        ("driver_copy_mb_per_s", 2_990_000, 3_000_000),
        ("read_mb_per_s", 2_990_000, 3_000_000),
        ("triad_mb_per_s", 2_990_000, 3_000_000),
        ("from_host_mb_per_s", 54_900, 55_000),
        ("to_host_mb_per_s", 54_900, 55_000),
    ] {
        let samples = gpu[rates].as_array().expect("samples");
        assert_eq!(samples.len(), 3, "{rates}");
        for sample in samples {
            let rate = sample.as_u64().expect("a rate");
            assert!((lowest..=highest).contains(&rate), "{rates}: {rate}");
        }
    }
    let patterns: Vec<Pattern> = gpu["passes"]
        .as_array()
        .expect("passes")
        .iter()
        .map(|pass| {
            assert_eq!(pass["bad_words"], 0, "{pass}");
            serde_json::from_value(pass["pattern"].clone()).expect("a pattern")
        })
        .collect();
    assert_eq!(
        patterns,
        [
            Pattern::Prf,
            Pattern::Complement,
            Pattern::Address,
            Pattern::MovingInversion,
            Pattern::WalkingOne,
            Pattern::WalkingZero,
            Pattern::Slow
        ]
    );
    assert_eq!(gpu["burned"]["dwell_bad_words"], 0);
    let curve = gpu["burned"]["curve"].as_array().expect("a curve");
    assert_eq!(curve.len(), 5, "five looks a second");
    assert_eq!(curve[0]["power_w"], 640);
    let page = done.text("calibration.md");
    assert!(page.contains("## GPU 0: NVIDIA H100 80GB HBM3"), "{page}");
    assert!(page.contains("No floor follows from it"), "{page}");
    assert!(
        page.contains("| Bf16 products that differ, of 12 | 0 |"),
        "{page}"
    );
}

#[test]
fn the_products_of_a_calibration_are_those_that_a_cpu_has() {
    let done = calibrate(&one(|_| {}));
    let secret = Digest([0x5A; 32]);
    let inputs = GemmInputs {
        n: PRODUCT,
        k: PRODUCT,
        left: Stream::derive(&secret, Purpose::GemmLeft, 0),
        right: Stream::derive(&secret, Purpose::GemmRight, 0),
    };
    let json = done.json();
    let gpu = &json["gpus"][0];
    for (at, format) in Format::ALL.into_iter().enumerate() {
        let shown = &gpu["tensor"][at];
        assert_eq!(shown["format"], serde_json::json!(format));
        let expected = serde_json::json!(expected_checksum(&inputs, format.most()));
        assert_eq!(hex(&shown["checksum"]), hex(&expected), "{format:?}");
        assert_eq!(shown["integers"], shown["checksum"], "{format:?}");
        assert_eq!(
            (&shown["checked"], &shown["different"]),
            (&12.into(), &0.into())
        );
        let rate = shown["gflops"][0].as_u64().expect("a rate");
        // A row is longer by the zeros that make it a multiple of 128 bytes.
        let (rated, real) = match format {
            Format::Bf16 => (720_000.0, 130.0 / 192.0),
            Format::Fp8 => (1_210_000.0, 130.0 / 256.0),
        };
        let should = rated * real;
        assert!(
            (rate as f64 / should - 1.0).abs() < 0.01,
            "{format:?}: {rate} {should}"
        );
    }
    assert_eq!(gpu["exact"][0], gpu["tensor"][0]["checksum"]);
}

#[test]
fn a_card_that_errs_is_named_as_no_reference() {
    let unsteady = calibrate(&one(|card| card.fault = Fault::Unrepeatable));
    assert_eq!(unsteady.output.status.code(), Some(3));
    let said = unsteady.said();
    assert!(
        said.contains("GPU 0: products of the same inputs differ"),
        "{said}"
    );
    let flips = calibrate(&one(|card| card.fault = Fault::FlipsBits(2)));
    let said = flips.said();
    assert!(
        said.contains("words of memory were not what had been written"),
        "{said}"
    );
}

#[test]
fn what_was_measured_by_which_agent_is_written_with_every_vector_bit_for_bit() {
    let done = calibrate(&one(|_| {}));
    let json = done.json();
    let agent = std::fs::read(env!("CARGO_BIN_EXE_verifier")).expect("the agent");
    let hash: [u8; 32] = sha2::Sha256::digest(agent).into();
    assert_eq!(json["agent_sha256"], serde_json::json!(Digest(hash)));
    assert_eq!(json["cuda_version"], 12_080);
    let page = done.text("calibration.md");
    assert!(page.contains("with driver 570.86.15 (CUDA 12.8)"), "{page}");
    let vectors = json["gpus"][0]["vectors"].as_array().expect("vectors");
    assert_eq!(vectors.len(), VECTORS);
    assert!(
        vectors.iter().all(|v| v["gave"] == v["wanted"]),
        "{vectors:#?}"
    );
    // On Hopper the kernel for earlier parts is played as well, and every kernel in every way.
    for by in [
        "gemm_exact",
        "gemm_exact_back",
        "gemm_bf16_groups, walk 3",
        "gemm_bf16, walk 0",
        "gemm_fp8_groups, walk 2",
        "memory_invert twice, way 1 first",
        "stream_triad, begun at 150",
        "ring_add, begun at 0",
        "stream_read, begun at 299",
    ] {
        assert!(vectors.iter().any(|v| v["by"] == by), "{by}");
    }
    // One GPU has no links.
    assert_eq!(json["links"], Value::Null);
    assert!(page.contains("stay unproven: there is one GPU"), "{page}");
    // What is left open is said at the end, on the page and in the raw report.
    let said = String::from_utf8_lossy(&done.output.stdout).into_owned();
    for text in [&said, &page] {
        assert!(text.contains("| no run | not measured |"), "{text}");
        assert!(
            text.contains("- GPU 0: BF16 by cuBLASLt: it is not installed"),
            "{text}"
        );
    }
    assert_eq!(json["goals"][0]["reached"], "met");
    assert_eq!(json["goals"][6]["reached"], "not_measured");

    let wrong = calibrate(&one(|card| card.fault = Fault::WrongEntry));
    let page = wrong.text("calibration.md");
    let differs = "differs: vector product of BF16, 1 x 1, inner 1 by gemm_exact |";
    assert!(page.contains(differs), "{page}");
    // Three products by two kernels, with their checksums and by rows.
    let counted = format!("of {VECTORS} | {}, 12, 0 |", VECTORS - 12);
    assert!(page.contains(&counted), "{page}");
}

#[test]
fn a_card_that_is_lost_in_the_middle_leaves_what_it_showed_and_no_floors_of_before() {
    let machine = Machine::new(&one(|card| {
        card.fault = Fault::LostIn("gemm_exact".to_owned());
    }));
    let folder = tempfile::tempdir().expect("a folder");
    let floors = folder.path().join("floors.csv");
    std::fs::write(&floors, "of an earlier run").expect("written");
    let output = output_of(
        command(&machine, folder.path())
            .args(["--samples", "2", "--products", "1", "--product", "128"])
            .args(["--clean-runs", "2", "--fault-runs", "0"]),
    );
    let done = Calibrated { output, folder };
    assert_eq!(done.output.status.code(), Some(4), "{}", done.said());
    assert!(!floors.exists());
    let json = done.json();
    let gpu = &json["gpus"][0];
    assert_eq!(gpu["copy_mb_per_s"].as_array().expect("samples").len(), 2);
    assert_eq!(gpu["passes"].as_array().expect("passes").len(), 7);
    assert!(gpu["stopped"].is_string(), "{gpu}");
    assert_eq!(json["trials"], serde_json::json!([]));
    assert!(
        done.said().contains("GPU 0 was given up"),
        "{}",
        done.said()
    );
}

#[test]
fn links_and_sums_are_measured_where_there_are_several_gpus() {
    let machine = Machine::new(&Script {
        gpus: (0..2).map(Card::h100).collect(),
        ..Script::default()
    });
    machine.install("libnccl.so.2");
    let done = run(&machine, &LEAST, (0, 0));
    let json = done.json();
    let rates = &json["links"]["rates"];
    assert_eq!(rates["pairs"].as_array().expect("pairs").len(), 2);
    assert_eq!(rates["collective"]["wrong_elements"], 0);
    let library = &json["links"]["library"];
    let ways = [&library[0]["algorithm"], &library[1]["algorithm"]];
    assert_eq!(ways, ["nccl_default", "nccl_ring"]);
    let rate = |sum: &Value| sum["bus_mb_per_s"].as_u64().expect("a rate");
    assert!(rate(&library[1]) < rate(&library[0]), "{library}");
    assert_eq!(library[0]["wrong_elements"], 0);
    let page = done.text("calibration.md");
    assert!(page.contains("| copies of 2 pairs"), "{page}");
    assert!(!page.contains("stay unproven"), "{page}");
}

#[test]
fn a_machine_without_gpus_is_told_in_one_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = output_of(
        Command::new(env!("CARGO_BIN_EXE_verifier"))
            .env_clear()
            .args(["calibrate", "--floors-version", "3", "--out"])
            .arg(folder.path()),
    );
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("nothing can be calibrated here"), "{said}");
}

/// A card with more memory than an order fills, and so little that a 16th of it is soon filled. It has less
/// than the agent tries out in one piece: of two processes on a card one would hold all of it for a moment,
/// and the other would have none just then, as real cards show where each poses as two.
pub fn small() -> Script {
    one(|card| card.memory_mib = 60)
}

fn with_runs(script: &Script, clean: u32, faults: u32) -> Calibrated {
    run(&Machine::new(script), &LEAST, (clean, faults))
}

#[test]
fn every_staged_fault_is_noticed_and_clean_runs_pass() {
    let done = with_runs(&small(), 2, 1);
    let json = done.json();
    let trials = json["trials"].as_array().expect("trials");
    // What each is noticed by, one or another of each list, beside whatever else it disturbs. Two that
    // share a card stream at once, or, where the machine is busy, the second finds what the first holds.
    let expected: [(_, _, _, Vec<&[&str]>); 8] = [
        ("nothing", "standard", 1, vec![]),
        ("nothing", "quick", 2, vec![]),
        (
            "bandwidth_hogs",
            "quick",
            1,
            vec![&["hbm.bw"], &["hbm.read"]],
        ),
        ("memory_held", "quick", 1, vec![&["inv.residue"]]),
        (
            "preloaded_shim",
            "quick",
            1,
            vec![&["inv.software"], &["hbm.bw"]],
        ),
        (
            "one_poses_as_two",
            "quick",
            1,
            vec![&["hbm.bw", "hbm.read", "inv.residue"]],
        ),
        (
            "work_shrunk",
            "quick",
            1,
            vec![&["mem.proof"], &["sdc.exact"]],
        ),
        ("memory_invented", "quick", 1, vec![&["mem.proof"]]),
    ];
    assert_eq!(trials.len(), expected.len(), "{}", done.said());
    for (trial, (staged, level, runs, codes)) in trials.iter().zip(expected) {
        assert_eq!(
            (&trial["staged"], &trial["level"]),
            (&staged.into(), &level.into())
        );
        assert_eq!(trial["not_staged"], Value::Null, "{trial}");
        assert_eq!(
            (&trial["runs"], &trial["right"]),
            (&runs.into(), &runs.into()),
            "{trial}"
        );
        for any_of in &codes {
            let noticed = any_of.iter().any(|code| trial["spoke"][code] == runs);
            assert!(noticed, "{any_of:?} of {trial}");
        }
        // Nothing is noticed only because a run could not be made.
        assert_eq!(trial["spoke"]["agent.trouble"], Value::Null, "{trial}");
        assert_eq!(
            codes.is_empty(),
            trial["spoke"].as_object().expect("codes").is_empty()
        );
    }
    // Three that stream share what the card has, and nobody else is told to.
    for trial in trials {
        let guests = trial["guests_mb_per_s"].as_array().expect("rates");
        let hogs = trial["staged"] == "bandwidth_hogs";
        let spoke = trial["spoke"].as_object().expect("codes").len();
        assert!(!hogs || spoke == 2, "only rates tell of hogs: {trial}");
        assert_eq!(guests.len(), if hogs { 2 } else { 0 }, "{trial}");
        for rate in guests {
            let rate = rate.as_u64().expect("a rate");
            assert!((900_000..2_500_000).contains(&rate), "{trial}");
        }
    }
    let page = done.text("calibration.md");
    assert!(page.contains("the others streamed at"), "{page}");
    assert!(
        page.contains("| each card posing as two | quick | 1 | 1 |"),
        "{page}"
    );
    // The agents and their guests are gone, and nothing of them is left on the card.
    assert!(
        done.said().contains("less was done than a whole"),
        "{}",
        done.said()
    );
}

#[test]
fn a_card_on_which_clean_runs_fail_gives_no_floor() {
    let script = one(|card| (card.memory_mib, card.processes) = (2, 1));
    let done = with_runs(&script, 2, 0);
    assert_eq!(done.output.status.code(), Some(1), "{}", done.said());
    let said = "0 of 1 runs ended as they should with nothing staged";
    assert!(done.said().contains(said), "{}", done.said());
    assert_eq!(done.json()["trials"][1]["spoke"]["inv.residue"], 2);
}
