//! Refits the constants of the performance models (`fit`), and reports their accuracy (`accuracy`).
//!
//! Both read tables of measurements from a folder outside this repository, because the figures are
//! third-party. Accuracy is never measured on rows to which the constants were fitted. Accuracy and intervals
//! come from five folds, where each combination of a model and a chip is in one fold, and from leaving out a
//! chip or a source.

mod judge;
mod kinds;
mod measured;
mod report;
mod solver;

#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::{Context, Result};
use matcher::perf::constants::Constants;
use matcher::perf::rows::Table;

use judge::{CrossValidated, Score};
use measured::Measured;
use solver::Problem;

/// The seed that assigns the combinations to the folds.
const SEED: u64 = 1;

/// Seeds of other folds, to see how much of a score is luck.
const OTHER_SEEDS: [u64; 4] = [2, 3, 4, 5];

/// The path of the product's constants, from the root of the tree.
const PARAMS: &str = "matcher/data/params.json";

/// The results for a table that both commands need.
struct Judged {
    table: Table,
    rows: Vec<Measured>,
    cross_validated: CrossValidated,
    chip_left_out: Vec<f64>,
}

/// The results for a table that only the page shows.
struct Dealt {
    /// The error of each row with constants fitted without its source.
    source_left_out: Vec<f64>,
    /// The scores with other folds.
    other_folds: Vec<Score>,
    /// The reference model, refitted in the folds of [`SEED`].
    reference: CrossValidated,
    /// The scores of the reference model with the other folds.
    reference_other_folds: Vec<Score>,
}

/// Refits `matcher/data/params.json`, intervals included.
///
/// Errors: a table is missing, or the file cannot be written.
pub(crate) fn fit(folder: &Path) -> Result<()> {
    let mut constants = Constants::product().clone();
    for table in [Table::Training, Table::Inference] {
        let judged = Judged::of(table, folder)?;
        let priors = solver::priors(table)?;
        let problem = Problem::new(table, &priors, &constants)?;
        let fitted = problem.fit(&judged.rows.iter().collect::<Vec<_>>())?;
        let score = judge::fitted(&judged.rows, &fitted, |_| true);
        eprintln!(
            "{}: {} rows, median error {:.1} % where fitted",
            judge::title(table),
            score.rows,
            score.median * 100.0
        );
        let widths = &mut constants.interval_80_ln;
        match table {
            Table::Training => {
                constants.training = fitted.training;
                widths.training = judged.training_intervals();
            }
            Table::Inference => {
                constants.inference = fitted.inference;
                widths.inference = judged.inference_intervals();
            }
        }
    }
    let text = serde_json::to_string_pretty(&constants)?;
    std::fs::write(PARAMS, text + "\n").with_context(|| format!("{PARAMS} cannot be written"))?;
    eprintln!("Wrote {PARAMS}; now print docs/accuracy.md with `cargo xtask accuracy`");
    Ok(())
}

/// Prints `docs/accuracy.md`.
///
/// Errors: a table is missing.
pub(crate) fn accuracy(folder: &Path) -> Result<()> {
    let training = Judged::of(Table::Training, folder)?;
    let inference = Judged::of(Table::Inference, folder)?;
    let (run, test) = (training.dealt_otherwise()?, inference.dealt_otherwise()?);
    let page = report::page((&training, &run), (&inference, &test))?;
    print!("{page}");
    Ok(())
}

impl Judged {
    fn of(table: Table, folder: &Path) -> Result<Self> {
        let rows = measured::load(table, folder)?;
        let priors = solver::priors(table)?;
        let problem = Problem::new(table, &priors, Constants::product())?;
        Ok(Self {
            table,
            cross_validated: judge::cross_validate(&problem, &rows, SEED)?,
            chip_left_out: judge::left_out(
                &problem,
                &rows,
                &judge::numbered(&rows, |row| &row.gpu),
            )?,
            rows,
        })
    }

    fn dealt_otherwise(&self) -> Result<Dealt> {
        let priors = solver::priors(self.table)?;
        let problem = Problem::new(self.table, &priors, Constants::product())?;
        let sources = judge::numbered(&self.rows, |row| &row.source);
        let with_other_folds = |problem: &Problem<'_>| {
            let scores = OTHER_SEEDS.into_iter().map(|seed| {
                let dealt = judge::cross_validate(problem, &self.rows, seed)?;
                Ok(dealt.score(&self.rows, |_| true))
            });
            scores.collect::<Result<_>>()
        };
        let reference_priors = solver::reference_priors(self.table)?;
        let reference = Problem::new(self.table, &reference_priors, Constants::reference())?;
        Ok(Dealt {
            source_left_out: judge::left_out(&problem, &self.rows, &sources)?,
            other_folds: with_other_folds(&problem)?,
            reference: judge::cross_validate(&reference, &self.rows, SEED)?,
            reference_other_folds: with_other_folds(&reference)?,
        })
    }

    fn training_intervals(&self) -> matcher::perf::constants::TrainingIntervals {
        judge::training_intervals(&self.rows, &self.cross_validated, &self.chip_left_out)
    }

    fn inference_intervals(&self) -> matcher::perf::constants::InferenceIntervals {
        judge::inference_intervals(&self.rows, &self.cross_validated, &self.chip_left_out)
    }
}
