//! The page `docs/accuracy.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::Result;
use market::math::exp;
use matcher::perf::constants::Constants;
use matcher::perf::rows::Table;
use serde::Deserialize;

use super::Judged;
use super::judge::{self, FOLDS, Score};
use super::measured::Measured;

/// What the page is to reach, for the reader to compare with.
struct Goals {
    median: f64,
    p90: f64,
    tau: f64,
    /// The median that is aimed at beyond the goal.
    aim: Option<f64>,
}

/// The goals of a table.
const fn goals(table: Table) -> Goals {
    match table {
        Table::Training => Goals {
            median: 0.09,
            p90: 0.29,
            tau: 0.92,
            aim: None,
        },
        Table::Inference => Goals {
            median: 0.13,
            p90: 0.33,
            tau: 0.92,
            aim: Some(0.11),
        },
    }
}

#[derive(Deserialize)]
struct Price {
    gpu: String,
    usd_per_gpu_hour: f64,
}

/// The whole page.
pub(super) fn page(training: &Judged, inference: &Judged) -> Result<String> {
    let mut page = format!(
        "# How accurate the performance models are\n\n\
         Printed by `cargo xtask accuracy --tables DIR > docs/accuracy.md`; do not edit. `DIR` holds \
         `training_measured.csv` and `inference_measured.csv`, public measurements that are not part \
         of this tree. `cargo xtask fit --tables DIR` refits the constants to them. Both give the \
         same figures each time.\n\n\
         Nothing here is scored on what it was fitted to. Rows are dealt to {FOLDS} folds, whole \
         combinations of a model and a chip together; each fold is predicted with constants that \
         were fitted to the others. The terms and the expectations of the constants \
         (`xtask/data/priors.csv`) were chosen with these folds in view, so data of other sources \
         may do a little worse. A row that ran and is predicted not to fit counts as wrong by a \
         factor of 7.4.\n"
    );
    for judged in [training, inference] {
        section(&mut page, judged)?;
    }
    intervals(&mut page, training, inference);
    page.push('\n');
    page.push_str(include_str!("tried.md"));
    Ok(page)
}

fn section(page: &mut String, judged: &Judged) -> Result<()> {
    let Judged { table, rows, .. } = judged;
    let goals = goals(*table);
    let errors = &judged.cross_validated;
    writeln!(page, "\n## {}\n", judge::title(*table))?;
    header(page, "rows of")?;
    let all = errors.score(rows, |_| true);
    line(page, "**all, cross-validated**", &all)?;
    writeln!(
        page,
        "| goal | | {:.1} % | {:.1} % | | {:.3} |",
        goals.median * 100.0,
        goals.p90 * 100.0,
        goals.tau
    )?;
    let pairs: Vec<_> = rows
        .iter()
        .zip(&judged.chip_left_out)
        .map(|(row, error)| (row.value, *error))
        .collect();
    line(
        page,
        "all, each chip left out in turn",
        &judge::score(&pairs),
    )?;
    line(
        page,
        "all, where fitted (no claim)",
        &judge::fitted(rows, Constants::product()),
    )?;
    let prices = prices()?;
    let fold_of = &errors.fold_of;
    let peak = judge::baseline(rows, fold_of, |row| Some(row.case.peak_flops()));
    line(page, "baseline: peak FLOPS", &peak)?;
    let bandwidth = judge::baseline(rows, fold_of, |row| {
        Some(row.case.chip().memory_bytes_per_second)
    });
    line(page, "baseline: memory bandwidth", &bandwidth)?;
    let price = judge::baseline(rows, fold_of, |row| prices.get(&row.gpu).copied());
    line(page, "baseline: price per GPU-hour", &price)?;
    page.push_str(
        "\nA baseline takes the value to be in proportion to its figure over the parameters that a \
         token uses, at the scale that suits the other folds best. Prices are medians of on-demand \
         lists (`xtask/data/prices.csv`); chips without one are left out of that line.\n\n",
    );
    if let Some(aim) = goals.aim {
        let (aim, median) = (aim * 100.0, all.median * 100.0);
        let verdict = if median <= aim { "met" } else { "not met" };
        writeln!(
            page,
            "Beyond the goal the aim for the median was {aim:.0} %: at {median:.1} % it is {verdict}.\n"
        )?;
    }
    header(page, "source")?;
    let sources: BTreeSet<&str> = rows.iter().map(|row| row.source.as_str()).collect();
    for source in sources {
        line(
            page,
            source,
            &errors.score(rows, |row| row.source == source),
        )?;
    }
    page.push('\n');
    header(page, "kind of row")?;
    for (name, wanted) in kinds(*table) {
        line(page, name, &errors.score(rows, wanted))?;
    }
    Ok(())
}

type Kind = (&'static str, fn(&Measured) -> bool);

fn kinds(table: Table) -> Vec<Kind> {
    match table {
        Table::Training => vec![
            ("one scale-up domain", |row| !row.case.several_domains()),
            ("several", |row| row.case.several_domains()),
            ("16k tokens a sequence and more", |row| {
                row.case.sequence_tokens() >= 16_384.0
            }),
            ("mixtures of experts", |row| row.case.is_mixture()),
        ],
        Table::Inference => vec![
            ("dense models", |row| !row.case.is_mixture()),
            ("mixtures of experts", |row| row.case.is_mixture()),
            ("mixtures over PCI Express", |row| {
                row.case.is_mixture() && row.case.chip().is_pcie_only()
            }),
            ("weights fill 80 % of the memory and more", |row| {
                row.case.weights_share() >= 0.8
            }),
            ("several GPUs", |row| row.gpus > 1.0),
        ],
    }
}

fn intervals(page: &mut String, training: &Judged, inference: &Judged) {
    page.push_str(
        "\n## Intervals\n\nAn interval is to hold four of five measurements. Its half-width is the \
         80 % conformal quantile of the cross-validated errors of its group; here each row is tried \
         against widths from the other folds alone.\n\n\
         | | rows | within | goal |\n| --- | ---: | ---: | ---: |\n",
    );
    for judged in [training, inference] {
        let covered = judged.cross_validated.coverage(&judged.rows);
        let _ = writeln!(
            page,
            "| {} | {} | {:.1} % | 76-84 % |",
            judge::title(judged.table).to_lowercase(),
            judged.rows.len(),
            covered * 100.0
        );
    }
    let (train, serve) = (
        training.training_intervals(),
        inference.inference_intervals(),
    );
    page.push_str("\n| group | factor either way |\n| --- | ---: |\n");
    for (name, width) in [
        ("training, dense, one scale-up domain", train.one_domain),
        ("training, dense, several", train.several_domains),
        ("training, mixtures", train.mixture),
        ("training, chips without a measured run", train.family),
        (
            "training, after one measured run of the model on this chip",
            train.calibrated,
        ),
        (
            "training, after one on another chip",
            train.calibrated_elsewhere,
        ),
        ("serving, dense", serve.dense),
        ("serving, mixtures", serve.mixture),
        (
            "serving, layout chosen by a submitter",
            serve.layout_unknown,
        ),
        ("serving, other engines", serve.other_engine),
        ("serving, chips without a measured test", serve.family),
    ] {
        let _ = writeln!(page, "| {name} | {:.2} |", exp(width));
    }
}

fn header(page: &mut String, first: &str) -> Result<()> {
    writeln!(
        page,
        "| {first} | rows | median | P90 | bias | tau |\n| --- | ---: | ---: | ---: | ---: | ---: |"
    )?;
    Ok(())
}

fn line(page: &mut String, name: &str, score: &Score) -> Result<()> {
    // Ranks of a handful say nothing.
    let tau = if score.rows < 10 {
        String::new()
    } else {
        format!("{:.3}", score.tau)
    };
    writeln!(
        page,
        "| {name} | {} | {:.1} % | {:.1} % | {:+.1} % | {tau} |",
        score.rows,
        score.median * 100.0,
        score.p90 * 100.0,
        (exp(score.bias_ln) - 1.0) * 100.0,
    )?;
    Ok(())
}

fn prices() -> Result<BTreeMap<String, f64>> {
    let text = include_str!("../../data/prices.csv");
    let rows = csv::Reader::from_reader(text.as_bytes()).into_deserialize();
    let prices: Vec<Price> = rows.collect::<Result<_, _>>()?;
    let known = prices
        .into_iter()
        .map(|price| (price.gpu, price.usd_per_gpu_hour));
    Ok(known.collect())
}
