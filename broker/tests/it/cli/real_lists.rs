//! `broker match` over the real price lists, against a scan of them that shares no code with ours
//! but the reading of names.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use market::gpu::{self, GpuIdentity, Resolution};
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::Place;
use crate::eventually::output_of;

/// The lists, where a checkout of them lies beside ours.
fn lists() -> Option<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/market");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        // Not a print macro: those of a passing test are kept from the reader.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: needs the price lists in {}",
            folder.display()
        );
        return None;
    };
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "csv"));
    files.sort();
    Some(files)
}

/// One price of one row.
struct Priced {
    gpu: String,
    gpus: Decimal,
    spot: bool,
    usd_hour: Decimal,
}

/// Splits a line of CSV by hand; the lists hold no line breaks within quotes.
fn split(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            letter => fields.last_mut().expect("one field at least").push(letter),
        }
    }
    fields
}

fn scan(files: &[PathBuf]) -> (u64, Vec<Priced>) {
    let (mut rows, mut priced) = (0, Vec::new());
    for file in files {
        let text = std::fs::read_to_string(file).expect("a readable file");
        let mut lines = text.lines();
        let header = split(lines.next().expect("a header"));
        for line in lines {
            rows += 1;
            let row: BTreeMap<&str, String> =
                header.iter().map(String::as_str).zip(split(line)).collect();
            if row.contains_key("price_usd_hour") {
                priced.extend(prices_of(&row));
            }
        }
    }
    (rows, priced)
}

/// The offer of a row, after names are resolved and implausible prices are dropped.
fn prices_of(row: &BTreeMap<&str, String>) -> Vec<Priced> {
    let number = |name: &str| row[name].parse::<Decimal>().ok();
    let count = number("gpu_count").expect("a count");
    // One seller lists the memory of all GPUs of a row together.
    let sharing = if row["provider"] == "vast" {
        count
    } else {
        Decimal::ONE
    };
    let memory = number("gpu_memory_mib").map(|memory| {
        (memory / sharing)
            .trunc()
            .to_string()
            .parse()
            .expect("a size in MiB")
    });
    let resolved = gpu::resolve(
        &row["provider"],
        &row["instance_type"],
        Some(&row["gpu_name"]),
        memory,
    );
    let Resolution::Gpu {
        identity: GpuIdentity::Known(gpu),
        share_of_gpu,
        ..
    } = resolved
    else {
        return Vec::new();
    };
    let gpus = share_of_gpu.map_or(count, |share| Decimal::new(share.thousandths().into(), 3));
    let on_demand = number("price_usd_hour");
    let spot = number("spot_usd_hour").filter(|spot| on_demand.is_none_or(|price| *spot <= price));
    let can_be_meant = |price: &Decimal| {
        let per_gpu = *price / gpus;
        per_gpu >= Decimal::new(1, 2) && per_gpu <= Decimal::ONE_THOUSAND
    };
    [(on_demand, false), (spot, true)]
        .into_iter()
        .filter_map(|(price, spot)| Some((price.filter(can_be_meant)?, spot)))
        .map(|(price, spot)| Priced {
            gpu: gpu.name().to_owned(),
            gpus,
            spot,
            usd_hour: price.round_dp(8),
        })
        .collect()
}

fn ask(place: &Place, files: &[PathBuf], demand: &Value) -> Value {
    let demand = place.write("demand.json", &demand.to_string());
    let mut command: Command = place.command(["match", "--json", "--demand"]);
    command.arg(demand).arg("--offers").args(files);
    super::Ended::of(output_of(&mut command)).json(0)
}

#[test]
fn the_ten_cheapest_of_five_skus_are_those_of_a_brute_force_scan() {
    let Some(files) = lists() else { return };
    let place = Place::new();
    let (rows, priced) = scan(&files);
    for (gpu, count, spot) in [
        ("H100-SXM", 8, false),
        ("A100-SXM-80", 8, false),
        ("H200-SXM", 8, false),
        ("L4", 1, false),
        ("RTX-4090", 1, false),
        ("H100-SXM", 8, true),
    ] {
        let demand = json!({ "kind": "gpus", "gpu": gpu, "count": count, "spot": spot });
        let answer = ask(&place, &files, &demand);
        let mut expected: Vec<Decimal> = priced
            .iter()
            .filter(|one| one.gpu == gpu && one.gpus == Decimal::from(count) && one.spot == spot)
            .map(|one| one.usd_hour)
            .collect();
        expected.sort_unstable();
        assert!(!expected.is_empty(), "the lists sell {gpu}");
        assert_eq!(answer["eligible"], expected.len(), "{demand}");
        expected.truncate(10);
        let found: Vec<Decimal> = answer["candidates"]
            .as_array()
            .expect("candidates")
            .iter()
            .flat_map(|one| {
                let price = one["price_usd_hour"].as_str().expect("a string");
                let price: Decimal = price.parse().expect("a decimal");
                // The same offer at other places is in one candidate.
                let also_at = one["also_at"].as_array().map_or(0, Vec::len);
                std::iter::repeat_n(price, 1 + also_at)
            })
            .take(expected.len())
            .collect();
        assert_eq!(found, expected, "{demand}");
        assert_eq!(answer["rows_read"], rows, "{demand}");
    }
}

#[test]
fn every_row_of_the_real_lists_is_accounted_for() {
    let Some(files) = lists() else { return };
    assert!(!files.is_empty(), "a folder of lists without a list");
    let answer = ask(
        &Place::new(),
        &files,
        &json!({ "kind": "gpus", "gpu": "H100", "count": 8 }),
    );
    let count = |field: &str| answer[field].as_u64().expect("a count");
    assert_eq!(
        count("eligible") + answer["rejected"]["total"].as_u64().expect("a count"),
        count("offers")
    );
    let (mut skipped, mut named) = (0, std::collections::BTreeSet::new());
    for entry in answer["skipped"].as_array().expect("skipped") {
        skipped += entry["rows"].as_u64().expect("rows");
        assert!(
            named.insert((entry["file"].to_string(), entry["row"].as_u64())),
            "twice: {entry}"
        );
        assert!(!entry["why"].as_str().expect("why").is_empty(), "{entry}");
    }
    // The other side of the balance, by the scan: rows in which any price became an offer. Families
    // with form unknown are offers too, which the scan of prices leaves out, so they are counted
    // here by the rows that were not skipped.
    let (rows, _) = scan(&files);
    assert_eq!(count("rows_read"), rows);
    assert_eq!(rows - skipped, rows_with_a_price_and_a_gpu(&files));
}

/// Rows that name a GPU, if only by family, and carry a price that can be meant.
fn rows_with_a_price_and_a_gpu(files: &[PathBuf]) -> u64 {
    let mut rows = 0;
    for file in files {
        let text = std::fs::read_to_string(file).expect("a readable file");
        let mut lines = text.lines();
        let header = split(lines.next().expect("a header"));
        for line in lines {
            let row: BTreeMap<&str, String> =
                header.iter().map(String::as_str).zip(split(line)).collect();
            if !row.contains_key("price_usd_hour") {
                continue;
            }
            let priced = ["price_usd_hour", "spot_usd_hour"].iter().any(|name| {
                row[*name]
                    .parse::<Decimal>()
                    .is_ok_and(|price| price > Decimal::ZERO)
            });
            let memory = row["gpu_memory_mib"].parse::<Decimal>().ok().map(|memory| {
                let count = row["gpu_count"].parse::<Decimal>().expect("a count");
                let sharing = if row["provider"] == "vast" {
                    count
                } else {
                    Decimal::ONE
                };
                (memory / sharing)
                    .trunc()
                    .to_string()
                    .parse()
                    .expect("a size in MiB")
            });
            let found = gpu::resolve(
                &row["provider"],
                &row["instance_type"],
                Some(&row["gpu_name"]),
                memory,
            );
            rows += u64::from(priced && matches!(found, Resolution::Gpu { .. }));
        }
    }
    rows
}

// S01
#[test]
fn training_and_serving_choose_different_machines_from_the_real_lists() {
    let Some(files) = lists() else { return };
    let place = Place::new();
    for model in ["Llama 3 8B", "Llama 3 70B", "Qwen3 32B"] {
        let first = |demand: &Value| {
            let answer = ask(&place, &files, demand);
            let best = &answer["candidates"][0];
            (
                best["provider"].clone(),
                best["sku"].clone(),
                best["internode"].clone(),
            )
        };
        let train = first(&json!({
            "kind": "train", "model": model, "tokens": 1_000_000_000_u64, "gpus": 32,
        }));
        let serve = first(&json!({
            "kind": "serve_realtime", "model": model, "requests_per_second": 10,
            "input_tokens": 512, "output_tokens": 256,
        }));
        assert_ne!((&train.0, &train.1), (&serve.0, &serve.1), "{model}");
        let fabric = train.2.as_str().expect("a fabric");
        assert!(
            fabric.starts_with("infiniband_") || fabric.starts_with("roce_"),
            "{model}: {fabric}"
        );
    }
}
