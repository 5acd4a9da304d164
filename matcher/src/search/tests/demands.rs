//! Reads the examples of `docs/demands/` unchanged and plans them on a small market.

use std::fs;
use std::path::Path;

use market::fabric::Internode;
use market::place::{Country, Place};

use super::*;
use crate::samples::{metal, offer, provider};
use crate::snapshot::ProviderView;

/// The offers in three countries, at three providers.
fn supply() -> Vec<Offer> {
    let machines = [
        ("one", "H100-SXM", 1, "2.99"),
        ("board", "H100-SXM", 8, "23.92"),
        ("large", "H200-SXM", 8, "31.92"),
        ("small", "L40S", 1, "0.99"),
        ("amd", "MI300X", 8, "19.92"),
    ];
    let mut offers = Vec::new();
    for (seller, country) in [("a", "US"), ("b", "DE"), ("c", "JP")] {
        for (sku, gpu, gpus, price) in machines {
            offers.push(Offer {
                offer_id: OfferId::of_identity(&[seller, sku]),
                provider: provider(seller),
                place: Place {
                    country: Country::parse(country).ok(),
                    ..Place::unknown()
                },
                ..offer(sku, gpu, gpus, price)
            });
        }
        offers.push(Offer {
            terms: Terms::Spot,
            provider: provider(seller),
            ..offer(&format!("spot-{seller}"), "L40S", 1, "0.45")
        });
    }
    offers.push(metal("fabric", "H100-SXM", "27.92"));
    offers.push(metal("large-fabric", "H200-SXM", "35.92"));
    offers.push(Offer {
        internode: Internode::Ethernet,
        ..metal("plain", "H100-SXM", "23.92")
    });
    offers
}

fn example(name: &str) -> Demand {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/demands");
    let text = fs::read_to_string(folder.join(name)).expect("an example");
    serde_json::from_str(&text).expect("a demand")
}

fn planned(name: &str) -> Plan {
    let demand = example(name);
    assert_eq!(demand.check(now()), Ok(()), "{name}");
    let options = SearchOptions {
        simulated: 1,
        ..SearchOptions::default()
    };
    let market = snapshot(supply());
    search(&market, &demand, &Held::new(), now(), &options).expect("a plan")
}

fn best(name: &str) -> Candidate {
    let first = planned(name).candidates.into_iter().next();
    first.expect("a candidate")
}

fn of<'a>(plan: &'a Plan, sku: &str) -> &'a Candidate {
    let found = plan
        .candidates
        .iter()
        .find(|one| one.lines[0].offer.sku == sku);
    found.expect("a candidate of each offer")
}

#[test]
fn every_example_is_a_demand() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/demands");
    let mut seen = 0;
    for entry in fs::read_dir(folder).expect("the examples") {
        let name = entry.expect("a file").file_name();
        let name = name.to_str().expect("a name");
        if name.ends_with(".json") {
            assert_eq!(example(name).check(now()), Ok(()), "{name}");
            seen += 1;
        }
    }
    assert_eq!(seen, 12);
}

#[test]
fn the_8b_chat_stands_in_several_zones_and_meets_its_objective() {
    let chat = best("chat-8b-three-regions.json");
    assert!(chat.lines.len() >= 2);
    assert_eq!(chat.facts.meets_objective, Some(true), "{:?}", chat.reasons);
    assert!(chat.facts.network_ms > Some(50.0));
    for lost in &chat.lines {
        let left = chat.lines.iter().filter(|line| *line != lost);
        assert!(left.map(|line| line.nodes).sum::<u32>() > 0);
    }
}

// S56
#[test]
fn the_70b_at_8_bits_is_put_on_whole_copies_within_a_node() {
    let chat = best("llama-70b-fp8.json");
    assert!(chat.facts.memory_needed_gb < chat.facts.memory_available_gb);
    assert_eq!(chat.facts.meets_objective, Some(true), "{:?}", chat.reasons);
    assert!(chat.facts.gpus_per_replica <= Some(8));
}

// S13, S57
#[test]
fn the_large_mixture_takes_a_whole_node_and_no_fabric() {
    let mixture = best("deepseek-v3.json");
    assert_eq!(mixture.facts.gpus_per_replica, Some(8));
    assert!(
        mixture
            .lines
            .iter()
            .all(|line| !line.offer.internode.is_rdma())
    );
}

// S41
#[test]
fn the_embeddings_are_made_on_spot() {
    let batch = best("batch-embedding.json");
    assert_eq!(batch.lines[0].offer.terms, Terms::Spot);
    assert!(batch.facts.run_hours <= Some(48.0));
}

#[test]
fn the_8b_is_fine_tuned_on_one_node() {
    let run = best("llama-8b-one-node.json");
    assert_eq!((run.nodes(), run.gpus()), (1, 8));
    assert!(run.facts.exposed_communication < Some(0.05));
}

// S08
#[test]
fn the_70b_on_256_gpus_trains_over_infiniband_many_times_as_fast_as_over_ethernet() {
    let plan = planned("llama-70b-256-gpus.json");
    let (fast, slow) = (of(&plan, "fabric"), of(&plan, "plain"));
    assert!(fast.rank < slow.rank, "though its hour costs more");
    let rate = |run: &Candidate| run.facts.tokens_per_second.expect("a rate");
    assert!(rate(fast) > 4.0 * rate(slow));
    assert!(fast.facts.exposed_communication < Some(0.05));
    assert!(slow.facts.exposed_communication > Some(0.6));
    assert!(slow.facts.run_cost_usd > fast.facts.run_cost_usd);
}

// S06
#[test]
fn the_405b_fits_64_gpus_of_141_gb_alone() {
    let plan = planned("llama-405b.json");
    assert_eq!(skus(&plan), ["large-fabric"]);
    let refused = plan.refused.iter();
    let memory = refused.filter(|one| one.reason == ReasonCode::Memory);
    assert!(memory.count() > 0);
}

#[test]
fn adapters_are_trained_as_fast_over_ethernet_so_the_cheaper_machines_win() {
    let plan = planned("lora-over-ethernet.json");
    let (fabric, plain) = (of(&plan, "fabric"), of(&plan, "plain"));
    let rate = |run: &Candidate| run.facts.tokens_per_second.expect("a rate");
    assert!((rate(fabric) / rate(plain) - 1.0).abs() < 1e-9);
    assert_eq!(plain.rank, 1);
}

#[test]
fn the_mixture_is_trained_in_one_fabric_by_the_step_that_was_measured() {
    let run = best("mixtral-moe.json");
    assert!(run.lines[0].offer.internode.is_rdma());
    assert!(run.facts.calibration_factor.is_some());
    let layout = run.facts.layout.expect("a layout");
    assert!(layout.expert_parallel >= 1);
}

#[test]
fn the_sovereign_fleet_stands_in_europe_and_nowhere_else() {
    let demand = example("sovereign-eu.json");
    assert_eq!(demand.check(now()), Ok(()));
    // One of them sells in Europe under another law, and of one nothing is on record.
    let mut offers = supply();
    let elsewhere = offers
        .iter()
        .filter(|offer| offer.provider == provider("b"));
    let elsewhere = elsewhere.cloned().map(|offer| Offer {
        offer_id: OfferId::of_identity(&["elsewhere", &offer.sku]),
        provider: provider("d"),
        ..offer
    });
    let elsewhere: Vec<_> = elsewhere.collect();
    let unknown = elsewhere.iter().cloned().map(|offer| Offer {
        offer_id: OfferId::of_identity(&["unknown", &offer.sku]),
        provider: provider("e"),
        ..offer
    });
    let unknown: Vec<_> = unknown.collect();
    offers.extend(elsewhere.into_iter().chain(unknown));
    let known = ["a", "b", "d", "lambda"].map(|seller| {
        let country = if seller == "d" { "US" } else { "NL" };
        let certified =
            json!([{"name": "ISO 27001", "evidence": "seen", "valid_until": "2026-03-01"}]);
        let operator = json!({"company": "Example", "country": country});
        let facts = json!({"operator": operator, "certifications": certified});
        (provider(seller), facts)
    });
    let views = offers.iter().map(|offer| {
        let facts = known.iter().find(|(seller, _)| *seller == offer.provider);
        let facts = facts.map(|(_, facts)| facts.clone()).unwrap_or(json!({}));
        let view = ProviderView {
            freshness_limit_seconds: Some(600),
            facts: serde_json::from_value(facts).expect("facts"),
            ..ProviderView::default()
        };
        (offer.provider.clone(), view)
    });
    let views = views.collect();
    let market = Snapshot::new(7, now(), offers, views);
    let options = SearchOptions::default();
    let plan = search(&market, &demand, &Held::new(), now(), &options).expect("a plan");
    let europe = ["DE", "FR", "NL", "FI", "SE"].map(|code| Country::parse(code).expect("one"));
    for candidate in &plan.candidates {
        for line in &candidate.lines {
            assert!(europe.contains(&line.offer.place.country.expect("a country")));
            assert_eq!(line.offer.provider, provider("b"));
        }
    }
    assert!(!plan.candidates.is_empty());
    let refused = |code| plan.rejected.by_reason.get(&code).copied();
    assert!(refused(ReasonCode::Operator) >= Some(10));
    assert!(refused(ReasonCode::PlaceUnknown) > Some(0));
    assert!(refused(ReasonCode::Place) > Some(0));
}

// S17
#[test]
fn the_hybrid_releases_its_fabric_and_serves_on_smaller_machines() {
    let demand = example("hybrid.json");
    let options = SearchOptions::default();
    let market = snapshot(supply());
    let plan = search(&market, &demand, &Held::new(), now(), &options).expect("a plan");
    let hybrid = plan.hybrid.as_ref().expect("a hybrid plan");
    let best = &hybrid.pairs[0];
    let line = |rank: usize| &plan.candidates[rank - 1].lines[0].offer;
    assert_eq!(line(best.train_candidate).sku, "fabric");
    assert!(!line(best.serve_candidate).internode.is_rdma());
    assert!(best.bill.released_at <= best.bill.serves_from);
}
