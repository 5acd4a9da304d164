use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

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

/// The path of the measured tables on machines that have them.
fn measured() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/perf")
}

fn skip(words: &str) {
    // Not a print macro: the test runner hides the output of a passing test.
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

fn serve(row: &str) -> Outcome {
    let header = "metric,model,params_b,active_b,layers,hidden,heads,kv_heads,isl,osl,concurrency,\
         num_requests,weight_precision,kv_precision,gpu,gpus,tp,pp,framework,tpot_limit_ms\n";
    let found = values(Table::Inference, format!("{header}{row}\n").as_bytes());
    found.into_iter().next().expect("a row").outcome
}

#[test]
fn a_run_that_nobody_can_do_says_which_column_is_wrong() {
    // model, figures, seq, mbs, micro_batches, precision, gpu, gpus, gpus_per_node, net, ...
    let row = |cells: &[(usize, &str)]| {
        let mut row: Vec<&str> =
            "Mine,8,8,32,4096,32,8192,1,4,bf16,H100-SXM,16,8,50,megatron,zero1,2,\
             2,1,1,1,none,6"
                .split(',')
                .collect();
        for (at, cell) in cells {
            row[*at] = cell;
        }
        row.join(",")
    };
    let fine = row(&[]);
    assert!(
        matches!(train(&fine).outcome, Outcome::Predicted(_)),
        "{fine}"
    );
    let wrong: &[(&[(usize, &str)], &str)] = &[
        (&[(1, "-8")], "`params_b` is -8"),
        (&[(2, "9")], "`active_b` is 9"),
        (&[(3, "0")], "`layers` is 0"),
        (&[(4, "0")], "`hidden` is 0"),
        (&[(5, "4097")], "`heads` is 4097"),
        (&[(6, "-8192")], "`seq` is -8192"),
        (&[(6, "inf")], "`seq` is inf"),
        (&[(7, "0")], "`mbs` is 0"),
        (&[(8, "1.5")], "`micro_batches` is 1.5"),
        (&[(11, "nan")], "`gpus` is NaN"),
        (&[(11, "0")], "`gpus` is 0"),
        (&[(12, "-8")], "`gpus_per_node` is -8"),
        (&[(13, "-5")], "`internode_gb_s_per_node` is -5"),
        (&[(13, "0")], "`internode_gb_s_per_node` is 0"),
        (&[(16, "0")], "`tp` is 0"),
        (
            &[(16, "3"), (17, "1"), (11, "24")],
            "does not divide the 32 attention heads",
        ),
        (&[(17, "64"), (11, "128")], "more than the 32 layers"),
        (&[(19, "3")], "does not divide the 16 GPUs"),
        (&[(20, "32")], "`ep` 32"),
        (&[(22, "-6")], "`flops_mult` is -6"),
    ];
    for (cells, words) in wrong {
        let told = why(&row(cells));
        assert!(told.contains(words), "{cells:?}: {told}");
    }
}

#[test]
fn a_test_that_nobody_can_do_says_which_column_is_wrong() {
    let row = |cells: &[(usize, &str)]| {
        let mut row: Vec<&str> =
            "offline_throughput,Mine,8,8,32,4096,32,8,512,128,16,100,bf16,bf16,\
             H100-SXM,2,2,1,trtllm-1.0,"
                .split(',')
                .collect();
        for (at, cell) in cells {
            row[*at] = cell;
        }
        row.join(",")
    };
    assert!(matches!(serve(&row(&[])), Outcome::Predicted(_)));
    let wrong: &[(&[(usize, &str)], &str)] = &[
        (&[(7, "33")], "`kv_heads` is 33"),
        (&[(8, "0")], "`isl` is 0"),
        (&[(9, "nan")], "`osl` is NaN"),
        (&[(10, "-4")], "`concurrency` is -4"),
        (&[(11, "0")], "`num_requests` is 0"),
        (&[(15, "0")], "`gpus` is 0"),
        (&[(15, "1"), (16, "8")], "more than the machine's GPUs, 1"),
        (
            &[(15, "8"), (16, "3")],
            "does not divide the 32 attention heads",
        ),
        (
            &[(15, "64"), (16, "1"), (17, "64")],
            "more than the 32 layers",
        ),
        (&[(16, "")], "`tp` is missing"),
        (
            &[(0, "mlperf_offline"), (19, "-1")],
            "`tpot_limit_ms` is -1",
        ),
    ];
    for (cells, words) in wrong {
        let Outcome::Refused { why } = serve(&row(cells)) else {
            panic!("{cells:?} is predicted");
        };
        assert!(why.contains(words), "{cells:?}: {why}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// With any text in the cells, a row has a figure with bounds around it, or an error; no row stops the
    /// others.
    #[test]
    fn every_row_has_a_figure_or_a_reason(cells in prop::collection::vec((0_usize..23, odd_cell()), 0..6)) {
        let usual = [
            (Table::Training, HEADER, "Mine,8,8,32,4096,32,8192,1,4,bf16,H100-SXM,16,8,50,megatron,zero1,2,2,1,1,1,none,6"),
            (
                Table::Inference,
                "metric,model,params_b,active_b,layers,hidden,heads,kv_heads,isl,osl,concurrency,num_requests,\
                 weight_precision,kv_precision,gpu,gpus,tp,pp,framework,tpot_limit_ms\n",
                "mlperf_offline,Mine,8,8,32,4096,32,8,512,128,16,100,bf16,bf16,H100-SXM,2,2,1,trtllm-1.0,50",
            ),
        ];
        for (table, header, usual) in usual {
            for metric in ["mlperf_offline", "offline_throughput", "ttft", "single_stream_decode", "prefill_throughput"] {
                let usual = usual.replace("mlperf_offline", metric);
                let mut row: Vec<&str> = usual.split(',').collect();
                for (at, cell) in &cells {
                    let columns = row.len();
                    row[at % columns] = cell;
                }
                let text = format!("{header}{}\n{usual}\n", row.join(","));
                let found = values(table, text.as_bytes());
                prop_assert_eq!(found.len(), 2);
                prop_assert!(matches!(&found[1].outcome, Outcome::Predicted(_)));
                match &found[0].outcome {
                    Outcome::Predicted(found) => prop_assert!(
                        0.0 < found.low && found.low < found.predicted && found.predicted < found.high && found.high.is_finite()
                    ),
                    Outcome::Refused { why } => prop_assert!(!why.is_empty()),
                }
            }
        }
    }
}

#[test]
fn what_is_not_finite_and_positive_is_no_figure() {
    let (low, high) = interval(10.0, 0.5).expect("a figure");
    assert!(0.0 < low && low < 10.0 && 10.0 < high);
    for value in [
        0.0,
        -1.0,
        f64::NAN,
        f64::INFINITY,
        f64::MAX,
        f64::NEG_INFINITY,
    ] {
        let refused = interval(value, 0.5).expect_err("no figure").to_string();
        assert!(refused.contains("which is not a valid figure"), "{refused}");
    }
}

fn odd_cell() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "",
        "0",
        "-1",
        "1",
        "2",
        "3",
        "0.5",
        "nan",
        "inf",
        "-inf",
        "1e-300",
        "1e300",
        "4294967295",
        "1000000",
        "1e9",
        "word",
    ])
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
