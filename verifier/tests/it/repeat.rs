//! Runs that are repeated, and what they print: `verifier run --repeat N --json`.

use std::process::Output;

use fake_driver::script::{Fault, Script};
use market::attestation::Attestation;
use market::verification::Level;
use serde_json::Value;

use crate::machine::*;

/// The lines of a command, each a run.
pub fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    let read = |line: &str| serde_json::from_str(line).expect("a run in a line");
    text.lines().map(read).collect()
}

/// So many runs on two H100s.
pub fn repeated(script: &Script, runs: &str) -> Output {
    let order = order(2, Level::Quick);
    Machine::new(script).run(&order, &["--json", "--repeat", runs])
}

/// The result in a run, as `verifier run --json` prints it.
fn attestation_of(run: &Value) -> Attestation {
    let mut run = run.clone();
    let fields = run.as_object_mut().expect("an object");
    fields.remove("run");
    fields.remove("of");
    fields.remove("measured");
    serde_json::from_value(run).expect("an attestation")
}

#[test]
fn each_run_is_a_line_with_its_result_and_what_the_rules_judged_of_each_gpu() {
    let output = repeated(&broken(|_| {}), "3");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let runs = lines(&output);
    let numbers: Vec<_> = runs.iter().map(|run| run["run"].as_u64()).collect();
    assert_eq!(numbers, [Some(1), Some(2), Some(3)]);
    let order = order(2, Level::Quick);
    for run in &runs {
        let attestation = attestation_of(run);
        assert!(attestation.verdict.is_pass(), "{attestation:#?}");
        let inventory = attestation.inventory.expect("an inventory");
        assert!(inventory.gpus.iter().all(|gpu| gpu.uuid == "left out"));
        let measured = &run["measured"];
        assert_eq!(measured["driver"], "570.86.15");
        assert!(measured["kernels"].is_string(), "{measured}");
        assert_eq!(run["of"], 3);
        assert_eq!(
            measured["exact_chain_product"],
            serde_json::json!([24, 128])
        );
        assert_eq!(measured["exact_chain_products"], order.gemm.links - 1);
        let gpus = measured["gpus"].as_array().expect("GPUs");
        assert_eq!(gpus.len(), 2);
        for gpu in gpus {
            assert_eq!(gpu["kind"], "H100-SXM");
            assert_eq!(gpu["uuid"], Value::Null);
            for (figure, lowest, highest) in [
                ("copy_mb_per_s", 2_990_000, 3_000_000),
                ("read_mb_per_s", 2_990_000, 3_000_000),
                ("from_host_mb_per_s", 54_900, 55_000),
                ("to_host_mb_per_s", 54_900, 55_000),
                ("memory_proof_bytes", 65_536, 65_536),
                ("memory_proof_us", 1, 60_000_000),
                ("exact_chain_us", 1, 60_000_000),
                ("gemm_16bit_gflops", 1, 720_000),
                ("gemm_fp8_gflops", 1, 1_210_000),
            ] {
                let shown = gpu[figure].as_u64().unwrap_or_default();
                assert!((lowest..=highest).contains(&shown), "{figure}: {gpu}");
            }
        }
        let pairs = measured["pairs"].as_array().expect("pairs");
        assert_eq!(pairs.len(), 2);
        assert_eq!(measured["collectives"][0]["algorithm"], "own_ring");
        // Two of the eight that a switch joins.
        assert_eq!(measured["links_have_floors"], false);
    }
}

#[test]
fn a_run_that_does_not_pass_is_printed_like_any_other_and_shows_in_the_status() {
    let slow = repeated(&broken(|card| card.copy_mb_per_s = 1_200_000.0), "2");
    assert_eq!(slow.status.code(), Some(1), "{slow:?}");
    let runs = lines(&slow);
    assert_eq!(runs.len(), 2);
    for run in &runs {
        assert_eq!(run["verdict"], "fail");
        let copied = run["measured"]["gpus"][1]["copy_mb_per_s"].as_u64();
        assert!(copied.is_some_and(|rate| rate <= 1_200_000), "{run}");
        let beside_it = run["measured"]["gpus"][0]["copy_mb_per_s"].as_u64();
        assert!(beside_it.is_some_and(|rate| rate >= 2_990_000), "{run}");
    }
    let lost = broken(|card| card.fault = Fault::LostIn("memory_fill".to_owned()));
    let lost = repeated(&lost, "2");
    assert_eq!(lost.status.code(), Some(1), "{lost:?}");
    let runs = lines(&lost);
    assert_eq!(runs.len(), 2);
    let gpu = &runs[1]["measured"]["gpus"][1];
    assert_eq!(gpu["copy_mb_per_s"], Value::Null, "{gpu}");
}
