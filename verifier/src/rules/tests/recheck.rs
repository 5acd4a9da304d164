//! The weights of a re-check of a node in use, which ignores its user's own work.

use super::*;
use crate::order::order_for_recheck;

type Change = fn(&mut Evidence);

/// The findings of a re-check after a change, and the verdict.
fn all_rechecked(change: Change) -> (Vec<Finding>, Verdict) {
    let kind = kind();
    let order = order_for_recheck(expected_node(kind.gpu, kind.gpus), 0, Mode::Real);
    let mut evidence = good();
    evidence.pinned = Some((0..GPUS).map(|gpu| format!(" gpu-{gpu}")).collect());
    for sums in &mut evidence.checksums {
        sums.truncate(order.gemm.iterations as usize);
    }
    change(&mut evidence);
    let findings = findings(&evidence, &order, false);
    let verdict = verdict(&findings);
    (findings, verdict)
}

/// Those that are neither met nor noted.
fn rechecked(change: Change) -> (Vec<(FindingCode, Outcome)>, Verdict) {
    let (findings, verdict) = all_rechecked(change);
    let unmet = findings
        .iter()
        .filter(|found| !matches!(found.outcome, Outcome::Met | Outcome::Noted));
    (
        unmet.map(|found| (found.code, found.outcome)).collect(),
        verdict,
    )
}

#[test]
fn a_node_as_it_was_handed_over_passes_its_recheck() {
    assert_eq!(rechecked(|_| {}), (Vec::new(), Verdict::Pass));
}

#[test]
fn another_gpu_than_was_handed_over_fails_a_recheck_and_both_are_named() {
    let code = FindingCode::InventoryPinned;
    let swapped: Change = |e| claims(e)[3].uuid = "GPU-of-another".to_owned();
    assert_eq!(
        rechecked(swapped),
        (vec![(code, Outcome::Failed)], Verdict::Fail)
    );
    let (findings, _) = all_rechecked(swapped);
    let found = findings.iter().find(|found| found.code == code);
    let note = &found.expect("judged").note;
    for part in [
        "GPU-of-another was not handed over",
        "; gpu-3 was, and is not shown",
    ] {
        assert!(note.contains(part), "{part}: {note}");
    }
}

#[test]
fn what_was_not_pinned_leaves_a_recheck_open() {
    let code = FindingCode::InventoryPinned;
    for change in [(|e: &mut Evidence| e.pinned = None) as Change, |e| {
        e.pinned = Some(Vec::new())
    }] {
        let (unmet, verdict) = rechecked(change);
        assert_eq!(unmet, [(code, Outcome::NotRun)]);
        assert_eq!(verdict, Verdict::Inconclusive);
    }
}

#[test]
fn broken_hardware_fails_a_recheck() {
    let broken: [(FindingCode, Change); 6] = [
        (FindingCode::HealthEcc, |e| {
            gpu(e, 1).health_after.ecc_uncorrected = Some(1);
        }),
        (FindingCode::HealthRemap, |e| {
            gpu(e, 1).health_after.remap_failed = Some(true);
        }),
        (FindingCode::GpuLost, |e| stop(e, TroubleKind::GpuLost)),
        (FindingCode::SdcExact, |e| {
            e.products.as_mut().expect("products")[1] = Some("row 3 is wrong".to_owned());
        }),
        (FindingCode::SdcRepeat, |e| e.checksums[1][2] = Word64(7)),
        (FindingCode::MemoryPattern, |e| memory(e)[0].bad_words = 3),
    ];
    for (code, change) in broken {
        let (unmet, verdict) = rechecked(change);
        assert!(
            unmet.contains(&(code, Outcome::Failed)),
            "{code}: {unmet:?}"
        );
        assert_eq!(verdict, Verdict::Fail, "{code}");
    }
}

/// A tenant may fill the memory, load the GPUs and set them up as it likes.
#[test]
fn what_a_tenants_own_work_changes_is_not_judged_by_a_recheck() {
    let at_work: [Change; 7] = [
        |e| gpu(e, 1).foreign_processes = Some(2),
        |e| gpu(e, 1).used_memory_mib = Some(70_000),
        |e| gpu(e, 1).mig_enabled = Some(true),
        |e| gpu(e, 1).ecc_enabled = Some(false),
        |e| gpu(e, 1).power_limit_w = Some(200),
        |e| report(e).copy_mb_per_s.clear(),
        |e| e.filled.as_mut().expect("filled")[0].allocatable_mib = 2,
    ];
    for change in at_work {
        assert_eq!(rechecked(change), (Vec::new(), Verdict::Pass));
    }
}

#[test]
fn what_a_tenant_can_bring_about_without_any_hardware_leaves_a_recheck_open() {
    let own_doing: [(FindingCode, Change); 4] = [
        (FindingCode::StepTimedOut, |e| {
            e.times[2].elapsed_ms = 60_001
        }),
        (FindingCode::AgentTrouble, |e| {
            stop(e, TroubleKind::OutOfMemory);
        }),
        (FindingCode::AgentReport, |e| {
            report(e).content_problem = Some("the nonce differs".to_owned());
        }),
        (FindingCode::AgentSignature, |e| {
            report(e).signature_problem = Some("forged".to_owned());
        }),
    ];
    for (code, change) in own_doing {
        let (unmet, verdict) = rechecked(change);
        assert!(
            unmet.contains(&(code, Outcome::NotRun)),
            "{code}: {unmet:?}"
        );
        assert!(
            unmet.iter().all(|(_, outcome)| *outcome == Outcome::NotRun),
            "{unmet:?}"
        );
        assert_eq!(verdict, Verdict::Inconclusive, "{code}");
        let (findings, _) = all_rechecked(change);
        let mut open = findings
            .iter()
            .filter(|found| found.outcome == Outcome::NotRun);
        assert!(
            open.all(|found| found.remedy.is_none()),
            "{code}: its user did it"
        );
    }
}

#[test]
fn a_level_before_a_hand_off_has_no_pinned_gpus() {
    for level in [Level::Quick, Level::Standard, Level::Deep] {
        let findings = findings(&good(), &order_at(level), false);
        let code = FindingCode::InventoryPinned;
        assert!(findings.iter().all(|found| found.code != code), "{level:?}");
    }
}
