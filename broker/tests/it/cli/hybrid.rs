//! `broker match` of a hybrid: a run and the fleet that serves its result.

use serde_json::{Value, json};

use super::matching::Lists;
use super::{HEADER, Place};

// S17, S22
#[test]
fn a_hybrid_tells_its_pairs_dates_and_savings_and_adds_up() {
    let place = Place::new();
    let rows = [
        "nebius,h100-a,H100-SXM,8,128,1600,81920,23.92,,eu-north1,",
        "nebius,l40s-a,L40S,1,16,96,46068,1.55,,eu-north1,",
        "runpod,l40s-b,L40S,1,16,96,46068,0.79,,US,",
    ];
    let list = place.write("list.csv", &format!("{HEADER}\n{}\n", rows.join("\n")));
    let lists = Lists {
        place,
        files: vec![list],
    };
    let hybrid = json!({
        "kind": "hybrid",
        "train": { "model": "Llama 3.1 8B", "tokens": 100_000_000, "gpus": 8 },
        "serve": {
            "kind": "serve_realtime", "model": "Llama 3.1 8B", "requests_per_second": 5,
            "input_tokens": 512, "output_tokens": 128, "window": { "duration_hours": 2000 },
        },
    });
    let answer = lists.answer(&hybrid, &[]);
    let best = &answer["hybrid"]["pairs"][0];
    let part = |rank: &Value, half: &str| {
        let candidates = answer["candidates"].as_array().expect("candidates");
        let found = candidates.iter().find(|one| one["candidate"] == *rank);
        let found = found.expect("the candidate of a pair");
        assert_eq!(found["half"], half);
        found["sku"].as_str().map(str::to_owned)
    };
    assert_eq!(
        part(&best["train_candidate"], "train").as_deref(),
        Some("h100-a")
    );
    assert_eq!(
        part(&best["serve_candidate"], "serve").as_deref(),
        Some("l40s-b")
    );
    let cents = |value: &Value| {
        let text = value.as_str().expect("an amount");
        text.parse::<rust_decimal::Decimal>().expect("a decimal")
    };
    let sum: rust_decimal::Decimal = ["train_usd", "staging_hold_usd", "egress_usd", "serve_usd"]
        .iter()
        .map(|field| cents(&best[*field]))
        .sum();
    assert_eq!(sum, cents(&best["total_usd"]));
    for baseline in answer["hybrid"]["baselines"].as_array().expect("both") {
        let total = cents(&baseline["way"]["total_usd"]);
        assert_eq!(cents(&baseline["saves_usd"]), total - sum);
    }
    let shortest = lists.answer(&hybrid, &["--top", "1"]);
    let shown = shortest["hybrid"]["pairs"].as_array().expect("pairs");
    assert_eq!(shown.len(), 1);
    for field in ["train_candidate", "serve_candidate", "total_usd"] {
        assert_eq!(shown[0][field], best[field], "however few are shown");
    }
    let demand = lists.place.write("hybrid.json", &hybrid.to_string());
    let args = ["match", "--demand"].map(Into::into).into_iter();
    let args = args.chain([demand.into_os_string(), "--offers".into()]);
    let args = args.chain(lists.files.iter().map(|file| file.clone().into_os_string()));
    let text = lists.place.broker(args.collect::<Vec<_>>()).stdout;
    for words in [
        "1 train",
        "Together, the run and its fleet:",
        "the nodes are released at",
        "The fleet serves from",
        "Against serving on the kind of node that trains",
        "Against both on demand at one provider",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}
