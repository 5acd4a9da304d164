//! A calibration that is done in parts, gone on with, and made by the script; and what others than the
//! agent show beside it.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use fake_driver::script::{Card, Fault, Script};
use serde_json::Value;

use crate::calibration::{Calibrated, LEAST, command, one, run, small};
use crate::machine::Machine;

const RUNS: [&str; 4] = ["--clean-runs", "1", "--fault-runs", "1"];

/// Runs the command into a folder that may hold what an earlier one wrote.
fn go_on(machine: &Machine, folder: &Path, more: &[&str]) -> std::process::Output {
    let mut command = command(machine, folder);
    command.args(LEAST).args(more).output().expect("started")
}

fn json(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join("calibration.json")).expect("a calibration");
    serde_json::from_str(&text).expect("json")
}

/// A calibration without what differs from one time to the next: times, and which of several checks notices
/// what two processes take from each other.
fn timeless(json: &Value) -> Value {
    match json {
        Value::Array(all) => all.iter().map(timeless).collect(),
        Value::Object(fields) => {
            let is_time = |name: &str| {
                name.ends_with("_ms")
                    || ["measured_at", "guests_mb_per_s", "goals", "spoke"].contains(&name)
            };
            let kept = fields.iter().filter(|(name, _)| !is_time(name));
            let kept = kept.map(|(name, value)| (name.clone(), timeless(value)));
            Value::Object(kept.collect())
        }
        other => other.clone(),
    }
}

#[test]
fn a_calibration_that_is_done_in_parts_comes_to_what_one_in_one_go_does() {
    let machine = Machine::new(&small());
    let whole = run(&machine, &LEAST, (1, 1));
    let folder = tempfile::tempdir().expect("a folder");
    let mut begun = Value::Null;
    // In another order than that of the whole, and each in a process of its own.
    for part in ["fault=memory_held", "measure", "fault=work_shrunk", "clean"] {
        let arguments = [&RUNS[..], &["--part", part]].concat();
        let output = go_on(&machine, folder.path(), &arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{part}: {said}");
        let now = json(folder.path());
        if begun.is_null() {
            begun = now["measured_at"].clone();
            assert_eq!(now["gpus"][0]["parts"], 0);
            assert_eq!(now["trials"].as_array().expect("trials").len(), 1);
        }
        assert_eq!(now["measured_at"], begun, "{part} begins anew");
    }
    let before = json(folder.path());
    assert_eq!(before["trials"].as_array().expect("trials").len(), 4);
    go_on(&machine, folder.path(), &RUNS);
    let resumed = json(folder.path());
    assert_eq!(timeless(&resumed), timeless(&whole.json()));
    // What was done was not done again: its times are those of the first time.
    assert_eq!(resumed["gpus"], before["gpus"]);
    for (now, then) in [(0, 0), (1, 1), (3, 2)] {
        let trial = &resumed["trials"][now];
        assert_eq!(trial["elapsed_ms"], before["trials"][then]["elapsed_ms"]);
    }
}

#[test]
fn a_card_that_was_lost_goes_on_where_it_was_and_another_card_begins_anew() {
    let machine = Machine::new(&one(|card| {
        card.fault = Fault::LostIn("packed_inputs".to_owned());
    }));
    let folder = tempfile::tempdir().expect("a folder");
    let measure = ["--part", "measure"];
    go_on(&machine, folder.path(), &measure);
    let lost = json(folder.path());
    assert!(lost["gpus"][0]["stopped"].is_string(), "{lost}");
    let script = |script: &Script| {
        let script = serde_json::to_string(script).expect("json");
        std::fs::write(machine.path("script.json"), script).expect("written");
    };
    script(&one(|_| {}));
    go_on(&machine, folder.path(), &measure);
    let resumed = json(folder.path());
    let shown = &resumed["gpus"][0];
    assert_eq!(shown["stopped"], Value::Null);
    assert_eq!(shown["passes"], lost["gpus"][0]["passes"]);
    assert_eq!(shown["burned"]["dwell_bad_words"], 0);
    let vectors = shown["vectors"].as_array().expect("vectors");
    assert!(vectors.iter().all(|v| v["gave"] == v["wanted"]));

    script(&one(|card| card.uuid = Card::h100(7).uuid));
    go_on(
        &machine,
        folder.path(),
        &["--part", "clean", "--clean-runs", "0"],
    );
    let another = json(folder.path());
    assert_eq!(
        another["gpus"][0]["parts"], 0,
        "the earlier card's figures are gone"
    );
}

#[test]
fn runs_are_made_with_the_gpus_that_were_not_given_up() {
    let cards = |number| Card {
        memory_mib: 2,
        ..Card::h100(number)
    };
    let mut script = Script {
        gpus: (0..2).map(cards).collect(),
        ..Script::default()
    };
    script.gpus[0].fault = Fault::LostIn("packed_inputs".to_owned());
    let done = run(&Machine::new(&script), &LEAST, (1, 1));
    let json = done.json();
    assert!(json["gpus"][0]["stopped"].is_string(), "{json}");
    assert_eq!(json["gpus"][1]["stopped"], Value::Null);
    let trials = json["trials"].as_array().expect("trials");
    assert_eq!(trials.len(), 8, "{}", done.said());
    for trial in trials {
        let shim = trial["staged"] == "preloaded_shim";
        assert_eq!(trial["not_staged"].is_string(), shim, "{trial}");
        assert_eq!(trial["right"], i32::from(!shim), "{trial}");
    }
    assert!(!done.folder.path().join("floors.csv").exists());

    // It is there again: it was in none of those runs.
    script.gpus[0].fault = Fault::default();
    let machine = Machine::new(&script);
    let folder = done.folder.path();
    go_on(&machine, folder, &["--part", "measure"]);
    let measured = self::json(folder);
    assert_eq!(measured["gpus"][0]["stopped"], Value::Null);
    assert_eq!(measured["trials"], serde_json::json!([]));
}

/// A program of this name before all others.
fn program(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("written");
    let runs = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, runs).expect("it can be run");
}

#[test]
fn what_a_framework_copies_is_the_peer_of_the_kernels_copies() {
    let machine = Machine::new(&one(|_| {}));
    let bare = run(&machine, &LEAST, (0, 0));
    assert_eq!(
        bare.json()["gpus"][0]["framework"]["outcome"],
        "not_installed"
    );
    let page = bare.text("calibration.md");
    assert!(
        page.contains("the driver's copy stands in for it"),
        "{page}"
    );
    assert!(
        page.contains("- GPU 0: copies by a framework: none is"),
        "{page}"
    );

    let programs = tempfile::tempdir().expect("a folder");
    let said = r#"{"outcome": "measured", "framework": "torch 2", "mb_per_s": [4000000]}"#;
    // It is asked for this GPU, with half of the memory that is filled, for one sample.
    program(
        programs.path(),
        "python3",
        &format!(
            "#!/bin/sh\n[ \"$CUDA_VISIBLE_DEVICES\" = {} ] && [ \"$3 $4\" = \"1048576 1\" ] && \
             echo '{said}'\n",
            Card::h100(0).uuid
        ),
    );
    let folder = tempfile::tempdir().expect("a folder");
    let path = format!("{}:/usr/bin:/bin", programs.path().display());
    let output = command(&machine, folder.path())
        .args(LEAST)
        .args(["--part", "measure"])
        .env("PATH", path)
        .output()
        .expect("started");
    let done = Calibrated { output, folder };
    assert_eq!(
        done.json()["gpus"][0]["framework"]["mb_per_s"][0],
        4_000_000
    );
    assert_eq!(done.json()["goals"][0]["reached"], "missed");
    let page = done.text("calibration.md");
    assert!(
        page.contains("torch 2: 4000000; the kernel shows 0.7"),
        "{page}"
    );
}

#[test]
fn a_library_that_takes_its_process_with_it_is_one_result() {
    let machine = Machine::new(&Script {
        library: -1,
        ..one(|_| {})
    });
    machine.install("libcublasLt.so.12");
    let done = run(&machine, &LEAST, (0, 0));
    let json = done.json();
    let gpu = &json["gpus"][0];
    assert_eq!(gpu["stopped"], Value::Null, "{}", done.said());
    let runs = gpu["tensor"][0]["library"].as_array().expect("runs");
    assert_eq!(runs[0]["outcome"], "failed");
    let why = runs[0]["why"].as_str().expect("why");
    assert!(why.starts_with("its process ended"), "{why}");
    assert_eq!(gpu["burned"]["dwell_bad_words"], 0);
}

/// The script with one clean run and no fault.
fn scripted(machine: &Machine, agent: &Path, out: &Path) -> Command {
    let plain = command(machine, out);
    let set = plain.get_envs();
    let set = set.filter_map(|(name, value)| Some((name, value?)));
    let mut scripted = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("calibrate.sh"));
    scripted.env_clear().envs(set);
    scripted.arg(agent).arg(out).arg("3");
    scripted.args(["--memory-mib", "2", "--burn-seconds", "1"]);
    scripted.args(LEAST);
    scripted.args(["--clean-runs", "1", "--fault-runs", "0"]);
    scripted
}

#[test]
fn the_script_makes_no_runs_on_a_card_that_is_no_reference() {
    let machine = Machine::new(&one(|card| card.fault = Fault::FlipsBits(2)));
    let out = tempfile::tempdir().expect("a folder");
    let agent = Path::new(env!("CARGO_BIN_EXE_verifier"));
    let output = scripted(&machine, agent, out.path()).output();
    let output = output.expect("started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert_eq!(json(out.path())["trials"], serde_json::json!([]), "{said}");
}

#[test]
fn the_script_ends_when_a_part_does_not() {
    let machine = Machine::new(&one(|_| {}));
    let folder = tempfile::tempdir().expect("a folder");
    program(
        folder.path(),
        "agent",
        "#!/bin/sh\necho $5 $6 >> \"$3/parts\"\nsleep 60\n",
    );
    let agent = folder.path().join("agent");
    let output = scripted(&machine, &agent, folder.path())
        .env("CALIBRATE_PART_SECONDS", "1")
        .output()
        .expect("started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(124), "{said}");
    assert!(said.contains("part measure took longer than 1 s"), "{said}");
    let parts = std::fs::read_to_string(folder.path().join("parts")).expect("it was started");
    assert_eq!(parts.lines().count(), 1, "{parts}");
}

#[test]
fn the_script_finds_the_vendors_libraries_and_does_all_parts() {
    let machine = Machine::new(&one(|_| {}));
    // As Python packages lie: a library, and a folder that only stands in for a driver.
    let packages = tempfile::tempdir().expect("a folder");
    let folder = |name: &str| {
        let folder = packages.path().join("nvidia").join(name).join("lib");
        std::fs::create_dir_all(&folder).expect("made");
        folder
    };
    let library = machine.path("libcuda.so.1");
    symlink(&library, folder("cublas").join("libcublasLt.so.12")).expect("a link");
    symlink("/dev/null", folder("stubs").join("libcuda.so.1")).expect("a link");
    let out = tempfile::tempdir().expect("a folder");
    let agent = Path::new(env!("CARGO_BIN_EXE_verifier"));
    let output = scripted(&machine, agent, out.path())
        .env("PYTHONPATH", packages.path())
        .output()
        .expect("started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let json = json(out.path());
    let run = &json["gpus"][0]["tensor"][0]["library"][0];
    assert_eq!(run["outcome"], "measured", "{run}");
    assert_eq!(json["trials"].as_array().expect("trials").len(), 2);
    let names = std::fs::read_dir(out.path()).expect("a folder").flatten();
    let unfinished = names.filter(|name| name.file_name().to_string_lossy().ends_with(".new"));
    assert_eq!(unfinished.count(), 0);
}

#[test]
fn rows_are_merged_in_place_of_those_of_the_same_kernels() {
    let folder = tempfile::tempdir().expect("a folder");
    let (rows, table) = (folder.path().join("rows"), folder.path().join("table"));
    let head = "version,gpu,metric,kernel,expected,floor_permille,floor_of,calibration,source\n";
    let old = "2,*,hbm_copy,*,,550,spec,none,\"a rule: of, all\"\n\
               2,L4,hbm_copy,00,1,930,expected,calibrated,before\n";
    std::fs::write(&table, format!("{head}{old}")).expect("written");
    let new = "3,L4,hbm_copy,00,2,930,expected,calibrated,now\n\
               3,L4,hbm_copy,01,3,930,expected,calibrated,now\n";
    std::fs::write(&rows, new).expect("written");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("merge-floors.sh");
    for _ in 0..2 {
        let merged = Command::new(&script).arg(&rows).arg(&table).status();
        assert!(merged.expect("started").success());
        let first = old.lines().next().expect("a rule");
        let merged = std::fs::read_to_string(&table).expect("a table");
        assert_eq!(merged, format!("{head}{first}\n{new}"));
    }
}
