//! What stops a GPU in the middle does not hide what its driver has to say of it, and of the others.

use fake_driver::script::{Card, Fault};
use market::attestation::{Attestation, FindingCode, Outcome, Remedy};
use market::verification::Level;

use crate::machine::*;
use crate::stage::*;

/// What the agent finds on two H100s, of which this is done to the second.
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
    // Neither is anything of this that a second try would heal.
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
    assert_eq!(ecc, "The driver does not tell of GPU 1.");
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
