//! The unmodified agent on a machine that has just started, whose driver is not up yet.

use std::process::Command;

use fake_driver::script::Script;
use market::attestation::{Finding, FindingCode};
use market::verification::Level;
use verifier::order::Mode;

use crate::hearing::*;
use crate::machine::*;
use crate::stage::*;

// The answers of the libraries, by their own numbers.
const NVML_DRIVER_NOT_LOADED: u32 = 9;
const CUDA_NO_DEVICE: u32 = 100;
const CUDA_SYSTEM_NOT_READY: u32 = 802;
const CUDA_UNKNOWN: u32 = 999;

/// The fewest seconds that it can be set to wait: a twelfth of them before each look.
fn patiently(command: &mut Command) {
    command.args(["--fabric-patience-seconds", "1"]);
}

fn heard(machine: &Machine) -> Heard {
    let broker = broker(opening(2, Level::Quick, Mode::Simulation), 1);
    hear_patiently(machine, patiently, broker, unchanged)
}

fn trouble(heard: &Heard) -> &Finding {
    let mut findings = heard.attestation.findings.iter();
    let found = findings.find(|found| found.code == FindingCode::AgentTrouble);
    found.expect("the finding")
}

#[test]
fn a_driver_that_comes_up_bit_by_bit_is_waited_for_and_that_is_told() {
    let script = Script {
        before_up: vec![
            (NVML_DRIVER_NOT_LOADED, 0),
            (0, CUDA_UNKNOWN),
            (0, CUDA_NO_DEVICE),
            (0, CUDA_SYSTEM_NOT_READY),
        ],
        ..broken(|_| {})
    };
    let heard = heard(&Machine::new(&script));
    let note = &trouble(&heard).note;
    assert_eq!(failures(&heard.attestation), [], "{note}");
    assert!(note.contains("It waited 1 s for the driver."), "{note}");
    let said = String::from_utf8_lossy(&heard.output.stderr).into_owned();
    assert_eq!(said.matches("Waiting: ").count(), 4, "{said}");
    assert!(said.contains("CUDA_ERROR_NO_DEVICE"), "{said}");
}

#[test]
fn a_driver_that_does_not_come_up_is_told_with_how_long_it_was_waited_for() {
    let machine = Machine::new(&broken(|_| {}));
    std::fs::remove_file(machine.path("libcuda.so.1")).expect("removed");
    let heard = heard(&machine);
    let failed = [FindingCode::InventoryCount, FindingCode::AgentTrouble];
    assert_eq!(failures(&heard.attestation), failed);
    let note = &trouble(&heard).note;
    assert!(note.contains("no libcuda.so.1 (after 1 s)"), "{note}");
}

#[test]
fn an_error_that_does_not_heal_is_told_at_once() {
    const NVML_LIBRARY_OF_ANOTHER_VERSION: u32 = 18;
    let script = Script {
        before_up: vec![(NVML_LIBRARY_OF_ANOTHER_VERSION, 0); 2],
        ..broken(|_| {})
    };
    let heard = heard(&Machine::new(&script));
    assert!(failures(&heard.attestation).contains(&FindingCode::AgentTrouble));
    let said = String::from_utf8_lossy(&heard.output.stderr).into_owned();
    assert!(!said.contains("Waiting"), "{said}");
}
