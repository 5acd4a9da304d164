//! The real price lists, against a reading of them that shares no code with ours.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use adapters::pricesheet::{PriceSheet, PriceSheets, read_price_sheets};
use chrono::DateTime;
use market::gpu::{self, Resolution};
use market::offer::Terms;

/// The lists, if a checkout of them is beside ours.
fn real_sheets() -> Option<Vec<PriceSheet>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/market");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        // Not a print macro: the output of a passing test is not shown.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: needs the price lists in {}",
            folder.display()
        );
        return None;
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "csv"));
    files.sort();
    Some(
        files
            .iter()
            .map(|file| PriceSheet::open(file).expect("a readable file"))
            .collect(),
    )
}

fn read(sheets: &[PriceSheet]) -> PriceSheets {
    read_price_sheets(sheets, DateTime::UNIX_EPOCH)
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

/// One price of a row that should have become an offer, found by the simplest means.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
struct Expected {
    usd_per_gpu_hour: f64,
    provider: String,
    sku: String,
    gpu: String,
    gpus: f64,
    terms: &'static str,
}

fn brute_force(sheets: &[PriceSheet]) -> (u64, Vec<Expected>) {
    let (mut rows, mut expected) = (0, Vec::new());
    for sheet in sheets {
        let text = String::from_utf8(sheet.bytes.clone()).expect("UTF-8");
        let mut lines = text.lines();
        let header = split(lines.next().expect("a header"));
        for line in lines {
            rows += 1;
            let fields: BTreeMap<&str, String> =
                header.iter().map(String::as_str).zip(split(line)).collect();
            if fields.contains_key("price_usd_hour") {
                expected.extend(expected_of(&fields));
            }
        }
    }
    (rows, expected)
}

fn expected_of(fields: &BTreeMap<&str, String>) -> Vec<Expected> {
    let number = |name: &str| fields[name].parse::<f64>().ok();
    let count = number("gpu_count").expect("a count");
    let share = if fields["provider"] == "vast" {
        count
    } else {
        1.0
    };
    let memory = number("gpu_memory_mib").map(|memory| (memory / share) as u64);
    let (provider, sku) = (
        fields["provider"].as_str(),
        fields["instance_type"].as_str(),
    );
    let Resolution::Gpu {
        identity,
        share_of_gpu,
        ..
    } = gpu::resolve(provider, sku, Some(&fields["gpu_name"]), memory)
    else {
        return Vec::new();
    };
    let gpus = share_of_gpu.map_or(count, |gpus| gpus.to_f64());
    let price = number("price_usd_hour");
    let spot = number("spot_usd_hour").filter(|spot| price.is_none_or(|price| *spot <= price));
    [(price, "on_demand"), (spot, "spot")]
        .into_iter()
        .filter_map(|(price, terms)| Some((price?, terms)))
        .map(|(price, terms)| Expected {
            usd_per_gpu_hour: price / gpus,
            provider: provider.to_owned(),
            sku: sku.to_owned(),
            gpu: identity.to_string(),
            gpus,
            terms,
        })
        .collect()
}

#[test]
fn every_row_of_the_real_lists_is_an_offer_or_skipped_with_a_reason() {
    let Some(sheets) = real_sheets() else { return };
    let read = read(&sheets);
    let (rows, expected) = brute_force(&sheets);
    assert_eq!(read.rows_read, rows);
    let counted: u64 = read.skipped.iter().map(|skipped| skipped.rows).sum();
    assert_eq!(read.rows_read, read.rows_offered + counted);
    assert!(
        read.skipped
            .iter()
            .all(|skipped| skipped.file.is_some() && !skipped.why.is_empty())
    );
    // The gate drops nothing honest: it removes what the brute force removes, no more.
    assert_eq!(read.offers.len(), expected.len());
    let mut by_reason: BTreeMap<String, u64> = BTreeMap::new();
    for skipped in &read.skipped {
        *by_reason.entry(skipped.reason.to_string()).or_default() += skipped.rows.max(1);
    }
    println!(
        "{rows} rows, {} offers, skipped {by_reason:?}",
        read.offers.len()
    );
}

#[test]
fn the_ten_cheapest_of_each_gpu_are_those_of_a_plain_scan() {
    let Some(sheets) = real_sheets() else { return };
    let offers = read(&sheets).offers;
    let (_, expected) = brute_force(&sheets);
    let mut gpus: Vec<&str> = expected
        .iter()
        .map(|expected| expected.gpu.as_str())
        .collect();
    gpus.sort_unstable();
    gpus.dedup();
    assert!(gpus.len() > 20, "{gpus:?}");
    for gpu in gpus {
        for terms in [Terms::OnDemand, Terms::Spot] {
            let mut plain: Vec<f64> = expected
                .iter()
                .filter(|expected| expected.gpu == gpu && expected.terms == terms.as_str())
                .map(|expected| expected.usd_per_gpu_hour)
                .collect();
            let mut ours: Vec<f64> = offers
                .iter()
                .filter(|offer| offer.gpu.to_string() == gpu && offer.terms == terms)
                .map(|offer| offer.price_per_node_hour.units() as f64 / 1e8 / offer.gpus.to_f64())
                .collect();
            plain.sort_by(f64::total_cmp);
            ours.sort_by(f64::total_cmp);
            assert_eq!(ours.len(), plain.len(), "{gpu} {terms}");
            let apart = ours
                .iter()
                .zip(&plain)
                .take(10)
                .any(|(a, b)| (a - b).abs() > 1e-6);
            assert!(!apart, "{gpu} {terms}: {ours:?} {plain:?}");
        }
    }
}

#[test]
fn the_order_in_which_the_real_lists_are_named_changes_no_id() {
    let Some(mut sheets) = real_sheets() else {
        return;
    };
    let ids = |sheets: &[PriceSheet]| {
        let mut ids: Vec<_> = read(sheets)
            .offers
            .iter()
            .map(|o| (o.offer_id, o.sku.clone(), o.price_per_node_hour))
            .collect();
        ids.sort();
        ids
    };
    let expected = ids(&sheets);
    assert!(
        expected.windows(2).all(|pair| pair[0].0 != pair[1].0),
        "two offers share an id"
    );
    sheets.reverse();
    assert_eq!(ids(&sheets), expected);
}
