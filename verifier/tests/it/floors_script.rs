//! Floors that the script outside the agent makes of repeated runs: `verifier/floors.py`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::eventually::output_of;
use crate::machine::{agent, broken};
use crate::repeat::{lines, repeated};
use crate::stage::description;

/// Whether the script can be run; says so where it cannot.
fn has_python() -> bool {
    let there = Command::new("python3").arg("--version").output().is_ok();
    if !there {
        let is_required = std::env::var_os("REQUIRE_SERVICES").is_some_and(|value| value == "1");
        assert!(!is_required, "needs python3");
        println!("skipped: needs python3");
    }
    there
}

fn floors(arguments: &[&str], files: &[PathBuf]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("floors.py");
    let mut command = Command::new("python3");
    output_of(command.arg(script).args(arguments).args(files))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn printed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", said(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn written(folder: &TempDir, name: &str, runs: &[Value]) -> PathBuf {
    let lines = runs.iter().map(|run| format!("{run}\n"));
    let path = folder.path().join(name);
    std::fs::write(&path, lines.collect::<String>()).expect("written");
    path
}

/// Four runs as the agent prints them, of two H100s, with figures and sizes as a whole run of level `standard` has
/// them. The second GPU is slower. No order of the runs gives the lower median, 1 more, by itself.
fn good_runs() -> Vec<Value> {
    let mut runs = lines(&repeated(&broken(|_| {}), "4"));
    assert_eq!(runs.len(), 4);
    for (more, run) in [3_u64, 0, 2, 1].into_iter().zip(&mut runs) {
        run["measured_at"] = json!("2026-11-28T10:11:12Z");
        let measured = &mut run["measured"];
        measured["kernels"] = json!("ab".repeat(32));
        measured["driver"] = json!("580.159.04");
        measured["exact_chain_product"] = json!([8_192, 8_192]);
        measured["exact_chain_products"] = json!(100);
        measured["memory_proof_block_bytes"] = json!(16 << 10);
        measured["links_have_floors"] = json!(true);
        for at in 0..2 {
            let slower = 2 * at as u64;
            measured["gpus"][at] = json!({
                "kind": "H100-SXM", "name": "NVIDIA H100 80GB HBM3", "memory_mib": 81_559,
                "copy_mb_per_s": 3_000_000 + more - slower, "read_mb_per_s": 3_100_000,
                "triad_mb_per_s": null, "from_host_mb_per_s": 55_000, "to_host_mb_per_s": 54_000,
                "gemm_16bit_gflops": 740_000, "gemm_fp8_gflops": 1_290_000,
                "memory_proof_us": 100_000 + more, "memory_proof_bytes": 84_000_000_000_u64,
                "exact_chain_us": 1_600_000,
            });
        }
        measured["pairs"] = json!([
            {"from": 0, "to": 1, "mb_per_s": 376_000 + more}, {"from": 1, "to": 0, "mb_per_s": 380_000},
        ]);
        measured["collectives"] = json!([
            {"algorithm": "nccl_default", "payload_bytes": 1 << 30, "bus_mb_per_s": 466_000, "wrong_elements": 0},
            {"algorithm": "nccl_ring", "payload_bytes": 1 << 30, "bus_mb_per_s": 360_000, "wrong_elements": 1},
            {"algorithm": "own_ring", "payload_bytes": 1 << 20, "bus_mb_per_s": 9_000, "wrong_elements": 0},
        ]);
    }
    runs
}

#[test]
fn rows_are_the_lower_median_of_the_slowest_gpu_and_floors_reads_them() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = written(&folder, "runs", &good_runs());
    let made = floors(
        &["--least", "4", "--version", "7"],
        std::slice::from_ref(&file),
    );
    let kernels = "ab".repeat(32);
    let row = |metric: &str, figure: u64, share: u32| {
        format!(
            "7,H100-SXM,{metric},{kernels},{figure},{share},expected,calibrated,\
             verifier run --repeat on 2026-11-28 with driver 580.159.04\n"
        )
    };
    let rows = [
        row("allreduce_nccl_default", 466_000, 930),
        row("exact_chain", 68_719, 750),
        row("gemm_16bit", 740_000, 920),
        row("gemm_fp8", 1_290_000, 920),
        row("gpu_link", 376_001, 920),
        row("hbm_copy", 2_999_999, 930),
        row("hbm_read", 3_100_000, 930),
        row("host_link", 54_000, 850),
        row("memory_proof", 839_983, 500),
    ];
    assert_eq!(printed(&made), rows.concat());

    // Into the table they come in place of those of the same GPU, metric and kernels, however often.
    let table = folder.path().join("table");
    let head = "version,gpu,metric,kernel,expected,floor_permille,floor_of,calibration,source\n";
    let rule = "2,*,hbm_copy,*,,550,spec,none,\"a rule: of, all\"\n";
    let old = format!("6,H100-SXM,hbm_copy,{kernels},1,930,expected,calibrated,before\n");
    std::fs::write(&table, format!("{head}{rule}{old}")).expect("written");
    let into = table.to_str().expect("UTF-8");
    for _ in 0..2 {
        let arguments = ["--least", "4", "--version", "7", "--merge", into];
        printed(&floors(&arguments, std::slice::from_ref(&file)));
        let text = std::fs::read_to_string(&table).expect("a table");
        assert_eq!(text, format!("{head}{rule}{}", rows.concat()));
    }
    let text = std::fs::read_to_string(&table).expect("a table");
    verifier::floors::Floors::read(&text).expect("a table of floors");

    let page = printed(&floors(&["--least", "4", "--page"], &[file]));
    for line in [
        "# H100-SXM, 2026-11-28\n",
        "2 GPUs, at least 4 runs each, all passed.\n",
        "| H100-SXM | hbm_copy | 2999999 | MB/s | 2789999 |\n",
    ] {
        assert!(page.contains(line), "{page}");
    }
}

#[test]
fn runs_that_are_no_reference_are_refused_in_words() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let good = good_runs();
    type Change = fn(&mut Vec<Value>);
    let cases: [(Change, &str); 14] = [
        (|runs| drop(runs.pop()), "3 runs; floors need 4"),
        (|runs| drop(runs.remove(1)), "3 runs; floors need 4"),
        (
            |runs| {
                let last = runs.last().cloned();
                runs.extend(last);
            },
            "a run is missing, or there are several series",
        ),
        (
            |runs| runs[1]["id"] = runs[0]["id"].clone(),
            "a run is given twice",
        ),
        (
            |runs| runs[1]["agent"]["sha256"] = json!("cd".repeat(32)),
            "of different files of the agent",
        ),
        (
            |runs| runs[0]["measured"]["gpus"][0]["copy_mb_per_s"] = json!(-5),
            "line 1: no run",
        ),
        (
            |runs| runs[1]["simulated"] = json!(true),
            "run 2: the device is simulated",
        ),
        (
            |runs| {
                runs[2]["verdict"] = json!("fail");
                runs[2]["findings"][0]["outcome"] = json!("failed");
            },
            "run 3: the verdict is fail (inv.count",
        ),
        (
            |runs| runs[0]["measured"]["kernels"] = json!("cd".repeat(32)),
            "of different kernels",
        ),
        (
            |runs| runs[0]["measured"]["driver"] = json!("570"),
            "of different drivers",
        ),
        (
            |runs| runs[0]["measured"]["gpus"][1]["kind"] = Value::Null,
            "of no kind that the catalogue knows",
        ),
        (
            |runs| runs[0]["measured"]["gpus"][1]["kind"] = json!("L4"),
            "of different GPUs",
        ),
        (
            |runs| runs[0]["measured"]["gpus"][0]["memory_proof_bytes"] = json!(1 << 20),
            "less of the memory was filled",
        ),
        (
            |runs| runs[0] = json!({"verdict": "pass"}),
            "line 1: no run",
        ),
    ];
    for (change, word) in cases {
        let mut runs = good.clone();
        change(&mut runs);
        let refused = floors(&["--least", "4"], &[written(&folder, "runs", &runs)]);
        assert_eq!(refused.status.code(), Some(1), "{word}: {}", said(&refused));
        assert!(said(&refused).contains(word), "{word}: {}", said(&refused));
        assert!(refused.stdout.is_empty(), "{word}");
    }
    let missing = floors(&[], &[folder.path().join("nothing")]);
    assert_eq!(missing.status.code(), Some(2), "{}", said(&missing));
}

#[test]
fn what_the_agent_prints_of_pretended_or_smaller_work_is_refused() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let node = folder.path().join("node.json");
    let described = serde_json::to_string(&description(1)).expect("json");
    std::fs::write(&node, described).expect("written");
    let mut pretended = agent(None);
    pretended.env("SIMULATED_NODE", node);
    let pretended = output_of(pretended.args(["--level", "quick", "--repeat", "3", "--json"]));
    let smaller = repeated(&broken(|_| {}), "3");
    for (output, word) in [
        (pretended, "the device is simulated"),
        (smaller, "not those of a real order"),
    ] {
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let file = folder.path().join("runs");
        std::fs::write(&file, &output.stdout).expect("written");
        let refused = floors(&["--least", "3"], &[file]);
        assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
        assert!(said(&refused).contains(word), "{}", said(&refused));
    }
}
