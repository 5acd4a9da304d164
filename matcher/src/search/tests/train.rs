use market::fabric::Internode;
use market::offer::{Availability, Tenancy};

use super::*;
use crate::samples::{metal, offer};

fn llama_70b(fields: Value) -> Demand {
    let mut all = json!({"model": "Llama 3 70B", "tokens": 10_000_000_000_u64});
    all.as_object_mut()
        .expect("an object")
        .extend(fields.as_object().expect("an object").clone());
    demand("train", all)
}

#[test]
fn the_fewest_nodes_that_hold_the_model_are_taken() {
    // 16 bytes a parameter are 1,129 GB: two nodes of 8 x 80 GB fill up at 1,177 GB.
    let plan = find(
        vec![
            metal("h100", "H100-SXM", "23.92"),
            metal("h200", "H200-SXM", "30.00"),
        ],
        &llama_70b(json!({})),
    );
    let nodes: Vec<_> = plan
        .candidates
        .iter()
        .map(|c| (c.lines[0].offer.sku.as_str(), c.nodes()))
        .collect();
    // Two nodes of H200 keep what three of H100 must compute again, and cost less for the run.
    assert_eq!(nodes, [("h200", 2), ("h100", 3)]);
}

// S06
#[test]
fn a_405b_on_64_gpus_needs_141_gb_each() {
    let demand = demand(
        "train",
        json!({"model": "Llama 3.1 405B", "tokens": 1_000_000_000, "gpus": 64}),
    );
    let plan = find(
        vec![
            metal("h100", "H100-SXM", "20.00"),
            metal("h200", "H200-SXM", "30.00"),
        ],
        &demand,
    );
    assert_eq!(skus(&plan), ["h200"]);
    assert_eq!(plan.candidates[0].nodes(), 8);
    assert_eq!(
        plan.rejected.by_reason,
        BTreeMap::from([(ReasonCode::Memory, 1)])
    );
}

// S05, S18
#[test]
fn bare_metal_with_rdma_comes_first_then_virtual_machines_then_what_the_policy_allows() {
    let with = |sku: &str, tenancy, internode, price: &str| Offer {
        tenancy,
        internode,
        ..metal(sku, "H100-SXM", price)
    };
    let offers = vec![
        with(
            "metal_eth",
            Tenancy::BareMetal,
            Internode::Ethernet,
            "10.00",
        ),
        with("vm_eth", Tenancy::Vm, Internode::Ethernet, "9.00"),
        with("vm_ib", Tenancy::Vm, Internode::InfinibandNdr400, "20.00"),
        with(
            "metal_ib",
            Tenancy::BareMetal,
            Internode::InfinibandNdr400,
            "30.00",
        ),
        with(
            "metal_roce",
            Tenancy::BareMetal,
            Internode::Roce400,
            "29.00",
        ),
    ];
    let closed = find(offers.clone(), &llama_70b(json!({"gpus": 32})));
    assert_eq!(skus(&closed), ["metal_roce", "metal_ib", "vm_ib"]);
    assert_eq!(
        closed.rejected.by_reason,
        BTreeMap::from([(ReasonCode::Fabric, 2)])
    );
    let open = find(
        offers,
        &llama_70b(json!({"gpus": 32, "policy": {"allow_ethernet": true}})),
    );
    assert_eq!(
        skus(&open),
        ["metal_roce", "metal_ib", "vm_ib", "metal_eth", "vm_eth"]
    );
}

// S08
#[test]
fn at_equal_price_rdma_beats_ethernet_and_the_plan_shows_what_the_slower_run_costs() {
    let ethernet = Offer {
        internode: Internode::Ethernet,
        ..metal("eth", "H100-SXM", "23.92")
    };
    let fields = json!({"gpus": 256, "policy": {"allow_ethernet": true}});
    let plan = find(
        vec![ethernet, metal("ib", "H100-SXM", "23.92")],
        &llama_70b(fields),
    );
    assert_eq!(skus(&plan), ["ib", "eth"]);
    let cost = |at: usize| plan.candidates[at].facts.run_cost_usd.expect("an estimate");
    assert!(cost(1).units() > 4 * cost(0).units());
    let waits = |at: usize| {
        plan.candidates[at]
            .facts
            .exposed_communication
            .expect("a share")
    };
    assert!(
        waits(0) < 0.1 && waits(1) > 0.6,
        "{} {}",
        waits(0),
        waits(1)
    );
}

#[test]
fn within_a_tier_the_cheaper_run_comes_first_not_the_cheaper_hour() {
    // An H200 hour costs more, and its run is hardly shorter; a B200 has more than twice the rate.
    let offers = vec![
        metal("h100", "H100-SXM", "24.00"),
        metal("h200", "H200-SXM", "28.00"),
        metal("b200", "B200-SXM", "40.00"),
    ];
    let plan = find(offers, &llama_70b(json!({"gpus": 64})));
    assert_eq!(skus(&plan), ["b200", "h100", "h200"]);
}

// S60, S76
#[test]
fn a_candidate_says_how_the_run_is_laid_out_and_its_figures_agree() {
    let plan = find(
        vec![metal("h100", "H100-SXM", "23.92")],
        &llama_70b(json!({"gpus": 64, "checkpointing": {"interval_minutes": 30}})),
    );
    let facts = plan.candidates[0].facts;
    let layout = facts.layout.expect("a layout");
    let gpus = layout.tensor_parallel * layout.pipeline_parallel * layout.data_parallel;
    assert_eq!(gpus, 64);
    assert_eq!(facts.checkpoint_interval_minutes, Some(30.0));
    let goodput = facts.goodput.expect("a share");
    assert!((0.9..1.0).contains(&goodput), "{goodput}");
    let used = facts.flop_utilisation.expect("a share");
    assert!((0.3..0.6).contains(&used), "{used}");
    // 10 of the 1e9 tokens that are priced, at 64 GPUs for 2.99 an hour.
    let total = facts.run_cost_usd.expect("a cost").units();
    let billion = facts.usd_per_billion_tokens.expect("a cost").units();
    assert!(
        (total - 10 * billion).abs() < total / 1_000,
        "{total} {billion}"
    );
    let hours = 1e10 / facts.tokens_per_second.expect("a rate") / goodput / 3_600.0;
    assert!((facts.run_hours.expect("hours") / hours - 1.0).abs() < 1e-9);
    let dollars = total as f64 / 1e8;
    assert!(
        (dollars / (hours * 64.0 * 2.99) - 1.0).abs() < 1e-3,
        "{dollars}"
    );
}

#[test]
fn a_gpu_that_was_never_measured_is_predicted_from_its_family_and_the_reasons_say_so() {
    let plan = find(
        vec![
            metal("h800", "H800-SXM", "20.00"),
            metal("h100", "H100-SXM", "20.00"),
        ],
        &llama_70b(json!({"gpus": 64})),
    );
    let says = |sku: &str| {
        let of = |c: &&Candidate| c.lines[0].offer.sku == sku;
        let reasons = &plan
            .candidates
            .iter()
            .find(of)
            .expect("a candidate")
            .reasons;
        reasons
            .iter()
            .any(|reason| reason.contains("predicted from its family"))
    };
    assert!(says("h800") && !says("h100"));
}

#[test]
fn a_single_node_needs_no_fabric() {
    let plan = find(
        vec![offer("vm", "H200-SXM", 8, "30.00")],
        &demand(
            "train",
            json!({"model": "Llama 3 8B", "tokens": 1_000_000_000}),
        ),
    );
    assert_eq!(skus(&plan), ["vm"]);
    assert!(plan.candidates[0].reasons[0].contains("no fabric is crossed"));
}

// S27
#[test]
fn small_cards_come_last_for_full_training_and_compete_on_cost_for_adapters() {
    let offers = || {
        vec![
            offer("small", "RTX-4090", 8, "2.00"),
            offer("whole", "H100-SXM", 8, "40.00"),
        ]
    };
    let train = |method: &str| {
        demand(
            "train",
            json!({"model": "Llama 3.2 1B", "tokens": 1_000_000, "sequence_length": 2048, "method": method}),
        )
    };
    assert_eq!(skus(&find(offers(), &train("full"))), ["whole", "small"]);
    assert_eq!(skus(&find(offers(), &train("qlora"))), ["small", "whole"]);
}

// S60
#[test]
fn a_deadline_adds_nodes_until_the_run_is_done_in_time() {
    let offers = || vec![metal("h100", "H100-SXM", "23.92")];
    let free = find(offers(), &llama_70b(json!({})));
    let by_day = find(
        offers(),
        &llama_70b(json!({"deadline": "2026-03-03T12:00:00Z"})),
    );
    let (free, by_day) = (&free.candidates[0], &by_day.candidates[0]);
    assert!(by_day.nodes() > free.nodes());
    assert!(by_day.facts.run_hours.expect("an estimate") <= 48.0);
    // One node fewer would be late.
    let nodes = f64::from(by_day.nodes());
    assert!(by_day.facts.run_hours.expect("an estimate") * nodes / (nodes - 1.0) > 48.0);
    // The end of the window counts like a deadline, and the earlier of the two decides.
    let fields = json!({"deadline": "2026-03-09T12:00:00Z", "window": {"duration_hours": 48}});
    let by_window = find(offers(), &llama_70b(fields));
    assert_eq!(by_window.candidates[0].nodes(), by_day.nodes());
}

#[test]
fn a_lone_machine_that_would_be_late_cannot_be_joined_by_others() {
    let late = json!({"model": "Llama 3 8B", "tokens": 100_000_000_000_u64, "deadline": "2026-03-03T12:00:00Z"});
    let plan = find(
        vec![offer("vm", "H200-SXM", 8, "30.00")],
        &demand("train", late),
    );
    assert_eq!(
        plan.rejected.by_reason,
        BTreeMap::from([(ReasonCode::Fabric, 1)])
    );
}

// S92
#[test]
fn a_gang_takes_all_its_nodes_of_one_offer_or_none() {
    let of_two = |sku: &str| Offer {
        availability: Availability::exactly(2),
        ..metal(sku, "H100-SXM", "23.92")
    };
    let plan = find(
        vec![of_two("island_a"), of_two("island_b")],
        &llama_70b(json!({"gpus": 32})),
    );
    assert_eq!(
        plan.rejected.by_reason,
        BTreeMap::from([(ReasonCode::NotEnoughNodes, 2)])
    );
}

#[test]
fn a_precision_that_nobody_trains_in_is_refused_before_any_offer() {
    let demand = llama_70b(json!({"precision": "int8"}));
    let refusal = search(
        &snapshot(vec![]),
        &demand,
        &Held::new(),
        now(),
        &SearchOptions::default(),
    );
    assert!(matches!(
        refusal,
        Err(MatchError::PrecisionNotSupported {
            work: "training",
            ..
        })
    ));
}
