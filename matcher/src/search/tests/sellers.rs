//! The facts about a provider: the greatest age of its offers, its suspension, and its record.

use market::ids::ProviderId;

use super::*;
use crate::samples::{offer, provider};
use crate::snapshot::{ProviderView, Quarantine};

fn one_h100(fields: Value) -> Demand {
    let mut all = json!({"gpu": "H100-SXM", "count": 8});
    all.as_object_mut()
        .expect("an object")
        .extend(fields.as_object().expect("an object").clone());
    demand("gpus", all)
}

fn eight() -> Offer {
    offer("sku", "H100-SXM", 8, "23.92")
}

#[test]
fn an_offer_of_a_provider_without_a_freshness_limit_is_not_matched() {
    let all: HashMap<ProviderId, ProviderView> = HashMap::new();
    let snapshot = Snapshot::new(1, now(), [eight()], all);
    let plan = search(
        &snapshot,
        &one_h100(json!({})),
        &Held::new(),
        now(),
        &SearchOptions::default(),
    );
    let rejected = plan.expect("a plan").rejected.by_reason;
    assert_eq!(rejected, BTreeMap::from([(ReasonCode::Stale, 1)]));
}

#[test]
fn an_offer_of_a_provider_in_quarantine_is_refused_with_its_reason_until_that_ends() {
    let end = now() + chrono::TimeDelta::hours(1);
    let view = ProviderView {
        freshness_limit_seconds: Some(7_200),
        quarantine: Some(Quarantine {
            reason: "nodes come without InfiniBand".into(),
            until: end,
        }),
        ..ProviderView::default()
    };
    let views = HashMap::from([(provider("lambda"), view)]);
    let snapshot = Snapshot::new(1, now(), [eight()], views);
    let plan = |at| {
        let options = SearchOptions::default();
        let demand = one_h100(json!({}));
        search(&snapshot, &demand, &Held::new(), at, &options).expect("a plan")
    };
    let kept_out = plan(now());
    let rejected = BTreeMap::from([(ReasonCode::Quarantined, 1)]);
    assert_eq!(kept_out.rejected.by_reason, rejected);
    let why = &kept_out.refused[0].why;
    assert!(
        why.contains("lambda") && why.contains("nodes come without InfiniBand"),
        "{why}"
    );
    assert_eq!(plan(end - chrono::TimeDelta::seconds(1)).eligible, 0);
    assert_eq!(plan(end).eligible, 1);
}

// S50
#[test]
fn a_policy_takes_operators_under_its_laws_with_evidence_to_the_end_of_the_window() {
    let facts = json!({
        "operator": {"company": "Example SAS", "country": "FR"},
        "certifications": [{"name": "c5", "evidence": "doc 7", "valid_until": "2026-03-03"}],
    });
    let view = ProviderView {
        facts: serde_json::from_value(facts).expect("facts"),
        ..ProviderView::default()
    };
    let listed = Offer {
        orderable: false,
        ..eight()
    };
    let views = HashMap::from([(provider("lambda"), view)]);
    let snapshot = Snapshot::new(1, now(), [listed], views);
    let plan = |policy: Value, window: Value| {
        let demand = one_h100(json!({"policy": policy, "window": window}));
        let options = SearchOptions::default();
        search(&snapshot, &demand, &Held::new(), now(), &options).expect("a plan")
    };
    let policy = json!({"operator_countries": ["DE", "FR"], "certifications": ["c5"]});
    // From noon of the first a day is waited and another one used: to noon of the third.
    let day = json!({"duration_hours": 24});
    let reasons = plan(policy.clone(), day).candidates.remove(0).reasons;
    for told in [
        "Example SAS operates it, under the law of FR",
        "It has c5 with evidence (doc 7) valid until 2026-03-03",
    ] {
        assert!(reasons.iter().any(|reason| reason == told), "{reasons:?}");
    }
    let longer = plan(policy, json!({"duration_hours": 36}));
    let rejected = BTreeMap::from([(ReasonCode::Certification, 1)]);
    assert_eq!(longer.rejected.by_reason, rejected);
    let why = &longer.refused[0].why;
    assert!(
        why.ends_with("valid until 2026-03-03, and it is wanted until 2026-03-04T00:00:00Z"),
        "{why}"
    );
    let elsewhere = plan(json!({"operator_countries": ["DE"]}), Value::Null);
    let [refused] = elsewhere.refused.as_slice() else {
        panic!("one example")
    };
    assert_eq!(refused.reason, ReasonCode::Operator);
    assert_eq!(
        refused.why,
        "Of lambda: Example SAS operates it, under the law of FR"
    );
}

#[test]
fn an_offer_of_a_price_list_is_matched_however_old_and_says_how_old() {
    let view = ProviderView {
        freshness_limit_seconds: None,
        ..ProviderView::default()
    };
    let listed = |orderable| {
        let mut old = eight();
        old.observed_at = now() - chrono::TimeDelta::days(3_000);
        old.orderable = orderable;
        let views = HashMap::from([(provider("lambda"), view.clone())]);
        let snapshot = Snapshot::new(1, now(), [old], views);
        let demand = one_h100(json!({}));
        let options = SearchOptions::default();
        search(&snapshot, &demand, &Held::new(), now(), &options).expect("a plan")
    };
    let reasons = listed(false).candidates.remove(0).reasons;
    assert!(
        reasons
            .iter()
            .any(|reason| reason.starts_with("Listed on ") && reason.contains("3000 days ago")),
        "{reasons:?}"
    );
    // An orderable offer always has a limit.
    let rejected = listed(true).rejected.by_reason;
    assert_eq!(rejected, BTreeMap::from([(ReasonCode::Stale, 1)]));
}

#[test]
fn an_offer_as_old_as_the_limit_is_matched_and_a_stale_provider_is_named() {
    let mut old = eight();
    old.observed_at = now() - chrono::TimeDelta::seconds(600);
    let view = ProviderView {
        freshness_limit_seconds: Some(600),
        stale: Some("the list came back empty".into()),
        ..ProviderView::default()
    };
    let snapshot = Snapshot::new(1, now(), [old], HashMap::from([(provider("lambda"), view)]));
    let plan = search(
        &snapshot,
        &one_h100(json!({})),
        &Held::new(),
        now(),
        &SearchOptions::default(),
    );
    let reasons = plan.expect("a plan").candidates.remove(0).reasons;
    assert!(
        reasons
            .iter()
            .any(|reason| reason.contains("the list came back empty")),
        "{reasons:?}"
    );
}
