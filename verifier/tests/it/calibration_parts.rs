//! A calibration that is done in parts and gone on with.

use std::path::Path;

use fake_driver::script::{Card, Fault, Script};
use serde_json::Value;

use crate::calibration::{LEAST, command, one, run, small};
use crate::eventually::output_of;
use crate::machine::Machine;

const RUNS: [&str; 4] = ["--clean-runs", "1", "--fault-runs", "1"];

/// Runs the command into a folder that may hold what an earlier one wrote.
fn go_on(machine: &Machine, folder: &Path, more: &[&str]) -> std::process::Output {
    let mut command = command(machine, folder);
    output_of(command.args(LEAST).args(more))
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
                    || name.ends_with("_us")
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
