use market::demand::DemandKind;
use market::ids::{ProjectId, ProviderId, ReservationId};
use market::money::Rate;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::meter::RunningTotal;
use crate::samples::{sale, usage, usd};

/// A charge of eight GPUs at 2.99 over this interval, seconds from midnight.
fn charge(from: i64, to: i64) -> Charge {
    let mut total = RunningTotal::start(Rate::per_gpu_hour(usd("2.99")));
    total.charge(usage(8, from, to), sale()).expect("a charge")
}

fn tagged(key: &str, value: &str) -> Charge {
    let mut charge = charge(0, 3_600);
    charge.tags.insert(key.into(), value.into());
    charge
}

fn dimensions(words: &[&str]) -> Vec<Dimension> {
    words
        .iter()
        .map(|word| word.parse().expect("a dimension"))
        .collect()
}

fn cost_report<'a>(
    charges: impl IntoIterator<Item = &'a Charge>,
    dimensions: &[Dimension],
) -> Result<CostReport, PriceError> {
    let mut sums = CostSums::by(dimensions);
    for charge in charges {
        sums.add(charge)?;
    }
    Ok(sums.report())
}

fn shown(report: &CostReport) -> Vec<(Vec<&str>, i64, String)> {
    fn word(group: &GroupValue) -> &str {
        group.value.as_deref().unwrap_or("null")
    }
    report
        .rows
        .iter()
        .map(|r| {
            (
                r.group.iter().map(word).collect(),
                r.gpu_seconds,
                r.amount_usd.to_string(),
            )
        })
        .collect()
}

#[test]
fn usage_over_midnight_falls_on_both_days() {
    // 23:00 to 01:00.
    let charges = [charge(82_800, 90_000)];
    let report = cost_report(&charges, &dimensions(&["day", "workload"])).expect("a report");
    assert_eq!(
        shown(&report),
        [
            (vec!["2026-03-01", "train"], 28_800, "23.92".to_owned()),
            (vec!["2026-03-02", "train"], 28_800, "23.92".to_owned()),
        ]
    );
}

#[test]
fn usage_that_ends_at_midnight_has_no_second_day() {
    let charges = [charge(82_800, 86_400)];
    let report = cost_report(&charges, &dimensions(&["day"])).expect("a report");
    assert_eq!(
        shown(&report),
        [(vec!["2026-03-01"], 28_800, "23.92".to_owned())]
    );
}

#[test]
fn what_carries_no_tag_is_a_line_of_its_own() {
    let charges = [
        charge(0, 3_600),
        tagged("team", "vision"),
        tagged("team", ""),
    ];
    let report = cost_report(&charges, &dimensions(&["tag:team"])).expect("a report");
    let values: Vec<_> = report
        .rows
        .iter()
        .map(|row| row.group[0].value.as_deref())
        .collect();
    assert_eq!(values, [None, Some(""), Some("vision")]);
}

#[test]
fn no_dimension_gives_one_row_and_no_charge_gives_none() {
    let report = cost_report(&[charge(0, 60), charge(60, 120)], &[]).expect("a report");
    assert_eq!(report.rows.len(), 1);
    assert_eq!(report.rows[0].gpu_seconds, 960);
    let empty = cost_report(&[], &dimensions(&["day"])).expect("a report");
    assert_eq!((empty.rows.len(), empty.total_usd), (0, usd("0.00")));
}

#[test]
fn a_dimension_reads_back_as_it_was_written_and_a_stranger_is_refused() {
    for word in [
        "project",
        "provider",
        "gpu",
        "workload",
        "day",
        "reservation",
        "tag:a:b",
    ] {
        assert_eq!(
            word.parse::<Dimension>().expect("a dimension").to_string(),
            word
        );
    }
    for word in ["", "tag:", "Project", "team"] {
        assert!(matches!(
            word.parse::<Dimension>(),
            Err(PriceError::UnknownDimension(_))
        ));
    }
}

#[test]
fn the_csv_text_runs_nothing_in_a_spreadsheet_and_keeps_its_cells() {
    let key = dimensions(&["tag:team", "provider"]);
    let charges = [
        tagged("team", "=HYPERLINK(\"http://x\",\"a, b\")"),
        tagged("team", "-1"),
        charge(0, 60),
    ];
    let report = cost_report(&charges, &key).expect("a report");
    assert_eq!(
        csv_text(&report, &key).expect("text"),
        "tag:team,provider,gpu_seconds,amount_usd\n\
         (untagged),lambda,480,0.39866667\n\
         '-1,lambda,28800,23.92\n\
         \"'=HYPERLINK(\"\"http://x\"\",\"\"a, b\"\")\",lambda,28800,23.92\n\
         total,,58080,48.23866667\n"
    );
}

#[test]
fn the_csv_text_without_a_dimension_is_the_total_alone() {
    let report = cost_report(&[charge(0, 3_600)], &[]).expect("a report");
    let text = csv_text(&report, &[]).expect("text");
    assert_eq!(text, "total,gpu_seconds,amount_usd\ntotal,28800,23.92\n");
}

fn any_charge() -> impl Strategy<Value = Charge> {
    let words = (0_u128..3, 0..3_usize, 0..2_usize, 0..3_usize, 0_u128..4);
    (
        0_i64..400_000,
        0_i64..400_000,
        0_i64..10_i64.pow(13),
        1_u32..64,
        words,
    )
        .prop_map(
            |(from, length, units, gpus, (project, provider, gpu, tag, reservation))| {
                let mut charge = charge(from, from + length);
                charge.usage.gpus = gpus;
                charge.amount = Money::usd_units(units);
                charge.project_id = ProjectId::from_uuid(Uuid::from_u128(project));
                charge.usage.reservation_id =
                    ReservationId::from_uuid(Uuid::from_u128(reservation));
                charge.provider = ProviderId::parse(["a", "b", "c"][provider]).expect("a provider");
                charge.gpu = ["H100-SXM", "L40S"][gpu].into();
                charge.workload = [DemandKind::Train, DemandKind::ServeRealtime][gpu];
                if tag > 0 {
                    charge
                        .tags
                        .insert("team".into(), ["x", "y"][tag - 1].into());
                }
                charge
            },
        )
}

proptest! {
    #[test]
    fn rows_sum_to_the_total_and_the_total_to_the_charges(
        charges in proptest::collection::vec(any_charge(), 0..40),
        chosen in proptest::sample::subsequence(
            vec!["project", "provider", "gpu", "workload", "day", "reservation", "tag:team"], 0..=7),
    ) {
        let report = cost_report(&charges, &dimensions(&chosen)).expect("a report");
        let rows: i64 = report.rows.iter().map(|row| row.amount_usd.units()).sum();
        let row_seconds: i64 = report.rows.iter().map(|row| row.gpu_seconds).sum();
        let charged: i64 = charges.iter().map(|charge| charge.amount.units()).sum();
        let seconds: i64 = charges.iter().map(|charge| charge.usage.gpu_seconds()).sum();
        prop_assert_eq!(rows, report.total_usd.units());
        prop_assert_eq!(rows, charged);
        prop_assert_eq!(row_seconds, report.total_gpu_seconds);
        prop_assert_eq!(row_seconds, seconds);
    }

    #[test]
    fn each_day_gets_its_seconds_and_its_share_within_a_unit(one in any_charge()) {
        let report = cost_report([&one], &dimensions(&["day"])).expect("a report");
        let total = i128::from((one.usage.to - one.usage.from).num_seconds().max(1));
        for row in &report.rows {
            let day = row.group[0].value.as_deref().expect("a day");
            let midnight = format!("{day}T00:00:00Z").parse::<DateTime<Utc>>().expect("a day");
            let from = one.usage.from.max(midnight);
            let to = one.usage.to.min(midnight + TimeDelta::days(1));
            let seconds = (to - from).num_seconds();
            prop_assert_eq!(row.gpu_seconds, seconds * i64::from(one.usage.gpus));
            if seconds > 0 {
                let exact = i128::from(one.amount.units()) * i128::from(seconds);
                let off = (i128::from(row.amount_usd.units()) * total - exact).abs();
                prop_assert!(off <= total, "off by {off}/{total} units");
            }
        }
        prop_assert!(report.rows.iter().all(|row| row.amount_usd >= Money::usd_units(0)));
    }
}
