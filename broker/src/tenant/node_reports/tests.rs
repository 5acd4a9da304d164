//! The parts of a result that are accepted, without a service.

use market::attestation::{Outcome, Verdict, Weight};
use market::gpu::Gpu;
use market::verification::Level;
use serde_json::json;
use verifier::cli::{Expectation, run_alone};
use verifier::reference::NodeDescription;

use super::*;
use crate::samples;

/// The ids of the GPUs that were handed over.
fn handed_over() -> Vec<String> {
    (0..8).map(|gpu| format!("GPU-{gpu}")).collect()
}

/// The result of `verifier run` on a pretend node.
fn result(change: impl FnOnce(&mut NodeDescription)) -> Attestation {
    let description = json!({
        "schema": "simulated-node-1", "node_index": 0, "host": "10.0.0.1", "gpu": "H100-SXM",
        "gpus": 8, "memory_mib": 81_559, "vcpus": 208, "memory_gib": 1_800,
        "uuids": handed_over(), "driver": "570.0", "internode": "none",
    });
    let mut node = NodeDescription::parse(&description.to_string()).expect("a description");
    change(&mut node);
    run_alone(&mut node.node(), Expectation::what_it_shows(Level::Quick)).expect("a result")
}

/// The differences of a result from one about the sample offer's node, or the reason for its refusal.
fn taken(result: &Attestation) -> Result<Vec<String>, String> {
    differs(result).map(|differs| {
        assert_eq!(differs.foreign, [] as [String; 0]);
        differs.missing
    })
}

/// The differences between a result and the sample offer's node, or the reason for its refusal.
fn differs(result: &Attestation) -> Result<Differs, String> {
    check_result(result, true)
        .and_then(|()| compare(result, &samples::offer("gpu_8x"), &handed_over()))
        .map_err(|refusal| refusal.to_string())
}

#[test]
fn the_result_of_the_node_itself_is_taken_whatever_it_says() {
    let good = result(|_| {});
    assert_eq!((taken(&good), failed(&good)), (Ok(Vec::new()), Vec::new()));
    assert!(good.verdict.is_pass());
    let bad = result(|node| node.bad_words = 3);
    assert_eq!(taken(&bad), Ok(Vec::new()));
    assert!(failed(&bad).contains(&FindingCode::MemoryPattern));
    let mut shouted = result(|_| {});
    for gpu in &mut shouted.inventory.as_mut().expect("an inventory").gpus {
        gpu.uuid = format!(" {} ", gpu.uuid.to_lowercase());
    }
    assert_eq!(taken(&shouted), Ok(Vec::new()));
}

#[test]
fn gpus_that_are_gone_are_named_though_those_that_are_left_pass() {
    let fewer = result(|node| {
        node.gpus = 7;
        node.uuids.remove(2);
    });
    assert!(fewer.verdict.is_pass());
    assert_eq!(taken(&fewer), Ok(vec!["GPU-2".to_owned()]));
    let mut silent = result(|_| {});
    silent.inventory = None;
    assert_eq!(
        taken(&silent),
        Ok(Vec::new()),
        "there is nothing to compare"
    );
}

#[test]
fn a_gpu_among_others_that_was_not_handed_over_is_kept_as_what_it_is() {
    let swapped = result(|node| node.uuids[5] = "GPU-x".to_owned());
    assert!(swapped.verdict.is_pass());
    let expected = Differs {
        missing: vec!["GPU-5".to_owned()],
        foreign: vec!["GPU-x".to_owned()],
    };
    assert_eq!(differs(&swapped), Ok(expected));
}

#[test]
fn what_is_not_of_the_node_is_refused_and_what_differs_is_named() {
    let other = result(|node| node.uuids = (0..8).map(|gpu| format!("GPU-x{gpu}")).collect());
    let said = taken(&other).expect_err("another node's");
    assert!(said.contains("GPU GPU-x0, GPU-x1"), "{said}");
    assert!(said.contains("GPU-5"), "{said}");
    let more = result(|node| {
        node.gpus = 9;
        node.uuids.push("GPU-8".to_owned());
    });
    let said = taken(&more).expect_err("too many");
    assert!(
        said.contains("about 9 GPUs") && said.contains("with 8"),
        "{said}"
    );
    let kind = result(|node| {
        node.gpu = Gpu::parse("H200-SXM").expect("a GPU");
        node.memory_mib = 143_771;
    });
    let said = taken(&kind).expect_err("another kind");
    assert!(
        said.contains("about H200-SXM") && said.contains("with H100-SXM"),
        "{said}"
    );
}

#[test]
fn what_no_agent_prints_is_refused() {
    let refused = |change: fn(&mut Attestation)| {
        let mut result = result(|_| {});
        change(&mut result);
        taken(&result).expect_err("refused")
    };
    let said = refused(|result| result.verdict = Verdict::Fail);
    assert!(
        said.contains("says `fail`, and its findings amount to `pass"),
        "{said}"
    );
    let said = refused(|result| result.findings.clear());
    assert!(said.contains("amount to `inconclusive`"), "{said}");
    let said = refused(|result| result.protocol = 99);
    assert!(said.contains("version 99"), "{said}");
    let pretended = result(|_| {});
    let said = check_result(&pretended, false)
        .expect_err("real mode")
        .to_string();
    assert!(said.contains("a pretended device"), "{said}");
}

#[test]
fn what_was_measured_beside_other_work_is_to_be_measured_again() {
    let mut busy = result(|_| {});
    let residue = busy
        .findings
        .iter_mut()
        .find(|found| found.code == FindingCode::InventoryResidue)
        .expect("a finding");
    residue.outcome = Outcome::Failed;
    busy.verdict = Verdict::Fail;
    let said = taken(&busy).expect_err("refused");
    assert!(said.contains("other processes"), "{said}");
}

#[test]
fn a_failure_that_is_only_tried_out_is_none() {
    let mut result = result(|_| {});
    let found = result.findings.first_mut().expect("a finding");
    (found.outcome, found.weight) = (Outcome::Failed, Weight::Shadow);
    assert!(failed(&result).is_empty());
    assert!(taken(&result).is_ok());
}
