//! Simulated tail latencies against published ones: the load of a machine while 99 % of the requests meet the
//! limits of MLPerf's server scenario. Reads the table of measurements if it is present beside this project;
//! `cargo test -p matcher --lib published -- --nocapture` prints every row.

use std::path::Path;

use market::demand::Model;
use market::math::ln;
use serde::Deserialize;

use super::*;
use crate::perf::constants::Constants;

#[derive(Deserialize)]
struct Row {
    metric: String,
    model: String,
    isl: f64,
    osl: f64,
    weight_precision: String,
    kv_precision: String,
    gpu: String,
    gpus: u32,
    ttft_limit_ms: Option<f64>,
    tpot_limit_ms: Option<f64>,
    value: f64,
}

fn precision(word: &str) -> Option<Precision> {
    serde_json::from_value(word.into()).ok()
}

/// The most tokens per second at which 99 % of the requests meet both limits, in the best width.
fn carried(row: &Row) -> Option<f64> {
    let latency = LatencyObjective {
        first_token_ms: Some(row.ttft_limit_ms?),
        per_token_ms: Some(row.tpot_limit_ms?),
        percentile: Some(99.0),
    };
    let work = ServingWork {
        model: ModelFigures::of(&Model::Named(row.model.clone())).ok()?,
        weights: weight_format(precision(&row.weight_precision)?)?,
        cache: cache_format(precision(&row.kv_precision)?)?,
        input_tokens: row.isl,
        output_tokens: row.osl.round(),
        latency: latency.clone(),
    };
    let chip = Chip::of_row_name(&row.gpu)?;
    let constants = &Constants::product().inference;
    let of_width = |gpus: u32| {
        let replica = work.replica(constants, chip, gpus, 0.0).ok()?;
        let meets = |rate: f64| {
            let tails = work.tails(constants, chip, &replica, Arrivals::PerSecond(rate));
            tails.is_some_and(|tails| {
                tails.first_token_seconds(99.0) * 1e3 <= row.ttft_limit_ms.unwrap_or(f64::INFINITY)
                    && tails.per_token_seconds(99.0) * 1e3
                        <= row.tpot_limit_ms.unwrap_or(f64::INFINITY)
            })
        };
        let (mut low, mut high) = (0.0, 1.2 * replica.tokens_per_second / work.output_tokens);
        for _ in 0..6 {
            let middle = f64::midpoint(low, high);
            if meets(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(low * work.output_tokens * f64::from(row.gpus / gpus))
    };
    doublings(row.gpus.min(8))
        .filter_map(of_width)
        .reduce(f64::max)
}

#[test]
fn what_meets_the_limits_in_the_simulation_is_near_what_was_published() {
    let table =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/perf/inference_measured.csv");
    let Ok(mut rows) = csv::Reader::from_path(&table) else {
        println!("skipped: needs {}", table.display());
        return;
    };
    let mut factors = Vec::new();
    for row in rows.deserialize::<Row>() {
        let row = row.expect("a row of measurements");
        if !matches!(row.metric.as_str(), "mlperf_server" | "mlperf_interactive") {
            continue;
        }
        let Some(found) = carried(&row) else {
            continue;
        };
        let factor = found / row.value;
        println!(
            "{:28} {} x {:22} {} {:>4} ms / {:>4} ms: published {:8.0}, simulated {found:8.0}, x {factor:.2}",
            row.model,
            row.gpus,
            row.gpu,
            row.weight_precision,
            row.ttft_limit_ms.unwrap_or(0.0),
            row.tpot_limit_ms.unwrap_or(0.0),
            row.value,
        );
        factors.push(factor);
    }
    factors.sort_by(f64::total_cmp);
    let within = |limit: f64| {
        let near = factors
            .iter()
            .filter(|factor| ln(**factor).abs() <= ln(limit));
        near.count()
    };
    println!(
        "{} rows: median x {:.2}, {} within a factor of 1.25, {} within 1.5",
        factors.len(),
        factors[factors.len() / 2],
        within(1.25),
        within(1.5),
    );
    assert!(factors.len() >= 20);
    assert!(within(1.5) * 2 > factors.len());
}
