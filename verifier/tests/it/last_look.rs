//! A GPU that stops midway does not hide the driver's reports on it, or on the others.

use fake_driver::script::{Card, Fault};
use market::attestation::{Attestation, FindingCode, Outcome, Remedy};
use market::verification::Level;

use crate::machine::*;
use crate::stage::*;

/// The agent's findings on two H100s with the second changed.
fn found(change: impl FnOnce(&mut Card)) -> Attestation {
    Machine::new(&broken(change)).verify(&order(2, Level::Quick))
}

fn remedy(attestation: &Attestation, code: FindingCode) -> Option<Remedy> {
    let mut findings = attestation.findings.iter();
    findings.find(|found| found.code == code)?.remedy
}

#[test]
fn f05_memory_that_throws_an_error_is_replaced_and_what_the_driver_said_of_it_is_told() {
    let attestation = found(|card| {
        card.fault = Fault::UncorrectedIn("memory_fill".to_owned());
        card.ecc_uncorrected = (0, 1);
        card.xids = vec![48, 94];
    });
    let expected = [FindingCode::HealthEcc, FindingCode::HealthXid];
    assert_eq!(failures(&attestation), expected, "{attestation:#?}");
    for code in expected {
        assert_eq!(remedy(&attestation, code), Some(Remedy::Replace));
    }
    let ecc = note_of(&attestation, FindingCode::HealthEcc);
    assert!(
        ecc.contains("214") && ecc.contains("GPU 1, at step fill"),
        "{ecc}"
    );
    let xid = note_of(&attestation, FindingCode::HealthXid);
    assert!(xid.contains("XID 48, 94"), "{xid}");
    // Nor is any of this a fault that a second try would cure.
    let trouble = outcome_of(&attestation, FindingCode::AgentTrouble);
    assert_eq!(trouble, Outcome::Met);
}

#[test]
fn counters_are_read_after_any_trouble() {
    let attestation = found(|card| {
        card.fault = Fault::WithdrawnIn("memory_fill".to_owned());
        card.ecc_uncorrected = (0, 1);
    });
    let expected = [FindingCode::InventoryRecount, FindingCode::HealthEcc];
    assert_eq!(failures(&attestation), expected, "{attestation:#?}");
}

#[test]
fn f01_what_else_the_driver_says_of_a_gpu_that_was_lost_is_told() {
    let attestation = found(|card| {
        card.fault = Fault::LostIn("memory_fill".to_owned());
        card.xids = vec![79, 119];
    });
    let expected = [FindingCode::GpuLost, FindingCode::HealthXid];
    assert_eq!(failures(&attestation), expected, "{attestation:#?}");
    let lost = note_of(&attestation, FindingCode::GpuLost);
    assert!(lost.contains("GPU 1 fell off the bus (XID 79)"), "{lost}");
    assert_eq!(
        remedy(&attestation, FindingCode::GpuLost),
        Some(Remedy::Replace)
    );
}

#[test]
fn a_gpu_that_hangs_takes_nothing_from_what_is_heard_of_the_others() {
    let mut script = broken(|card| card.fault = Fault::HangsIn("memory_fill".to_owned()));
    script.gpus[0].xids = vec![48];
    let machine = Machine::new(&script);
    let mut order = order(2, Level::Quick);
    order.deadlines.fill_ms = 2_000;
    let attestation = machine.verify(&order);
    let expected = [FindingCode::HealthXid, FindingCode::StepTimedOut];
    assert_eq!(failures(&attestation), expected, "{attestation:#?}");
    let ecc = note_of(&attestation, FindingCode::HealthEcc);
    assert_eq!(ecc, "The driver does not report it for GPU 1.");
}

#[test]
fn a_gpu_that_hangs_and_was_not_heard_is_not_healthy_by_that() {
    let machine = Machine::new(&broken(|card| {
        card.fault = Fault::HangsIn("memory_fill".to_owned());
    }));
    let mut order = order(2, Level::Quick);
    order.deadlines.fill_ms = 2_000;
    let attestation = machine.verify(&order);
    let heard = outcome_of(&attestation, FindingCode::HealthXid);
    assert_eq!(heard, Outcome::NotRun);
    let xid = note_of(&attestation, FindingCode::HealthXid);
    assert_eq!(xid, "The errors of GPU 1 could not be heard.");
}

/// The agent's findings on two good H100s of a system that shows all facts the agent reads, and these lines
/// in the kernel's log.
fn found_with_log(lines: &str) -> Attestation {
    let system = system_with_ports(2);
    let write = |path: &str, text: &str| {
        let path = system.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    for place in ["0000:01:00.0", "0000:02:00.0"] {
        write(&format!("proc/driver/nvidia/gpus/{place}/information"), "");
        for (file, text) in [
            ("class", "0x030200"),
            ("vendor", "0x10de"),
            ("device", "0x2330"),
        ] {
            write(&format!("sys/bus/pci/devices/{place}/{file}"), text);
        }
    }
    write("dev/kmsg", lines);
    let root = system.path().to_str().expect("text");
    let machine = Machine::new(&broken(|_| {}));
    attestation(&machine.run(&order(2, Level::Quick), &["--root", root, "--json"]))
}

#[test]
fn f14_a_system_that_hides_nothing_is_seen_to_and_the_past_of_its_gpus_is_told() {
    let good = found_with_log("6,0,0,-;Linux version 6.1\n");
    let (visible, xid) = (FindingCode::HealthVisible, FindingCode::HealthXid);
    assert_eq!(outcome_of(&good, visible), Outcome::Met, "{good:#?}");
    assert_eq!(outcome_of(&good, xid), Outcome::Met);
    let fell = found_with_log("3,7,100,-;NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off\n");
    assert_eq!(outcome_of(&fell, xid), Outcome::Warned);
    let note = note_of(&fell, xid);
    assert_eq!(
        note,
        "Before the agent began the driver reported XID 79 of GPU 1."
    );
    assert!(fell.verdict.is_pass(), "{fell:#?}");
    let others = found_with_log("3,7,100,-;NVRM: Xid (PCI:0000:09:00): 79, GPU has fallen off\n");
    assert_eq!(outcome_of(&others, xid), Outcome::Met);
}
