//! The verdict of findings, at each level and by each set of floors.

use super::*;

#[test]
fn a_good_node_passes_and_its_findings_are_in_the_order_of_the_codes() {
    assert_eq!(after(|_| {}), (Vec::new(), Verdict::Pass));
    let findings = findings(&good(), &order(), true);
    let codes: Vec<FindingCode> = findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, of_one_node());
    for found in &findings[..findings.len() - 1] {
        assert_eq!(found.outcome, Outcome::Met, "{found:?}");
    }
}

#[test]
fn a_quick_check_looks_at_less_than_a_standard_one() {
    let codes = |level| -> Vec<FindingCode> {
        let findings = findings(&good(), &order_at(level), false);
        findings.iter().map(|finding| finding.code).collect()
    };
    let (quick, standard) = (codes(Level::Quick), codes(Level::Standard));
    assert!(!quick.contains(&FindingCode::BurnThrottle));
    assert!(!quick.contains(&FindingCode::AllReduce));
    assert!(quick.iter().all(|code| standard.contains(code)));
    assert!(standard.contains(&FindingCode::BurnThrottle));
}

#[test]
fn quick_is_content_with_a_ring_of_pairs_where_standard_wants_all() {
    let mut evidence = good();
    let pairs = facts(&mut evidence).pairs.as_mut().expect("pairs");
    pairs.retain(|pair| pair.to == (pair.from + 1) % GPUS);
    let of = |level| {
        let findings = findings(&evidence, &order_at(level), false);
        let pairs = findings
            .into_iter()
            .find(|found| found.code == FindingCode::PairRates);
        pairs.expect("judged").outcome
    };
    assert_eq!(of(Level::Quick), Outcome::Met);
    assert_eq!(of(Level::Standard), Outcome::NotRun);
}

#[test]
fn what_a_level_must_have_and_has_not_leaves_the_verdict_open() {
    let (unmet, verdict) = after(|e| report(e).facts = None);
    assert_eq!(verdict, Verdict::Inconclusive);
    assert!(
        unmet.iter().all(|(_, outcome)| *outcome == Outcome::NotRun),
        "{unmet:?}"
    );
    // A check that agents cannot always do is reported and does not decide.
    let (unmet, verdict) = after(|e| facts(e).collectives.clear());
    assert_eq!(unmet, [(FindingCode::AllReduce, Outcome::NotRun)]);
    assert_eq!(verdict, Verdict::Pass);
}

#[test]
fn a_shadowed_rule_is_told_and_decides_nothing() {
    let (findings, verdict) = judged(|e| {
        gpu(e, 2).burn.as_mut().expect("a load").mean_power_w = Some(20);
    });
    let power = findings
        .iter()
        .find(|found| found.code == FindingCode::BurnPower);
    let power = power.expect("told");
    assert_eq!(
        (power.outcome, power.weight),
        (Outcome::Failed, Weight::Shadow)
    );
    assert_eq!(verdict, Verdict::Pass);
}

#[test]
fn facts_of_a_report_that_nobody_signed_count_for_nothing() {
    let (unmet, verdict) = after(|e| report(e).signature_problem = Some("forged".to_owned()));
    assert!(unmet.contains(&(FindingCode::AgentSignature, Outcome::Failed)));
    assert!(unmet.contains(&(FindingCode::HealthEcc, Outcome::NotRun)));
    assert_eq!(verdict, Verdict::Fail);
}

/// A report that names a trouble may omit the steps after it: so it must never pass.
#[test]
fn no_report_with_a_trouble_passes_at_any_level() {
    let kinds = [
        TroubleKind::GpuLost,
        TroubleKind::GpuWithdrawn,
        TroubleKind::FabricNotReady,
        TroubleKind::TimedOut,
        TroubleKind::EccUncorrectable,
        TroubleKind::OutOfMemory,
        TroubleKind::WrongResult,
        TroubleKind::Driver,
        TroubleKind::UnsupportedVendor,
    ];
    for kind in kinds {
        for level in [Level::Quick, Level::Standard, Level::Deep] {
            let mut evidence = good();
            stop(&mut evidence, kind);
            let findings = findings(&evidence, &order_at(level), false);
            assert!(!verdict(&findings).is_pass(), "{kind:?} at {level:?}");
        }
    }
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
    let bandwidth = |changes: &[(usize, u64)]| {
        let (findings, verdict) = judged(|e| {
            for (gpu, rate) in changes {
                report(e).copy_mb_per_s[*gpu] = vec![900_000, *rate];
            }
        });
        let found = findings
            .into_iter()
            .find(|f| f.code == FindingCode::MemoryBandwidth);
        (found.expect("judged"), verdict)
    };
    let (met, _) = bandwidth(&[(0, 2_000_000)]);
    assert_eq!((met.outcome, met.measured), (Outcome::Met, Some(2_000_000)));
    assert_eq!(met.samples[..2], [2_000_000, 3_010_000]);
    assert!(
        met.note.contains("calibration: provisional"),
        "{}",
        met.note
    );
    let (warned, verdict) = bandwidth(&[(0, 1_842_500)]);
    assert_eq!(
        (warned.outcome, warned.floor),
        (Outcome::Warned, Some(1_842_500))
    );
    assert_eq!(verdict, Verdict::PassWithWarnings);
    assert!(
        warned.note.ends_with(" So it is of GPU 0."),
        "{}",
        warned.note
    );
    let (slow, _) = bandwidth(&[(1, 1_842_500), (2, 1_842_499), (5, 1_000_000)]);
    assert_eq!(slow.outcome, Outcome::Failed);
    assert!(
        slow.note.ends_with(" So it is of GPU 2, GPU 5."),
        "{}",
        slow.note
    );
    let (unbelievable, verdict) = bandwidth(&[(0, 3_852_501)]);
    assert_eq!(unbelievable.outcome, Outcome::NotRun);
    assert_eq!(verdict, Verdict::Inconclusive);
    let (slow_and_unbelievable, _) = bandwidth(&[(0, 3_852_501), (1, 100)]);
    assert_eq!(slow_and_unbelievable.outcome, Outcome::Failed);
}

#[test]
fn what_cannot_be_believed_leaves_the_verdict_open_even_where_the_check_may_be_left_out() {
    let (findings, verdict) = judged(|e| gpu(e, 1).rates.gemm_16bit_gflops = vec![2_000_000; 3]);
    let gemm = findings
        .iter()
        .find(|found| found.code == FindingCode::Gemm16Bit);
    let gemm = gemm.expect("judged");
    assert_eq!((gemm.outcome, gemm.weight), (Outcome::NotRun, Weight::Must));
    assert_eq!(verdict, Verdict::Inconclusive);
}

#[test]
fn calibrated_floors_are_tighter_than_loose_ones() {
    let kernels = Digest([7; 32]);
    let mut evidence = good();
    facts(&mut evidence).kernels = Some(kernels);
    report(&mut evidence).copy_mb_per_s[4] = vec![2_700_000];
    let header = "version,gpu,metric,kernel,expected,floor_permille,floor_of,calibration,source";
    let row = format!("2,H100-SXM,hbm_copy,{kernels},3000000,930,expected,calibrated,a card");
    let floors = Floors::read(&format!("{header}\n{row}\n")).expect("readable");
    let of = |floors: &Floors| {
        let findings = findings_by(&evidence, &order(), false, floors);
        let copy = findings
            .into_iter()
            .find(|f| f.code == FindingCode::MemoryBandwidth);
        copy.expect("judged")
    };
    let tight = of(&floors);
    assert_eq!(
        (tight.outcome, tight.floor),
        (Outcome::Failed, Some(2_790_000))
    );
    assert!(
        tight.note.contains("calibration: calibrated"),
        "{}",
        tight.note
    );
    assert_eq!(of(Floors::current()).outcome, Outcome::Met);
}

#[test]
fn a_failure_outweighs_what_was_not_run_and_that_outweighs_a_warning() {
    use Outcome::{Failed, Met, NotRun, Noted, Warned};
    let of = |outcomes: &[Outcome], weight| {
        let found = |outcome: &Outcome| Finding {
            weight,
            ..finding(FindingCode::SdcExact, *outcome, "")
        };
        verdict(&outcomes.iter().map(found).collect::<Vec<_>>())
    };
    assert_eq!(of(&[Met, Noted], Weight::Must), Verdict::Pass);
    assert_eq!(of(&[Met, Warned], Weight::Must), Verdict::PassWithWarnings);
    assert_eq!(
        of(&[Met, Warned, NotRun], Weight::Must),
        Verdict::Inconclusive
    );
    assert_eq!(
        of(&[Met, Warned, NotRun], Weight::May),
        Verdict::PassWithWarnings
    );
    assert_eq!(of(&[Met, NotRun, Failed], Weight::May), Verdict::Fail);
    assert_eq!(of(&[Noted], Weight::Must), Verdict::Inconclusive);
    assert_eq!(of(&[Met, Failed], Weight::Shadow), Verdict::Inconclusive);
    assert_eq!(
        verdict(&[]),
        Verdict::Inconclusive,
        "no findings are no pass"
    );
}

#[test]
fn remedies_are_given_where_something_is_wrong_and_only_there() {
    let mut evidence = good();
    evidence.times[3].elapsed_ms = 60_001;
    facts(&mut evidence).collectives.clear();
    let mut undone = 0;
    for found in findings(&evidence, &order(), true) {
        let wrong = found.code == FindingCode::StepTimedOut;
        assert_eq!(found.remedy.is_some(), wrong, "{found:?}");
        undone += u32::from(found.outcome == Outcome::NotRun);
    }
    assert!(undone > 0, "of what was not done nothing is wrong");
}

#[test]
fn a_node_whose_memory_was_not_read_back_is_not_said_to_have_checked_some() {
    let limit = |evidence: &Evidence| {
        let findings = findings(evidence, &order(), false);
        let limits = not_proved(&order(), &findings, false);
        let mut limits = limits.into_iter();
        let limit = limits.find(|limit| limit.contains("memory is sound"));
        limit.expect("a limit")
    };
    let mut evidence = good();
    assert!(limit(&evidence).contains("MiB of each GPU were filled and checked"));
    evidence.memory = None;
    assert_eq!(
        limit(&evidence),
        "That any memory is sound: what it holds was not checked."
    );
}

#[test]
fn what_is_not_proved_names_the_hardware_and_the_checks_that_were_not_done() {
    for simulated in [false, true] {
        let mut evidence = good();
        facts(&mut evidence).collectives.clear();
        let findings = findings(&evidence, &order(), simulated);
        let limits = not_proved(&order(), &findings, simulated);
        let starts = |words: &str| limits.iter().any(|limit| limit.starts_with(words));
        assert!(starts("That memory of this size exists"));
        assert!(starts("That a GPU did the work"));
        assert_eq!(starts("Anything about real hardware"), simulated);
        assert!(
            limits
                .iter()
                .any(|limit| limit.contains("not done: coll.allreduce.")),
            "{limits:?}"
        );
    }
}

#[test]
fn deep_patterns_that_were_gone_through_for_less_than_was_ordered_fail() {
    let pattern = |elapsed_ms: u64| {
        let mut evidence = good();
        let mut fills = evidence.times.iter_mut();
        let fill = fills
            .find(|time| time.step == Step::Fill)
            .expect("it was filled");
        fill.elapsed_ms = elapsed_ms;
        let findings = findings(&evidence, &order_at(Level::Deep), false);
        let mut patterns = findings.into_iter();
        let found = patterns.find(|found| found.code == FindingCode::MemoryPattern);
        found.expect("the finding").outcome
    };
    assert_eq!(pattern(1_200_000), Outcome::Met);
    assert_eq!(pattern(1_199_999), Outcome::Failed);
}
