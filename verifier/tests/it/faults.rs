//! Nodes that do not match their lease. Each taxonomy row that a description can simulate must yield its
//! code, and only that.

use market::attestation::{FindingCode, Outcome, Verdict};
use market::gpu::Gpu;
use market::verification::Level;
use verifier::order::Mode;
use verifier::reference::NodeDescription;

use crate::stage::*;

fn judged(change: impl FnOnce(&mut NodeDescription)) -> market::attestation::Attestation {
    let mut described = description(2);
    change(&mut described);
    verify(&mut described.node())
}

#[track_caller]
fn assert_fails_only(attestation: &market::attestation::Attestation, codes: &[FindingCode]) {
    assert_eq!(failures(attestation), codes);
    assert_eq!(attestation.verdict, Verdict::Fail);
    for code in codes {
        let finding = attestation.findings.iter().find(|f| f.code == *code);
        assert_eq!(finding.expect("found").remedy, Some(code.remedy()));
    }
}

/// The findings on every count of the GPUs, by any source.
const COUNTS: &[FindingCode] = &[FindingCode::InventoryCount, FindingCode::InventorySources];

#[test]
fn a_missing_gpu_fails_the_count() {
    let attestation = judged(|node| {
        node.gpus = 1;
        node.uuids.truncate(1);
    });
    assert_fails_only(&attestation, COUNTS);
    let count = &attestation.findings[0];
    assert_eq!((count.measured, count.expected), (Some(1), Some(2)));
}

#[test]
fn a_gpu_too_many_fails_the_count() {
    let attestation = judged(|node| {
        node.gpus = 3;
        node.uuids.push("GPU-0000-2".to_owned());
    });
    assert_fails_only(&attestation, COUNTS);
}

#[test]
fn a_node_without_gpus_fails_and_proves_nothing_else() {
    let attestation = judged(|node| {
        node.gpus = 0;
        node.uuids.clear();
    });
    assert_fails_only(&attestation, COUNTS);
    for code in [
        FindingCode::MemoryPattern,
        FindingCode::SdcExact,
        FindingCode::MemoryBandwidth,
    ] {
        assert_eq!(outcome_of(&attestation, code), Outcome::NotRun, "{code}");
    }
}

#[test]
fn slow_memory_fails_the_bandwidth() {
    let attestation = judged(|node| node.memory_speed = 0.4);
    let expected = [FindingCode::MemoryBandwidth, FindingCode::MemoryRead];
    assert_fails_only(&attestation, &expected);
    let slow = attestation
        .findings
        .iter()
        .find(|f| f.code == FindingCode::MemoryBandwidth);
    let slow = slow.expect("found");
    assert_eq!(slow.floor, Some(1_842_500));
    assert_eq!(slow.measured, Some(1_273_000));
    assert_eq!(slow.samples.len(), 2);
    assert!(
        slow.note.contains("calibration: provisional"),
        "{}",
        slow.note
    );
}

#[test]
fn memory_just_above_the_floor_passes_with_a_warning() {
    let attestation = judged(|node| node.memory_speed = 0.6);
    assert_eq!(attestation.verdict, Verdict::PassWithWarnings);
    assert_eq!(
        outcome_of(&attestation, FindingCode::MemoryBandwidth),
        Outcome::Warned
    );
}

#[test]
fn memory_faster_than_physics_is_not_believed() {
    let attestation = judged(|node| node.memory_speed = 1.4);
    assert_eq!(attestation.verdict, Verdict::Inconclusive);
    assert_eq!(
        outcome_of(&attestation, FindingCode::MemoryBandwidth),
        Outcome::NotRun
    );
}

#[test]
fn one_bad_word_fails_the_pattern_and_the_proof() {
    let attestation = judged(|node| node.bad_words = 1);
    let expected = [FindingCode::MemoryPattern, FindingCode::MemoryProof];
    assert_eq!(failures(&attestation), expected);
    let pattern = attestation
        .findings
        .iter()
        .find(|f| f.code == FindingCode::MemoryPattern);
    let pattern = pattern.expect("found");
    assert_eq!(pattern.samples, [1, 0]);
    assert!(
        pattern
            .note
            .contains("GPU 0: 1 bad words, the first at byte 32768"),
        "{pattern:?}"
    );
}

#[test]
fn bad_words_are_counted_over_all_passes() {
    let mut broker = broker(opening(2, Level::Standard, Mode::Simulation), 1);
    let mut node = description(2);
    node.bad_words = 5;
    talk(&mut node.node(), &mut broker).expect("a conversation");
    let attestation = broker.attestation().expect("an attestation");
    let pattern = attestation
        .findings
        .iter()
        .find(|f| f.code == FindingCode::MemoryPattern);
    assert_eq!(pattern.expect("found").samples, [15, 0], "three passes");
}

#[test]
fn another_gpu_fails_the_identity() {
    let attestation = judged(|node| node.gpu = Gpu::parse("H800-SXM").expect("known"));
    // Its name and its bus id give it away, and its cut links.
    let expected = [
        FindingCode::InventoryIdentity,
        FindingCode::InventorySources,
        FindingCode::NvlinkActive,
    ];
    assert_fails_only(&attestation, &expected);
}

#[test]
fn less_memory_fails_identity_and_capacity() {
    let attestation = judged(|node| node.memory_mib = 79_000);
    let expected = [FindingCode::InventoryIdentity, FindingCode::MemoryCapacity];
    assert_eq!(failures(&attestation), expected);
}

#[test]
fn two_gpus_with_one_id_are_one_gpu_shown_twice() {
    let attestation = judged(|node| node.uuids[1] = node.uuids[0].clone());
    assert_fails_only(&attestation, &[FindingCode::InventoryUnique]);
}

#[test]
fn a_gpu_without_an_id_may_be_any_other() {
    let attestation = judged(|node| node.uuids[1].clear());
    assert_fails_only(&attestation, &[FindingCode::InventoryUnique]);
}
