//! `broker match --own`: paid capacity and agreed prices, without a server.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use super::matching::h100;
use super::{Ended, HEADER, Place};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn in_repository(path: &str) -> String {
    format!("{REPOSITORY}/{path}")
}

/// Matches the example of the documentation on the list that comes with the sources.
fn example(place: &Place, more: &[&str]) -> Ended {
    let list = in_repository("adapters/data/demo-sheet.csv");
    let demand = in_repository("docs/demands/already-paid.json");
    let args = ["match", "--offers", &list, "--demand", &demand];
    place.broker(args.iter().chain(more))
}

// S91
#[test]
fn the_example_of_paid_capacity_takes_it_first_and_replays_to_the_last_bit() {
    let place = Place::new();
    let own = in_repository("docs/demands/own/contract.json");
    let record = place.path().join("record.json");
    let record = record.to_str().expect("a path");
    let listed = example(&place, &["--json"]).json(0);
    let ended = example(&place, &["--json", "--own", &own, "--record", record]);
    let answer = ended.json(0);

    let is_own = |one: &Value| one["sku"] == "gpu-h200-sxm_8gpu-128vcpu-1600gb";
    let before = &listed["candidates"][0];
    assert!(
        !is_own(before) && before.get("covered").is_none(),
        "{before}"
    );
    let best = &answer["candidates"][0];
    assert!(is_own(best), "{best}");
    assert_eq!(best["place"]["region"], "eu-north1");
    assert_eq!(best["covered"]["rate_usd_gpu_hour"], "0.15");
    assert_eq!(best["price_usd_gpu_hour"], "3.50", "once it is used up");
    let said = best["reasons"][0].as_str().expect("a reason");
    for part in [
        "1 of 1 node",
        "contract 4711",
        "400.0 h from now",
        "3.50 after that",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Where else the same thing is sold nothing of it is paid for.
    let candidates = answer["candidates"].as_array().expect("candidates");
    let covered = candidates.iter().filter(|one| one.get("covered").is_some());
    assert_eq!(covered.count(), 1);
    // The agreed price replaces the list price, and is labelled as agreed.
    let agreed = candidates
        .iter()
        .find(|one| one["sku"] == "gpu-h100-sxm_8gpu-128vcpu-1600gb")
        .expect("an H100 board");
    assert_eq!(agreed["price_usd_hour"], "18.80");
    assert!(
        agreed["reasons"].to_string().contains("frame contract 12"),
        "{agreed}"
    );
    assert_eq!(
        (&answer["eligible"], &answer["rejected"]),
        (&listed["eligible"], &listed["rejected"]),
        "which offers satisfy the demand does not change"
    );

    let replayed = place.broker(["match", "--json", "--replay", record]);
    assert_eq!(replayed.json(0)["same"], true);
    let text = std::fs::read_to_string(record).expect("the record");
    let mut other: Value = serde_json::from_str(&text).expect("JSON");
    other["sources"]["own"]["commitments"][0]["nodes_left"] = json!(0);
    let other = place.write("other.json", &other.to_string());
    let other = other.to_str().expect("a path");
    let ended = place.broker(["match", "--replay", other]);
    assert_eq!(ended.status, Some(1), "{ended:?}");

    let table = example(&place, &["--own", &own]).stdout;
    let first = table
        .lines()
        .find(|line| line.trim_start().starts_with("1 "))
        .expect("a row");
    assert!(first.contains("1.20") && first.contains("0.15"), "{table}");
    let until = best["covered"]["until"].as_str().expect("a time");
    let headings = table.lines().nth(1).expect("headings");
    for heading in ["covered until", "cost USD"] {
        assert!(headings.contains(heading), "{table}");
    }
    // The hours of the commitment count from each call, and a minute may have begun since.
    let until: DateTime<Utc> = until.parse().expect("a time");
    let minutes = [0, 1].map(|more| until + TimeDelta::minutes(more));
    let minutes = minutes.map(|minute| minute.format("%Y-%m-%d %H:%M").to_string());
    assert!(
        minutes.iter().any(|minute| first.contains(minute)),
        "{minutes:?}: {table}"
    );
}

#[test]
fn what_is_wrong_in_a_file_of_own_capacity_is_said_with_its_place() {
    let place = Place::new();
    let row = "nebius,h100-a,H100-SXM,8,128,1600,81920,20,,eu-north1,";
    let list = place.write("list.csv", &format!("{HEADER}\n{row}\n"));
    let list = list.to_str().expect("a path");
    let demand = place.write("demand.json", &h100(8).to_string());
    let demand = demand.to_str().expect("a path");
    let commitment = |field: &str, value: Value| {
        let mut one = json!({
            "name": "a", "provider": "nebius", "sku": "h100-a", "nodes": 1,
            "expires_at": "2036-01-01T00:00:00Z",
        });
        one[field] = value;
        json!({ "commitments": [one] })
    };
    let agreed = |price: &str| {
        let prices = json!([{ "sku": "h100-a", "price_usd_gpu_hour": price }]);
        json!({ "provider_accounts": [{ "name": "b", "provider": "nebius", "prices": prices }] })
    };
    for (own, words) in [
        (json!("none"), "is not valid"),
        (json!({ "commitment": [] }), "unknown field `commitment`"),
        (
            commitment("expires_at", json!("2020-01-01T00:00:00Z")),
            "commitments[0]: `expires_at`",
        ),
        (
            commitment("gpu", json!("H100-SXM")),
            "commitments[0]: give `sku` or `gpu`, not both",
        ),
        (
            commitment("name", json!(" ")),
            "commitments[0]: `name` must be",
        ),
        (agreed("0"), "provider_accounts[0]: `price_usd_gpu_hour`"),
        (
            commitment("expires_at", json!("2036-02-30T00:00:00Z")),
            "commitments[0].expires_at is `2036-02-30T00:00:00Z`: ",
        ),
        (
            commitment("nodes", json!("one")),
            "commitments[0].nodes: invalid type: string \"one\"",
        ),
    ] {
        let file = place.write("own.json", &own.to_string());
        let file = file.to_str().expect("a path");
        let args = ["match", "--offers", list, "--demand", demand, "--own", file];
        let ended = place.broker(args);
        assert!(ended.refused().contains(words), "{words}: {}", ended.stderr);
    }
    let missing = [
        "match",
        "--offers",
        list,
        "--demand",
        demand,
        "--own",
        "nowhere.json",
    ];
    assert!(place.broker(missing).refused().contains("nowhere.json"));
    let own = place.write("own.json", &agreed("2.00").to_string());
    let own = own.to_str().expect("a path");
    let args = [
        "match", "--json", "--offers", list, "--demand", demand, "--own", own,
    ];
    let answer = place.broker(args).json(0);
    assert_eq!(answer["candidates"][0]["price_usd_hour"], "16.00");
}

#[test]
fn a_provider_of_own_capacity_that_sells_nothing_here_is_named_and_no_fault() {
    let place = Place::new();
    let one = |provider: &str| {
        json!({ "commitments": [{
            "name": "a", "provider": provider, "gpu": "H200-SXM", "nodes": 1,
            "expires_at": "2036-01-01T00:00:00Z",
        }] })
    };
    for (provider, is_told) in [("nebius", false), ("nebus", true)] {
        let own = place.write("own.json", &one(provider).to_string());
        let ended = example(&place, &["--json", "--own", own.to_str().expect("a path")]);
        ended.json(0);
        let told = "warning: --own names nebus, and no offer of these lists is of that name; they are \
                    of azure, hyperstack, nebius, voltagepark";
        assert_eq!(ended.stderr.contains(told), is_told, "{}", ended.stderr);
    }
}
