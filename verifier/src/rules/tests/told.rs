//! The content of findings beyond their outcome: remedies, figures and words.

use super::changes::*;
use super::*;

#[test]
fn a_row_that_waits_for_a_reset_is_reset_and_one_that_failed_is_replaced() {
    use market::attestation::Remedy;
    let remedy = |change: Change| {
        let (findings, _) = judged(change);
        let found = findings
            .into_iter()
            .find(|found| found.code == FindingCode::HealthRemap);
        found.expect("judged").remedy
    };
    assert_eq!(
        remedy(|e| health(e, 3).remap_pending = Some(true)),
        Some(Remedy::Reset)
    );
    assert_eq!(
        remedy(|e| health(e, 3).remap_failed = Some(true)),
        Some(Remedy::Replace)
    );
    assert_eq!(
        remedy(|e| {
            health(e, 2).remap_pending = Some(true);
            health(e, 3).remapped_rows = Some(MOST_REMAPPED_ROWS);
        }),
        Some(Remedy::Replace),
        "a reset helps one of them only"
    );
    assert_eq!(
        remedy(|e| {
            health(e, 3).remap_pending = Some(true);
            health(e, 3).remapped_rows = Some(MOST_REMAPPED_ROWS);
        }),
        Some(Remedy::Replace),
        "no reset brings new rows"
    );
    assert_eq!(remedy(|_| {}), None);
}

#[test]
fn of_two_sums_that_are_as_bad_the_first_is_told() {
    let (findings, _) = judged(|e| {
        let runs = &mut facts(e).collectives;
        let run = |bus_mb_per_s| market::verification::CollectiveRate {
            payload_bytes: 1 << 30,
            bus_mb_per_s,
            ..runs[0].clone()
        };
        *runs = vec![run(1_000), run(2_000)];
    });
    let found = findings
        .iter()
        .find(|found| found.code == FindingCode::AllReduce)
        .expect("judged");
    assert_eq!(
        (found.outcome, found.measured),
        (Outcome::Failed, Some(1_000))
    );
}

/// A node's text may be shown to people: no control characters, no endless words.
#[test]
fn words_of_a_node_are_cut_and_cleaned_before_they_are_told() {
    let (findings, _) = judged(|e| {
        stop(e, TroubleKind::Driver);
        report(e).troubles[0].detail = format!("\u{1b}[31m{}", "x".repeat(10_000));
    });
    let found = findings
        .iter()
        .find(|found| found.code == FindingCode::AgentTrouble);
    let note = &found.expect("judged").note;
    assert!(note.len() < 400 && !note.contains('\u{1b}'), "{note}");
}

#[test]
fn a_test_that_the_vendors_diagnostic_failed_is_told_by_name_and_a_node_without_it_is_left_alone() {
    let told = |change: Change| {
        let (findings, verdict) = judged(change);
        let found = findings
            .into_iter()
            .find(|found| found.code == FindingCode::HealthDiagnostic)
            .expect("judged");
        assert_eq!((found.weight, verdict), (Weight::Shadow, Verdict::Pass));
        (found.outcome, found.note)
    };
    let failed = told(|e| {
        let test = &mut diagnostic(e).tests[1];
        test.result = DiagnosticResult::Failed;
        test.gpu = Some(3);
        test.detail = Some("a row is pending".to_owned());
        diagnostic(e).tests[2].result = DiagnosticResult::Failed;
    });
    let note = "The vendor's diagnostic (dcgmi): Inforom on GPU 3 (a row is pending); and 1 more.";
    assert_eq!(failed, (Outcome::Failed, note.to_owned()));
    assert_eq!(told(|e| facts(e).diagnostic = None).0, Outcome::Noted);
}

#[test]
fn storage_of_which_nothing_was_promised_is_held_against_nothing() {
    let mut evidence = good();
    facts(&mut evidence).storage = None;
    let mut order = order();
    let promise = order.expected.storage.as_mut().expect("a promise");
    promise.read_bytes_per_s = None;
    let outcomes = |order: &VerificationOrder| {
        let findings = findings(&evidence, order, false);
        [FindingCode::StorageRead, FindingCode::StorageWrite].map(|code| {
            let found = findings.iter().find(|found| found.code == code);
            found.expect("judged").outcome
        })
    };
    assert_eq!(outcomes(&order), [Outcome::Noted, Outcome::NotRun]);
    order.expected.storage = None;
    assert_eq!(outcomes(&order), [Outcome::Noted; 2]);
}

/// A container hides the kernel's log; that is reported and fails nobody.
#[test]
fn an_xid_history_that_cannot_be_read_is_said() {
    let (findings, verdict) = judged(|e| facts(e).xid_history_visible = Some(false));
    let found = findings
        .iter()
        .find(|found| found.code == FindingCode::HealthVisible);
    let found = found.expect("judged");
    assert_eq!(found.outcome, Outcome::Noted);
    assert!(
        found.note.contains("xid_history: not visible"),
        "{}",
        found.note
    );
    assert_eq!(verdict, Verdict::Pass);
}

#[test]
fn two_gpus_without_a_switch_are_promised_no_rate_between_them() {
    let mut order = order();
    order.expected = expected_node(Gpu::parse("L40S").expect("known"), 2);
    let mut evidence = good();
    let kind = Kind {
        gpu: order.expected.gpu,
        gpus: 2,
        internode: Internode::None,
        ..kind()
    };
    report(&mut evidence).facts = Some(Box::new(pretend::node(&kind, &mut SeededRng::new(b"two"))));
    let findings = findings(&evidence, &order, false);
    let outcome = |code| {
        let found = findings.iter().find(|found| found.code == code);
        found.expect("judged").outcome
    };
    for code in [
        FindingCode::FabricNotReady,
        FindingCode::NvlinkActive,
        FindingCode::PairRates,
        FindingCode::AllReduce,
        FindingCode::InventoryMig,
        FindingCode::NetworkPorts,
    ] {
        assert_eq!(outcome(code), Outcome::Noted, "{code}");
    }
}

#[test]
fn what_is_short_of_a_host_is_told_in_its_own_figures() {
    let told = |change: Change| {
        let (findings, _) = judged(change);
        let mut found = findings.iter();
        let found = found.find(|found| found.code == FindingCode::HostShape);
        let found = found.expect("judged");
        (
            found.outcome,
            found.unit,
            found.measured,
            found.floor,
            found.expected,
        )
    };
    let cores = (Some(Unit::Vcpus), Some(160), Some(104), Some(208));
    let few = told(|e| facts(e).host.vcpus = Some(160));
    assert_eq!(few, (Outcome::Warned, cores.0, cores.1, cores.2, cores.3));
    let mib = |gib: i64| Some(gib << 10);
    let memory = (Some(Unit::Mib), mib(1_600), mib(900), mib(1_800));
    let little = told(|e| facts(e).host.memory_gib = Some(1_600));
    assert_eq!(
        little,
        (Outcome::Warned, memory.0, memory.1, memory.2, memory.3)
    );
    let half = told(|e| facts(e).host.memory_gib = Some(899));
    assert_eq!((half.0, half.2), (Outcome::Failed, mib(899)));
}
