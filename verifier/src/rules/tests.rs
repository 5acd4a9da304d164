use market::gpu::Gpu;
use market::verification::{Digest, Filled, GpuClaim, Inventory, Level, Word64};

use super::*;
use crate::evidence::{MemoryEvidence, ReportEvidence, StepTime};
use crate::order::{Mode, expected_node, order_for};

fn order() -> VerificationOrder {
    let gpu = Gpu::parse("H100-SXM").expect("known");
    order_for(expected_node(gpu, 2), 0, Level::Quick, Mode::Real)
}

fn claim(index: u32) -> GpuClaim {
    GpuClaim {
        name: "NVIDIA H100 80GB HBM3".to_owned(),
        uuid: format!("GPU-{index}"),
        memory_mib: 81_559,
        sm_count: Some(132),
    }
}

/// What a good node leaves behind.
fn good() -> Evidence {
    let inventory = Inventory {
        driver: "580.65.06".to_owned(),
        vcpus: 208,
        memory_gib: 1_800,
        internode: market::fabric::Internode::InfinibandNdr400,
        gpus: vec![claim(0), claim(1)],
        nics: Vec::new(),
        ssh_host_keys: Vec::new(),
    };
    let pattern_bytes = order().memory.pattern_bytes;
    let memory = MemoryEvidence {
        bad_words: 0,
        lowest_bad_offset: None,
        root: Digest([0; 32]),
        problem: None,
    };
    Evidence {
        inventory: Some(inventory),
        product_roots: vec![Digest([0; 32]); 2],
        checksums: vec![vec![Word64(5); 3], vec![Word64(6); 3]],
        products: Some(vec![None, None]),
        filled: Some(vec![
            Filled {
                allocatable_mib: 80_900,
                filled_bytes: pattern_bytes
            };
            2
        ]),
        memory: Some(vec![memory; 2]),
        report: Some(ReportEvidence {
            digest: Digest([0; 32]),
            signature_problem: None,
            content_problem: None,
            simulated: false,
            copy_mb_per_s: vec![vec![2_990_000, 3_010_000], vec![3_000_000]],
        }),
        times: Step::ALL[1..]
            .iter()
            .map(|step| StepTime {
                step: *step,
                elapsed_ms: 10,
                deadline_ms: 60_000,
            })
            .collect(),
    }
}

/// The findings that are not met after a change, with their outcomes, and the verdict.
fn after(change: impl FnOnce(&mut Evidence)) -> (Vec<(FindingCode, Outcome)>, Verdict) {
    let mut evidence = good();
    change(&mut evidence);
    let findings = findings(&evidence, &order(), false);
    let verdict = verdict(&findings);
    let unmet = findings
        .iter()
        .filter(|finding| finding.outcome != Outcome::Met);
    (
        unmet
            .map(|finding| (finding.code, finding.outcome))
            .collect(),
        verdict,
    )
}

fn gpus(evidence: &mut Evidence) -> &mut Vec<GpuClaim> {
    &mut evidence.inventory.as_mut().expect("an inventory").gpus
}

fn memory(evidence: &mut Evidence) -> &mut Vec<MemoryEvidence> {
    evidence.memory.as_mut().expect("memory")
}

fn report(evidence: &mut Evidence) -> &mut ReportEvidence {
    evidence.report.as_mut().expect("a report")
}

#[test]
fn a_good_node_passes_and_its_findings_are_in_the_order_of_the_codes() {
    assert_eq!(after(|_| {}), (Vec::new(), Verdict::Pass));
    let codes: Vec<FindingCode> = findings(&good(), &order(), true)
        .iter()
        .map(|finding| finding.code)
        .collect();
    assert_eq!(codes, FindingCode::ALL);
}

#[test]
fn every_rule_fails_when_its_own_evidence_is_wrong() {
    type Change = fn(&mut Evidence);
    let changes: &[(FindingCode, Change)] = &[
        (FindingCode::InventoryIdentity, |e| {
            gpus(e)[1].name = "NVIDIA A100-SXM4-80GB".to_owned()
        }),
        (FindingCode::InventoryIdentity, |e| {
            gpus(e)[1].name = "Voodoo 2".to_owned()
        }),
        (FindingCode::InventoryIdentity, |e| {
            gpus(e)[1].sm_count = Some(114)
        }),
        (FindingCode::InventoryIdentity, |e| {
            gpus(e)[1].memory_mib = 79_926
        }),
        (FindingCode::InventoryIdentity, |e| {
            gpus(e)[1].uuid = "GPU-0".to_owned()
        }),
        (FindingCode::InventoryIdentity, |e| gpus(e)[1].uuid.clear()),
        (FindingCode::MemoryCapacity, |e| {
            e.filled.as_mut().expect("filled")[1].allocatable_mib = 79_111;
        }),
        (FindingCode::MemoryCapacity, |e| {
            e.filled.as_mut().expect("filled")[0].filled_bytes -= 65_536;
        }),
        (FindingCode::MemoryPattern, |e| memory(e)[1].bad_words = 1),
        (FindingCode::MemoryProof, |e| {
            memory(e)[1].problem = Some("wrong".to_owned())
        }),
        (FindingCode::MemoryBandwidth, |e| {
            report(e).copy_mb_per_s[1] = vec![1_842_499]
        }),
        (FindingCode::SdcRepeat, |e| e.checksums[1][2] = Word64(7)),
        (FindingCode::SdcRepeat, |e| e.checksums[0].truncate(2)),
        (FindingCode::SdcExact, |e| {
            e.products = Some(vec![None, Some("row 3 is wrong".to_owned())]);
        }),
        (FindingCode::StepTimedOut, |e| {
            e.times[2].elapsed_ms = 60_001
        }),
        (FindingCode::AgentReport, |e| {
            report(e).content_problem = Some("the nonce".to_owned())
        }),
    ];
    for (code, change) in changes {
        assert_eq!(
            after(change),
            (vec![(*code, Outcome::Failed)], Verdict::Fail),
            "{code}"
        );
    }
    let (unmet, verdict) = after(|e| drop(gpus(e).pop()));
    assert_eq!(unmet[0], (FindingCode::InventoryCount, Outcome::Failed));
    assert_eq!(verdict, Verdict::Fail);
    let (unmet, verdict) = after(|e| report(e).signature_problem = Some("forged".to_owned()));
    assert!(unmet.contains(&(FindingCode::AgentSignature, Outcome::Failed)));
    assert_eq!(verdict, Verdict::Fail);
}

#[test]
fn the_least_that_is_accepted_is_accepted() {
    let (unmet, _) = after(|e| {
        gpus(e)[1].memory_mib = 79_927;
        gpus(e)[1].sm_count = None;
        e.filled.as_mut().expect("filled")[1].allocatable_mib = 79_112;
        e.times[2].elapsed_ms = 60_000;
    });
    assert_eq!(unmet, []);
}

#[test]
fn a_check_that_was_skipped_makes_the_verdict_inconclusive_and_never_a_pass() {
    type Change = fn(&mut Evidence);
    let changes: &[(FindingCode, Change)] = &[
        (FindingCode::MemoryCapacity, |e| e.filled = None),
        (FindingCode::MemoryPattern, |e| e.memory = None),
        (FindingCode::SdcExact, |e| e.products = None),
        (FindingCode::SdcRepeat, |e| e.checksums.clear()),
        (FindingCode::MemoryBandwidth, |e| {
            report(e).copy_mb_per_s[0].clear()
        }),
        (FindingCode::MemoryBandwidth, |e| {
            report(e).copy_mb_per_s.clear()
        }),
        (FindingCode::StepTimedOut, |e| e.times.truncate(3)),
        (FindingCode::AgentReport, |e| e.report = None),
    ];
    for (code, change) in changes {
        let (unmet, verdict) = after(change);
        assert!(
            unmet.contains(&(*code, Outcome::NotRun)),
            "{code}: {unmet:?}"
        );
        assert_eq!(verdict, Verdict::Inconclusive, "{code}");
    }
    assert_eq!(
        verdict(&[]),
        Verdict::Inconclusive,
        "no findings are no pass"
    );
}

#[test]
fn memory_that_was_caught_has_failed_though_the_report_never_came() {
    let (unmet, verdict) = after(|e| {
        memory(e)[0].problem = Some("wrong".to_owned());
        e.report = None;
    });
    assert!(
        unmet.contains(&(FindingCode::MemoryProof, Outcome::Failed)),
        "{unmet:?}"
    );
    assert_eq!(verdict, Verdict::Fail);
    let (unmet, _) = after(|e| e.report = None);
    assert!(
        unmet.contains(&(FindingCode::MemoryProof, Outcome::NotRun)),
        "{unmet:?}"
    );
}

#[test]
fn the_best_sample_counts_and_the_slowest_gpu_decides() {
    let bandwidth = |samples: Vec<Vec<u64>>| {
        let mut evidence = good();
        report(&mut evidence).copy_mb_per_s = samples;
        memory_bandwidth(&evidence, &order())
    };
    let met = bandwidth(vec![vec![900_000, 2_000_000], vec![3_000_000]]);
    assert_eq!((met.outcome, met.measured), (Outcome::Met, Some(2_000_000)));
    assert_eq!(met.samples, [2_000_000, 3_000_000]);
    let warned = bandwidth(vec![vec![1_842_500], vec![3_000_000]]);
    assert_eq!(
        (warned.outcome, warned.floor),
        (Outcome::Warned, Some(1_842_500))
    );
    let unbelievable = bandwidth(vec![vec![3_852_501], vec![3_000_000]]);
    assert_eq!(unbelievable.outcome, Outcome::NotRun);
    let slow_and_unbelievable = bandwidth(vec![vec![3_852_501], vec![100]]);
    assert_eq!(slow_and_unbelievable.outcome, Outcome::Failed);
}

#[test]
fn a_failure_outweighs_what_was_not_run_and_that_outweighs_a_warning() {
    let of = |outcomes: &[Outcome]| {
        let code = FindingCode::SdcExact;
        verdict(
            &outcomes
                .iter()
                .map(|outcome| finding(code, *outcome, ""))
                .collect::<Vec<_>>(),
        )
    };
    use Outcome::{Failed, Met, NotRun, Noted, Warned};
    assert_eq!(of(&[Met, Noted]), Verdict::Pass);
    assert_eq!(of(&[Met, Warned]), Verdict::PassWithWarnings);
    assert_eq!(of(&[Met, Warned, NotRun]), Verdict::Inconclusive);
    assert_eq!(of(&[Met, NotRun, Failed]), Verdict::Fail);
    assert_eq!(of(&[Noted]), Verdict::Inconclusive);
}

#[test]
fn remedies_are_given_where_something_is_wrong_and_only_there() {
    let mut evidence = good();
    evidence.times[2].elapsed_ms = 60_001;
    for found in findings(&evidence, &order(), true) {
        let wrong = found.code == FindingCode::StepTimedOut;
        assert_eq!(found.remedy.is_some(), wrong, "{found:?}");
    }
}

#[test]
fn what_is_not_proved_names_size_and_kind_of_the_hardware() {
    for simulated in [false, true] {
        let limits = not_proved(&order(), simulated);
        for words in ["That memory of this size exists", "That a GPU did the work"] {
            assert!(
                limits.iter().any(|limit| limit.starts_with(words)),
                "{words}"
            );
        }
    }
}
