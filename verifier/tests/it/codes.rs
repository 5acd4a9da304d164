//! The unmodified agent's findings by checks that have no test in any class of failure.

use fake_driver::script::{Card, Fault, Script};
use market::attestation::{FindingCode as Code, Outcome};
use market::verification::Level;

use crate::machine::*;
use crate::stage::{failures, outcome_of};

/// The outcome on two H100s with the second changed.
fn outcome(change: impl FnOnce(&mut Card), level: Level, code: Code) -> Outcome {
    let attestation = Machine::new(&broken(change)).verify(&order(2, level));
    outcome_of(&attestation, code)
}

#[test]
fn error_correction_that_is_off_fails() {
    let off = outcome(
        |card| card.ecc = Some(false),
        Level::Quick,
        Code::InventoryEccMode,
    );
    assert_eq!(off, Outcome::Failed);
}

#[test]
fn counters_that_grow_are_told() {
    for change in [
        (|card: &mut Card| card.ecc_corrected = (3, 11)) as fn(&mut Card),
        |card| card.link_errors = (0, 101),
    ] {
        let grown = outcome(change, Level::Quick, Code::HealthGrowth);
        assert_eq!(grown, Outcome::Warned);
    }
}

#[test]
fn a_card_that_draws_little_under_load_or_comes_near_its_limit_of_heat_fails() {
    let little = outcome(|card| card.power_w = 300, Level::Standard, Code::BurnPower);
    assert_eq!(little, Outcome::Failed);
    let near = |card: &mut Card| card.slowdown_c = card.temperature_c + 4;
    let hot = outcome(near, Level::Standard, Code::BurnTemperature);
    assert_eq!(hot, Outcome::Failed);
}

#[test]
fn f12_memory_that_forgets_under_load_fails() {
    let forgets = |card: &mut Card| card.fault = Fault::ForgetsUnderLoad;
    let held = outcome(forgets, Level::Standard, Code::MemoryDwell);
    assert_eq!(held, Outcome::Failed);
}

#[test]
fn tensor_units_that_are_slow_fail_by_their_format() {
    let slow = |change: fn(&mut Card)| {
        let attestation = Machine::new(&broken(change)).verify(&order(2, Level::Quick));
        failures(&attestation)
    };
    // Siblings are compared with each other by their 16-bit products.
    let bf16 = slow(|card| card.tensor_gflops.0 /= 3.0);
    assert_eq!(bf16, [Code::Gemm16Bit, Code::GemmStraggler]);
    let fp8 = slow(|card| card.tensor_gflops.1 /= 3.0);
    assert_eq!(fp8, [Code::GemmFp8]);
}

#[test]
fn of_four_gpus_one_that_lags_behind_is_found() {
    let mut script = Script {
        gpus: (0..4).map(Card::h100).collect(),
        ..Script::default()
    };
    script.gpus[2].tensor_gflops.0 *= 0.9;
    let attestation = Machine::new(&script).verify(&order(4, Level::Standard));
    let lag = outcome_of(&attestation, Code::GemmStraggler);
    assert_eq!(lag, Outcome::Failed);
}

#[test]
fn memory_that_adds_slowly_is_tried_out() {
    let slow = |card: &mut Card| card.copy_mb_per_s = 1_200_000.0;
    let triad = outcome(slow, Level::Quick, Code::MemoryTriad);
    assert_eq!(triad, Outcome::Failed);
}

#[test]
fn a_host_with_fewer_cores_than_were_leased_is_told() {
    let mut order = order(2, Level::Quick);
    order.expected.vcpus = Some(9_999);
    let attestation = Machine::new(&broken(|_| {})).verify(&order);
    assert_eq!(outcome_of(&attestation, Code::HostShape), Outcome::Failed);
}
