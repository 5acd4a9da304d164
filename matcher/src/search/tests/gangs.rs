//! The machines that a run may use and prefers: their fabric, their kind, and their size.

use market::fabric::Internode;
use market::offer::{Availability, Tenancy};

use super::train::llama_70b;
use super::*;
use crate::samples::{metal, offer};

// S05
#[test]
fn several_nodes_are_joined_by_rdma_or_by_what_the_policy_allows() {
    let with = |sku: &str, tenancy, internode| Offer {
        tenancy,
        internode,
        ..metal(sku, "H100-SXM", "20.00")
    };
    let offers = || {
        vec![
            with("metal_eth", Tenancy::BareMetal, Internode::Ethernet),
            with("vm_eth", Tenancy::Vm, Internode::Ethernet),
            with("vm_ib", Tenancy::Vm, Internode::InfinibandNdr400),
            with("metal_ib", Tenancy::BareMetal, Internode::InfinibandNdr400),
        ]
    };
    let closed = find(offers(), &llama_70b(json!({"gpus": 32})));
    assert_eq!(skus(&closed), ["metal_ib", "vm_ib"]);
    assert_eq!(
        closed.rejected.by_reason,
        BTreeMap::from([(ReasonCode::Fabric, 2)])
    );
    let allowed = json!({"gpus": 32, "policy": {"allow_ethernet": true}});
    let open = find(offers(), &llama_70b(allowed));
    assert_eq!(skus(&open), ["metal_ib", "vm_ib", "metal_eth", "vm_eth"]);
}

// S18
#[test]
fn bare_metal_is_taken_up_to_a_tenth_above_the_cheapest_and_no_further() {
    let first = |metal_price: &str| {
        let vm = Offer {
            tenancy: Tenancy::Vm,
            ..metal("vm", "H100-SXM", "20.00")
        };
        let offers = vec![vm, metal("metal", "H100-SXM", metal_price)];
        find(offers, &llama_70b(json!({"gpus": 32})))
    };
    let within = first("21.99");
    assert_eq!(skus(&within), ["metal", "vm"]);
    let told = &within.candidates[0].reasons[0];
    let why = "in which the better machine comes first; this one runs on bare metal, that one on \
               virtual machines";
    assert!(told.contains(why), "{told}");
    assert_eq!(skus(&first("22.02")), ["vm", "metal"]);
    // An orderable offer comes before the better machine.
    let listed = Offer {
        orderable: false,
        ..metal("listed", "H100-SXM", "20.00")
    };
    let vm = Offer {
        tenancy: Tenancy::Vm,
        ..metal("vm", "H100-SXM", "21.00")
    };
    let plan = find(vec![listed, vm], &llama_70b(json!({"gpus": 32})));
    assert_eq!(skus(&plan), ["vm", "listed"]);
}

// S33
#[test]
fn a_slow_fabric_wins_just_where_its_price_makes_up_for_the_longer_run() {
    let on = |ethernet_price: f64, ties: bool| {
        let offers = vec![
            Offer {
                internode: Internode::Ethernet,
                ..metal("eth", "H100-SXM", &format!("{ethernet_price:.4}"))
            },
            metal("ib", "H100-SXM", "23.92"),
        ];
        let fields = json!({"gpus": 64, "policy": {"allow_ethernet": true}});
        let options = SearchOptions {
            ties,
            ..SearchOptions::default()
        };
        let demand = llama_70b(fields);
        search(&snapshot(offers), &demand, &Held::new(), now(), &options).expect("a plan")
    };
    let even = on(23.92, false);
    assert_eq!(skus(&even), ["ib", "eth"]);
    let hours = |at: usize| even.candidates[at].facts.run_hours.expect("hours");
    let longer = hours(1) / hours(0);
    assert!(longer > 1.5, "{longer}");
    // By predicted cost alone the order changes at the price that makes up for the longer run.
    let break_even = 23.92 / longer;
    assert_eq!(skus(&on(break_even * 1.001, false)), ["ib", "eth"]);
    assert_eq!(skus(&on(break_even * 0.999, false)), ["eth", "ib"]);
    // Within a tenth the better fabric wins: the order changes a tenth below.
    assert_eq!(skus(&on(break_even / 1.099, true)), ["ib", "eth"]);
    assert_eq!(skus(&on(break_even / 1.101, true)), ["eth", "ib"]);
}

// S08, S33
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
fn small_cards_compete_on_cost_and_of_a_tie_whole_boards_come_first_for_full_training() {
    let first = |method: &str, dollars: f64| {
        let offers = vec![
            offer("small", "RTX-4090", 8, "2.00"),
            offer("whole", "H100-SXM", 8, &format!("{dollars:.2}")),
        ];
        let fields = json!({
            "model": "Llama 3.2 1B", "tokens": 1_000_000_000, "sequence_length": 2048,
            "method": method,
        });
        find(offers, &demand("train", fields))
    };
    for method in ["full", "qlora"] {
        assert_eq!(skus(&first(method, 40.0)), ["small", "whole"]);
        let hours = |at: usize| first(method, 40.0).candidates[at].facts.run_hours;
        let even = 2.0 * hours(0).expect("hours") / hours(1).expect("hours");
        assert_eq!(skus(&first(method, even * 0.95)), ["whole", "small"]);
        // Five per cent more is a tie, which only full training decides by the machine.
        let tie = if method == "full" { "whole" } else { "small" };
        assert_eq!(skus(&first(method, even * 1.05))[0], tie);
        assert_eq!(skus(&first(method, even * 1.15)), ["small", "whole"]);
    }
}

// S24
#[test]
fn a_training_node_is_warned_of_links_below_those_of_its_generation() {
    let warning = |gpu: &str, gpus: u32| {
        let fields = json!({"model": "Llama 3.2 1B", "tokens": 1_000_000_000, "method": "qlora"});
        let plan = find(
            vec![offer("x", gpu, gpus, "20.00")],
            &demand("train", fields),
        );
        let reasons = &plan.candidates[0].reasons;
        let found = reasons
            .iter()
            .find(|one| one.starts_with("Its GPUs are connected at"));
        found.cloned()
    };
    for gpu in ["H100-SXM", "A100-SXM-80", "MI300X", "B200-SXM"] {
        assert_eq!(warning(gpu, 8), None, "{gpu}");
    }
    let told = warning("H100-PCIe", 8).expect("a warning");
    assert!(
        told.contains("at 100 GB/s, below the 900 GB/s of H100-SXM"),
        "{told}"
    );
    let told = warning("A100-PCIe-80", 2).expect("a warning");
    assert!(
        told.contains("at 50 GB/s, below the 600 GB/s of A100-SXM-80"),
        "{told}"
    );
    // One GPU has no links, and no board of this generation connects them.
    assert_eq!((warning("H100-PCIe", 1), warning("L40S", 8)), (None, None));
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
