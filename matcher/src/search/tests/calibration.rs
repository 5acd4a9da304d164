//! One measurement of the job puts its predictions right and narrows them.

use market::math::exp;

use super::*;
use crate::samples::{metal, offer};

fn supply() -> Vec<Offer> {
    vec![
        metal("h100", "H100-SXM", "23.92"),
        metal("a100", "A100-SXM-80", "12.00"),
    ]
}

fn run(fields: Value) -> Demand {
    let mut all = json!({"model": "Llama 3 8B", "tokens": 1_000_000_000, "gpus": 16});
    let fields = fields.as_object().expect("an object").clone();
    all.as_object_mut().expect("an object").extend(fields);
    demand("train", all)
}

fn chat(fields: Value) -> Demand {
    let mut all = json!({
        "model": "Llama 3 8B", "requests_per_second": 40, "input_tokens": 512,
        "output_tokens": 256, "latency": {"per_token_ms": 60, "first_token_ms": 2000},
    });
    let fields = fields.as_object().expect("an object").clone();
    all.as_object_mut().expect("an object").extend(fields);
    demand("serve_realtime", all)
}

fn of<'a>(plan: &'a Plan, sku: &str) -> &'a Candidate {
    let found = plan
        .candidates
        .iter()
        .find(|one| one.lines[0].offer.sku == sku);
    found.expect("a candidate of each offer")
}

fn rate(candidate: &Candidate) -> f64 {
    candidate.facts.tokens_per_second.expect("a rate")
}

fn close(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-9
}

fn step(gpus_per_node: u32, nodes: u32, measured: Value) -> Value {
    let mut step = json!({
        "gpu": "H100-SXM", "gpus_per_node": gpus_per_node, "nodes": nodes,
        "internode": "infiniband_ndr400",
    });
    let measured = measured.as_object().expect("an object").clone();
    step.as_object_mut().expect("an object").extend(measured);
    json!({ "calibration": step })
}

#[test]
fn a_measured_step_rescales_the_run_everywhere_and_narrows_it_where_it_was_taken() {
    let before = find(supply(), &run(json!({})));
    let measured = 0.8 * rate(of(&before, "h100"));
    let with = step(8, 2, json!({"tokens_per_second": measured}));
    let after = find(supply(), &run(with));
    for sku in ["h100", "a100"] {
        let (was, is) = (of(&before, sku), of(&after, sku));
        assert!(close(rate(is), 0.8 * rate(was)), "{sku}");
        let hours = |one: &Candidate| one.facts.run_hours.expect("hours");
        assert!(close(hours(is), hours(was) / 0.8), "{sku}");
        assert!(close(is.facts.calibration_factor.expect("a factor"), 0.8));
        assert_eq!(was.facts.calibration_factor, None);
    }
    let within = |plan: &Plan, sku: &str| of(plan, sku).facts.within_factor.expect("a factor");
    assert!(close(within(&after, "h100"), exp(0.05)));
    assert!(within(&after, "h100") < within(&before, "h100"));
    // A step transfers badly to another GPU, so the interval is no narrower there.
    assert!(within(&after, "a100") >= within(&before, "a100"));
    let said = of(&after, "h100").reasons.join("\n");
    assert!(said.contains("multiplies all rates by 0.800"), "{said}");
    assert!(said.contains("the same GPUs and as many"), "{said}");
}

#[test]
fn a_step_on_another_number_of_the_same_gpus_narrows_less() {
    let one_node = find(supply(), &run(json!({"gpus": 8})));
    let measured = 0.9 * rate(of(&one_node, "h100"));
    let with = step(8, 1, json!({"tokens_per_second": measured}));
    let after = find(supply(), &run(with));
    let before = find(supply(), &run(json!({})));
    let within = |plan: &Plan| of(plan, "h100").facts.within_factor.expect("a factor");
    assert!(
        within(&after) < within(&before),
        "{} {}",
        within(&after),
        within(&before)
    );
    assert!(within(&after) > exp(0.05));
    assert!(close(
        rate(of(&after, "h100")),
        0.9 * rate(of(&before, "h100"))
    ));
}

#[test]
fn seconds_of_a_step_say_the_same_as_its_tokens() {
    let tokens = 512.0 * 4_096.0;
    let by_rate = step(8, 2, json!({"tokens_per_second": tokens / 10.0}));
    let by_time = step(8, 2, json!({"seconds_per_step": 10.0}));
    let with = |calibration: Value| {
        let mut all = calibration;
        all["global_batch_sequences"] = json!(512);
        rate(of(&find(supply(), &run(all)), "h100"))
    };
    assert!(close(with(by_rate), with(by_time)));
}

#[test]
fn a_slower_copy_needs_more_nodes_and_still_meets_its_limits() {
    let offers = || vec![offer("l40s", "L40S", 1, "1.00")];
    let before = find(offers(), &chat(json!({})));
    let copy = |measured: f64| {
        json!({"calibration": {
            "gpu": "L40S", "gpus": 1, "concurrency": 8, "tokens_per_second": measured,
        }})
    };
    // The refusal of an impossible rate contains the predicted one.
    let options = SearchOptions::default();
    let absurd = chat(copy(1e6));
    let refused = search(&snapshot(offers()), &absurd, &Held::new(), now(), &options);
    let Err(error @ MatchError::Calibration(_)) = refused else {
        panic!("a million tokens/s on one L40S: {refused:?}")
    };
    let said = error.to_string();
    let factor = said
        .split(" are ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let factor: f64 = factor.expect("a factor").parse().expect("a number");
    let predicted = 1e6 / factor;
    let after = find(offers(), &chat(copy(0.6 * predicted)));
    let (was, is) = (of(&before, "l40s"), of(&after, "l40s"));
    let speed = is.facts.calibration_factor.expect("a factor");
    assert!((speed - 0.6).abs() < 0.01, "{speed}");
    assert!(is.nodes() > was.nodes());
    assert!(is.facts.per_token_ms <= Some(60.0) && is.facts.first_token_ms <= Some(2_000.0));
    let each = |one: &Candidate| rate(one) / f64::from(one.nodes());
    assert!(each(is) <= speed * each(was) * 1.000_001);
    assert!(is.facts.within_factor < was.facts.within_factor);
}

#[test]
fn a_copy_as_fast_as_predicted_changes_nothing_but_how_sure_it_is() {
    let offers = || {
        vec![
            metal("h100", "H100-SXM", "23.92"),
            offer("l40s", "L40S", 1, "1.00"),
        ]
    };
    let before = find(offers(), &run(json!({})));
    let measured = rate(of(&before, "h100"));
    let with = step(8, 2, json!({"tokens_per_second": measured}));
    let after = find(offers(), &run(with));
    let told = |plan: &Plan| {
        let each = plan.candidates.iter();
        each.map(|one| (one.lines.clone(), one.facts.run_cost_usd))
            .collect::<Vec<_>>()
    };
    assert_eq!(told(&before), told(&after));
}

#[test]
fn a_run_is_not_measured_where_it_does_not_fit() {
    let with = json!({"model": "Llama 3.1 405B", "gpus": null, "calibration": {
        "gpu": "H100-SXM", "gpus_per_node": 8, "tokens_per_second": 100.0,
    }});
    let mut all = with;
    all.as_object_mut().expect("an object").remove("gpus");
    let options = SearchOptions::default();
    let refused = search(
        &snapshot(supply()),
        &run(all),
        &Held::new(),
        now(),
        &options,
    );
    let error = refused.expect_err("405B on eight GPUs").to_string();
    assert!(error.contains("does not fit on 1 x 8 H100-SXM"), "{error}");
}

// S38
#[test]
fn a_copy_as_fast_as_predicted_changes_no_alternative() {
    let offers = || {
        vec![
            offer("h100", "H100-SXM", 1, "2.50"),
            offer("l40s", "L40S", 1, "1.00"),
        ]
    };
    let copy = |measured: f64| {
        chat(json!({
            "requests_per_second": 300,
            "calibration": {
                "gpu": "H100-SXM", "gpus": 1, "concurrency": 16, "tokens_per_second": measured,
            },
        }))
    };
    // The prediction with the requested weights.
    let any = copy(1_000.0);
    let Query::Serve(query) = super::scan::query(&any) else {
        panic!("a fleet")
    };
    let predicted = query.calibration.expect("a measurement").predicted;
    let alternatives = |demand: &Demand| {
        let options = SearchOptions {
            alternatives: true,
            ..SearchOptions::default()
        };
        let plan = search(&snapshot(offers()), demand, &Held::new(), now(), &options);
        plan.expect("a plan").alternatives
    };
    let before = alternatives(&chat(json!({"requests_per_second": 300})));
    assert!(before.len() >= 2, "{before:?}");
    assert_eq!(alternatives(&copy(predicted)), before);
    // Half as fast they take more of the same.
    let slower = alternatives(&copy(predicted / 2.0));
    let price = |all: &[crate::plan::Alternative], weights| {
        let mut of = all.iter().filter(|one| one.weights == weights);
        of.next().expect("both save").price_usd_hour.units() as f64
    };
    let fp8 = ::market::demand::Precision::Fp8;
    assert!(
        price(&slower, fp8) > 1.7 * price(&before, fp8),
        "{slower:?}"
    );
}
