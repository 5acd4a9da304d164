//! The examples of `docs/demands/` are read as they stand and planned on a small market.

use std::fs;
use std::path::Path;

use market::place::{Country, Place};

use super::*;
use crate::samples::{metal, offer, provider};

/// What is on sale in three countries, at three sellers.
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
    offers
}

fn example(name: &str) -> Demand {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/demands");
    let text = fs::read_to_string(folder.join(name)).expect("an example");
    serde_json::from_str(&text).expect("a demand")
}

fn best(name: &str) -> Candidate {
    let demand = example(name);
    assert_eq!(demand.check(now()), Ok(()), "{name}");
    let options = SearchOptions {
        simulated: 1,
        ..SearchOptions::default()
    };
    let market = snapshot(supply());
    let plan = search(&market, &demand, &Held::new(), now(), &options).expect("a plan");
    plan.candidates.into_iter().next().expect("a candidate")
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
    assert!(seen >= 4, "{seen}");
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
