use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::*;

/// The largest relative difference that a prediction may have from its golden value.
const TOLERANCE: f64 = 1e-6;

fn values(table: Table, text: impl Read) -> Vec<RowPrediction> {
    predict(table, Constants::reference(), text).expect("a table")
}

fn check(what: &str, found: &RowPrediction, golden: f64) {
    let Outcome::Predicted(found) = &found.outcome else {
        panic!("{what}: {found:?}")
    };
    let difference = (found.predicted / golden - 1.0).abs();
    assert!(
        difference < TOLERANCE,
        "{what}: {} for {golden}",
        found.predicted
    );
}

/// Where the measured tables stand on machines that have them.
fn measured() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/perf")
}

fn skip(words: &str) {
    // Not a print macro: those of a passing test are kept from the reader.
    let _ = writeln!(std::io::stderr(), "{words}");
}

fn column(text: &str, name: &str) -> Vec<f64> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let at = reader
        .headers()
        .expect("a header")
        .iter()
        .position(|cell| cell == name);
    let at = at.expect("the column");
    let cell = |record: csv::StringRecord| record[at].parse().expect("a number");
    reader
        .records()
        .map(|record| cell(record.expect("a row")))
        .collect()
}

#[test]
fn the_reference_constants_reproduce_the_golden_rows_kept_here() {
    let tables = [
        (
            Table::Training,
            include_str!("../../../fixtures/golden/training.csv"),
        ),
        (
            Table::Inference,
            include_str!("../../../fixtures/golden/inference.csv"),
        ),
    ];
    for (table, text) in tables {
        let golden = column(text, "golden");
        let found = values(table, text.as_bytes());
        assert_eq!(found.len(), golden.len());
        assert!(golden.len() >= 12);
        for (found, golden) in found.iter().zip(golden) {
            check(&format!("{table:?} row {}", found.row), found, golden);
        }
    }
}

#[test]
fn the_reference_constants_reproduce_every_golden_row_of_the_measured_tables() {
    let folder = measured();
    let Ok(golden) = std::fs::read_to_string(folder.join("golden_predictions.csv")) else {
        skip("skipped: needs the measured tables and golden predictions in ../shared/perf");
        return;
    };
    let mut compared = 0;
    for (table, name) in [
        (Table::Training, "training_measured.csv"),
        (Table::Inference, "inference_measured.csv"),
    ] {
        let found = values(table, File::open(folder.join(name)).expect("a table"));
        for record in csv::Reader::from_reader(golden.as_bytes()).records() {
            let record = record.expect("a row");
            if &record[0] != name {
                continue;
            }
            let row: usize = record[1].parse().expect("a row number");
            let found = &found[row - 1];
            assert_eq!(found.row, row);
            check(
                &format!("{name} row {row}"),
                found,
                record[2].parse().expect("a value"),
            );
            if let Outcome::Predicted(found) = &found.outcome {
                assert_eq!(found.unit, record[3], "{name} row {row}");
            }
            compared += 1;
        }
    }
    assert!(compared >= 1_000, "only {compared} rows were compared");
}

/// Bytes of a weight as it lies in memory.
fn bytes_of(precision: &str) -> f64 {
    match precision {
        "bf16" | "fp16" => 2.0,
        "fp8" | "int8" => 1.0,
        // Four bits; scales and the layers that are left wider come on top.
        "fp4" | "int4_g" | "int4_k" => 0.5,
        other => panic!("the bytes of {other}"),
    }
}

// S09
#[test]
fn no_request_alone_was_measured_faster_than_its_active_weights_can_be_read() {
    let table = measured().join("inference_measured.csv");
    let Ok(text) = std::fs::read_to_string(table) else {
        skip("skipped: needs the measured tables in ../shared/perf");
        return;
    };
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let headers = reader.headers().expect("a header").clone();
    let mut compared = 0;
    for record in reader.records() {
        let record = record.expect("a row");
        let cell = |name: &str| {
            let at = headers.iter().position(|cell| cell == name);
            &record[at.expect("the column")]
        };
        if cell("metric") != "single_stream_decode" {
            continue;
        }
        let number = |name: &str| cell(name).parse::<f64>().expect("a number");
        // GPUs that hold different layers read one after the other.
        let bandwidth = chip(cell("gpu")).expect("a chip").memory_bytes_per_second * number("tp");
        let read = number("active_b") * 1e9 * bytes_of(cell("weight_precision"));
        let bound = bandwidth / read;
        assert!(number("value") <= bound, "{record:?}: at most {bound}");
        compared += 1;
    }
    assert!(compared >= 60, "only {compared} rows were compared");
}

const HEADER: &str = "model,params_b,active_b,layers,hidden,heads,seq,mbs,micro_batches,precision,\
     gpu,gpus,gpus_per_node,internode_gb_s_per_node,framework,strategy,tp,pp,vpp,cp,ep,recompute,flops_mult\n";

fn train(row: &str) -> RowPrediction {
    let found = values(Table::Training, format!("{HEADER}{row}\n").as_bytes());
    found.into_iter().next().expect("a row")
}

fn why(row: &str) -> String {
    match train(row).outcome {
        Outcome::Refused { why } => why,
        Outcome::Predicted(found) => panic!("predicted: {found:?}"),
    }
}

#[test]
fn a_row_that_cannot_be_read_says_why_and_the_others_are_predicted() {
    let good = "Llama 3 8B,,,,,,8192,1,4,bf16,H100-SXM,8,8,,pytorch-fsdp,fsdp_full,,,,,,none,";
    assert!(matches!(train(good).outcome, Outcome::Predicted(_)));
    let cases = [
        (good.replace("H100-SXM", "Quantum-9000"), "`Quantum-9000`"),
        (good.replace("Llama 3 8B", "Nobody 8B"), "`Nobody 8B`"),
        (good.replace("bf16", "int3"), "`precision`"),
        (good.replace(",8,8,,", ",16,8,,"), "internode_gb_s_per_node"),
        (good.replace("8192", "many"), "cannot be read"),
        (good.replace("8192", ""), "`seq`"),
        ("Llama 3 8B,1".to_owned(), "cannot be read"),
    ];
    for (row, words) in &cases {
        assert!(why(row).contains(words), "{row}: {}", why(row));
    }
    let both = format!("{HEADER}{}\n{good}\n", cases[0].0);
    let found = values(Table::Training, both.as_bytes());
    assert_eq!((found[0].row, found[1].row), (1, 2));
    assert!(matches!(found[1].outcome, Outcome::Predicted(_)));
}

#[test]
fn a_chip_that_was_not_measured_is_predicted_and_the_prediction_says_so() {
    let on = |gpu: &str| {
        let row =
            format!("Llama 3 8B,,,,,,8192,1,4,bf16,{gpu},8,8,,pytorch-fsdp,fsdp_full,,,,,,none,");
        match train(&row).outcome {
            Outcome::Predicted(found) => found,
            Outcome::Refused { why } => panic!("{why}"),
        }
    };
    let (known, unknown) = (on("H100-SXM"), on("H800-SXM"));
    assert_eq!(known.note, None);
    assert!(unknown.note.expect("a note").contains("H800-SXM"));
    assert!(known.low < known.predicted && known.predicted < known.high);
    // The H800 is an H100 with slower links.
    assert!(unknown.predicted < known.predicted * 1.05);
    // The name in measured tables means the same chip.
    assert_eq!(on("H100-SXM5-80GB"), on("H100-SXM"));
}
