//! The rules that hold whatever the price: an auditor who reads the demand as JSON and knows nothing
//! of the search looks at every line of every plan.
//!
//! `PLANS` says how many plans are looked at; `cargo xtask policy` looks at a million.

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};

use super::*;
use crate::plan::CandidateLine;

/// The last day for which capacity of a window may be wanted. The hand-off is waited for until the
/// latest start, else a day.
fn last_day(window: &Value) -> NaiveDate {
    let time = |field: &str| -> Option<DateTime<Utc>> {
        let text = window[field].as_str()?;
        Some(text.parse().expect("a time"))
    };
    let hours = |hours: i64| TimeDelta::hours(hours);
    let last = match (window["duration_hours"].as_i64(), time("end")) {
        (Some(length), _) => time("start_latest").unwrap_or(now() + hours(24)) + hours(length),
        (None, Some(end)) => end,
        (None, None) => now(),
    };
    last.date_naive()
}

/// Why a line must not have been taken.
fn breach(snapshot: &Snapshot, demand: &Value, line: &CandidateLine) -> Option<String> {
    let offer = &line.offer;
    let listed = |list: &Value, word: &str| {
        let words = list.as_array().map_or(&[][..], Vec::as_slice);
        (!words.is_empty()).then(|| {
            let known = words.iter().filter_map(Value::as_str);
            known
                .into_iter()
                .any(|known| known.eq_ignore_ascii_case(word))
        })
    };
    let provider = offer.provider.as_str();
    let country = offer.place.country.map(|country| country.to_string());
    let region = offer.place.region.as_deref();
    let tenancy = offer.tenancy.as_str();
    let policy = &demand["policy"];
    let within = |list: &Value, word: Option<&str>| listed(list, word.unwrap_or("")) != Some(false);
    let age = now() - offer.observed_at;
    let view = snapshot.provider(&offer.provider)?;
    let stale = match view.freshness_limit_seconds {
        Some(limit) => age > TimeDelta::seconds(i64::try_from(limit).expect("seconds")),
        // Only price lists have none.
        None => offer.orderable,
    };
    let shut = (view.quarantine.as_ref()).is_some_and(|quarantine| now() < quarantine.until);
    let rate = offer.rate().expect("a rate").money_per_gpu_hour();
    let above = |limit: &Value, amount: Money| {
        let limit = limit
            .as_str()
            .and_then(|text| Money::parse(text, amount.currency()).ok());
        limit.is_some_and(|limit| amount > limit)
    };
    let facts = serde_json::to_value(&view.facts).expect("json");
    let law = facts["operator"]["country"].as_str();
    let certified = |name: &Value| {
        let known = facts["certifications"].as_array();
        let last = last_day(&demand["window"]).to_string();
        known
            .into_iter()
            .flatten()
            .any(|one| one["name"] == *name && one["valid_until"].as_str() >= Some(last.as_str()))
    };
    let wanted = policy["certifications"].as_array();
    let rules = [
        (!within(&policy["operator_countries"], law), "operator"),
        (
            !wanted.into_iter().flatten().all(certified),
            "certification",
        ),
        (
            listed(&policy["deny_providers"], provider) == Some(true),
            "denied",
        ),
        (
            !within(&policy["allow_providers"], Some(provider)),
            "not allowed",
        ),
        (
            !within(&demand["places"]["countries"], country.as_deref()),
            "country",
        ),
        (!within(&demand["places"]["regions"], region), "region"),
        (!within(&demand["tenancy"], Some(tenancy)), "tenancy"),
        (shut, "quarantine"),
        (stale, "age"),
        (above(&demand["ceiling"]["usd_per_gpu_hour"], rate), "rate"),
        (!offer.price_per_node_hour.is_positive(), "no price"),
    ];
    let broken = rules.into_iter().find(|(broken, _)| *broken);
    broken.map(|(_, rule)| format!("{rule}: {offer:?}"))
}

/// Every placement of a plan against the rules of the demand that it is for.
fn audit(snapshot: &Snapshot, held: &Held, demand: &Demand, plan: &Plan) {
    for candidate in &plan.candidates {
        let asked = match (demand, candidate.half) {
            (Demand::Hybrid(hybrid), Some(half)) => hybrid.half(half),
            (demand, None) => demand.clone(),
            (_, Some(_)) => panic!("half of what is whole"),
        };
        let asked = serde_json::to_value(asked).expect("json");
        assert!(!candidate.lines.is_empty());
        let mut cost = 0_i64;
        for line in &candidate.lines {
            let known = snapshot.provider(&line.offer.provider).is_some();
            assert!(known, "nothing says that {:?} is fresh", line.offer);
            assert_eq!(breach(snapshot, &asked, line), None);
            let taken = held.get(&line.offer.offer_id).copied().unwrap_or(0);
            let stock = &line.offer.availability;
            if let (Some(free), false) = (stock.nodes, stock.at_least) {
                assert!(taken + line.nodes <= free, "{line:?}");
            }
            let gpus = line.offer.gpus.as_whole().expect("no slice is taken");
            let rate = line.offer.rate().expect("a rate").money_per_gpu_hour();
            cost += rate.units() * i64::from(gpus) * i64::from(line.nodes);
        }
        assert_eq!(candidate.cost_per_hour.units(), cost);
        if let Some(limit) = asked["ceiling"]["usd_per_hour"].as_str() {
            let limit = Money::parse(limit, candidate.cost_per_hour.currency());
            assert!(candidate.cost_per_hour <= limit.expect("an amount"));
        }
    }
}

/// A demand of any kind without the shared fields.
fn any_kind() -> impl Strategy<Value = Value> {
    let train = json!({"model": "Llama 3 8B", "tokens": 1_000_000_000});
    let chat = json!({
        "kind": "serve_realtime", "model": "Llama 3 8B", "concurrency": 300,
        "input_tokens": 512, "output_tokens": 256,
    });
    let with = |mut body: Value, field: &str, value: Value| {
        body[field] = value;
        body
    };
    prop::sample::select(vec![
        json!({"kind": "gpus", "gpu": "H100", "count": 8}),
        json!({"kind": "gpus", "gpu": "any", "count": 8, "nodes": 3}),
        with(train.clone(), "kind", json!("train")),
        with(
            with(train.clone(), "kind", json!("train")),
            "gpus",
            json!(32),
        ),
        chat.clone(),
        with(chat.clone(), "survive", json!("provider")),
        json!({
            "kind": "serve_batch", "model": "Llama 3 8B", "requests": 1_000_000,
            "input_tokens": 512, "output_tokens": 256, "window": {"duration_hours": 20},
        }),
        json!({"kind": "hybrid", "train": train, "serve": chat}),
    ])
}

/// When the capacity is wanted: from hours to many days, so that evidence ends before it or after.
fn any_window() -> impl Strategy<Value = Value> {
    let at = |hours: i64| (now() + TimeDelta::hours(hours)).to_rfc3339();
    prop::sample::select(vec![
        Value::Null,
        Value::Null,
        json!({"end": at(5)}),
        json!({"end": at(20)}),
        json!({"end": at(500)}),
        json!({"duration_hours": 10}),
        json!({"duration_hours": 20}),
        json!({"start_latest": at(2), "duration_hours": 600}),
    ])
}

fn plans() -> u32 {
    let given = std::env::var("PLANS").ok();
    given.map_or(120, |count| count.parse().expect("a number of plans"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(plans()))]

    #[test]
    fn no_plan_takes_what_the_policy_forbids(
        (snapshot, held) in any_market(),
        kind in any_kind(),
        shared in any_rules(),
        of_serve in any_rules(),
        window in any_window(),
        simulated in prop::bool::weighted(0.02),
    ) {
        let mut body = with(kind, shared);
        if body["kind"] == "hybrid" {
            body["serve"] = with(body["serve"].clone(), of_serve);
            body["serve"]["window"] = window;
        } else if body["window"].is_null() {
            body["window"] = window;
        }
        let demand: Demand = serde_json::from_value(body).expect("a demand");
        // A half that allows nothing of the whole is refused before any search.
        prop_assume!(demand.check(now()).is_ok());
        let options = SearchOptions {
            limit: 20,
            alternatives: simulated,
            simulated: usize::from(simulated),
            ..SearchOptions::default()
        };
        let plan = search(&snapshot, &demand, &held, now(), &options).expect("a plan");
        audit(&snapshot, &held, &demand, &plan);
    }
}
