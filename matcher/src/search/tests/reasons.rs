use std::collections::HashSet;

use market::ids::ProviderId;
use market::offer::{Availability, Tenancy};
use market::place::Place;
use market::quantity::GpuCount;

use super::*;
use crate::samples::{metal, offer, provider, usd};
use crate::snapshot::{ProviderView, Quarantine};

/// One offer, one demand, and the reason why they do not meet.
struct Case {
    code: ReasonCode,
    demand: Demand,
    offer: Offer,
    held: u32,
    orderable_only: bool,
    /// A word of the explanation that only this offer's figures give.
    says: &'static str,
}

fn case(code: ReasonCode, says: &'static str, demand: Demand, offer: Offer) -> Case {
    Case {
        code,
        demand,
        offer,
        held: 0,
        orderable_only: false,
        says,
    }
}

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

fn gang(fields: Value) -> Demand {
    let mut all = json!({"model": "Llama 3 8B", "tokens": 1_000_000_000, "gpus": 16});
    all.as_object_mut()
        .expect("an object")
        .extend(fields.as_object().expect("an object").clone());
    demand("train", all)
}

fn chat(fields: Value) -> Demand {
    let mut all = json!({
        "model": "Llama 3 8B", "requests_per_second": 1, "input_tokens": 512, "output_tokens": 256
    });
    all.as_object_mut()
        .expect("an object")
        .extend(fields.as_object().expect("an object").clone());
    demand("serve_realtime", all)
}

/// Cases of what every kind of demand asks for.
fn shared_cases() -> Vec<Case> {
    use ReasonCode as R;
    let any = one_h100(json!({}));
    let at = |region: &str| Offer {
        place: Place::resolve("lambda", region, ""),
        ..eight()
    };
    let stock = |availability| Offer {
        availability,
        ..eight()
    };
    let three = one_h100(json!({"nodes": 3}));
    let mut old = eight();
    old.observed_at = now() - chrono::TimeDelta::seconds(601);
    vec![
        // Invariant 9: a price of zero is unknown, never the cheapest.
        case(
            R::NoPrice,
            "0.00",
            any.clone(),
            Offer {
                price_per_node_hour: usd("0.00"),
                ..eight()
            },
        ),
        case(
            R::Terms,
            "spot",
            any.clone(),
            Offer {
                terms: Terms::Spot,
                ..eight()
            },
        ),
        case(
            R::Terms,
            "floor",
            any.clone(),
            Offer {
                terms: Terms::Floor,
                ..eight()
            },
        ),
        case(
            R::Terms,
            "on_demand",
            one_h100(json!({"spot": true})),
            eight(),
        ),
        Case {
            orderable_only: true,
            ..case(
                R::NotOrderable,
                "",
                any.clone(),
                Offer {
                    orderable: false,
                    ..eight()
                },
            )
        },
        case(
            R::ProviderPolicy,
            "lambda",
            one_h100(json!({"policy": {"deny_providers": ["lambda"]}})),
            eight(),
        ),
        case(
            R::ProviderPolicy,
            "lambda",
            one_h100(json!({"policy": {"allow_providers": ["nebius"]}})),
            eight(),
        ),
        case(
            R::Place,
            "US",
            one_h100(json!({"places": {"countries": ["DE"]}})),
            at("us-east-1"),
        ),
        case(
            R::Place,
            "us-east-1",
            one_h100(json!({"places": {"regions": ["us-west-1"]}})),
            at("us-east-1"),
        ),
        case(
            R::PlaceUnknown,
            "",
            one_h100(json!({"places": {"countries": ["DE"]}})),
            eight(),
        ),
        case(
            R::PlaceUnknown,
            "",
            one_h100(json!({"places": {"regions": ["us-west-1"]}})),
            eight(),
        ),
        case(
            R::Tenancy,
            "vm",
            one_h100(json!({"tenancy": ["bare_metal"]})),
            eight(),
        ),
        // Invariant 10: past its provider's freshness limit an offer is not matched.
        case(R::Stale, "601 s", any.clone(), old),
        case(R::SoldOut, "", any.clone(), stock(Availability::NONE)),
        case(
            R::NotEnoughNodes,
            "the provider has 2",
            three.clone(),
            stock(Availability::exactly(2)),
        ),
        Case {
            held: 1,
            ..case(
                R::Held,
                "1 are held",
                three,
                stock(Availability::exactly(3)),
            )
        },
        Case {
            held: 1,
            ..case(R::Held, "publishes no count", any, eight())
        },
        case(
            R::Ceiling,
            "2.99",
            one_h100(json!({"ceiling": {"usd_per_gpu_hour": "2.98"}})),
            eight(),
        ),
        case(
            R::Ceiling,
            "2 nodes",
            one_h100(json!({"nodes": 2, "ceiling": {"usd_per_hour": "47.83"}})),
            eight(),
        ),
    ]
}

/// Cases of what one kind of demand asks for.
fn kind_cases() -> Vec<Case> {
    use ReasonCode as R;
    let slice = Offer {
        gpus: GpuCount::parse("0.5").expect("half"),
        ..eight()
    };
    let family = || offer("sku", "H100", 8, "23.92");
    let tenancy = |tenancy| Offer {
        tenancy,
        ..metal("sku", "H100-SXM", "23.92")
    };
    let soon = json!({"deadline": "2026-03-01T13:00:00Z", "tokens": 1_000_000_000_000_u64});
    let fast = json!({"latency": {"per_token_ms": 0.5}});
    vec![
        case(
            R::Gpu,
            "L40S",
            one_h100(json!({})),
            offer("sku", "L40S", 8, "8.00"),
        ),
        // Invariant 12: unknown hardware is counted, never guessed.
        case(
            R::GpuFormUnknown,
            "family H100",
            one_h100(json!({})),
            family(),
        ),
        case(
            R::GpuFormUnknown,
            "family H100",
            demand("gpus", json!({"gpu": "any", "count": 8})),
            family(),
        ),
        case(R::GpuFormUnknown, "family H100", chat(json!({})), family()),
        case(R::GpuFormUnknown, "family H100", gang(json!({})), family()),
        case(R::Slice, "0.5", one_h100(json!({})), slice.clone()),
        // S45: no gang and no fleet on slices.
        case(R::Slice, "0.5", gang(json!({})), slice.clone()),
        case(R::Slice, "0.5", chat(json!({})), slice),
        case(
            R::GpusPerNode,
            "4 x H100-SXM",
            one_h100(json!({})),
            offer("sku", "H100-SXM", 4, "12.00"),
        ),
        case(
            R::Terms,
            "spot",
            gang(json!({})),
            Offer {
                terms: Terms::Spot,
                ..metal("sku", "H100-SXM", "9.00")
            },
        ),
        case(
            R::Terms,
            "spot",
            chat(json!({})),
            Offer {
                terms: Terms::Spot,
                ..eight()
            },
        ),
        // S29: a precision that the hardware lacks is refused, not emulated.
        case(
            R::Precision,
            "fp8",
            gang(json!({"precision": "fp8"})),
            metal("sku", "A100-SXM-80", "12.00"),
        ),
        case(
            R::Precision,
            "fp4",
            chat(json!({"weights": "fp4"})),
            eight(),
        ),
        case(
            R::GpusDoNotDivide,
            "20 GPUs",
            gang(json!({"gpus": 20})),
            metal("sku", "H100-SXM", "23.92"),
        ),
        case(
            R::Memory,
            "405B",
            gang(json!({"model": "Llama 3.1 405B"})),
            metal("sku", "H100-SXM", "23.92"),
        ),
        case(
            R::Memory,
            "141.",
            chat(json!({"model": "Llama 3 70B"})),
            offer("sku", "H100-SXM", 1, "2.99"),
        ),
        case(
            R::GangTenancy,
            "container",
            gang(json!({})),
            tenancy(Tenancy::Container),
        ),
        case(
            R::GangTenancy,
            "managed",
            gang(json!({})),
            tenancy(Tenancy::Managed),
        ),
        // S16: nodes for serving are not trained on together.
        case(
            R::GangNode,
            "2 x H100-SXM",
            gang(json!({})),
            Offer {
                gpus: GpuCount::whole(2).expect("two"),
                ..metal("sku", "H100-SXM", "5.98")
            },
        ),
        case(
            R::GangNode,
            "8 x L40S",
            gang(json!({})),
            metal("sku", "L40S", "8.00"),
        ),
        // S05: several nodes need RDMA.
        case(R::Fabric, "none", gang(json!({})), eight()),
        case(
            R::Fabric,
            "unknown",
            gang(json!({"policy": {"allow_ethernet": true}})),
            Offer {
                internode: market::fabric::Internode::Unknown,
                ..eight()
            },
        ),
        case(
            R::Deadline,
            "1.0 hours",
            gang(soon),
            metal("sku", "H100-SXM", "23.92"),
        ),
        case(R::Latency, "8 x H100-SXM", chat(fast), eight()),
        case(
            R::Spread,
            "Without lambda",
            chat(json!({"survive": "provider"})),
            eight(),
        ),
    ]
}

// S16, S29
#[test]
fn every_reason_is_given_to_an_offer_that_it_alone_keeps_out() {
    // The quarantine is the provider's, not the offer's: it has a test of its own.
    let mut seen = HashSet::from([ReasonCode::Quarantined]);
    for case in shared_cases().into_iter().chain(kind_cases()) {
        let held = Held::from([(case.offer.offer_id, case.held)]);
        let options = SearchOptions {
            orderable_only: case.orderable_only,
            ..SearchOptions::default()
        };
        let plan = search(
            &snapshot(vec![case.offer]),
            &case.demand,
            &held,
            now(),
            &options,
        )
        .expect("a plan");
        assert_eq!(plan.rejected.by_reason, BTreeMap::from([(case.code, 1)]));
        assert_eq!((plan.eligible, plan.rejected.total), (0, 1));
        let [refused] = plan.refused.as_slice() else {
            panic!("one example of {}", case.code)
        };
        assert_eq!(refused.reason, case.code);
        assert!(
            refused.why.contains(case.says),
            "{}: {}",
            case.code,
            refused.why
        );
        seen.insert(case.code);
    }
    let missing: Vec<_> = ReasonCode::ALL
        .into_iter()
        .filter(|code| !seen.contains(code))
        .collect();
    assert_eq!(missing, []);
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
        stale: None,
        quarantine: Some(Quarantine {
            reason: "nodes come without InfiniBand".into(),
            until: end,
        }),
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

#[test]
fn an_offer_of_a_price_list_is_matched_however_old_and_says_how_old() {
    let view = ProviderView {
        freshness_limit_seconds: None,
        stale: None,
        quarantine: None,
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
    // What can be ordered is never without a limit.
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
        quarantine: None,
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
