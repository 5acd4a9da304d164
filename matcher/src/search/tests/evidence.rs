//! Evidence of certifications where only the work itself determines its duration.

use chrono::{NaiveDate, TimeDelta};

use super::*;
use crate::samples::{metal, offer, provider};
use crate::snapshot::ProviderView;

/// A plan on the offers of one provider that is certified through this day.
fn certified(last: NaiveDate, offers: Vec<Offer>, demand: &Demand) -> Plan {
    let facts = json!({
        "certifications": [{"name": "c5", "evidence": "doc 7", "valid_until": last}],
    });
    let view = ProviderView {
        freshness_limit_seconds: Some(600),
        facts: serde_json::from_value(facts).expect("facts"),
        ..ProviderView::default()
    };
    let views = HashMap::from([(provider("lambda"), view)]);
    let market = Snapshot::new(1, now(), offers, views);
    search(
        &market,
        demand,
        &Held::new(),
        now(),
        &SearchOptions::default(),
    )
    .expect("a plan")
}

fn day(after: f64) -> NaiveDate {
    let hours = TimeDelta::seconds((after * 3_600.0).ceil() as i64);
    (now() + hours).date_naive()
}

fn run(fields: Value) -> Demand {
    let all = json!({
        "model": "Llama 3 8B", "tokens": 20_000_000_000_u64,
        "policy": {"certifications": ["c5"]},
    });
    let mut all = all;
    let fields = fields.as_object().expect("an object").clone();
    all.as_object_mut().expect("an object").extend(fields);
    demand("train", all)
}

fn hours(plan: &Plan) -> f64 {
    plan.candidates[0].facts.run_hours.expect("hours")
}

// S50
#[test]
fn a_run_that_is_predicted_to_outlast_the_evidence_is_refused_with_both_dates() {
    let market = || vec![metal("h100", "H100-SXM", "23.92")];
    let settled = run(json!({"gpus": 16}));
    let hours = hours(&certified(day(50_000.0), market(), &settled));
    assert!(hours > 24.0, "{hours}");
    let to_the_end = certified(day(hours), market(), &settled);
    assert_eq!(to_the_end.eligible, 1);
    let last = day(hours - 24.0);
    let refused = certified(last, market(), &settled);
    let counted = BTreeMap::from([(ReasonCode::Certification, 1)]);
    assert_eq!(refused.rejected.by_reason, counted);
    let why = &refused.refused[0].why;
    let dates = format!(
        "(doc 7) is valid until {last}, and it is wanted until {}",
        day(hours)
    );
    assert!(
        why.contains(&dates) && why.ends_with("predicted to be done on 2 nodes"),
        "{why}"
    );
}

#[test]
fn where_the_gpus_are_open_as_many_are_taken_as_are_done_while_the_evidence_lasts() {
    let market = || vec![metal("h100", "H100-SXM", "23.92")];
    let open = run(json!({}));
    let free = certified(day(50_000.0), market(), &open);
    let last = day(hours(&free) / 3.0);
    let plan = certified(last, market(), &open);
    assert!(plan.candidates[0].nodes() > free.candidates[0].nodes());
    assert!(day(hours(&plan)) <= last, "{} hours", hours(&plan));
    // As with a limit of the same time.
    let end = last.and_hms_opt(23, 59, 59).expect("a time").and_utc();
    let limited = run(json!({"deadline": end}));
    let limited = certified(day(50_000.0), market(), &limited);
    assert_eq!(plan.candidates[0].lines, limited.candidates[0].lines);
}

#[test]
fn a_deadline_is_when_the_evidence_must_be_valid_however_soon_the_run_is_done() {
    let market = || vec![metal("h100", "H100-SXM", "23.92")];
    let by = |days: i64| run(json!({"gpus": 64, "deadline": now() + TimeDelta::days(days)}));
    let last = day(60.0 * 24.0);
    assert_eq!(certified(last, market(), &by(60)).eligible, 1);
    let later = certified(last, market(), &by(61));
    let counted = BTreeMap::from([(ReasonCode::Certification, 1)]);
    assert_eq!(later.rejected.by_reason, counted);
}

#[test]
fn a_pile_without_a_limit_is_done_while_the_evidence_lasts() {
    let pile = demand(
        "serve_batch",
        json!({
            "model": "Llama 3 8B", "requests": 20_000_000, "input_tokens": 512,
            "output_tokens": 256, "policy": {"certifications": ["c5"]},
        }),
    );
    let market = || vec![offer("l40s", "L40S", 1, "1.00")];
    let free = certified(day(500_000.0), market(), &pile);
    assert_eq!(free.candidates[0].nodes(), 1);
    let last = day(hours(&free) / 5.0);
    let plan = certified(last, market(), &pile);
    assert!(plan.candidates[0].nodes() >= 5);
    assert!(day(hours(&plan)) <= last);
}

#[test]
fn a_pile_that_no_number_of_nodes_does_while_the_evidence_lasts_is_refused_for_the_evidence() {
    let pile = |output_tokens: u32| {
        let mut fields = json!({
            "model": "Llama 3 8B", "requests": 1_000_000_000_000_u64, "input_tokens": 512,
            "policy": {"certifications": ["c5"]},
        });
        fields["output_tokens"] = json!(output_tokens);
        demand("serve_batch", fields)
    };
    let market = || vec![offer("l40s", "L40S", 1, "1.00")];
    let of = |last, output_tokens| certified(last, market(), &pile(output_tokens));
    assert_eq!(of(day(80_000.0), 64).eligible, 1);
    let refused = of(day(24.0), 64);
    let counted = BTreeMap::from([(ReasonCode::Certification, 1)]);
    assert_eq!(refused.rejected.by_reason, counted);
    let why = &refused.refused[0].why;
    assert!(
        why.starts_with("On 10000 nodes the batch takes about ") && why.contains("is valid for"),
        "{why}"
    );
    // Evidence that lasts longer than any reservation sets no limit.
    let refused = of(day(500_000.0), 4_096);
    let counted = BTreeMap::from([(ReasonCode::Deadline, 1)]);
    assert_eq!(refused.rejected.by_reason, counted);
}

#[test]
fn where_the_window_is_open_evidence_lasts_until_the_latest_hand_off_and_the_work_after_it() {
    let latest = |hours: i64| {
        let latest = now() + TimeDelta::hours(hours);
        json!({"window": {"start_latest": latest}, "policy": {"certifications": ["c5"]}})
    };
    let gpus = |hours| {
        let mut fields = latest(hours);
        fields["gpu"] = json!("H100");
        fields["count"] = json!(8);
        demand("gpus", fields)
    };
    let market = || vec![metal("h100", "H100-SXM", "23.92")];
    let counted = BTreeMap::from([(ReasonCode::Certification, 1)]);
    assert_eq!(certified(day(240.0), market(), &gpus(240)).eligible, 1);
    let refused = certified(day(216.0), market(), &gpus(240));
    assert_eq!(refused.rejected.by_reason, counted);
    let until = format!("wanted until {}", day(240.0));
    assert!(
        refused.refused[0].why.contains(&until),
        "{}",
        refused.refused[0].why
    );

    let settled = |hours| {
        let mut fields = latest(hours);
        fields["gpus"] = json!(16);
        run(fields)
    };
    let takes = hours(&certified(day(50_000.0), market(), &settled(240)));
    let to_the_end = certified(day(240.0 + takes), market(), &settled(240));
    assert_eq!(to_the_end.eligible, 1);
    let refused = certified(day(216.0 + takes), market(), &settled(240));
    assert_eq!(refused.rejected.by_reason, counted);
    let until = format!("wanted until {}", day(240.0 + takes));
    assert!(
        refused.refused[0].why.contains(&until),
        "{}",
        refused.refused[0].why
    );
}
