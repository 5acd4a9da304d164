//! Real price lists, where they are available: known counts, and a second reading of the rules that shares
//! only the table with the first.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;

use regex::{Regex, RegexBuilder};

use super::*;
use crate::gpu::FORM_UNKNOWN;

#[derive(serde::Deserialize)]
struct Row {
    provider: String,
    instance_type: String,
    gpu_name: String,
    gpu_count: f64,
    gpu_memory_mib: Option<f64>,
}

/// Provider, SKU, GPU name and memory of one GPU.
type Sold = (String, String, String, Option<u64>);

/// All rows, or `None` where no lists are available.
fn rows() -> Option<Vec<Sold>> {
    let lists = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/market");
    let Ok(files) = std::fs::read_dir(&lists) else {
        // Not a print macro: the output of a passing test is not shown.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: needs the price lists in {}",
            lists.display()
        );
        return None;
    };
    let mut rows = Vec::new();
    for file in files.map(|entry| entry.expect("readable folder").path()) {
        let name = file
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a file name");
        if !name.ends_with(".csv") || name.starts_with("sparecores") {
            continue;
        }
        // Vast gives the sum over the GPUs of an offer.
        let sums_memory = name == "vast.csv";
        for row in csv::Reader::from_path(&file)
            .expect("readable list")
            .into_deserialize()
        {
            let row: Row = row.expect("a row of a price list");
            let divisor = if sums_memory { row.gpu_count } else { 1.0 };
            let memory = row.gpu_memory_mib.map(|mib| (mib / divisor).round() as u64);
            rows.push((row.provider, row.instance_type, row.gpu_name, memory));
        }
    }
    Some(rows)
}

#[test]
fn all_rows_resolve_as_counted_beforehand() {
    let Some(rows) = rows() else { return };
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for (provider, sku, name, memory) in &rows {
        let outcome = match resolve(provider, sku, Some(name), *memory) {
            Resolution::Gpu {
                identity: GpuIdentity::FamilyOnly(_),
                ..
            } => "form unknown",
            Resolution::Gpu { certainty, .. } => certainty.as_str(),
            Resolution::NotAGpu { .. } => "not a GPU",
            Resolution::Unknown { .. } => "unknown",
        };
        *counts.entry(outcome).or_default() += 1;
    }
    let expected = [
        ("form unknown", 12),
        ("high", 2_850),
        ("medium", 58),
        ("not a GPU", 1_648),
    ];
    assert_eq!(counts, BTreeMap::from(expected));
}

/// The rule book applied literally: one rule after another, each with its own pattern.
fn by_the_book(
    rules: &[(RuleRow, Regex)],
    seller: &str,
    sku: &str,
    name: &str,
    mib: Option<u64>,
) -> String {
    for provider in [seller, "*"] {
        for (rule, pattern) in rules.iter().filter(|(rule, _)| rule.provider == provider) {
            let named = rule
                .gpu_name_as_written
                .as_ref()
                .is_none_or(|n| squeeze(n) == squeeze(name));
            let fits = match (rule.memory_gib, mib) {
                (Some(gib), Some(mib)) => (mib as f64 / 1024.0 / gib - 1.0).abs() <= 0.08 + 1e-12,
                (Some(_), None) => provider != "*",
                (None, _) => true,
            };
            if named && fits && pattern.is_match(sku) {
                return rule.canonical.clone();
            }
        }
    }
    "UNKNOWN".to_owned()
}

#[test]
fn each_row_resolves_as_the_rule_book_says_word_for_word() {
    let Some(rows) = rows() else { return };
    let compile = |rule: RuleRow| {
        let pattern = RegexBuilder::new(&rule.sku_pattern)
            .case_insensitive(true)
            .build()
            .expect("compiles");
        (rule, pattern)
    };
    let rules: Vec<_> = rule_rows().into_iter().map(compile).collect();
    for (provider, sku, name, memory) in rows.into_iter().collect::<BTreeSet<_>>() {
        let found = match resolve(&provider, &sku, Some(&name), memory) {
            Resolution::Gpu {
                identity: GpuIdentity::Known(gpu),
                ..
            } => gpu.to_string(),
            Resolution::Gpu { identity, .. } => format!("{}{FORM_UNKNOWN}", identity.family()),
            Resolution::NotAGpu { .. } => "NOT-A-GPU".to_owned(),
            Resolution::Unknown { .. } => "UNKNOWN".to_owned(),
        };
        assert_eq!(
            found,
            by_the_book(&rules, &provider, &sku, &name, memory),
            "{provider} {sku} {name}"
        );
    }
}
