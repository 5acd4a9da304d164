//! Every rule, made to fire; and the least that each accepts.

use market::verification::LoggedXid;

use super::among_others::FIRES_AMONG_OTHERS;
use super::cases::FIRES;
use super::changes::*;
use super::*;
use crate::memory::work_where;

#[test]
fn every_rule_fires_on_its_own_evidence_and_no_other_does() {
    for (at, (code, outcome, change)) in FIRES.iter().enumerate() {
        let (unmet, _) = after(change);
        // The case of a link's shape removes one of the rates, to tell the two rules apart.
        let others: Vec<_> = unmet.iter().filter(|(found, _)| found != code).collect();
        let excused = *code == FindingCode::HostLinkShape && *outcome == Outcome::Failed;
        assert!(others.is_empty() || excused, "{at} {code}: {unmet:?}");
        assert!(unmet.contains(&(*code, *outcome)), "{at} {code}: {unmet:?}");
    }
}

#[test]
fn some_faults_show_in_several_rules() {
    for (at, (code, outcome, change)) in FIRES_AMONG_OTHERS.iter().enumerate() {
        let (unmet, _) = after(change);
        assert!(unmet.contains(&(*code, *outcome)), "{at} {code}: {unmet:?}");
    }
}

/// On the good node every rule is met; each rule also has a case in which it fires. Those on a gang have
/// theirs in `tests/it/gang_played.rs`.
#[test]
fn no_rule_is_without_a_case_that_makes_it_fire() {
    let fired = |code: &FindingCode| {
        let all = FIRES.iter().chain(FIRES_AMONG_OTHERS);
        all.filter(|(_, outcome, _)| *outcome != Outcome::NotRun)
            .any(|(fired, ..)| fired == code)
    };
    let mut silent = of_one_node();
    silent.retain(|code| !fired(code));
    assert_eq!(silent, [FindingCode::DeviceSimulated]);
}

#[test]
fn failures_decide_unless_the_rule_is_tried_out() {
    for (code, outcome, change) in FIRES {
        let (findings, verdict) = judged(change);
        let found = findings
            .iter()
            .find(|found| found.code == *code)
            .expect("judged");
        let expected = match (outcome, found.weight) {
            (_, Weight::Shadow) | (Outcome::NotRun, Weight::May) => Verdict::Pass,
            (Outcome::Failed, _) => Verdict::Fail,
            (Outcome::NotRun, _) => Verdict::Inconclusive,
            _ => Verdict::PassWithWarnings,
        };
        assert_eq!(verdict, expected, "{code} {outcome:?}");
        let helps = matches!(outcome, Outcome::Failed | Outcome::Warned);
        assert_eq!(found.remedy.is_some(), helps, "{code} {outcome:?}");
    }
}

#[test]
fn the_least_that_is_accepted_is_accepted() {
    let (unmet, _) = after(|e| {
        claims(e)[1].memory_mib = 79_927;
        claims(e)[1].sm_count = None;
        let filled = &mut e.filled.as_mut().expect("filled")[1];
        filled.allocatable_mib = 79_112;
        filled.filled_bytes = work_where(&order().memory, 79_112).pattern_bytes;
        e.times[2].elapsed_ms = 60_000;
        driver(e, "525.60.13");
        gpu(e, 3).used_memory_mib = Some(815);
        gpu(e, 3).power_limit_w = Some(630);
        gpu(e, 3).rates.gemm_fp8_gflops = vec![935_100];
        health(e, 3).ecc_corrected = Some(10);
        health(e, 3).pcie_replays = Some(11);
        health(e, 3).nvlink_errors = Some(100);
        burn(e).thermal_permille = Some(50);
        burn(e).highest_temperature_c = Some(82);
        facts(e).host.vcpus = Some(198);
        facts(e).host.machine = Some("Supermicro SYS-821GE-TNHR".to_owned());
        clock(e, -30_000);
        xids(e, &[13, 31, 43, 45]);
        // Long past and repaired, or on another tenant's GPU.
        let healed = logged(e, 3, 63);
        facts(e).xid_history = healed;
        facts(e).xids_logged = vec![LoggedXid {
            bus_id: "0000:99:00".to_owned(),
            xid: 79,
            action: None,
        }];
    });
    assert_eq!(unmet, []);
}
