//! Machines with GPUs of a vendor that the agent does not support: the trouble's name, and who is at fault
//! for it.

use fake_driver::script::Script;
use market::attestation::{FindingCode, Outcome, Verdict};
use market::gpu::Gpu;
use market::verification::Level;
use tempfile::TempDir;
use verifier::order::{Mode, expected_node};

use crate::eventually::output_of;
use crate::hearing::*;
use crate::machine::*;
use crate::stage::*;

/// A machine without NVIDIA's driver, and the root of its files, where AMD's driver is visible.
fn amd_machine() -> (Machine, TempDir) {
    let machine = Machine::new(&Script::default());
    for library in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        std::fs::remove_file(machine.path(library)).expect("removed");
    }
    let root = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(root.path().join("dev")).expect("made");
    std::fs::write(root.path().join("dev/kfd"), "").expect("written");
    (machine, root)
}

/// The result for a broker that leased eight of a GPU.
fn heard_of(leased: &str) -> Heard {
    let (machine, root) = amd_machine();
    let mut opening = opening(8, Level::Quick, Mode::Simulation);
    opening.order.expected = expected_node(Gpu::parse(leased).expect("known"), 8);
    let root = root.path().to_owned();
    let with_root = move |command: &mut std::process::Command| {
        command.arg("--root").arg(root);
    };
    hear(&machine, with_root, broker(opening, 1), unchanged)
}

#[test]
fn a_node_whose_gpus_no_agent_drives_is_inconclusive_and_has_failed_nothing() {
    let heard = heard_of("MI300X");
    let attestation = &heard.attestation;
    assert_eq!(failures(attestation), [], "{attestation:#?}");
    assert_eq!(attestation.verdict, Verdict::Inconclusive);
    let inventory = attestation.inventory.as_ref().expect("what it reported");
    assert_eq!(inventory.gpus, []);
    for code in [FindingCode::InventoryCount, FindingCode::AgentTrouble] {
        assert_eq!(outcome_of(attestation, code), Outcome::NotRun, "{code}");
        let note = note_of(attestation, code);
        assert!(note.contains("unsupported_vendor"), "{note}");
    }
    assert_eq!(heard.output.status.code(), Some(1), "{:?}", heard.output);
}

#[test]
fn another_vendors_gpus_in_place_of_those_that_were_leased_fail() {
    let attestation = heard_of("H100-SXM").attestation;
    assert_eq!(attestation.verdict, Verdict::Fail);
    let expected = [FindingCode::InventoryCount, FindingCode::AgentTrouble];
    assert_eq!(failures(&attestation), expected);
}

#[test]
fn the_agent_on_its_own_says_whose_gpus_they_are() {
    let (machine, root) = amd_machine();
    let mut command = agent(Some(machine.folder.path()));
    let output = output_of(command.arg("--root").arg(root.path()));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("AMD's (unsupported_vendor)"), "{said}");
}
