//! Tensor units that are always wrong in the same way, through the unmodified agent on the fake driver.

use fake_driver::script::{Card, Fault, Script};
use market::attestation::{Attestation, FindingCode, Outcome, Weight};
use market::verification::Level;
use verifier::reference::NodeDescription;
use verifier::tensor::{Format, expected_checksum};
use verifier::vectors::products;

use crate::machine::*;
use crate::stage::*;

/// The agent's findings on this many H100s, with this fault in the second of several, or in the only one.
fn verified(gpus: u32, fault: Fault) -> Attestation {
    let mut script = Script {
        gpus: (0..gpus).map(Card::h100).collect(),
        ..Script::default()
    };
    script.gpus[usize::from(gpus > 1)].fault = fault;
    Machine::new(&script).verify(&order(gpus, Level::Quick))
}

#[test]
fn f12_a_tensor_unit_that_is_always_wrong_in_the_same_way_is_told_from_its_siblings() {
    let good = verified(3, Fault::None);
    assert_eq!(failures(&good), []);
    assert_eq!(outcome_of(&good, FindingCode::SdcRepeat), Outcome::Met);
    let one = verified(3, Fault::FlipsTensor(1));
    assert_eq!(failures(&one), [FindingCode::SdcRepeat], "{one:#?}");
    let note = note_of(&one, FindingCode::SdcRepeat);
    let said = "GPU 1: its 16-bit product is not the one that most of its siblings made of the same inputs.";
    assert_eq!(note, said);
}

#[test]
fn f12_of_two_gpus_whose_tensor_units_differ_none_is_named_and_the_node_fails() {
    let two = verified(2, Fault::FlipsTensor(1));
    assert_eq!(failures(&two), [FindingCode::SdcRepeat], "{two:#?}");
    let note = note_of(&two, FindingCode::SdcRepeat);
    assert!(note.starts_with("The GPUs made different 16-bit"), "{note}");
}

// How tensor units compute integers must first be learnt on real cards before it decides anything.
#[test]
fn f12_a_tensor_unit_alone_that_flips_the_same_bit_each_time_is_told() {
    let good = verified(1, Fault::None);
    assert_eq!(outcome_of(&good, FindingCode::SdcTensor), Outcome::Met);
    let always = verified(1, Fault::FlipsTensor(1));
    assert!(always.verdict.is_pass());
    assert_eq!(outcome_of(&always, FindingCode::SdcRepeat), Outcome::Met);
    let mut findings = always.findings.iter();
    let told = findings.find(|found| found.code == FindingCode::SdcTensor);
    let told = told.expect("the finding");
    assert_eq!(
        (told.outcome, told.weight),
        (Outcome::Failed, Weight::Shadow)
    );
    assert!(told.note.starts_with("GPU 0: the tensor units"), "{told:?}");
}

#[test]
fn as_bf16_the_product_is_that_of_the_integers() {
    let description = serde_json::json!({
        "schema": "simulated-node-1", "node_index": 0, "host": "127.0.0.1", "gpu": "H100-SXM",
        "gpus": 1, "memory_mib": 81_559, "vcpus": 8, "memory_gib": 64, "uuids": ["GPU-0"],
        "driver": "580", "internode": "none",
    });
    let description = NodeDescription::parse(&description.to_string()).expect("a node");
    let mut node = description.node();
    let inputs = products()[1].inputs;
    assert_eq!(
        node.devices[0].multiply(&inputs).expect("a product"),
        expected_checksum(&inputs, Format::Bf16.most())
    );
    assert_ne!(
        expected_checksum(&inputs, Format::Bf16.most()),
        expected_checksum(&inputs, Format::Fp8.most())
    );
}
