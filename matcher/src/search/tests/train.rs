use market::offer::Availability;

use super::*;
use crate::samples::metal;

pub(super) fn llama_70b(fields: Value) -> Demand {
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
    let line = "Of all possible node counts 8 costs least; 3 would hold it";
    assert!(best.reasons.iter().any(|reason| reason == line), "{best:?}");
    let cost = |plan: &Plan| plan.candidates[0].facts.run_cost_usd.expect("a cost");
    // Three nodes recompute the activations that eight keep, which costs a fifth more for each token.
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
    // A ceiling per hour bounds them too: here five nodes.
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
    // The saving for one per cent more is right to the cent, and the slope to the first order.
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
    // Weights and moments of 70.554e9 parameters, by default.
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
