use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::ids::CommitmentId;

const TODAY: &str = "2026-11-21T00:00:00Z";

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("a moment")
}

fn terms(cap: i64, mode: BudgetMode) -> BudgetTerms {
    BudgetTerms {
        period: BudgetPeriod::Day,
        cap: Money::usd_units(cap),
        mode,
        thresholds_percent: vec![100, 50],
        grace_seconds: 60,
    }
}

fn budget(cap: i64, mode: BudgetMode) -> Budget {
    Budget {
        id: BudgetId::from_uuid(Uuid::from_u128(1)),
        tenant_id: TenantId::from_uuid(Uuid::from_u128(2)),
        project_id: None,
        terms: terms(cap, mode).check().expect("a budget"),
        created_at: at("2026-11-21T00:00:00Z"),
    }
}

#[test]
fn periods_are_calendar_days_and_months() {
    for (period, moment, start, end) in [
        (
            BudgetPeriod::Day,
            "2026-12-31T23:59:59Z",
            "2026-12-31T00:00:00Z",
            "2027-01-01T00:00:00Z",
        ),
        (
            BudgetPeriod::Month,
            "2026-12-31T23:59:59Z",
            "2026-12-01T00:00:00Z",
            "2027-01-01T00:00:00Z",
        ),
        (
            BudgetPeriod::Month,
            "2028-02-01T00:00:00Z",
            "2028-02-01T00:00:00Z",
            "2028-03-01T00:00:00Z",
        ),
    ] {
        let expected = Span {
            start: at(start),
            end: at(end),
        };
        assert_eq!(period.around(at(moment)), expected, "{period:?} {moment}");
    }
}

#[test]
fn what_runs_on_reaches_into_the_periods_up_to_its_end() {
    let now = at("2026-11-30T23:00:00Z");
    let starts = |period: BudgetPeriod, end: Option<&str>| -> Vec<String> {
        let reached = period.reached(now, end.map(at));
        reached
            .map(|span| span.start.date_naive().to_string())
            .collect()
    };
    let (day, month) = (BudgetPeriod::Day, BudgetPeriod::Month);
    assert_eq!(starts(day, Some("2026-11-30T23:30:00Z")), ["2026-11-30"]);
    let midnight = "2026-12-01T00:00:00Z";
    assert_eq!(
        starts(day, Some(midnight)),
        ["2026-11-30"],
        "nothing is left of it"
    );
    let (into, first) = ("2026-12-02T00:00:01Z", "2026-11-30");
    assert_eq!(starts(day, Some(into)), [first, "2026-12-01", "2026-12-02"]);
    assert_eq!(starts(month, Some(into)), ["2026-11-01", "2026-12-01"]);
    for period in [day, month] {
        assert_eq!(starts(period, None).len(), 1 + PERIODS_AHEAD);
    }
}

#[test]
fn what_cannot_be_a_budget_is_refused() {
    let refused = |change: fn(&mut BudgetTerms)| {
        let mut terms = terms(1, BudgetMode::Notify);
        change(&mut terms);
        terms.check().is_err()
    };
    assert!(refused(|terms| terms.cap = Money::usd_units(0)));
    assert!(refused(|terms| terms.cap = Money::usd_units(MOST_UNITS + 1)));
    assert!(refused(|terms| terms.thresholds_percent = vec![0]));
    assert!(refused(|terms| terms.thresholds_percent = vec![1_001]));
    assert!(refused(|terms| terms.thresholds_percent = vec![80, 50, 80]));
    assert!(refused(
        |terms| terms.thresholds_percent = (1..=11).collect()
    ));
    assert!(refused(|terms| terms.grace_seconds = MAX_GRACE_SECONDS + 1));
    let fine = budget(1, BudgetMode::Notify);
    assert_eq!(fine.terms.thresholds_percent, [50, 100], "in order");
}

#[test]
fn a_refusal_says_which_cap_what_is_used_and_what_was_asked() {
    let blocking = budget(1_000_000_000, BudgetMode::BlockNew);
    blocking
        .admit(at(TODAY), 0, 400_000_000, 600_000_000)
        .expect("to the last unit");
    let refusal = blocking
        .admit(at(TODAY), 100_000_000, 400_000_000, 600_000_001)
        .expect_err("one unit more");
    let said = refusal.to_string();
    for part in [
        "bud_",
        "10.00 USD in a day",
        "from 2026-11-21 on",
        "1.00 are charged",
        "3.00 committed",
        "6.00000001 more",
    ] {
        assert!(said.contains(part), "{said}");
    }
    budget(1, BudgetMode::Notify)
        .admit(at(TODAY), 9, 9, 9)
        .expect("it only tells");
    blocking
        .admit(at(TODAY), 0, i128::MAX / 2, 0)
        .expect("nothing is asked");
}

#[test]
fn a_limit_lets_through_what_fits_and_names_what_does_not() {
    let limits = SpendingLimits {
        gpus: Some(8),
        usd_per_hour: Some(Money::usd_units(1_000)),
        open_holds: Some(1),
        held_nodes: Some(4),
        reservations: Some(2),
        cancelled_orders: None,
    };
    let one = InUse {
        gpus: 8,
        units_per_hour: 1_000,
        open_holds: 1,
        held_nodes: 4,
        reservations: 1,
    };
    limits
        .admit(None, InUse::default(), one)
        .expect("just fits");
    let beside = |used: InUse| limits.admit(None, used, one).expect_err("too much").limit;
    let nothing = InUse::default();
    assert_eq!(beside(InUse { gpus: 1, ..nothing }), "gpus");
    assert_eq!(
        beside(InUse {
            units_per_hour: 1,
            ..nothing
        }),
        "usd_per_hour"
    );
    assert_eq!(
        beside(InUse {
            open_holds: 1,
            ..nothing
        }),
        "open_holds"
    );
    assert_eq!(
        beside(InUse {
            held_nodes: 1,
            ..nothing
        }),
        "held_nodes"
    );
    assert_eq!(
        beside(InUse {
            reservations: 2,
            ..nothing
        }),
        "reservations"
    );
    SpendingLimits::default()
        .admit(None, one, one)
        .expect("no limit");
}

#[test]
fn a_line_costs_at_most_what_is_left_of_the_period_of_its_window_and_of_its_duration() {
    let span = BudgetPeriod::Day.around(at("2026-11-21T12:00:00Z"));
    let line = |until: Option<&str>, hours: Option<i64>| {
        OpenLine {
            rate: Rate::per_gpu_hour(Money::usd_units(10)),
            covered: None,
            charged_gpu_seconds: 0,
            running: vec![RunningGpus {
                gpus: 2,
                from: at("2026-11-21T20:00:00Z"),
            }],
            until: until.map(at),
            longest: hours.map(TimeDelta::hours),
        }
        .rest_within(span)
    };
    assert_eq!(line(None, None), 2 * 4 * 10);
    assert_eq!(line(Some("2026-11-22T20:00:00Z"), None), 2 * 4 * 10);
    assert_eq!(line(Some("2026-11-21T21:00:00Z"), None), 2 * 10);
    assert_eq!(line(None, Some(3)), 2 * 3 * 10);
    assert_eq!(line(Some("2026-11-21T19:00:00Z"), None), 0, "it is over");
}

#[test]
fn what_is_paid_for_costs_its_own_rate_and_no_longer_than_it_is() {
    let span = BudgetPeriod::Day.around(at("2026-11-21T12:00:00Z"));
    let line = |until: &str, longest: Option<i64>| {
        let covered = Covered {
            commitment_id: CommitmentId::from_uuid(Uuid::from_u128(1)),
            rate_usd_gpu_hour: Rate::per_gpu_hour(Money::usd_units(3)),
            until: at(until),
        };
        let line = OpenLine {
            rate: Rate::per_gpu_hour(Money::usd_units(10)),
            covered: Some(covered),
            charged_gpu_seconds: 0,
            running: vec![RunningGpus {
                gpus: 2,
                from: at("2026-11-21T20:00:00Z"),
            }],
            until: None,
            longest: longest.map(TimeDelta::hours),
        };
        line.rest_within(span)
    };
    assert_eq!(line("2026-11-21T21:00:00Z", None), 2 * (3 + 3 * 10));
    assert_eq!(line("2026-11-25T00:00:00Z", None), 2 * 4 * 3);
    assert_eq!(line("2026-11-21T21:00:00Z", Some(1)), 2 * 3);
    assert_eq!(
        line("2026-11-21T10:00:00Z", None),
        2 * 4 * 10,
        "it is used up"
    );
}

#[test]
fn hours_left_are_rounded_down_and_unknown_when_nothing_is_spent() {
    assert_eq!(hundredths_of_hours_left(200, 300), Some(66));
    assert_eq!(hundredths_of_hours_left(-5, 300), Some(0));
    assert_eq!(hundredths_of_hours_left(200, 0), None);
    assert_eq!(
        hundredths_of_hours_left(i128::from(i64::MAX), 1),
        Some(u32::MAX)
    );
}

proptest! {
    #[test]
    fn metering_in_any_slices_leaves_what_is_committed_the_same(
        rate in 1..10_000_000_000_i64,
        gpus in 1..64_u32,
        slices in prop::collection::vec(1..5_000_i64, 0..8),
    ) {
        let span = BudgetPeriod::Day.around(at("2026-11-21T00:00:00Z"));
        let line = |seconds: i64| OpenLine {
            rate: Rate::per_gpu_hour(Money::usd_units(rate)),
            covered: None,
            charged_gpu_seconds: i64::from(gpus) * seconds,
            running: vec![RunningGpus { gpus, from: span.start + TimeDelta::seconds(seconds) }],
            until: None,
            longest: None,
        };
        let whole = line(0).rest_within(span);
        let (mut seconds, mut charged) = (0, 0);
        for slice in slices {
            let cost = |seconds: i64| cost_of(line(0).rate, i128::from(gpus) * i128::from(seconds));
            let before = cost(seconds);
            seconds += slice;
            charged += cost(seconds) - before;
            prop_assert_eq!(charged + line(seconds).rest_within(span), whole);
        }
    }

    #[test]
    fn a_lower_cap_never_lets_more_through(
        caps in prop::array::uniform2(1..1_000_i64),
        charged in 0..500_i128, open in 0..500_i128, asked in 0..500_i128,
    ) {
        let [low, high] = [caps[0].min(caps[1]), caps[0].max(caps[1])];
        for mode in [BudgetMode::BlockNew, BudgetMode::StopRunning] {
            let admits = |cap| {
                let budget = budget(cap, mode);
                budget.admit(at(TODAY), charged, charged + open, asked).is_ok()
            };
            prop_assert!(admits(high) || !admits(low));
        }
        let admits = |gpus: i64| {
            let limits = SpendingLimits { gpus: u32::try_from(gpus).ok(), ..SpendingLimits::default() };
            let gpus = |n: i128| InUse { gpus: u64::try_from(n).unwrap_or(0), ..InUse::default() };
            limits.admit(None, gpus(open), gpus(asked)).is_ok()
        };
        prop_assert!(admits(high) || !admits(low));
    }
}
