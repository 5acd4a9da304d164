//! `broker demo`: the whole story, run twice.

use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::serve::{Running, ask_until};
use super::{Ended, HEADER, Place, fields};
use crate::client::width::faults;
use crate::eventually::output_of;

/// Units of money in a US dollar.
const UNITS: Decimal = Decimal::from_parts(100_000_000, 0, 0, false, 0);

fn decimal(value: &Value) -> Decimal {
    value
        .as_str()
        .expect("a decimal string")
        .parse()
        .expect("a decimal")
}

fn units(value: &Value) -> i128 {
    let units = decimal(value) * UNITS;
    assert!(units.is_integer(), "{value} is finer than a unit");
    units.trunc().to_string().parse().expect("an integer")
}

/// The cost of `seconds` GPU-seconds, rounded half to even, by integers alone.
fn billed_units(seconds: i128, rate_units_per_hour: i128) -> i128 {
    let product = seconds * rate_units_per_hour;
    let (whole, rest) = (product / 3_600, product % 3_600);
    whole + i128::from(rest > 1_800 || (rest == 1_800 && whole % 2 == 1))
}

#[track_caller]
fn check_summary(summary: &Value) {
    let of_summary = [
        "cost_report_rows",
        "gpus",
        "leaked_machines",
        "ledger_balanced",
        "offers",
        "provider_bill_usd",
        "providers",
        "reservations",
        "verifications",
    ];
    assert_eq!(fields(summary), of_summary);
    let reservations = summary["reservations"].as_array().expect("reservations");
    assert_eq!(reservations.len(), 2);
    for reservation in reservations {
        let of_reservation = [
            "billed_usd",
            "gpus",
            "id",
            "internode",
            "kind",
            "metered_gpu_seconds",
            "nodes",
            "provider",
            "rate_usd_gpu_hour",
            "replaced_leases",
            "state",
            "tenancy",
        ];
        assert_eq!(fields(reservation), of_reservation);
        let seconds = reservation["metered_gpu_seconds"]
            .as_i64()
            .expect("seconds")
            .into();
        assert!(seconds > 0);
        let expected = billed_units(seconds, units(&reservation["rate_usd_gpu_hour"]));
        assert_eq!(units(&reservation["billed_usd"]), expected, "{reservation}");
    }
    let (train, serve) = (&reservations[0], &reservations[1]);
    assert_eq!(
        (&train["kind"], &train["state"]),
        (&json!("train"), &json!("closed"))
    );
    assert_eq!(train["tenancy"], "bare_metal");
    let fabric = train["internode"].as_str().expect("a fabric");
    assert!(
        fabric.starts_with("infiniband_") || fabric.starts_with("roce_"),
        "{fabric}"
    );
    assert!(train["nodes"].as_u64() >= Some(2), "{train}");
    assert_eq!(
        (&serve["kind"], &serve["state"]),
        (&json!("serve_realtime"), &json!("active"))
    );
    assert_ne!(train["provider"], serve["provider"]);

    let count = |field: &str| summary["verifications"][field].as_u64().expect("a count");
    assert_eq!(
        fields(&summary["verifications"]),
        ["failed", "passed", "replaced"]
    );
    assert!(count("failed") >= 1 && count("replaced") >= 1, "{summary}");
    let nodes: u64 = reservations
        .iter()
        .filter_map(|reservation| reservation["nodes"].as_u64())
        .sum();
    assert!(
        count("passed") >= nodes,
        "every node that was handed off passed"
    );
    assert_eq!(summary["leaked_machines"], 0);
    assert_eq!(summary["ledger_balanced"], true);
    assert!(decimal(&summary["provider_bill_usd"]) > Decimal::ZERO);
    assert!(summary["providers"].as_u64() >= Some(3));
    assert!(summary["cost_report_rows"].as_u64() >= Some(2));
}

/// The bill steps down: training lines end, serving lines continue, and all sum to the total (S20).
#[track_caller]
fn check_step_down(report: &Value) {
    let rows = report["rows"].as_array().expect("rows");
    let days_of = |kind: &str| {
        let of_kind = rows.iter().filter(|row| row["group"][0]["value"] == kind);
        let days = of_kind.map(|row| row["group"][1]["value"].as_str().expect("a day").to_owned());
        days.collect::<std::collections::BTreeSet<_>>()
    };
    let (train, serve) = (days_of("train"), days_of("serve_realtime"));
    assert!(train.len() >= 2, "a run of more than a day: {train:?}");
    assert!(
        serve.last() > train.last(),
        "serving goes on: {train:?} {serve:?}"
    );
    let amounts = rows.iter().map(|row| units(&row["amount_usd"]));
    assert_eq!(amounts.sum::<i128>(), units(&report["total_usd"]));
}

/// The rest of a summary without ids and the counts of the market.
fn but_for_ids_and_market(mut summary: Value) -> Value {
    let object = summary.as_object_mut().expect("an object");
    for of_market in ["offers", "gpus", "providers"] {
        object.remove(of_market);
    }
    for reservation in summary["reservations"]
        .as_array_mut()
        .expect("reservations")
    {
        reservation.as_object_mut().expect("an object").remove("id");
    }
    summary
}

/// More rows than a plan keeps, each cheaper for its bandwidth than anything that can be ordered, and one that
/// is shown, in a region that would set the title of a terminal.
fn a_list_cheaper_than_all() -> String {
    let rows = (0..69).map(|n| format!("bargain,b200-{n},B200,8,1,1,183359,9.{n:02},,eu-north1,"));
    let first = "bargain,a100,A100-80G-PCIe,1,28,120,81920,0.60,,eu\u{1b}]0;title\u{7},";
    [HEADER.to_owned(), first.to_owned()]
        .into_iter()
        .chain(rows)
        .collect::<Vec<_>>()
        .join("\n")
}

// S20
#[tokio::test(flavor = "multi_thread")]
async fn the_demo_sells_verifies_replaces_bills_and_leaks_nothing() {
    let place = Place::new();
    let mut narrow = place.command(["demo", "--exit", "--json"]);
    let ended = Ended::of(output_of(narrow.env("COLUMNS", "60")));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let last = ended.stdout.lines().last().expect("a last line");
    let summary: Value = serde_json::from_str(last).expect("JSON");
    check_summary(&summary);
    for told in [
        "Supply",
        "Training",
        "FAILED",
        "Serving",
        "Cost report",
        "The ledger",
    ] {
        assert!(ended.stderr.contains(told), "{told} in {}", ended.stderr);
    }
    assert!(
        !ended.stderr.contains("gpb_"),
        "a key that nobody can use is not shown"
    );
    assert_eq!(ended.stdout.lines().count(), 1, "the rest is for programs");
    assert_eq!(faults("demo", 60, &ended.stderr), [""; 0]);
    let left = std::fs::read_dir(place.path())
        .expect("the directory")
        .count();
    assert_eq!(left, 0, "nothing is left behind");

    // The same seed over more supply, and this time it continues serving.
    let list = place.write("bargains.csv", &a_list_cheaper_than_all());
    let list = list.to_str().expect("a path");
    let again = Running::start(place.command(["demo", "--json", "--pricesheets", list]));
    let key = again.told("KEY=");
    let url = again.told("$KEY\" ");
    assert!(url.ends_with("/v1/reservations"), "{url}");
    let mine = ask_until(&url, Some(&key), |status, _| status == 200).await;
    assert_eq!(mine["items"].as_array().map(Vec::len), Some(2));
    let by_day = url.replace("/reservations", "/reports/costs?group_by=workload,day");
    check_step_down(&ask_until(&by_day, Some(&key), |status, _| status == 200).await);
    let wide = again.stderr();
    assert!(wide.contains("]0;title"), "the region is shown: {wide}");
    let is_plain = |c: char| c == '\n' || !c.is_control();
    assert!(wide.chars().all(is_plain), "{wide:?}");
    let wide = wide.lines().find(|line| line.chars().count() > 100);
    assert_eq!(wide.filter(|line| !line.contains("curl ")), None);
    let ended = again.end_by("INT");
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let with_list = ended.json(0);
    check_summary(&with_list);
    let count = |summary: &Value, field: &str| summary[field].as_u64().expect("a count");
    assert_eq!(count(&with_list, "offers"), count(&summary, "offers") + 70);
    assert_eq!(
        count(&with_list, "providers"),
        count(&summary, "providers") + 1
    );
    assert_eq!(
        but_for_ids_and_market(with_list),
        but_for_ids_and_market(summary)
    );
}

#[test]
fn the_story_goes_to_stdout_where_no_program_reads_it() {
    let place = Place::new();
    let mut wide = place.command(["demo", "--exit"]);
    let ended = Ended::of(output_of(wide.env("COLUMNS", "120")));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    for told in ["== 1. Supply", "Shows: ", "== 6. The ledger"] {
        assert!(ended.stdout.contains(told), "{told} in {}", ended.stdout);
    }
    assert_eq!(faults("demo", 120, &ended.stdout), [""; 0]);
}

#[test]
fn a_price_list_that_is_not_there_is_refused_before_the_story_begins() {
    let ended = Place::new().broker(["demo", "--exit", "--pricesheets", "nowhere.csv"]);
    assert!(ended.refused().contains("nowhere.csv"), "{ended:?}");
}

#[test]
fn the_oracle_of_this_file_rounds_half_to_even() {
    for (seconds, rate, expected) in [
        (1, 1_800, 0),
        (1, 5_400, 2),
        (1, 1_801, 1),
        (3_600, 7, 7),
        (1, 9_000, 2),
    ] {
        assert_eq!(
            billed_units(seconds, rate),
            expected,
            "{seconds} s at {rate}"
        );
    }
}

#[test]
fn a_price_list_that_cannot_be_read_is_told_before_the_story_begins() {
    let place = Place::new();
    let list = place.write("servers.csv", "vendor,model,cores\na,b,1\n");
    let list = list.to_str().expect("a path");
    let ended = place.broker(["demo", "--exit", "--pricesheets", list]);
    let sentence = ended.refused();
    assert!(
        sentence.contains("servers.csv was not read: its columns"),
        "{sentence}"
    );
}
