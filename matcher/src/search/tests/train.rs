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
fn as_many_nodes_are_taken_as_the_run_costs_least_on() {
    // 16 bytes a parameter are 1,129 GB: two nodes of 8 x 80 GB fill up at 1,177 GB.
    let of = |free: u32| {
        let offer = Offer {
            availability: Availability::exactly(free),
            ..metal("h100", "H100-SXM", "23.92")
        };
        find(vec![offer], &llama_70b(json!({})))
    };
    let plan = of(500);
    let best = &plan.candidates[0];
    let line = "Of all numbers of nodes that may be taken 8 cost least; 3 hold it";
    assert!(best.reasons.iter().any(|reason| reason == line), "{best:?}");
    let cost = |plan: &Plan| plan.candidates[0].facts.run_cost_usd.expect("a cost");
    // Three compute again what eight keep, which costs a fifth more for each token.
    let settled = |gpus: u32| {
        let offers = vec![metal("h100", "H100-SXM", "23.92")];
        cost(&find(offers, &llama_70b(json!({"gpus": gpus}))))
    };
    assert!(cost(&plan).units() * 6 < settled(24).units() * 5);
    for nodes in 3..=100 {
        assert!(cost(&plan) <= settled(nodes * 8), "{nodes}");
    }
    // With fewer in stock the best of those, and with too few none.
    assert_eq!(
        (of(3).candidates[0].nodes(), of(8).candidates[0].nodes()),
        (3, 8)
    );
    assert_eq!(cost(&of(3)), settled(24));
    assert_eq!(
        of(2).rejected.by_reason,
        BTreeMap::from([(ReasonCode::NotEnoughNodes, 1)])
    );
    // What an hour may cost bounds them likewise: here five nodes.
    let ceiling = json!({"ceiling": {"usd_per_hour": "120.00"}});
    let bounded = find(
        vec![metal("h100", "H100-SXM", "23.92")],
        &llama_70b(ceiling),
    );
    let nodes = bounded.candidates[0].nodes();
    assert!((4..=5).contains(&nodes), "{nodes}");
    assert_eq!(cost(&bounded), settled(nodes * 8).min(settled(40)));
}

#[test]
fn offers_of_one_group_take_what_each_of_them_has() {
    let of = |sku: &str, free: Option<u32>, price: &str| Offer {
        availability: free.map_or(Availability::UNKNOWN, Availability::exactly),
        ..metal(sku, "H100-SXM", price)
    };
    let plan = find(
        vec![
            of("three", Some(3), "20.00"),
            of("five", Some(5), "21.00"),
            of("many", None, "23.92"),
            of("two", Some(2), "10.00"),
        ],
        &llama_70b(json!({})),
    );
    let mut nodes: Vec<_> = (plan.candidates.iter())
        .map(|one| (one.lines[0].offer.sku.as_str(), one.nodes()))
        .collect();
    nodes.sort_unstable();
    assert_eq!(plan.eligible, 3);
    assert_eq!(nodes[1..], [("many", 8), ("three", 3)]);
    assert!(
        nodes[0].0 == "five" && (4..=5).contains(&nodes[0].1),
        "{nodes:?}"
    );
    assert_eq!(
        plan.rejected.by_reason,
        BTreeMap::from([(ReasonCode::NotEnoughNodes, 1)])
    );
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
    let why = "in which the better machine comes first; this one stands on bare metal, that one on \
               virtual machines";
    assert!(told.contains(why), "{told}");
    assert_eq!(skus(&first("22.02")), ["vm", "metal"]);
    // What can be ordered comes before the better machine.
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
    // By predicted cost alone it turns at the price that makes up for the longer run.
    let break_even = 23.92 / longer;
    assert_eq!(skus(&on(break_even * 1.001, false)), ["ib", "eth"]);
    assert_eq!(skus(&on(break_even * 0.999, false)), ["eth", "ib"]);
    // What is within a tenth goes to the better fabric: it turns a tenth below.
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
fn the_cheaper_run_comes_first_not_the_cheaper_hour() {
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
        // Five per cent dearer is a tie, which only full training settles by the machine.
        let tie = if method == "full" { "whole" } else { "small" };
        assert_eq!(skus(&first(method, even * 1.05))[0], tie);
        assert_eq!(skus(&first(method, even * 1.15)), ["small", "whole"]);
    }
}

// S62
#[test]
fn what_one_per_cent_of_efficiency_is_worth_is_the_slope_of_the_cost() {
    let at_speed = |factor: f64| {
        let measured = |tokens_per_second: f64| {
            json!({
                "gpus": 64, "calibration": {
                    "gpu": "H100-SXM", "gpus_per_node": 8, "nodes": 8,
                    "internode": "infiniband_ndr400", "tokens_per_second": tokens_per_second,
                },
            })
        };
        let offers = || vec![metal("h100", "H100-SXM", "23.92")];
        let facts = |fields| find(offers(), &llama_70b(fields)).candidates[0].facts;
        let predicted = facts(json!({"gpus": 64}))
            .tokens_per_second
            .expect("a rate");
        let facts = facts(measured(predicted * factor));
        let dollars = |money: Option<Money>| money.expect("a sum").units() as f64 / 1e8;
        (
            dollars(facts.run_cost_usd),
            dollars(facts.usd_per_percent_efficiency),
        )
    };
    let (cost, worth) = at_speed(1.0);
    // One per cent more is what it says to the cent, and the slope to the first order.
    assert!((cost - at_speed(1.01).0 - worth).abs() < 0.01, "{worth}");
    let slope = (at_speed(0.999).0 - at_speed(1.001).0) / 0.002;
    assert!(
        (worth / (slope * 0.01) - 1.0).abs() < 0.011,
        "{worth} {slope}"
    );
}

// S36, S76
#[test]
fn a_larger_checkpoint_is_written_longer_less_often_and_costs_more() {
    let facts = |checkpointing: Value| {
        let fields = json!({"gpus": 512, "checkpointing": checkpointing});
        find(vec![metal("h100", "H100-SXM", "23.92")], &llama_70b(fields)).candidates[0].facts
    };
    // At 10 GB/s.
    let sizes = [500.0, 2_000.0];
    let [small, large] = sizes.map(|size_gb| facts(json!({"size_gb": size_gb})));
    assert_eq!(
        (small.checkpoint_seconds, large.checkpoint_seconds),
        (Some(50.0), Some(200.0))
    );
    assert!(small.run_cost_usd < large.run_cost_usd);
    assert!(small.checkpoint_interval_minutes < large.checkpoint_interval_minutes);
    // Weights and moments of 70.554e9 parameters, where the demand does not say.
    let own = facts(json!({})).checkpoint_seconds.expect("seconds");
    assert!((own - 14.0 * 7.0554).abs() < 1e-9, "{own}");
    // No other interval is cheaper by more than the estimate errs.
    let best = large.run_cost_usd.expect("a cost").units() as f64;
    for interval_minutes in [5, 20, 60, 120, 240, 480, 1_000] {
        let other = facts(json!({"size_gb": 2_000.0, "interval_minutes": interval_minutes}));
        let other = other.run_cost_usd.expect("a cost").units() as f64;
        assert!(other > best * 0.999, "{interval_minutes}");
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
            .find(|one| one.starts_with("Its GPUs are joined at"));
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
    // One GPU has none to talk to, and no board of this generation joins them.
    assert_eq!((warning("H100-PCIe", 1), warning("L40S", 8)), (None, None));
}

#[test]
fn spare_nodes_are_told_of_and_in_no_price() {
    let with = |gpus: u32| {
        let offers = vec![metal("h100", "H100-SXM", "23.92")];
        find(offers, &llama_70b(json!({"gpus": gpus})))
            .candidates
            .remove(0)
    };
    let (small, large) = (with(64), with(16_384));
    let says =
        |one: &Candidate, words: &str| one.reasons.iter().any(|line| line.starts_with(words));
    assert_eq!(small.facts.spare_nodes, Some(0));
    assert!(says(
        &small,
        "No spare node is worth holding: one costs 12.5 % of the run"
    ));
    let spares = large.facts.spare_nodes.expect("a number");
    assert!(spares > 0 && says(&large, &format!("{spares} spare nodes are worth holding")));
    assert_eq!(large.nodes(), 2_048);
}

// S60
#[test]
fn a_deadline_adds_nodes_until_the_run_is_done_in_time() {
    let offers = || vec![metal("h100", "H100-SXM", "23.92")];
    let free = find(offers(), &llama_70b(json!({})));
    let by_day = find(
        offers(),
        &llama_70b(json!({"deadline": "2026-03-02T12:00:00Z"})),
    );
    let (free, by_day) = (&free.candidates[0], &by_day.candidates[0]);
    assert!(by_day.nodes() > free.nodes());
    let hours = |one: &Candidate| one.facts.run_hours.expect("an estimate");
    assert!(hours(free) > 24.0 && hours(by_day) <= 24.0);
    // Of all numbers that finish in time it is the cheapest, with the fewest nodes.
    let settled = |nodes: u32| {
        let plan = find(offers(), &llama_70b(json!({"gpus": nodes * 8})));
        let facts = plan.candidates[0].facts;
        let in_time = facts.run_hours.expect("an estimate") <= 24.0;
        in_time.then_some((facts.run_cost_usd.expect("a cost"), nodes))
    };
    let best = (3..200).filter_map(settled).min().expect("some number is");
    assert_eq!(
        (by_day.facts.run_cost_usd, by_day.nodes()),
        (Some(best.0), best.1)
    );
    // The end of the window counts like a deadline, and the earlier of the two decides.
    let fields = json!({"deadline": "2026-03-09T12:00:00Z", "window": {"duration_hours": 24}});
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
