//! The page `docs/accuracy.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::Result;
use market::math::exp;
use matcher::perf::constants::Constants;
use matcher::perf::rows::Table;
use serde::Deserialize;

use super::judge::{self, FOLDS, Score};
use super::kinds::{kinds, weak_spots};
use super::measured::Measured;
use super::{Dealt, Judged};

/// The goals of the page, for the reader to compare.
pub(super) struct Goals {
    median: f64,
    p90: f64,
    tau: f64,
    /// The median that is aimed at beyond the goal.
    aim: Option<f64>,
    /// The authors' own result for the reference in five folds, as a line of the page.
    reference: &'static str,
}

/// The goals of a table.
pub(super) const fn goals(table: Table) -> Goals {
    match table {
        Table::Training => Goals {
            median: 0.09,
            p90: 0.29,
            tau: 0.92,
            aim: None,
            reference: "385 | 9.4 % | 29 % | | 0.916",
        },
        Table::Inference => Goals {
            median: 0.13,
            p90: 0.33,
            tau: 0.92,
            aim: Some(0.11),
            reference: "750 | 13.4 % | 35 % | | 0.921",
        },
    }
}

#[derive(Deserialize)]
struct Price {
    gpu: String,
    usd_per_gpu_hour: f64,
}

/// The whole page.
pub(super) fn page(training: (&Judged, &Dealt), inference: (&Judged, &Dealt)) -> Result<String> {
    let mut page = format!(
        "# How accurate the performance models are\n\n\
         Printed by `cargo xtask accuracy --tables DIR > docs/accuracy.md`; do not edit. `DIR` holds \
         `training_measured.csv` and `inference_measured.csv`, public measurements that are not part \
         of this tree. `cargo xtask fit --tables DIR` refits the constants to them. Both give the \
         same figures each time.\n\n\
         Nothing here is scored on what it was fitted to. Rows are dealt to {FOLDS} folds, whole \
         combinations of a model and a chip together; each fold is predicted with constants that \
         were fitted to the others. Where a chip or a source is left out, all rows of it are predicted \
         with constants that were fitted to the others. The terms and the expectations of the constants \
         (`xtask/data/priors.csv`) were chosen with these folds in view, so data of other sources \
         may do a little worse. A row that ran and is predicted not to fit counts as wrong by a \
         factor of 7.4.\n"
    );
    for (judged, dealt) in [training, inference] {
        section(&mut page, judged, dealt)?;
    }
    weak(&mut page, [training, inference])?;
    intervals(&mut page, training.0, inference.0);
    page.push('\n');
    page.push_str(include_str!("tried.md"));
    Ok(page)
}

fn section(page: &mut String, judged: &Judged, dealt: &Dealt) -> Result<()> {
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
    writeln!(
        page,
        "| the reference, cross-validated by its authors | {} |",
        goals.reference
    )?;
    let reference = dealt.reference.score(rows, |_| true);
    line(page, "the reference's terms, on the same folds", &reference)?;
    let seeds: Vec<&Score> = std::iter::once(&all).chain(&dealt.other_folds).collect();
    ranges(page, "all, cross-validated", &seeds)?;
    let others = std::iter::once(&reference).chain(&dealt.reference_other_folds);
    ranges(page, "the reference's terms", &others.collect::<Vec<_>>())?;
    for (name, errors) in [
        ("all, each chip left out in turn", &judged.chip_left_out),
        ("all, each source left out in turn", &dealt.source_left_out),
    ] {
        line(page, name, &judge::score_of(rows, errors, |_| true))?;
    }
    line(
        page,
        "all, where fitted (no claim)",
        &judge::fitted(rows, Constants::product(), |_| true),
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
    page.push_str(&missed(&goals, &seeds));
    page.push_str(&against(&all, &reference));
    page.push_str(
        "Rows of a source are dealt to all folds, so others of it were in the fit; below each source \
         stands how it does with none of them in it.\n\n",
    );
    header(page, "source")?;
    let sources: BTreeSet<&str> = rows.iter().map(|row| row.source.as_str()).collect();
    for source in sources {
        let of_source = |errors: &[f64]| {
            let wanted = |row: &Measured| row.source == source;
            judge::score_of(rows, errors, wanted)
        };
        line(page, source, &of_source(&errors.errors))?;
        line(
            page,
            "– none of it in the fit",
            &of_source(&dealt.source_left_out),
        )?;
    }
    page.push('\n');
    header(page, "kind of row")?;
    for (name, wanted) in kinds(*table) {
        line(page, name, &errors.score(rows, wanted))?;
    }
    Ok(())
}

/// A line of the least and the most over all deals of the folds.
fn ranges(page: &mut String, name: &str, seeds: &[&Score]) -> Result<()> {
    let rows = seeds.first().map_or(0, |score| score.rows);
    writeln!(
        page,
        "| {name} with {} deals of the folds | {rows} | {} % | {} % | {} % | {} |",
        seeds.len(),
        range(seeds, |score| score.median * 100.0, 1),
        range(seeds, |score| score.p90 * 100.0, 1),
        range(seeds, |score| (exp(score.bias_ln) - 1.0) * 100.0, 1),
        range(seeds, |score| score.tau, 3),
    )?;
    Ok(())
}

/// The least and the most of a figure.
fn range(scores: &[&Score], of: impl Fn(&Score) -> f64, places: usize) -> String {
    let all = scores.iter().map(|score| of(score));
    let least = all.clone().fold(f64::INFINITY, f64::min);
    let most = all.fold(f64::NEG_INFINITY, f64::max);
    format!("{least:.places$} to {most:.places$}")
}

/// A paragraph on each goal that some deal of the folds misses.
pub(super) fn missed(goals: &Goals, seeds: &[&Score]) -> String {
    let mut told = String::new();
    let misses = |score: &Score| {
        [
            score.median > goals.median,
            score.p90 > goals.p90,
            score.tau < goals.tau,
        ]
    };
    for (at, name) in ["median", "P90", "tau"].into_iter().enumerate() {
        let count = seeds.iter().filter(|score| misses(score)[at]).count();
        if count > 0 {
            let of = seeds.len();
            let _ = writeln!(
                told,
                "The goal for the {name} is missed with {count} of the {of} deals of the folds.\n"
            );
        }
    }
    told
}

/// A paragraph on how the product's terms do against the reference's on the same folds.
pub(super) fn against(product: &Score, reference: &Score) -> String {
    let figures = [
        ("the median", product.median < reference.median),
        ("the P90", product.p90 < reference.p90),
        ("tau", product.tau > reference.tau),
    ];
    let those = |wanted: bool| {
        let chosen = figures.iter().filter(|(_, better)| *better == wanted);
        let names: Vec<&str> = chosen.map(|(name, _)| *name).collect();
        match names.as_slice() {
            [others @ .., last] if !others.is_empty() => {
                format!("{} and {last}", others.join(", "))
            }
            names => names.concat(),
        }
    };
    let found = match (those(true), those(false)) {
        (better, none) if none.is_empty() => format!("better in {better}"),
        (none, other) if none.is_empty() => format!("better in none of {other}"),
        (better, other) => format!("better in {better}, and no better in {other}"),
    };
    format!(
        "Against the reference's terms, fitted to the same folds by the same rule, the product's are \
         {found}.\n\n"
    )
}

/// The spots in which the reference is weak, with this model's errors beside its own.
fn weak(page: &mut String, tables: [(&Judged, &Dealt); 2]) -> Result<()> {
    page.push_str(
        "\n## Where the reference is weak\n\n\
         The kinds of rows that the authors of the reference constants \
         (`matcher/data/params.reference.json`) name as its weak spots: median and P90. Held out, both \
         are predicted for each fold with constants that were fitted to the others: the product's \
         terms, and the reference's, fitted by the same rule from the same expectations. Whether the \
         product is better follows from these two. Fitted are the product's constants and the \
         reference's as they were published, each to all of these rows, which says no more than whose \
         formulas can follow them.\n\n\
         | kind of row | rows | held out | reference's terms, held out | better than they, held out | \
         fitted | reference, fitted | better than it, fitted |\n\
         | --- | ---: | ---: | ---: | --- | ---: | ---: | --- |\n",
    );
    for (judged, dealt) in tables {
        let table = judge::title(judged.table).to_lowercase();
        for (name, wanted) in weak_spots(judged.table) {
            let held_out = judged.cross_validated.score(&judged.rows, wanted);
            let beside = dealt.reference.score(&judged.rows, wanted);
            let fitted = judge::fitted(&judged.rows, Constants::product(), wanted);
            let reference = judge::fitted(&judged.rows, Constants::reference(), wanted);
            writeln!(
                page,
                "| {table}: {name} | {} | {} | {} | {} | {} | {} | {} |",
                held_out.rows,
                median_and_p90(&held_out),
                median_and_p90(&beside),
                better(&held_out, &beside),
                median_and_p90(&fitted),
                median_and_p90(&reference),
                better(&fitted, &reference),
            )?;
        }
    }
    Ok(())
}

fn median_and_p90(score: &Score) -> String {
    format!("{:.1} %, {:.1} %", score.median * 100.0, score.p90 * 100.0)
}

/// In which figures one score is better than another.
fn better(score: &Score, than: &Score) -> &'static str {
    match (score.median < than.median, score.p90 < than.p90) {
        (true, true) => "yes",
        (true, false) => "median alone",
        (false, true) => "P90 alone",
        (false, false) => "no",
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
    // Ranks of a few rows mean nothing.
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
