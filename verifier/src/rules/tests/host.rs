//! The judgement of a hypervisor depends on the offer, and of a clock on the direction of its error.

use super::*;

fn found(code: FindingCode, order: &VerificationOrder, evidence: &Evidence) -> Finding {
    let mut findings = findings(evidence, order, false).into_iter();
    findings.find(|found| found.code == code).expect("judged")
}

#[test]
fn a_hypervisor_is_only_noted_where_no_whole_machine_was_sold() {
    let told = |tenancy, hypervisor| {
        let (mut order, mut evidence) = (order(), good());
        order.expected.tenancy = tenancy;
        facts(&mut evidence).host.hypervisor = Some(hypervisor);
        facts(&mut evidence).host.machine = Some("QEMU\u{1b} Standard PC".to_owned());
        if !hypervisor {
            facts(&mut evidence).host.machine = None;
        }
        let found = found(FindingCode::HostVirtualised, &order, &evidence);
        (found.outcome, found.note)
    };
    let (outcome, note) = told(Some(Tenancy::BareMetal), true);
    assert_eq!(outcome, Outcome::Warned);
    assert!(
        note.ends_with(" Its firmware calls it QEMU Standard PC."),
        "{note}"
    );
    assert_eq!(told(Some(Tenancy::BareMetal), false).0, Outcome::Met);
    for tenancy in [None, Some(Tenancy::Vm), Some(Tenancy::Container)] {
        for hypervisor in [true, false] {
            assert_eq!(told(tenancy, hypervisor).0, Outcome::Noted, "{tenancy:?}");
        }
    }
}

#[test]
fn a_name_tells_where_processors_cannot() {
    let outcome = |machine: &str| {
        let mut evidence = good();
        facts(&mut evidence).host.hypervisor = None;
        facts(&mut evidence).host.machine = Some(machine.to_owned());
        found(FindingCode::HostVirtualised, &order(), &evidence).outcome
    };
    assert_eq!(
        outcome("Microsoft Corporation Virtual Machine"),
        Outcome::Warned
    );
    assert_eq!(outcome("NVIDIA GB200 NVL"), Outcome::NotRun);
}

#[test]
fn a_clock_is_told_with_how_far_it_is_from_the_brokers() {
    let told = |clock_ms: Option<u64>| {
        let mut evidence = good();
        facts(&mut evidence).host.clock_ms = clock_ms;
        let found = found(FindingCode::HostClock, &order(), &evidence);
        (found.outcome, found.measured)
    };
    assert_eq!(told(Some(1_790_000_000_500)), (Outcome::Met, Some(500)));
    assert_eq!(
        told(Some(1_790_000_090_000)),
        (Outcome::Warned, Some(90_000))
    );
    // The clock of a machine without a battery.
    let since_1970 = Some(1_790_000_000_000);
    assert_eq!(told(Some(0)), (Outcome::Warned, since_1970));
    assert_eq!(told(Some(u64::MAX)).0, Outcome::Warned);
    assert_eq!(
        told(None),
        (Outcome::Noted, None),
        "a report without a clock"
    );
}
