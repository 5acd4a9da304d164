//! The rules that hold at any price: an auditor reads the demand as JSON, independently of the search, and
//! checks every line of every plan.
//!
//! `PLANS` is the number of plans to check; `cargo xtask policy` checks a million.

use std::sync::Arc;

use ::market::capacity::OwnCapacity;
use ::market::demand::{Half, HybridDemand};
use ::market::ids::ProviderId;
use ::market::offer::OfferView;
use chrono::{DateTime, NaiveDate, TimeDelta, Utc};

use super::market::{any_commitments, facts_by, facts_of};
use super::*;
use crate::hybrid::HybridBill;
use crate::plan::CandidateLine;

fn time(value: &Value) -> Option<DateTime<Utc>> {
    let text = value.as_str()?;
    Some(text.parse().expect("a time"))
}

/// The last day on which a demand may use its capacity, for work that takes so many hours. The hand-off may
/// be as late as the latest start, else a day from now.
fn last_day(demand: &Value, work_hours: Option<f64>) -> NaiveDate {
    let window = &demand["window"];
    let hours = |hours: i64| TimeDelta::hours(hours);
    let done = || work_hours.map(|hours| TimeDelta::seconds((hours * 3_600.0).ceil() as i64));
    let last = match (window["duration_hours"].as_i64(), time(&window["end"])) {
        (Some(length), _) => {
            time(&window["start_latest"]).unwrap_or(now() + hours(24)) + hours(length)
        }
        (None, Some(end)) => end,
        (None, None) => {
            let handed_off = time(&window["start_latest"]).unwrap_or(now());
            match (time(&demand["deadline"]), done()) {
                (Some(deadline), _) => deadline,
                (None, Some(done)) => handed_off + done,
                (None, None) => handed_off,
            }
        }
    };
    last.date_naive()
}

/// Whether the record of a provider shows each of these certifications through a day.
fn is_certified(
    snapshot: &Snapshot,
    seller: (&ProviderId, &str),
    certifications: &Value,
    last: NaiveDate,
) -> bool {
    let (provider, operator) = seller;
    let facts = facts_by(snapshot, provider, operator);
    let facts = serde_json::to_value(facts).expect("json");
    let known = facts["certifications"].as_array();
    let known: Vec<_> = known.into_iter().flatten().collect();
    let last = last.to_string();
    let certified = |name: &Value| {
        (known.iter())
            .any(|one| one["name"] == *name && one["valid_until"].as_str() >= Some(last.as_str()))
    };
    let wanted = certifications.as_array();
    wanted.into_iter().flatten().all(certified)
}

/// Checks the providers of both halves of each pair, and of its baselines, against its own dates.
fn audit_pairs(snapshot: &Snapshot, demand: &HybridDemand, plan: &Plan) {
    let hybrid = plan.hybrid.as_ref().expect("pairs");
    let of_half = |half| serde_json::to_value(demand.half(half)).expect("json");
    let (train, serve) = (of_half(Half::Train), of_half(Half::Serve));
    let check = |sellers: [Vec<(ProviderId, String)>; 2], bill: &HybridBill| {
        let serves_until = bill.serves_from + TimeDelta::seconds(bill.serve_seconds);
        let serves_until =
            time(&serve["window"]["end"]).map_or(serves_until, |end| end.min(serves_until));
        let ends = [(&train, bill.released_at), (&serve, serves_until)];
        for ((asked, until), sellers) in ends.into_iter().zip(sellers) {
            let wanted = &asked["policy"]["certifications"];
            for (seller, operator) in sellers {
                let seller = (&seller, operator.as_str());
                let certified = is_certified(snapshot, seller, wanted, until.date_naive());
                assert!(certified, "{seller:?} until {until}: {bill:?}");
            }
        }
    };
    let sellers = |rank: usize| {
        let lines = plan.candidates[rank - 1].lines.iter();
        let seller = |line: &CandidateLine| {
            let operator = line.offer.particulars.operator.to_string();
            (line.offer.provider.clone(), operator)
        };
        lines.map(seller).collect()
    };
    for pair in &hybrid.pairs {
        check(
            [pair.train_candidate, pair.serve_candidate].map(sellers),
            &pair.bill,
        );
    }
    for way in hybrid.baselines.iter().filter_map(|one| one.way.as_ref()) {
        let sellers = |offers: &Vec<OfferView>| {
            let operator = |offer: &OfferView| offer.operator.clone().unwrap_or("seller".into());
            let ids = offers
                .iter()
                .map(|offer| (offer.provider.clone(), operator(offer)));
            ids.collect::<Vec<_>>()
        };
        check([&way.train, &way.serve].map(sellers), &way.bill);
    }
}

/// Why a plan must not use a line for work of so many hours.
fn breach(
    snapshot: &Snapshot,
    demand: &Value,
    line: &CandidateLine,
    work_hours: Option<f64>,
) -> Option<String> {
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
    let operator = offer.particulars.operator.to_string();
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
    let facts = serde_json::to_value(facts_of(snapshot, offer)).expect("json");
    let law = facts["operator"]["country"].as_str();
    let last = last_day(demand, work_hours);
    let certified = is_certified(
        snapshot,
        (&offer.provider, &operator),
        &policy["certifications"],
        last,
    );
    let less = |field: &str, has: Option<u32>| {
        let least = demand[field].as_u64();
        least.is_some_and(|least| has.is_none_or(|has| u64::from(has) < least))
    };
    let small_gpu = demand["gpu_memory_gib"].as_f64().is_some_and(|least| {
        let mut forms = offer.gpu.forms();
        forms.any(|gpu| gpu.spec().memory_gb < least)
    });
    let rules = [
        (!within(&policy["operator_countries"], law), "operator"),
        (!certified, "certification"),
        (
            [provider, &operator]
                .iter()
                .any(|word| listed(&policy["deny_providers"], word) == Some(true)),
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
        (less("vcpus", offer.vcpus), "vcpus"),
        (less("host_memory_gib", offer.memory_gib), "main memory"),
        (small_gpu, "memory of a GPU"),
        (shut, "quarantine"),
        (stale, "age"),
        (above(&demand["ceiling"]["usd_per_gpu_hour"], rate), "rate"),
        (!offer.price_per_node_hour.is_positive(), "no price"),
    ];
    let broken = rules.into_iter().find(|(broken, _)| *broken);
    broken.map(|(_, rule)| format!("{rule}: {offer:?}"))
}

/// Checks the commitments of a candidate: on demand, for the offer and the provider of the commitment, no
/// more nodes than are left of it, and until the nodes together have used up its hours.
pub fn audit_own(own: &OwnCapacity, candidate: &Candidate) {
    for open in &own.commitments {
        let commitment = &open.commitment;
        let lines = candidate.lines.iter().filter_map(|line| {
            let covered = line.covered?;
            (covered.commitment_id == commitment.id).then_some((line, covered))
        });
        let lines: Vec<_> = lines.collect();
        let nodes: u32 = lines.iter().map(|(line, _)| line.nodes).sum();
        assert!(nodes <= open.nodes_left, "{nodes} of {open:?}");
        let shared = |seconds: i64| now() + TimeDelta::seconds(seconds / i64::from(nodes));
        for (line, covered) in lines {
            let offer = &line.offer;
            let scope = &commitment.scope;
            let gpu = scope.gpu.map(|gpu| gpu.to_string());
            assert_eq!(offer.provider, commitment.provider);
            assert_eq!(offer.terms, Terms::OnDemand);
            assert!(
                scope.sku.as_deref().is_none_or(|sku| sku == offer.sku)
                    && gpu.is_none_or(|gpu| gpu == offer.gpu.to_string()),
                "{offer:?} is not of {scope:?}"
            );
            let end = open.node_seconds_left.map(shared);
            let until = end.map_or(commitment.expires_at, |end| end.min(commitment.expires_at));
            assert_eq!(covered.until, until, "{nodes} of {open:?}");
            let gpus = i64::from(offer.gpus.as_whole().expect("whole"));
            let paid = covered.rate_usd_gpu_hour.money_per_gpu_hour().units() * gpus;
            assert!((paid - commitment.price_per_node_hour.units()).abs() < gpus);
        }
    }
    let known = |line: &CandidateLine| {
        let mut all = own.commitments.iter();
        line.covered
            .is_none_or(|covered| all.any(|open| open.commitment.id == covered.commitment_id))
    };
    assert!(candidate.lines.iter().all(known));
}

/// Every placement of a plan against the rules of the demand that it is for.
fn audit(snapshot: &Snapshot, held: &Held, (demand, own): (&Demand, &OwnCapacity), plan: &Plan) {
    if let Demand::Hybrid(hybrid) = demand {
        audit_pairs(snapshot, hybrid, plan);
    }
    for candidate in &plan.candidates {
        let asked = match (demand, candidate.half) {
            (Demand::Hybrid(hybrid), Some(half)) => hybrid.half(half),
            (demand, None) => demand.clone(),
            (_, Some(_)) => panic!("half of what is whole"),
        };
        let asked = serde_json::to_value(asked).expect("json");
        assert!(!candidate.lines.is_empty());
        audit_own(own, candidate);
        let (mut first_hour, mut cost) = (0_i64, 0_i64);
        let mut nodes: HashMap<OfferId, u32> = HashMap::new();
        for line in &candidate.lines {
            let known = snapshot.provider(&line.offer.provider).is_some();
            assert!(known, "the freshness of {:?} is unknown", line.offer);
            let hours = candidate.facts.run_hours;
            assert_eq!(breach(snapshot, &asked, line, hours), None);
            let all = nodes.entry(line.offer.offer_id).or_default();
            *all += line.nodes;
            let taken = held.get(&line.offer.offer_id).copied().unwrap_or(0);
            let stock = &line.offer.availability;
            if let (Some(free), false) = (stock.nodes, stock.at_least) {
                assert!(taken + *all <= free, "{line:?}");
            }
            let gpus = line.offer.gpus.as_whole().expect("no slice is taken");
            let of = |rate: Rate| {
                let units = rate.money_per_gpu_hour().units();
                units * i64::from(gpus) * i64::from(line.nodes)
            };
            let own_rate = line.offer.rate().expect("a rate");
            cost += of(own_rate);
            first_hour += of(line.covered.map_or(own_rate, |one| one.rate_usd_gpu_hour));
        }
        assert_eq!(candidate.cost_per_hour.units(), first_hour);
        // A commitment ends, so the limit applies to the price after it.
        if let Some(limit) = asked["ceiling"]["usd_per_hour"].as_str() {
            let limit = Money::parse(limit, candidate.cost_per_hour.currency());
            assert!(cost <= limit.expect("an amount").units());
        }
    }
}

/// A demand of any kind without the shared fields.
fn any_kind() -> impl Strategy<Value = Value> {
    let train = json!({"model": "Llama 3 8B", "tokens": 1_000_000_000});
    // For days, so that evidence ends while it runs.
    let long = json!({"model": "Llama 3 8B", "tokens": 60_000_000_000_u64});
    let pile = json!({
        "kind": "serve_batch", "model": "Llama 3 8B", "requests": 1_000_000,
        "input_tokens": 512, "output_tokens": 256,
    });
    let in_days = |days: i64| json!(now() + TimeDelta::days(days));
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
        with(long.clone(), "kind", json!("train")),
        with(
            with(long.clone(), "kind", json!("train")),
            "deadline",
            in_days(20),
        ),
        with(pile.clone(), "window", json!({"duration_hours": 20})),
        with(pile.clone(), "requests", json!(100_000_000)),
        json!({"kind": "hybrid", "train": train, "serve": chat.clone()}),
        json!({"kind": "hybrid", "train": long.clone(), "serve": chat}),
        json!({
            "kind": "hybrid", "train": long,
            "serve": with(pile, "deadline", in_days(40)),
        }),
    ])
}

/// The window of the capacity: from hours to many days, so that evidence ends before it or after.
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
        json!({"start_latest": at(40)}),
        json!({"start_latest": at(400)}),
    ])
}

fn plans() -> u32 {
    let given = std::env::var("PLANS").ok();
    given.map_or(120, |count| count.parse().expect("a number of plans"))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: plans(),
        // Some hybrid demands are invalid: a half allows nothing that the whole demand allows.
        max_global_rejects: u32::MAX,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_plan_takes_what_the_policy_forbids(
        (snapshot, held) in any_market(),
        kind in any_kind(),
        shared in any_rules(),
        of_serve in any_rules(),
        window in any_window(),
        simulated in prop::bool::weighted(0.02),
        own in any_commitments(),
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
        let own = Arc::new(own);
        let options = SearchOptions {
            own: Arc::clone(&own),
            limit: 20,
            alternatives: simulated,
            simulated: usize::from(simulated),
            ..SearchOptions::default()
        };
        let plan = search(&snapshot, &demand, &held, now(), &options).expect("a plan");
        audit(&snapshot, &held, (&demand, &own), &plan);
    }
}
