//! Work that would take longer than anything is sold for.

use super::*;
use crate::samples::{metal, offer};

/// A run that writes checkpoints for longer than it computes.
fn endless(fields: Value) -> Value {
    let mut run = json!({
        "model": "Llama 3.1 8B", "tokens": 1_000_000_000_000_000_u64, "gpus": 8,
        "checkpointing": {"interval_minutes": 1, "size_gb": 599.983_529_411_704_6},
    });
    let fields = fields.as_object().expect("an object").clone();
    run.as_object_mut().expect("an object").extend(fields);
    run
}

fn pile(requests: u64) -> Value {
    json!({
        "model": "Llama 3.1 8B", "requests": requests, "input_tokens": 512, "output_tokens": 256,
    })
}

#[test]
fn a_run_that_is_not_done_in_ten_years_is_refused_with_its_hours_whatever_it_may_take() {
    let market = || vec![metal("h100", "H100-SXM", "23.92")];
    for limit in [json!({}), json!({"deadline": "2046-01-01T00:00:00Z"})] {
        let plan = find(market(), &demand("train", endless(limit)));
        let counted = BTreeMap::from([(ReasonCode::Deadline, 1)]);
        assert_eq!(plan.rejected.by_reason, counted);
        let why = &plan.refused[0].why;
        assert!(why.starts_with("On 1 node the run takes about "), "{why}");
        assert!(
            why.ends_with("nothing is sold for more than 87600 hours"),
            "{why}"
        );
    }
    // Where the number is open, as many GPUs are used as finish within ten years.
    let open = json!({"model": "Llama 3 70B", "tokens": 50_000_000_000_000_u64});
    let plan = find(market(), &demand("train", open));
    let hours = plan.candidates[0].facts.run_hours.expect("hours");
    assert!(hours <= 87_600.0, "{hours}");
}

#[test]
fn a_pile_is_done_in_ten_years_or_refused() {
    let of = |requests, output_tokens| {
        let mut pile = pile(requests);
        pile["output_tokens"] = json!(output_tokens);
        find(
            vec![offer("l40s", "L40S", 1, "1.00")],
            &demand("serve_batch", pile),
        )
    };
    let plan = of(20_000_000_000, 256);
    assert!(plan.candidates[0].nodes() > 1);
    let hours = plan.candidates[0].facts.run_hours.expect("hours");
    assert!(hours <= 87_600.0, "{hours}");
    let plan = of(1_000_000_000_000, 4_096);
    let counted = BTreeMap::from([(ReasonCode::Deadline, 1)]);
    assert_eq!(plan.rejected.by_reason, counted);
    let why = &plan.refused[0].why;
    assert!(
        why.starts_with("On 10000 nodes the batch takes about "),
        "{why}"
    );
    assert!(
        why.ends_with("nothing is sold for more than 87600 hours"),
        "{why}"
    );
}

#[test]
fn a_hybrid_demand_whose_run_never_ends_has_no_pairs() {
    for kind in ["serve_batch", "serve_realtime"] {
        let mut serve = pile(1_000_000);
        serve["kind"] = kind.into();
        if kind == "serve_realtime" {
            serve.as_object_mut().expect("an object").remove("requests");
            serve["concurrency"] = 10.into();
        }
        let whole = json!({"train": endless(json!({})), "serve": serve});
        let whole = demand("hybrid", whole);
        assert_eq!(whole.check(now()), Ok(()));
        let market = vec![
            metal("h100", "H100-SXM", "23.92"),
            offer("l40s", "L40S", 1, "1.00"),
        ];
        let plan = find(market, &whole);
        let hybrid = plan.hybrid.expect("a hybrid plan");
        assert_eq!(
            (hybrid.pairs.len(), hybrid.eligible_train),
            (0, 0),
            "{kind}"
        );
    }
}
