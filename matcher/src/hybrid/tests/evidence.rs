//! Evidence of certifications, against the dates of each pair: the nodes of the run until the weights
//! have left them, those of the fleet until it ends.

use std::collections::HashMap;

use chrono::NaiveDate;

use super::*;
use crate::reason::ReasonCode;
use crate::snapshot::ProviderView;

/// A market with providers that are certified through these days.
fn certified(offers: Vec<Offer>, days: &[(&str, NaiveDate)]) -> Snapshot {
    let views = days.iter().map(|(seller, last)| {
        let facts = json!({
            "certifications": [{"name": "iso27001", "evidence": "seen", "valid_until": last}],
        });
        let view = ProviderView {
            freshness_limit_seconds: Some(600),
            facts: serde_json::from_value(facts).expect("facts"),
            ..ProviderView::default()
        };
        (provider(seller), view)
    });
    Snapshot::new(7, now(), offers, views.collect::<HashMap<_, _>>())
}

fn planned(market: &Snapshot, demand: &HybridDemand) -> Plan {
    let demand = Demand::Hybrid(Box::new(demand.clone()));
    assert_eq!(demand.check(now()), Ok(()));
    search(
        market,
        &demand,
        &Held::new(),
        now(),
        &SearchOptions::default(),
    )
    .expect("a plan")
}

fn policy() -> Value {
    json!({"policy": {"certifications": ["iso27001"]}})
}

fn days_after(time: DateTime<Utc>, days: i64) -> NaiveDate {
    (time + TimeDelta::days(days)).date_naive()
}

/// The SKU of the best pair's fleet, and the end of that fleet.
fn best(plan: &Plan) -> Option<(String, DateTime<Utc>)> {
    let pair = hybrid(plan).pairs.first()?;
    let end = pair.bill.serves_from + TimeDelta::seconds(pair.bill.serve_seconds);
    let fleet = &plan.candidates[pair.serve_candidate - 1].lines[0].offer;
    Some((fleet.provider.to_string(), end))
}

// S50
/// The run is at one provider, and fleets are cheaper at another.
#[test]
fn a_fleet_whose_evidence_ends_while_it_serves_is_in_no_pair() {
    let far = NaiveDate::from_ymd_opt(2030, 1, 1).expect("a day");
    for serve in [
        json!({"window": {"duration_hours": 168}}),
        json!({"window": {}}),
    ] {
        let wanted = demand(policy(), serve);
        let plan = |last| {
            planned(
                &certified(supply(), &[("aws", far), ("lambda", last)]),
                &wanted,
            )
        };
        let free = plan(far);
        let (seller, end) = best(&free).expect("a pair");
        assert_eq!(seller, "lambda");
        check(&free);
        let to_its_end = plan(end.date_naive());
        assert_eq!(best(&to_its_end), Some((seller, end)));
        let shorter = plan(days_after(end, -1));
        assert_eq!(best(&shorter).expect("a pair").0, "aws", "{shorter:?}");
        check(&shorter);
        let ways = hybrid(&shorter)
            .baselines
            .iter()
            .filter_map(|one| one.way.as_ref());
        for way in ways {
            assert!(
                way.serve
                    .iter()
                    .all(|offer| offer.provider.as_str() == "aws")
            );
        }
        let lapsed = plan(days_after(now(), 1));
        let counted = lapsed.rejected.by_reason.get(&ReasonCode::Certification);
        // Of its two offers one would train too, if not without a fabric between its nodes.
        assert!(counted.is_some_and(|count| *count >= 2), "{lapsed:?}");
    }
}

/// Only the certification of the run's provider is near its end.
#[test]
fn a_run_whose_evidence_ends_before_the_weights_have_left_it_is_in_no_pair() {
    let far = NaiveDate::from_ymd_opt(2030, 1, 1).expect("a day");
    let mut supply = supply();
    supply.push(standing(metal("dear", "H100-SXM", "33.92"), "b", "south"));
    let wanted = demand(json!({}), json!({"window": {"duration_hours": 168}}));
    let mut wanted = serde_json::to_value(wanted).expect("json");
    wanted["train"]["policy"] = policy()["policy"].clone();
    let wanted: HybridDemand = serde_json::from_value(wanted).expect("a demand");
    let plan = |last| {
        let days = [("aws", last), ("lambda", far), ("b", far)];
        planned(&certified(supply.clone(), &days), &wanted)
    };
    let free = plan(far);
    let pair = &hybrid(&free).pairs[0];
    assert_eq!(skus(&free, pair)[0], "fabric");
    let released = pair.bill.released_at;
    let trains_at = |last| {
        let plan = plan(last);
        skus(&plan, &hybrid(&plan).pairs[0])[0].clone()
    };
    assert_eq!(trains_at(released.date_naive()), "fabric");
    assert_eq!(trains_at(days_after(released, -1)), "dear");
}

/// More fleets than the search keeps are cheaper than the one with lasting evidence, and only an expensive
/// run is done early enough for them.
#[test]
fn fleets_that_only_a_fast_run_can_use_do_not_crowd_out_those_of_a_cheap_one() {
    let far = NaiveDate::from_ymd_opt(2030, 1, 1).expect("a day");
    let mut supply = vec![
        standing(metal("cheap", "A100-SXM-80", "24.00"), "aws", "east"),
        standing(metal("fast", "B200-SXM", "400.00"), "b", "south"),
        standing(offer("lasting", "L40S", 1, "2.00"), "c", "north"),
    ];
    for nth in 0..8 {
        let sku = format!("short{nth}");
        let price = format!("1.0{nth}");
        supply.push(standing(offer(&sku, "L40S", 1, &price), "lambda", "west"));
    }
    let wanted = demand(
        json!({}),
        json!({
            "policy": {"certifications": ["iso27001"]},
            "window": {"duration_hours": 24},
        }),
    );
    let days = |last| [("aws", far), ("b", far), ("c", far), ("lambda", last)];
    let total = |last, limit| {
        let market = certified(supply.clone(), &days(last));
        let options = SearchOptions {
            limit,
            ..SearchOptions::default()
        };
        let demand = Demand::Hybrid(Box::new(wanted.clone()));
        let plan = search(&market, &demand, &Held::new(), now(), &options).expect("a plan");
        check(&plan);
        let pair = &hybrid(&plan).pairs[0];
        (skus(&plan, pair), pair.bill.total_usd, plan)
    };
    let (_, _, free) = total(far, 50);
    let done = |sku: &str| {
        let mut runs = free.candidates.iter();
        let run = runs.find(|run| run.half == Some(Half::Train) && run.lines[0].offer.sku == sku);
        let hours = run.and_then(|run| run.facts.run_hours).expect("a run");
        now() + TimeDelta::seconds((hours * 3_600.0) as i64) + TimeDelta::hours(24)
    };
    let (fast, cheap) = (done("fast"), done("cheap"));
    let last = days_after(fast, 1);
    assert!(last < cheap.date_naive());
    let (pair, most, _) = total(last, 50);
    assert_eq!(pair, ["cheap", "lasting"]);
    for limit in [2, 3, 5] {
        let (few, cost, _) = total(last, limit);
        assert_eq!((few, cost), (pair.clone(), most), "{limit} kept");
    }
}
