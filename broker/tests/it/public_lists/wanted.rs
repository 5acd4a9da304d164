//! Demands in the words of public lists and issues, on small lists: sources stand beside the tests.

use matcher::Plan;
use serde_json::{Value, json};

use super::{list, plan, ranked};

/// A list with a column for the fabric between nodes.
const FABRICS: &str = "provider,instance_type,gpu_name,gpu_count,vcpus,memory_gib,gpu_memory_mib,price_usd_hour,spot_usd_hour,region,zone,fabric";

#[test]
fn a_demand_takes_the_words_of_lists_several_gpus_and_least_sizes() {
    // skypilot-org/skypilot issues 3794 and 1361, pull requests 5948 and 8957; dstackai/dstack issue 1975.
    let rows = [
        "aws,g6e.12xlarge,L40S,4,48,384,46068,10.49,,us-east-1,,",
        "lambda,gpu_1x_a10,A10,1,30,200,24576,0.75,,us-east-1,,",
        "lambda,gpu_8x_a100_80gb_sxm4,A100-80GB,8,240,1800,81920,14.32,,us-east-1,,",
        "lambda,gpu_4x_a100_40gb,A100-SXM4-40GB,4,120,900,40960,6.00,,us-east-1,,",
        "lambda,gpu_8x_h100_sxm5,H100-80G-SXM5,8,208,1800,81920,23.92,,us-east-1,,",
        "acme,4090,RTX4090,1,16,,24576,0.40,,US,,",
    ];
    let lists = [list("list.csv", FABRICS, &rows)];
    let found = |fields: Value| {
        let mut demand = json!({"kind": "gpus"});
        let own = fields.as_object().expect("an object").clone();
        demand.as_object_mut().expect("an object").extend(own);
        ranked(&plan(&lists, &demand))
    };
    let a100 = "lambda gpu_8x_a100_80gb_sxm4 14.32";
    let l40s = "aws g6e.12xlarge 10.49";
    let small = "lambda gpu_4x_a100_40gb 6.00";
    for (fields, best) in [
        (json!({"gpu": "A100-80GB", "count": 8}), vec![a100]),
        (json!({"gpu": "A100 80GB", "count": 8}), vec![a100]),
        (json!({"gpu": "4090", "count": 1}), vec!["acme 4090 0.40"]),
        (json!({"gpu": "40GB+", "count": 4}), vec![small, l40s]),
        (
            json!({"gpu": "any", "gpu_memory_gib": 48, "count": 4}),
            vec![l40s],
        ),
        (
            json!({"gpu": ["A10", "A10G", "A100"], "count": 1}),
            vec!["lambda gpu_1x_a10 0.75"],
        ),
        (
            json!({"gpu": ["A100", "L40S"], "count": {"min": 4, "max": 8}}),
            vec![small, l40s, a100],
        ),
        (
            json!({"gpu": "any", "count": {"min": 4}, "host_memory_gib": 900}),
            vec![small, a100, "lambda gpu_8x_h100_sxm5 23.92"],
        ),
        (json!({"gpu": "any", "count": 8, "vcpus": 209}), vec![a100]),
        // A value that the seller does not state is not enough.
        (
            json!({"gpu": "4090", "count": 1, "host_memory_gib": 8}),
            vec![],
        ),
    ] {
        assert_eq!(found(fields.clone()), best, "{fields}");
    }
}

#[test]
fn several_nodes_are_joined_as_the_demand_says_and_silence_is_warned_of() {
    // kubernetes-sigs/kueue issue 2724; dstackai/dstack issues 2221 and 1489.
    let rows = [
        "lambda,gpu_8x_h100_sxm5,H100-80G-SXM5,8,208,1800,81920,23.92,,us-east-1,,",
        "voltagepark,h100-ib,H100-80G-SXM5,8,104,1024,81920,24.9,,US,,ib_ndr400",
    ];
    let lists = [list("list.csv", FABRICS, &rows)];
    let four = |fields: Value| {
        let mut demand = json!({"kind": "gpus", "gpu": "H100-SXM", "count": 8, "nodes": 4});
        let own = fields.as_object().expect("an object").clone();
        demand.as_object_mut().expect("an object").extend(own);
        plan(&lists, &demand)
    };
    let both = ["lambda gpu_8x_h100_sxm5 95.68", "voltagepark h100-ib 99.60"];
    let warnings = |plan: &Plan| {
        let reasons = plan.candidates.iter().flat_map(|one| &one.reasons);
        reasons
            .filter(|reason| reason.starts_with("Warning: "))
            .count()
    };
    for fields in [
        json!({"policy": {"allow_ethernet": false}}),
        json!({"fabric": "rdma"}),
        json!({"fabric": "infiniband"}),
    ] {
        let joined = four(fields);
        assert_eq!(ranked(&joined), both[1..]);
        assert_eq!(warnings(&joined), 0);
        assert!(
            joined.candidates[0]
                .reasons
                .iter()
                .any(|reason| reason.contains("`infiniband_ndr400`"))
        );
    }
    let silent = four(json!({}));
    assert_eq!(
        (ranked(&silent), warnings(&silent)),
        (both.map(str::to_owned).into(), 1)
    );
    let any = four(json!({"fabric": "any"}));
    assert_eq!(
        (ranked(&any), warnings(&any)),
        (both.map(str::to_owned).into(), 0)
    );
}

#[test]
fn a_count_that_nobody_sells_is_refused_with_the_nearest_that_is_sold() {
    let rows = [
        "lambda,two,H100-80G-SXM5,2,52,450,81920,6.38,,us-east-1,,",
        "lambda,eight,H100-80G-SXM5,8,208,1800,81920,23.92,,us-east-1,,",
        "lambda,four,L40S,4,48,384,46068,10.49,,us-east-1,,",
    ];
    let lists = [list("list.csv", FABRICS, &rows)];
    let why = |count: Value| {
        let demand = json!({"kind": "gpus", "gpu": "H100-SXM", "count": count});
        let plan = plan(&lists, &demand);
        plan.refused.into_iter().find_map(|one| {
            one.why
                .split_once("the nearest sizes sold: ")
                .map(|(_, near)| near.to_owned())
        })
    };
    assert_eq!(why(json!(4)).as_deref(), Some("2 and 8"));
    assert_eq!(why(json!({"min": 3, "max": 7})).as_deref(), Some("2 and 8"));
    assert_eq!(why(json!(16)).as_deref(), Some("8"));
    assert_eq!(why(json!(1)).as_deref(), Some("2"));
    assert_eq!(why(json!(8)), None);
}
