//! The unmodified `verifier calibrate` on a driver whose GPUs do not exist.

use std::path::Path;
use std::process::{Command, Output};

use fake_driver::script::{Card, Fault, Script, VARIABLE};
use market::verification::{Digest, Pattern};
use serde_json::Value;
use tempfile::TempDir;
use verifier::gemm::GemmInputs;
use verifier::prf::{Purpose, Stream};
use verifier::tensor::{Format, expected_checksum};

use crate::machine::Machine;

/// Rows and columns of the products: no multiple of any tile.
const PRODUCT: u32 = 130;

struct Calibrated {
    output: Output,
    folder: TempDir,
}

impl Calibrated {
    fn text(&self, name: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::read_to_string(&path)
            .unwrap_or_else(|why| panic!("{name}: {why}: {:?}", self.output))
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text("calibration.json")).expect("json")
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

/// The command with nothing in its environment but the driver's libraries.
fn command(machine: &Machine, out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verifier"));
    command
        .env_clear()
        .env("LD_LIBRARY_PATH", machine.folder.path())
        .env(VARIABLE, machine.path("script.json"))
        .args(["calibrate", "--floors-version", "3", "--out"])
        .arg(out)
        .args(["--memory-mib", "1", "--samples", "3", "--products", "4"])
        .args(["--burn-seconds", "1", "--product", &PRODUCT.to_string()]);
    command
}

fn calibrate(script: &Script) -> Calibrated {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(script);
    let output = command(&machine, folder.path()).output().expect("started");
    Calibrated { output, folder }
}

fn one(change: impl FnOnce(&mut Card)) -> Script {
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
        [Pattern::Prf, Pattern::Complement, Pattern::Address]
    );
    assert_eq!(gpu["burned"]["dwell_bad_words"], 0);
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
        let expected = serde_json::json!(expected_checksum(&inputs, format));
        assert_eq!(hex(&shown["checksum"]), hex(&expected), "{format:?}");
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
    assert_eq!(unsteady.output.status.code(), Some(1));
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
fn a_machine_without_gpus_is_told_in_one_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_verifier"))
        .env_clear()
        .args(["calibrate", "--floors-version", "3", "--out"])
        .arg(folder.path())
        .output()
        .expect("started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("nothing can be calibrated here"), "{said}");
}
