//! Random markets and random shared rules of a demand.

use std::sync::Arc;

use market::acceptance::AcceptanceRecord;
use market::capacity::{Commitment, OpenCommitment, OwnCapacity, OwnScope};
use market::fabric::Internode;
use market::gpu::GpuIdentity;
use market::ids::{CommitmentId, ProviderId};
use market::offer::{Availability, Particulars, Tenancy};
use market::place::Country;
use market::provider_facts::ProviderFacts;
use market::quantity::GpuCount;
use proptest::prelude::*;

use super::super::*;
use crate::samples::provider;
use crate::snapshot::{ProviderView, Quarantine};

/// The first word most often, so that many offers satisfy a demand and each rule still bites.
pub fn mostly<T: Clone + std::fmt::Debug + 'static>(
    usual: Vec<T>,
    odd: Vec<T>,
) -> impl Strategy<Value = T> {
    prop_oneof![9 => prop::sample::select(usual), 1 => prop::sample::select(odd)]
}

pub fn any_availability() -> impl Strategy<Value = Availability> {
    prop_oneof![
        4 => Just(Availability::UNKNOWN),
        1 => Just(Availability::NONE),
        3 => (1_u32..40).prop_map(Availability::exactly),
        1 => (1_u32..10).prop_map(|n| Availability { at_least: true, ..Availability::exactly(n) }),
    ]
}

pub fn any_offer() -> impl Strategy<Value = Offer> {
    use Internode::{Ethernet, InfinibandNdr400, None, Roce400};
    use Tenancy::{BareMetal, Container, Managed, Vm};
    let gpu = mostly(
        vec!["H100-SXM", "H200-SXM", "MI300X"],
        vec!["H100-PCIe", "H100", "L40S", "A100-SXM-80"],
    );
    let count = mostly(vec![8_000_u32], vec![500, 1_000, 2_000, 4_000]);
    let place = mostly(vec!["us", "de"], vec![""]);
    let seller = mostly(vec!["a", "b", "c", "d"], vec!["unknown"]);
    let sku = prop::sample::select(vec!["x", "y", "z"]);
    let how = (
        mostly(vec![BareMetal, Vm], vec![Container, Managed]),
        mostly(vec![Terms::OnDemand], vec![Terms::Spot, Terms::Floor]),
        mostly(vec![InfinibandNdr400, Roce400, Ethernet], vec![None]),
        any_availability(),
        prop::bool::weighted(0.8),
        mostly(vec![Some(128_u32)], vec![Option::None, Some(32)]),
        mostly(vec![Some(1_024_u32)], vec![Option::None, Some(256)]),
    );
    // Few prices, so that ties are common; zero among them.
    let price = mostly(
        vec![10_i64, 11, 12, 20, 21, 22, 23, 30, 40, 50, 60, 70],
        vec![0],
    );
    let young = mostly(vec![0_i64, 60, 299], vec![300, 301, 600, 601]);
    let old = vec![3_600_i64, 3_601, 86_401, 90_001, 7 * 86_400, 40 * 86_400];
    let age = prop_oneof![3 => young, 1 => prop::sample::select(old)];
    let operator = mostly(
        vec!["seller"],
        vec!["a", "b", "elsewhere", "peer", "peer:7"],
    );
    (gpu, count, (place, operator), seller, sku, how, price, age).prop_map(
        |(gpu, count, (place, operator), seller, sku, how, price, age)| {
            let mut offer = crate::samples::offer(sku, gpu, 1, "1.00");
            offer.gpus = GpuCount::from_thousandths(count).expect("in range");
            offer.provider = provider(seller);
            offer.place.region = Some(place.to_owned()).filter(|region| !region.is_empty());
            offer.place.country = Country::parse(place).ok();
            (
                offer.tenancy,
                offer.terms,
                offer.internode,
                offer.availability,
                offer.orderable,
                offer.vcpus,
                offer.memory_gib,
            ) = how;
            offer.price_per_node_hour = Money::usd_units(price * 35_000_000);
            offer.observed_at = now() - chrono::TimeDelta::seconds(age);
            offer.particulars = Arc::new(Particulars {
                operator: operator.into(),
                ..Particulars::default()
            });
            offer
        },
    )
}

/// The facts about the operator of an offer, looked up by its words.
pub fn facts_of<'s>(snapshot: &'s Snapshot, offer: &Offer) -> Option<&'s ProviderFacts> {
    let operator = offer.particulars.operator.to_string();
    facts_by(snapshot, &offer.provider, &operator)
}

/// The same by the seller and the word of the operator.
pub fn facts_by<'s>(
    snapshot: &'s Snapshot,
    seller: &ProviderId,
    operator: &str,
) -> Option<&'s ProviderFacts> {
    let runs_it = match operator {
        word if word.starts_with("peer") => return None,
        "seller" => seller.clone(),
        word => provider(word),
    };
    Some(&snapshot.provider(&runs_it)?.facts)
}

pub fn any_market() -> impl Strategy<Value = (Snapshot, Held)> {
    let taken = mostly(vec![0_u32], vec![1, 5]);
    // Seconds until the suspension of one of them ends; at zero it is over.
    let quarantine = mostly(vec![None], vec![Some(0_i64), Some(1)]);
    let offers = prop::collection::vec((any_offer(), taken), 0..80);
    let facts = prop::array::uniform4(any_facts());
    (offers, quarantine, facts).prop_map(|(offers, quarantine, facts)| {
        let mut held = Held::new();
        let mut all = Vec::new();
        for (at, (mut offer, taken)) in offers.into_iter().enumerate() {
            offer.offer_id = OfferId::of_identity(&[&at.to_string()]);
            held.insert(offer.offer_id, taken);
            all.push(offer);
        }
        let view = |limit, facts| ProviderView {
            freshness_limit_seconds: limit,
            stale: None,
            quarantine: (limit == Some(600))
                .then_some(quarantine)
                .flatten()
                .map(ends_in),
            facts,
            acceptance: AcceptanceRecord::default(),
        };
        // One reads once a day, and one sells by price lists.
        let limits = [
            ("a", Some(300)),
            ("b", Some(600)),
            ("c", Some(90_000)),
            ("d", None),
        ];
        let of = limits.into_iter().zip(facts);
        let providers = of.map(|((word, limit), facts)| (provider(word), view(limit, facts)));
        (Snapshot::new(1, now(), all, providers.collect()), held)
    })
}

/// The facts on record of one of them: often all that the rules below ask for.
fn any_facts() -> impl Strategy<Value = ProviderFacts> {
    let country = mostly(vec![Some("DE"), Some("US")], vec![None]);
    // Days from now to the last on which the evidence is good.
    let days = mostly(vec![2_i64, 30, 400], vec![-1, 0, 1]);
    let name = prop::sample::select(vec!["iso27001", "iso27001", "soc2_type2", "c5"]);
    let certified = prop::collection::vec((name, days), 0..5);
    (country, certified).prop_map(|(country, certified)| {
        let operator = country.map(|country| json!({"company": "One", "country": country}));
        let certified = certified.into_iter().map(|(name, days)| {
            let until = (now() + chrono::TimeDelta::days(days)).date_naive();
            json!({"name": name, "evidence": "seen", "valid_until": until})
        });
        let certified: Vec<_> = certified.collect();
        let mut facts = json!({"certifications": certified});
        if let Some(operator) = operator {
            facts["operator"] = operator;
        }
        serde_json::from_value(facts).expect("facts")
    })
}

fn ends_in(seconds: i64) -> Quarantine {
    Quarantine {
        reason: "it lies".into(),
        until: now() + chrono::TimeDelta::seconds(seconds),
    }
}

/// A tenant's commitments at some of them, in the order in which they are used.
pub fn any_commitments() -> impl Strategy<Value = OwnCapacity> {
    let seller = prop::sample::select(vec!["a", "b", "c", "d"]);
    let thing = prop::sample::select(vec!["x", "y", "z", "H100-SXM", "MI300X"]);
    let most = (0_u32..12, prop::option::of(1_i64..600));
    let price = mostly(vec!["0", "0.80", "4.00"], vec!["12.00"]);
    let one = (seller, thing, most, price, 1_i64..900);
    prop::collection::vec(one, 0..5).prop_map(|all| {
        type Drawn = (
            &'static str,
            &'static str,
            (u32, Option<i64>),
            &'static str,
            i64,
        );
        let one = |(at, drawn): (usize, Drawn)| {
            let (seller, thing, (nodes, hours), price, ends) = drawn;
            let gpu = match GpuIdentity::parse(thing) {
                Ok(GpuIdentity::Known(gpu)) => Some(gpu),
                _ => None,
            };
            let id = format!("cmt_{at:032x}").parse::<CommitmentId>();
            OpenCommitment {
                commitment: Commitment {
                    id: id.expect("an id"),
                    name: format!("contract {at}"),
                    provider: provider(seller),
                    scope: OwnScope {
                        sku: gpu.is_none().then(|| thing.to_owned()),
                        gpu,
                        gpus: None,
                        country: None,
                        region: None,
                    },
                    nodes: 12,
                    node_hours: None,
                    price_per_node_hour: crate::samples::usd(price),
                    expires_at: now() + chrono::TimeDelta::hours(ends),
                    created_at: now(),
                },
                nodes_left: nodes,
                node_seconds_left: hours.map(|hours| hours * 3_600),
            }
        };
        let mut own = OwnCapacity {
            commitments: all.into_iter().enumerate().map(one).collect(),
            accounts: Vec::new(),
        };
        own.use_in_order();
        own
    })
}

pub fn any_shared() -> impl Strategy<Value = Value> {
    prop::sample::select(rules())
}

/// The fields of a demand of the kind `gpus` beside the shared ones: names, counts and fabrics.
pub fn any_gpus() -> impl Strategy<Value = Value> {
    let gpu = prop::sample::select(vec![
        json!("H100-SXM"),
        json!("H100"),
        json!("any"),
        json!("H100-80GB"),
        json!("90GB+"),
        json!(["H100-SXM", "H200-SXM"]),
        json!(["H100-NVL", "H100-PCIe", "H100-SXM"]),
    ]);
    let count = mostly(
        vec![json!(8)],
        vec![
            json!(1),
            json!(2),
            json!({"min": 2, "max": 8}),
            json!({"min": 4, "max": 8}),
        ],
    );
    let fabric = mostly(
        vec![Value::Null],
        vec![json!("any"), json!("rdma"), json!("infiniband")],
    );
    (gpu, count, 1_u32..4, fabric, prop::bool::weighted(0.1)).prop_map(
        |(gpu, count, nodes, fabric, spot)| {
            json!({"gpu": gpu, "count": count, "nodes": nodes, "fabric": fabric, "spot": spot})
        },
    )
}

/// Any of them together: one rule may forbid offers that another allows.
pub fn any_rules() -> impl Strategy<Value = Value> {
    let rules = rules();
    let most = rules.len().min(4);
    prop::sample::subsequence(rules, 0..=most).prop_map(|some| {
        let mut all = json!({});
        for rule in some {
            for (group, fields) in rule.as_object().expect("an object") {
                match (all.get_mut(group), fields) {
                    (Some(Value::Object(known)), Value::Object(fields)) => {
                        known.extend(fields.clone());
                    }
                    _ => all[group] = fields.clone(),
                }
            }
        }
        all
    })
}

fn rules() -> Vec<Value> {
    vec![
        json!({}),
        json!({"places": {"countries": ["US"]}}),
        json!({"places": {"regions": ["DE", "us"]}}),
        json!({"tenancy": ["bare_metal", "vm"]}),
        json!({"policy": {"deny_providers": ["a"], "allow_ethernet": true}}),
        json!({"policy": {"allow_providers": ["a", "b"]}}),
        json!({"policy": {"operator_countries": ["DE"]}}),
        json!({"policy": {"certifications": ["iso27001"]}}),
        json!({"policy": {"certifications": ["soc2_type2", "iso27001"], "operator_countries": ["US", "FR"]}}),
        json!({"gpu_memory_gib": 90}),
        json!({"vcpus": 64, "host_memory_gib": 512}),
        json!({"ceiling": {"usd_per_gpu_hour": "3.50"}}),
        json!({"ceiling": {"usd_per_hour": "28.00"}}),
    ]
}
