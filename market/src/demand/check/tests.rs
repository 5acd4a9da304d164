//! Demands with one fault each, and the errors that report them.

use chrono::{DateTime, Utc};

use super::*;
use crate::demand::DemandKind;

fn now() -> DateTime<Utc> {
    "2026-11-21T12:00:00Z".parse().expect("a time")
}

fn faults(json: &str) -> Vec<String> {
    let demand: Demand = serde_json::from_str(json).expect("a readable demand");
    match demand.check(now()) {
        Ok(()) => Vec::new(),
        Err(faults) => faults
            .into_iter()
            .map(|f| format!("{}: {}", f.field, f.detail))
            .collect(),
    }
}

#[test]
fn a_gpus_demand_needs_only_gpu_and_count() {
    let demand: Demand =
        serde_json::from_str(r#"{"kind":"gpus","gpu":"H100-SXM","count":8}"#).expect("a demand");
    assert_eq!(demand.kind(), DemandKind::Gpus);
    assert_eq!(demand.check(now()), Ok(()));
    let Demand::Gpus(gpus) = demand else {
        panic!("gpus")
    };
    assert_eq!((gpus.nodes, gpus.spot), (1, false));
}

// S01
#[test]
fn every_kind_parses_and_is_closed() {
    for json in [
        r#"{"kind":"gpus","gpu":"any","count":1}"#,
        r#"{"kind":"train","model":"Llama 3 70B","tokens":1000000}"#,
        r#"{"kind":"serve_realtime","model":"Llama 3 8B","requests_per_second":2,"input_tokens":512,"output_tokens":128}"#,
        r#"{"kind":"serve_batch","model":"Llama 3 8B","requests":10,"input_tokens":512,"output_tokens":128}"#,
        r#"{"kind":"hybrid","train":{"model":"Llama 3 8B","tokens":5},"serve":{"kind":"serve_batch","model":"Llama 3 8B","requests":10,"input_tokens":5,"output_tokens":5}}"#,
    ] {
        assert_eq!(faults(json), Vec::<String>::new(), "{json}");
        let with_more = json.replacen('{', r#"{"colour":"red","#, 1);
        let refusal = serde_json::from_str::<Demand>(&with_more)
            .expect_err("closed")
            .to_string();
        assert!(refusal.contains("colour"), "{refusal}");
    }
}

#[test]
fn a_window_ends_within_ten_years() {
    let with = |field: &str, time: &str| {
        faults(&format!(
            r#"{{"kind":"gpus","gpu":"any","count":1,"window":{{"{field}":"{time}"}}}}"#
        ))
    };
    let ending = |end: &str| with("end", end);
    let starting = |time| with("start_latest", time);
    assert_eq!(starting("2036-11-18T12:00:00Z"), Vec::<String>::new());
    assert_eq!(
        starting("+262142-12-31T00:00:00Z"),
        ["window.start_latest: must be within ten years"]
    );
    assert_eq!(latest_end(now()).to_rfc3339(), "2036-11-18T12:00:00+00:00");
    assert_eq!(ending("2036-11-18T12:00:00Z"), Vec::<String>::new());
    for end in [
        "2036-11-18T12:00:01Z",
        "9999-12-31T00:00:00Z",
        "+262142-12-31T00:00:00Z",
    ] {
        assert_eq!(
            ending(end),
            ["window.end: must be within ten years"],
            "{end}"
        );
    }
    assert_eq!(
        latest_end(DateTime::<Utc>::MAX_UTC),
        DateTime::<Utc>::MAX_UTC
    );
}

#[test]
fn a_window_in_the_past_is_refused() {
    let found =
        faults(r#"{"kind":"gpus","gpu":"any","count":1,"window":{"end":"2026-11-20T00:00:00Z"}}"#);
    assert_eq!(found[0], "window.end: 2026-11-20T00:00:00Z is in the past");
}

#[test]
fn a_start_lies_ahead_within_a_year_and_before_the_end() {
    let window = |fields: &str| {
        let window = format!(r#""window":{{"start_earliest":{fields}}}"#);
        faults(&format!(
            r#"{{"kind":"gpus","gpu":"any","count":1,{window}}}"#
        ))
    };
    let fine = Vec::<String>::new();
    // The caller's clock may be a little behind.
    for start in [
        "2026-11-21T11:56:00Z",
        "2026-11-22T00:00:00Z",
        "2027-11-21T12:00:00Z",
    ] {
        assert_eq!(window(&format!(r#""{start}""#)), fine, "{start}");
    }
    for (fields, fault) in [
        (
            r#""2026-11-21T11:54:00Z""#,
            "window.start_earliest: 2026-11-21T11:54:00Z is in the past; leave it out to start now",
        ),
        (
            r#""2027-11-21T12:00:01Z""#,
            "window.start_earliest: 2027-11-21T12:00:01Z is more than a year ahead; plan again when it is nearer",
        ),
        (
            r#""2026-12-01T00:00:00Z","end":"2026-12-01T00:00:00Z""#,
            "window.end: must be after the start",
        ),
        (
            r#""2026-12-01T00:00:00Z","start_latest":"2026-11-30T00:00:00Z""#,
            "window.start_latest: must not be before the earliest start",
        ),
        (
            r#""2026-12-01T00:00:00Z","start_latest":"2026-12-01T00:09:00Z""#,
            "window.start_latest: must be at least 10 minutes after `window.start_earliest`, so that machines can be handed over in between",
        ),
    ] {
        assert_eq!(window(fields), [fault], "{fields}");
    }
}

#[test]
fn impossible_numbers_are_all_named_at_once() {
    let found = faults(
        r#"{"kind":"gpus","gpu":"any","count":0,"nodes":0,"ceiling":{"usd_per_gpu_hour":"0"},"tenancy":[]}"#,
    );
    for field in ["count", "nodes", "ceiling.usd_per_gpu_hour", "tenancy"] {
        assert!(
            found.iter().any(|f| f.starts_with(&format!("{field}:"))),
            "{field} in {found:?}"
        );
    }
}

#[test]
fn the_load_of_a_fleet_is_given_exactly_once() {
    let with = |load: &str| {
        faults(&format!(
            r#"{{"kind":"serve_realtime","model":"x",{load}"input_tokens":5,"output_tokens":5}}"#
        ))
    };
    assert_eq!(with("").len(), 1);
    assert_eq!(with(r#""requests_per_second":1,"concurrency":1,"#).len(), 1);
    assert!(with(r#""concurrency":1,"#).is_empty());
}

#[test]
fn the_halves_of_a_hybrid_are_checked_with_their_path() {
    let found = faults(
        r#"{"kind":"hybrid","train":{"model":"x","tokens":0},"serve":{"kind":"serve_batch","model":"x","requests":1,"input_tokens":0,"output_tokens":5}}"#,
    );
    assert!(found[0].starts_with("train.tokens:"), "{found:?}");
    assert!(found[1].starts_with("serve.input_tokens:"), "{found:?}");
}

#[test]
fn a_list_is_no_longer_than_the_schema_says() {
    let strings = |count: usize, item: &str| vec![format!("\"{item}\""); count].join(",");
    let demand = |field: &str, count: usize| {
        let (outer, inner) = field.split_once('.').expect("a path");
        let item = if inner == "countries" { "FR" } else { "lambda" };
        let items = strings(count, item);
        format!(r#"{{"kind":"gpus","gpu":"any","count":1,"{outer}":{{"{inner}":[{items}]}}}}"#)
    };
    for field in [
        "places.countries",
        "places.regions",
        "policy.deny_providers",
        "policy.allow_providers",
    ] {
        assert_eq!(faults(&demand(field, 250)), Vec::<String>::new(), "{field}");
        assert_eq!(
            faults(&demand(field, 251)),
            [format!("{field}: names 251, and at most 250 are taken")]
        );
    }
    let users = vec![r#"{"country":"FR","share":0.004}"#; 251].join(",");
    let serve = format!(
        r#"{{"kind":"serve_realtime","model":"Llama 3 8B","concurrency":2,"input_tokens":5,"output_tokens":5,"users":[{users}]}}"#
    );
    assert_eq!(
        faults(&serve),
        ["users: names 251, and at most 250 are taken"]
    );
    let hybrid = format!(
        r#"{{"kind":"hybrid","train":{{"model":"Llama 3 8B","tokens":5,"tenancy":[{}]}},"serve":{serve}}}"#,
        strings(5, "vm")
    );
    assert_eq!(
        faults(&hybrid),
        [
            "train.tenancy: names 5, and at most 4 are taken",
            "serve.users: names 251, and at most 250 are taken"
        ]
    );
}

#[test]
fn a_measurement_is_given_once_and_within_reason() {
    let step = |measured: &str| {
        faults(&format!(
            r#"{{"kind":"train","model":"x","tokens":5,"calibration":{{"gpu":"H100-SXM","gpus_per_node":8{measured}}}}}"#
        ))
    };
    assert_eq!(step(r#","tokens_per_second":5"#), Vec::<String>::new());
    assert_eq!(step(r#","seconds_per_step":5"#), Vec::<String>::new());
    assert!(step("")[0].starts_with("calibration.tokens_per_second: give the measurement once"));
    assert_eq!(
        step(r#","tokens_per_second":5,"seconds_per_step":5"#).len(),
        1
    );
    assert!(step(r#","seconds_per_step":0"#)[0].starts_with("calibration.seconds_per_step:"));
    assert!(step(r#","nodes":0,"tokens_per_second":5"#)[0].starts_with("calibration.nodes:"));
    let copy = |gpus: u32| {
        faults(&format!(
            r#"{{"kind":"serve_batch","model":"x","requests":5,"input_tokens":5,"output_tokens":5,"calibration":{{"gpu":"L40S","gpus":{gpus},"concurrency":4,"tokens_per_second":5}}}}"#
        ))
    };
    assert_eq!(copy(1), Vec::<String>::new());
    assert!(copy(0)[0].starts_with("calibration.gpus:"));
}

#[test]
fn a_shape_that_no_model_has_names_the_field() {
    let of = |params: f64, active: Option<f64>, (hidden, kv_heads, head_dim): (u32, u32, u32)| {
        let active = active.map_or(String::new(), |active| {
            format!(r#""params_active_b":{active},"#)
        });
        faults(&format!(
            r#"{{"kind":"train","tokens":5,"model":{{"params_total_b":{params},{active}"layers":32,"hidden":{hidden},"kv_heads":{kv_heads},"head_dim":{head_dim}}}}}"#
        ))
    };
    // One head over all, every head with keys of its own, and keys wider than the stream.
    for widths in [(4_096, 1, 4_096), (4_096, 32, 128), (4_096, 128, 128)] {
        assert_eq!(of(8.0, None, widths), Vec::<String>::new());
    }
    assert_eq!(of(8.0, Some(0.04), (4_096, 8, 128)), Vec::<String>::new());
    assert_eq!(
        of(8.0, None, (4_096, 10_000, 128)),
        ["model.kv_heads: times `head_dim` must be at most 4 times `hidden`, 16384, not 1280000"]
    );
    assert_eq!(
        of(8.0, None, (4_096, 129, 128)),
        ["model.kv_heads: times `head_dim` must be at most 4 times `hidden`, 16384, not 16512"]
    );
    assert_eq!(
        of(8.0, None, (64, 1, 128)),
        ["model.head_dim: must be at most `hidden`, 64, not 128"]
    );
    assert_eq!(
        of(8.0, Some(0.001), (4_096, 8, 128)),
        ["model.params_active_b: must be at least 0.04, a two-hundredth of the total, not 0.001"]
    );
}

#[test]
fn heads_are_shared_evenly_by_those_that_keep_keys_and_no_wider_than_any_model_has_them() {
    let of = |heads: u32, kv_heads: u32| {
        faults(&format!(
            r#"{{"kind":"train","tokens":5,"model":{{"params_total_b":8,"layers":32,"hidden":4096,"heads":{heads},"kv_heads":{kv_heads},"head_dim":128}}}}"#
        ))
    };
    for (heads, kv_heads) in [(32, 8), (32, 32), (128, 1), (1, 1)] {
        assert_eq!(of(heads, kv_heads), Vec::<String>::new());
    }
    for (heads, kv_heads) in [(8, 32), (36, 8)] {
        assert_eq!(
            of(heads, kv_heads),
            [format!(
                "model.heads: must be a multiple of `kv_heads`, {kv_heads}, not {heads}"
            )]
        );
    }
    assert_eq!(
        of(129, 1),
        ["model.heads: times `head_dim` must be at most 4 times `hidden`, 16384, not 16512"]
    );
    assert_eq!(
        of(0, 1),
        ["model.heads: must be between 1 and 10000, not 0"]
    );
}

#[test]
fn counts_and_fabrics_that_contradict_themselves_are_faults() {
    let gpus = |more: &str| {
        faults(&format!(
            r#"{{"kind":"gpus","gpu":"H100","nodes":2,{more}}}"#
        ))
    };
    let older = |allows: bool, same: &str, fabric: &str| {
        vec![format!(
            "policy.allow_ethernet: is the older word for `fabric`: {allows} is `{same}`, and `fabric` is `{fabric}`; leave it out"
        )]
    };
    for (more, found) in [
        (r#""count":{"min":4,"max":8}"#, vec![]),
        (
            r#""count":{"min":8,"max":4}"#,
            vec!["count.max: must be at least `min`, 8, not 4".to_owned()],
        ),
        (
            r#""count":{"min":0,"max":4}"#,
            vec!["count.min: must be between 1 and 1024, not 0".to_owned()],
        ),
        (
            r#""count":0"#,
            vec!["count: must be between 1 and 1024, not 0".to_owned()],
        ),
        (
            r#""count":8,"vcpus":0"#,
            vec!["vcpus: must be between 1 and 100000, not 0".to_owned()],
        ),
        (
            r#""count":8,"fabric":"rdma","policy":{"allow_ethernet":false}"#,
            vec![],
        ),
        (
            r#""count":8,"fabric":"rdma","policy":{"allow_ethernet":true}"#,
            older(true, "any", "rdma"),
        ),
        (
            r#""count":8,"fabric":"any","policy":{"allow_ethernet":false}"#,
            older(false, "rdma", "any"),
        ),
    ] {
        assert_eq!(gpus(more), found, "{more}");
    }
    let serve = r#"{"kind":"serve_batch","model":"Llama 3 8B","requests":10,"input_tokens":512,"output_tokens":128,"fabric":"rdma"}"#;
    let refused = serde_json::from_str::<Demand>(serve).expect_err("no field of a fleet");
    assert!(refused.to_string().contains("`fabric`"), "{refused}");
}
