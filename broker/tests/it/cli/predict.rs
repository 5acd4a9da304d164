//! `broker predict` over rows written here by hand.

use std::path::Path;

use super::{Place, fields};

const TRAINING: &str = "model,seq,mbs,micro_batches,precision,gpu,gpus,gpus_per_node,\
    internode_gb_s_per_node,framework,strategy,tp,pp,vpp,cp,ep,recompute,flops_mult,params_b,\
    active_b,layers,hidden,heads\n\
    Llama 3 8B,8192,1,4,bf16,H100-SXM5-80GB,8,8,,pytorch-fsdp,fsdp_full,1,1,1,1,1,none,6,,,,,\n\
    Llama 3 8B,8192,1,4,bf16,Quantum-9000,8,8,,pytorch-fsdp,fsdp_full,1,1,1,1,1,none,6,,,,,\n\
    Llama 3 8B,8192,1,4,bf16,H800-SXM,8,8,,pytorch-fsdp,fsdp_full,1,1,1,1,1,none,6,,,,,\n";

fn predict(place: &Place, table: &str, file: &Path, more: &[&str]) -> super::Ended {
    let file = file.to_str().expect("a path");
    place.broker(
        ["predict", table, "--rows", file]
            .into_iter()
            .chain(more.iter().copied()),
    )
}

#[test]
fn each_row_is_predicted_with_an_interval_or_says_why_not() {
    let place = Place::new();
    let file = place.write("runs.csv", TRAINING);
    let ended = predict(&place, "training", &file, &["--json"]);
    let said = "1 of 3 rows cannot be predicted; each says why in its last column\n";
    assert_eq!(ended.stderr, said);
    let found = ended.json(0);
    let rows = found.as_array().expect("an array");
    assert_eq!(rows.len(), 3);
    assert_eq!(
        fields(&rows[0]),
        ["high", "low", "predicted", "row", "unit"]
    );
    assert_eq!(
        (&rows[0]["row"], &rows[0]["unit"]),
        (&1.into(), &"tok/s/GPU".into())
    );
    let number = |name: &str| rows[0][name].as_f64().expect("a number");
    assert!(number("low") < number("predicted") && number("predicted") < number("high"));
    assert_eq!(fields(&rows[1]), ["row", "why"]);
    assert!(
        rows[1]["why"]
            .as_str()
            .expect("words")
            .contains("`Quantum-9000`")
    );
    assert!(
        rows[2]["note"]
            .as_str()
            .expect("words")
            .contains("H800-SXM")
    );
}

#[test]
fn without_json_the_predictions_are_a_table_again() {
    let place = Place::new();
    let file = place.write("runs.csv", TRAINING);
    let ended = predict(&place, "training", &file, &[]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines[0], "row,predicted,unit,low,high,note,why");
    assert!(
        lines[1].starts_with("1,") && lines[2].starts_with("2,,,,,,"),
        "{lines:?}"
    );
    assert_eq!(lines.len(), 4);
}

#[test]
fn a_table_of_serving_tests_is_read_from_standard_input() {
    let rows = "metric,model,isl,osl,concurrency,num_requests,weight_precision,kv_precision,gpu,\
        gpus,tp,pp,framework,tpot_limit_ms,params_b,active_b,layers,hidden,heads,kv_heads\n\
        ttft,Llama 3 8B,1000,1,,,fp8,fp8,H100-SXM,1,1,1,trtllm-0.13,,,,,,,\n";
    let args = ["predict", "inference", "--rows", "-", "--json"];
    let found = Place::new().broker_reading(rows, args).json(0);
    assert_eq!(found[0]["unit"], "ms");
}

#[test]
fn a_table_of_which_nothing_can_be_predicted_is_a_no_and_a_missing_one_is_wrong_input() {
    let place = Place::new();
    let other = place.write("other.csv", "colour,size\nred,3\n");
    let ended = predict(&place, "training", &other, &["--json"]);
    assert!(
        ended.json(1)[0]["why"]
            .as_str()
            .expect("words")
            .contains("cannot be read")
    );
    assert!(ended.stderr.starts_with("error: no row"), "{ended:?}");
    let missing = place.path().join("missing.csv");
    assert!(
        predict(&place, "training", &missing, &[])
            .refused()
            .contains("missing.csv")
    );
}

#[test]
fn the_columns_and_their_words_are_told_by_the_help() {
    let place = Place::new();
    for (table, column, word) in [
        ("training", "internode_gb_s_per_node", "torchtitan"),
        ("inference", "weight_precision", "trtllm-1.0"),
    ] {
        let help = place.broker(["predict", table, "--help"]);
        assert_eq!(help.status, Some(0));
        for said in [column, word, "Exit status: 0"] {
            assert!(help.stdout.contains(said), "{said} in {}", help.stdout);
        }
    }
}

/// Runs that were measured, in tokens per second and GPU, with the figure in the last column. Sources:
/// NVIDIA/NeMo, docs/source/performance/performance_summary.md (container 24.07); pytorch/torchtitan pull
/// request 712 (the fabric is assumed) and issue 1789.
const MEASURED_RUNS: &str = "\
model,seq,mbs,micro_batches,precision,gpu,gpus,gpus_per_node,internode_gb_s_per_node,framework,strategy,tp,pp,vpp,cp,ep,recompute,measured
GPT-3 175B,2048,1,64,fp8,H100-SXM,128,8,400,megatron,zero1,4,8,6,1,1,none,726
GPT-3 175B,2048,2,64,fp8,H100-SXM,512,8,400,megatron,zero1,4,8,6,1,1,none,782
Llama 2 7B,4096,1,16,fp8,H100-SXM,8,8,,megatron,zero1,1,1,1,1,1,none,16847
Llama 2 13B,4096,1,32,fp8,H100-SXM,16,8,400,megatron,zero1,1,4,10,1,1,none,8646
Llama 2 70B,4096,1,32,fp8,H100-SXM,64,8,400,megatron,zero1,4,4,20,1,1,none,1707
Llama 3 8B,8192,1,32,fp8,H100-SXM,8,8,,megatron,zero1,1,1,1,2,1,none,12036
Llama 3 70B,8192,1,64,fp8,H100-SXM,64,8,400,megatron,zero1,4,4,5,2,1,none,1533
Llama 2 13B,4096,2,1,bf16,A100-SXM-80,64,8,200,torchtitan,fsdp_full,1,1,1,1,1,selective,1904
Llama 2 13B,4096,2,1,bf16,A100-SXM-80,64,8,200,torchtitan,fsdp_full,1,1,1,1,1,none,2162
Llama 2 70B,4096,1,1,bf16,A100-SXM-80,64,8,200,torchtitan,fsdp_full,1,1,1,1,1,selective,355
Llama 2 70B,4096,2,1,bf16,A100-SXM-80,64,8,200,torchtitan,fsdp_full,1,1,1,1,1,full,353
DeepSeek V2-Lite,4096,4,1,bf16,H100-SXM,8,8,,torchtitan,fsdp_full,1,1,1,1,8,selective,11636
";

/// Output tokens per second of Llama 3.3 70B in FP8 on two H100. Source:
/// docs.nvidia.com/nim/benchmarking/llm/1.0.0/performance (version 1.8.0).
const MEASURED_SERVING: &str = "\
metric,model,isl,osl,concurrency,weight_precision,kv_precision,gpu,gpus,tp,pp,framework,measured
offline_throughput,Llama 3.3 70B,5000,500,1,fp8,fp8,H100-SXM,2,2,1,trtllm-0.20,51.67
offline_throughput,Llama 3.3 70B,5000,500,5,fp8,fp8,H100-SXM,2,2,1,trtllm-0.20,218.48
offline_throughput,Llama 3.3 70B,5000,500,25,fp8,fp8,H100-SXM,2,2,1,trtllm-0.20,623.4
offline_throughput,Llama 3.3 70B,5000,500,50,fp8,fp8,H100-SXM,2,2,1,trtllm-0.20,814.37
offline_throughput,Llama 3.3 70B,5000,500,100,fp8,fp8,H100-SXM,2,2,1,trtllm-0.20,917.26
offline_throughput,Llama 3.3 70B,5000,500,250,fp8,fp8,H100-SXM,2,2,1,trtllm-0.20,920.12
offline_throughput,Llama 3.3 70B,500,2000,1,fp8,fp8,H100-SXM,2,2,1,trtllm-0.20,52.85
";

#[test]
fn what_others_measured_lies_in_the_interval_that_is_told() {
    let place = Place::new();
    for (table, rows) in [("training", MEASURED_RUNS), ("inference", MEASURED_SERVING)] {
        let file = place.write("measured.csv", rows);
        let found = predict(&place, table, &file, &["--json"]).json(0);
        let measured = rows.lines().skip(1).map(|row| {
            let (_, measured) = row.rsplit_once(',').expect("a last column");
            (row, measured.parse::<f64>().expect("a number"))
        });
        let found = found.as_array().expect("an array");
        assert_eq!(found.len(), measured.clone().count());
        for ((row, measured), told) in measured.zip(found) {
            let number = |name: &str| {
                told[name]
                    .as_f64()
                    .unwrap_or_else(|| panic!("{row}: {told}"))
            };
            assert!(
                (number("low")..=number("high")).contains(&measured),
                "{row}: {told}"
            );
        }
    }
}
