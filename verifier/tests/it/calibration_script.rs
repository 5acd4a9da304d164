//! A calibration that is made by the script, unattended, and recorded by the one beside it.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use fake_driver::script::Fault;
use serde_json::Value;

use crate::calibration::{LEAST, command, one, run};
use crate::eventually::output_of;
use crate::machine::Machine;
use crate::recorded::replay_file;

fn json(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join("calibration.json")).expect("a calibration");
    serde_json::from_str(&text).expect("json")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A program of this name before all others.
pub fn program(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("written");
    let runs = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, runs).expect("it can be run");
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
    let output = output_of(&mut scripted(&machine, agent, out.path()));
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
    let output =
        output_of(scripted(&machine, &agent, folder.path()).env("CALIBRATE_PART_SECONDS", "1"));
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
    let output =
        output_of(scripted(&machine, agent, out.path()).env("PYTHONPATH", packages.path()));
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

#[test]
fn the_script_tries_a_card_again_that_was_given_up_and_makes_its_runs_then() {
    let lost = || one(|card| card.fault = Fault::LostIn("packed_inputs".to_owned()));
    let agent = env!("CARGO_BIN_EXE_verifier");
    // After the first time it is there again.
    let machine = Machine::new(&lost());
    let again = serde_json::to_string(&one(|_| {})).expect("json");
    std::fs::write(machine.path("again.json"), again).expect("written");
    let folder = machine.folder.path();
    program(
        folder,
        "agent",
        &format!(
            "#!/bin/sh\n{agent} \"$@\"\nstatus=$?\ncd {}\ncp again.json script.json\nexit $status\n",
            folder.display()
        ),
    );
    let out = tempfile::tempdir().expect("a folder");
    let output = output_of(&mut scripted(&machine, &folder.join("agent"), out.path()));
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("GPU was given up, attempt 1 of 3"), "{said}");
    assert!(!said.contains("attempt 2 of 3"), "{said}");
    let calibrated = json(out.path());
    assert_eq!(calibrated["gpus"][0]["stopped"], Value::Null);
    assert_eq!(calibrated["trials"].as_array().expect("trials").len(), 2);

    // One that stays lost is not paid for any longer.
    let machine = Machine::new(&lost());
    let out = tempfile::tempdir().expect("a folder");
    let output = output_of(&mut scripted(&machine, Path::new(agent), out.path()));
    let said = self::said(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("attempt 3 of 3"), "{said}");
    assert_eq!(json(out.path())["trials"], serde_json::json!([]), "{said}");
}

/// A folder with what the script itself calls, and nothing else.
fn bare_tools() -> tempfile::TempDir {
    let tools = tempfile::tempdir().expect("a folder");
    for name in [
        "bash", "sh", "timeout", "mktemp", "rm", "cat", "grep", "find", "ls",
    ] {
        let there = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
        let there = there.into_iter().find(|path| path.exists());
        symlink(there.expect("it is there"), tools.path().join(name)).expect("a link");
    }
    tools
}

#[test]
fn the_script_wants_a_c_compiler_first_and_names_what_else_is_missing() {
    let machine = Machine::new(&one(|_| {}));
    let (tools, out) = (bare_tools(), tempfile::tempdir().expect("a folder"));
    program(
        tools.path(),
        "agent",
        "#!/bin/sh\necho $5 $6 >> \"$3/parts\"\n",
    );
    let start = || {
        output_of(
            scripted(&machine, &tools.path().join("agent"), out.path())
                .env("PATH", tools.path())
                .env("LD_LIBRARY_PATH", tools.path()),
        )
    };
    let parts = out.path().join("parts");
    let output = start();
    let (said, status) = (said(&output), output.status.code());
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("no C compiler (cc)"), "{said}");
    assert!(said.contains("shim.so"), "{said}");
    assert!(!parts.exists(), "nothing was begun");

    // One that is there and makes nothing is none.
    program(tools.path(), "cc", "#!/bin/sh\nexit 1\n");
    assert_eq!(start().status.code(), Some(2));
    program(tools.path(), "cc", "#!/bin/sh\n");
    let output = start();
    let said = self::said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for missing in ["no python3", "no libcublasLt.so"] {
        assert!(said.contains(&format!("warning: {missing}")), "{said}");
    }
    let begun = std::fs::read_to_string(&parts)
        .expect("parts")
        .lines()
        .count();

    // The library that it would make, brought along, will do; what is there is not missed.
    std::fs::remove_file(tools.path().join("cc")).expect("removed");
    std::fs::write(out.path().join("shim.so"), "").expect("written");
    std::fs::write(tools.path().join("libcublasLt.so.12"), "").expect("written");
    program(tools.path(), "python3", "#!/bin/sh\nexit 1\n");
    let output = start();
    let said = self::said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("warning: python3 has no torch"), "{said}");
    assert!(!said.contains("libcublasLt"), "{said}");
    let parts = std::fs::read_to_string(&parts).expect("parts");
    assert_eq!(parts.lines().count(), 2 * begun, "{parts}");
}

#[test]
fn a_calibration_is_recorded_by_one_command_and_the_same_one_twice_is_there_once() {
    let done = run(&Machine::new(&one(|_| {})), &LEAST, (0, 0));
    let (out, json) = (done.folder.path(), done.json());
    let checkout = tempfile::tempdir().expect("a folder");
    let at = |name: &str| checkout.path().join(name);
    let ours = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::create_dir_all(at("docs")).expect("made");
    std::fs::create_dir_all(at("verifier/data")).expect("made");
    for name in ["docs/calibration.md", "verifier/data/floors.csv"] {
        std::fs::copy(ours.join("..").join(name), at(name)).expect("copied");
    }
    let read = |name: &str| std::fs::read_to_string(at(name)).expect("a file");
    let (page, table) = (
        read("docs/calibration.md"),
        read("verifier/data/floors.csv"),
    );
    let record_with = |flags: &[&str]| {
        let mut script = Command::new(ours.join("record-calibration.sh"));
        output_of(script.args(flags).args([out, checkout.path()]))
    };
    let record = || record_with(&[]);
    // A card that is no reference leaves all as it was.
    let refused = record();
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        said(&refused).contains("floors.csv is missing"),
        "{}",
        said(&refused)
    );
    assert_eq!(read("docs/calibration.md"), page);
    assert_eq!(read("verifier/data/floors.csv"), table);
    assert!(!at("verifier/fixtures").exists());

    // But for what it showed, where that is asked for: whose card it was is left out.
    let day = &json["measured_at"].as_str().expect("a time")[..10];
    for _ in 0..2 {
        let recorded = record_with(&["--without-rows"]);
        assert!(recorded.status.success(), "{}", said(&recorded));
        assert_eq!(read("verifier/data/floors.csv"), table);
        let added = read("docs/calibration.md");
        assert_eq!(
            added
                .matches(&format!("### NVIDIA H100 80GB HBM3, {day}\n"))
                .count(),
            1
        );
    }
    let fixture = format!("verifier/fixtures/calibration/nvidia-h100-80gb-hbm3-{day}.json");
    let vectors = json["gpus"][0]["vectors"].as_array().expect("vectors");
    assert_eq!(replay_file(&at(&fixture)), Ok(vectors.len()));
    let uuid = json["gpus"][0]["claim"]["uuid"].as_str().expect("an id");
    assert!(!read(&fixture).contains(uuid));
    std::fs::remove_dir_all(at("verifier/fixtures")).expect("removed");
    std::fs::write(at("docs/calibration.md"), &page).expect("written");

    let kernels = json["kernels"].as_str().expect("a hash");
    let row = format!("3,H100-SXM,hbm_copy,{kernels},2900000,930,expected,calibrated,now\n");
    std::fs::write(out.join("floors.csv"), &row).expect("written");
    for _ in 0..2 {
        let recorded = record();
        assert!(recorded.status.success(), "{}", said(&recorded));
        assert_eq!(read("verifier/data/floors.csv"), format!("{table}{row}"));
        let fixtures = at("verifier/fixtures/calibration");
        let fixtures: Vec<_> = std::fs::read_dir(fixtures).expect("a folder").collect();
        assert_eq!(fixtures.len(), 1);
        let fixture = at(&format!(
            "verifier/fixtures/calibration/h100-sxm-{day}.json"
        ));
        assert_eq!(replay_file(&fixture), Ok(vectors.len()));
        let recorded = read("docs/calibration.md");
        let added = recorded
            .strip_prefix(page.trim_end())
            .expect("the page as it was");
        let title = format!("### H100-SXM, {day}\n");
        assert_eq!(added.matches(&title).count(), 1, "{added}");
        assert!(added.contains("\n#### GPU 0: NVIDIA H100"), "{added}");
        assert!(!added.contains("\n# "), "{added}");
    }
}
