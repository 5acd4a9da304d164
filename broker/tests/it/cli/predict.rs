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
