//! `broker match --record` and `--replay`.

use serde_json::{Value, json};

use super::matching::{h100, lists};

// S91
#[test]
fn a_decision_is_recorded_and_replays_to_the_last_bit_from_its_file_alone() {
    let lists = lists();
    for demand in [
        h100(8),
        json!({"kind": "train", "model": "Llama 3.1 8B", "tokens": 1_000_000_000, "gpus": 8}),
        json!({
            "kind": "serve_realtime", "model": "Llama 3.1 8B", "requests_per_second": 3.7,
            "input_tokens": 512, "output_tokens": 128, "users": [{"country": "DE", "share": 1.0}],
        }),
        json!({
            "kind": "serve_batch", "model": "Llama 3.1 8B", "requests": 1_000_000,
            "input_tokens": 512, "output_tokens": 128, "window": {"duration_hours": 100},
        }),
        json!({
            "kind": "hybrid",
            "train": {"model": "Llama 3.1 8B", "tokens": 100_000_000, "gpus": 8},
            "serve": {
                "kind": "serve_realtime", "model": "Llama 3.1 8B", "requests_per_second": 5,
                "input_tokens": 512, "output_tokens": 128, "window": {"duration_hours": 2000},
            },
        }),
    ] {
        let record = lists.place.path().join("record.json");
        let shown = record.to_str().expect("a path");
        let answer = lists.answer(&demand, &["--record", shown]);
        assert_ne!(answer["candidates"], json!([]));
        let replay = |file: &std::path::Path| {
            let args = ["match", "--json", "--replay"].map(Into::into).into_iter();
            let args = args.chain([file.as_os_str().to_owned()]);
            lists.place.broker(args.collect::<Vec<_>>())
        };
        assert_eq!(replay(&record).json(0)["same"], true);
        // A cheaper offer among those of the record would have been decided for.
        let text = std::fs::read_to_string(&record).expect("the record");
        let mut changed: Value = serde_json::from_str(&text).expect("JSON");
        for offer in changed["offers"].as_array_mut().expect("offers") {
            offer["price_per_node_hour"] = json!("11.00");
        }
        let other = lists.place.write("other.json", &changed.to_string());
        let ended = replay(&other);
        assert_eq!(ended.status, Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains("first at `plan."), "{}", ended.stderr);
        changed["sources"]["models"] = json!("00");
        let other = lists.place.write("other.json", &changed.to_string());
        let ended = replay(&other);
        assert!(
            ended.stderr.contains("with the models 00"),
            "{}",
            ended.stderr
        );
    }
    let no_record = lists.place.write("none.json", "{}");
    let args = ["match", "--replay"].map(Into::into).into_iter();
    let args = args.chain([no_record.into_os_string()]);
    let ended = lists.place.broker(args.collect::<Vec<_>>());
    assert!(ended.refused().contains("no decision record"));
}
