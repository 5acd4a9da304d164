//! `broker match --facts`: the records of providers, from a file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::Place;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The example of Europe on the list that comes with the sources.
fn europe(more: &[(&str, &Path)]) -> Vec<OsString> {
    let (sheet, demand) = (
        "adapters/data/demo-sheet.csv",
        "docs/demands/sovereign-eu.json",
    );
    let mut args: Vec<OsString> = vec!["match".into(), "--json".into()];
    let offers = ("--offers", &*repository(sheet));
    let demand = ("--demand", &*repository(demand));
    for (flag, path) in [&offers, &demand].into_iter().chain(more) {
        args.extend([flag.into(), path.as_os_str().to_owned()]);
    }
    args
}

// S50
#[test]
fn a_fleet_in_europe_stands_where_law_and_certificate_are_on_record() {
    let place = Place::new();
    let nobody = place.broker(europe(&[])).json(1);
    assert_eq!(nobody["eligible"], 0);
    assert!(nobody["rejected"]["by_reason"]["operator"].as_u64() > Some(10));
    let facts = repository("docs/demands/facts/example.json");
    let answer = place.broker(europe(&[("--facts", &facts)])).json(0);
    let candidates = answer["candidates"].as_array().expect("candidates");
    for candidate in candidates {
        assert_eq!(candidate["provider"], "nebius");
    }
    let told = candidates[0]["reasons"].to_string();
    assert!(told.contains("under the law of NL"), "{told}");
    assert!(told.contains("It has iso27001 with evidence"), "{told}");
}

// S50, S91
#[test]
fn a_decision_replays_with_what_was_on_record_then() {
    let place = Place::new();
    let facts = repository("docs/demands/facts/example.json");
    let record = place.path().join("record.json");
    let args = europe(&[("--facts", &facts), ("--record", &record)]);
    place.broker(args).json(0);
    let replay = |file: &Path| {
        let args = ["match", "--json", "--replay"].map(OsString::from);
        place.broker(args.into_iter().chain([file.as_os_str().to_owned()]))
    };
    assert_eq!(replay(&record).json(0)["same"], true);
    let text = std::fs::read_to_string(&record).expect("the record");
    let mut changed: Value = serde_json::from_str(&text).expect("JSON");
    changed["sources"]["providers"]["nebius"]["facts"]["certifications"] = json!([]);
    let other = place.write("other.json", &changed.to_string());
    let ended = replay(&other);
    assert_eq!(ended.status, Some(1), "{}", ended.stderr);
}

#[test]
fn facts_that_cannot_be_read_are_wrong_input() {
    let place = Place::new();
    for wrong in [
        "[]",
        r#"{"nebius": {"operators": []}}"#,
        r#"{"nebius": {"certifications": [{"name": "c5", "evidence": "x", "valid_until": "soon"}]}}"#,
    ] {
        let file = place.write("facts.json", wrong);
        let ended = place.broker(europe(&[("--facts", &file)]));
        assert!(ended.refused().contains("facts.json is not valid"));
        if wrong.contains("soon") {
            let field = "nebius.certifications[0].valid_until is `soon`: ";
            assert!(ended.refused().contains(field), "{}", ended.stderr);
        }
    }
}

#[test]
fn facts_of_a_provider_that_sells_nothing_here_name_it_and_are_no_fault() {
    let place = Place::new();
    let facts = r#"{"hyperstak": {"operator": {"company": "One", "country": "GB"}}}"#;
    let file = place.write("facts.json", facts);
    let ended = place.broker(europe(&[("--facts", &file)]));
    ended.json(1);
    let told = "warning: --facts names hyperstak, and no offer of these lists is of that name";
    assert!(ended.stderr.contains(told), "{}", ended.stderr);
}
