//! Products that all GPUs of a node compute from the same inputs.

use super::*;

/// `sdc.repeat` of eight GPUs after a change.
fn repeat(change: impl FnOnce(&mut Evidence)) -> (Outcome, String) {
    let (findings, _) = judged(change);
    let mut findings = findings.into_iter();
    let found = findings.find(|found| found.code == FindingCode::SdcRepeat);
    let found = found.expect("judged");
    (found.outcome, found.note)
}

fn common(evidence: &mut Evidence, gpus: impl IntoIterator<Item = usize>, sum: u64) {
    for at in gpus {
        gpu(evidence, at).gemm_16bit_common_sum = Some(Word64(sum));
    }
}

#[test]
fn a_gpu_is_named_whose_product_is_not_that_of_most() {
    let (outcome, note) = repeat(|e| common(e, [2, 6, 7], 9));
    assert_eq!(outcome, Outcome::Failed);
    for (at, named) in [(1, false), (2, true), (3, false), (6, true), (7, true)] {
        let said = note.contains(&format!("GPU {at}: its 16-bit product is not"));
        assert_eq!(said, named, "{note}");
    }
    // For 8 bits as for 16.
    let (outcome, note) = repeat(|e| {
        for at in 0..8 {
            gpu(e, at).gemm_fp8_sums = vec![Word64(1)];
            gpu(e, at).gemm_fp8_common_sum = Some(Word64(u64::from(at == 4)));
        }
    });
    assert_eq!(outcome, Outcome::Failed);
    assert!(note.starts_with("GPU 4: its 8-bit product"), "{note}");
}

#[test]
fn where_no_product_is_that_of_most_the_node_fails_and_no_gpu_is_named() {
    let halves = repeat(|e| common(e, 0..4, 9));
    let thirds = repeat(|e| {
        common(e, 0..3, 9);
        common(e, 3..5, 10);
    });
    for (outcome, note) in [halves, thirds] {
        assert_eq!(outcome, Outcome::Failed);
        let said =
            "The GPUs made different 16-bit products of the same inputs, and none that of most.";
        assert_eq!(note, said);
    }
}

#[test]
fn only_gpus_of_one_kind_are_compared_and_one_alone_with_none() {
    let alone = repeat(|e| {
        common(e, [3], 9);
        claims(e)[3].name = "NVIDIA H100 PCIe".to_owned();
    });
    assert_eq!(alone.0, Outcome::Met, "{alone:?}");
    let others = repeat(|e| {
        common(e, 2..4, 9);
        for at in 2..4 {
            gpu(e, at).compute_capability = Some("8.0".to_owned());
        }
    });
    assert_eq!(others.0, Outcome::Met, "{others:?}");
    // A GPU without a rate of such products computed none of these either.
    let unrated = repeat(|e| {
        for at in 0..8 {
            gpu(e, at).gemm_16bit_sums.clear();
            gpu(e, at).gemm_16bit_common_sum = None;
        }
    });
    assert_eq!(unrated.0, Outcome::Met, "{unrated:?}");
}

#[test]
fn who_does_not_say_what_it_made_leaves_it_open_and_hides_no_sibling_that_errs() {
    let silent = |e: &mut Evidence| gpu(e, 3).gemm_16bit_common_sum = None;
    let (outcome, note) = repeat(silent);
    assert_eq!(outcome, Outcome::NotRun);
    assert!(note.starts_with("GPU 3 made no 16-bit product"), "{note}");
    let (outcome, note) = repeat(|e| {
        silent(e);
        common(e, [5], 9);
    });
    assert_eq!(outcome, Outcome::Failed);
    assert!(note.starts_with("GPU 5: its 16-bit product"), "{note}");
}
