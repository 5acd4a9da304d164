//! How much memory a card must report and allocate: for every size, and with ECC on.

use crate::memory::work_where;

use super::*;

/// The finding on the memory of one GPU that reports and allocates this much.
fn shown_by(gpu: &str, reported_mib: u32, allocatable_mib: u32) -> (Evidence, VerificationOrder) {
    let kind = Kind {
        gpu: Gpu::parse(gpu).expect("known"),
        gpus: 1,
        internode: Internode::None,
        ..kind()
    };
    let order = order_for(expected_node(kind.gpu, 1), 0, Level::Standard, Mode::Real);
    let mut evidence = good();
    *claims(&mut evidence) = vec![GpuClaim {
        name: kind.gpu.name().to_owned(),
        memory_mib: reported_mib,
        sm_count: kind.gpu.spec().sm_count,
        ..claim(0)
    }];
    evidence.filled = Some(vec![Filled {
        allocatable_mib,
        filled_bytes: work_where(&order.memory, allocatable_mib).pattern_bytes,
    }]);
    report(&mut evidence).facts = Some(Box::new(shown(&kind)));
    (evidence, order)
}

fn outcome(evidence: &Evidence, order: &VerificationOrder, code: FindingCode) -> Outcome {
    let findings = findings(evidence, order, false);
    let found = findings.iter().find(|found| found.code == code);
    found.expect("judged").outcome
}

fn capacity(gpu: &str, reported_mib: u32, allocatable_mib: u32) -> Outcome {
    let (evidence, order) = shown_by(gpu, reported_mib, allocatable_mib);
    outcome(&evidence, &order, FindingCode::MemoryCapacity)
}

/// CUDA's own total of such cards, as in public logs, less a context.
#[test]
fn what_the_driver_keeps_is_not_held_against_a_small_card() {
    for (gpu, reported_mib, total_mib, context_mib) in [
        ("T4", 15_360, 14_909, 105),
        ("RTX-A4000", 16_376, 15_985, 180),
        ("L4", 23_034, 22_487, 250),
        ("A10G", 23_028, 22_518, 280),
        ("A30", 24_576, 24_095, 260),
        ("RTX-4090", 24_564, 24_084, 420),
        ("RTX-5090", 32_607, 32_113, 520),
        ("RTX-3070", 8_192, 7_970, 200),
        ("H100-SXM", 81_559, 81_008, 520),
    ] {
        let had = capacity(gpu, reported_mib, total_mib - context_mib);
        assert_eq!(had, Outcome::Met, "{gpu}");
    }
}

#[test]
fn a_card_without_a_twentieth_of_its_memory_fails() {
    for (gpu, reported_mib) in [
        ("RTX-4090", 24_564),
        ("RTX-5090", 32_607),
        ("A100-SXM-40", 40_960),
        ("H100-SXM", 81_559),
        ("B200-SXM", 183_359),
    ] {
        // With the smallest reserve of any driver and context.
        let left = reported_mib / 20 * 19 - 420;
        assert_eq!(capacity(gpu, reported_mib, left), Outcome::Failed, "{gpu}");
    }
    // On a small one a missing tenth shows.
    assert_eq!(
        capacity("T4", 15_360, 15_360 / 10 * 9 - 420),
        Outcome::Failed
    );
}

/// An RTX A6000 with ECC switched on reports and allocates less, and is still the same card.
#[test]
fn a_card_whose_errors_are_corrected_has_a_sixteenth_less_and_is_warned_of() {
    let (mut evidence, order) = shown_by("RTX-A6000", 46_068, 45_200);
    let codes = [
        FindingCode::InventoryIdentity,
        FindingCode::MemoryCapacity,
        FindingCode::InventoryEccMode,
    ];
    let outcomes = |evidence: &Evidence| codes.map(|code| outcome(evidence, &order, code));
    use Outcome::{Failed, Met, Warned};
    assert_eq!(outcomes(&evidence), [Failed, Failed, Met]);
    gpu(&mut evidence, 0).ecc_enabled = Some(true);
    assert_eq!(outcomes(&evidence), [Met, Met, Warned]);
    claims(&mut evidence)[0].memory_mib = 45_000;
    evidence.filled.as_mut().expect("filled")[0].allocatable_mib = 44_000;
    assert_eq!(outcomes(&evidence), [Failed, Failed, Warned]);
    // A card that ships with ECC on has as much as is published for it.
    let (evidence, order) = shown_by("L40S", 46_068 / 16 * 15, 42_500);
    assert_eq!(outcome(&evidence, &order, codes[0]), Failed);
    assert_eq!(outcome(&evidence, &order, codes[1]), Failed);
}

#[test]
fn before_the_report_nobody_knows_whether_a_card_corrects_its_errors() {
    let (mut evidence, order) = shown_by("RTX-A6000", 46_068, 45_200);
    evidence.report = None;
    for code in [FindingCode::InventoryIdentity, FindingCode::MemoryCapacity] {
        assert_eq!(outcome(&evidence, &order, code), Outcome::Met, "{code}");
    }
}
