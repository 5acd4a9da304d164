//! How good predictions are: errors, ranks, intervals, and baselines that know one figure a chip.

use std::collections::BTreeMap;

use anyhow::Result;
use market::math::{exp, ln};
use matcher::perf::constants::{
    Constants, InferenceGround, InferenceIntervals, TrainingGround, TrainingIntervals,
};
use matcher::perf::rows::{Ground, Table};

use super::measured::{Measured, folds};
use super::solver::Problem;

/// Folds of the cross-validation.
pub(crate) const FOLDS: usize = 5;

/// The share of measurements that an interval is to cover.
const COVERED: f64 = 0.8;

/// The score of a set of predictions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Score {
    pub(crate) rows: usize,
    /// Median of |predicted / measured - 1|.
    pub(crate) median: f64,
    /// Its 90th percentile.
    pub(crate) p90: f64,
    /// Median of the logarithm of predicted over measured.
    pub(crate) bias_ln: f64,
    /// Kendall's tau over pairs that were measured unequal.
    pub(crate) tau: f64,
}

/// Scores pairs of a measured value and the logarithm of the predicted over the measured value.
pub(crate) fn score(pairs: &[(f64, f64)]) -> Score {
    let errors: Vec<f64> = pairs.iter().map(|(_, ln)| (exp(*ln) - 1.0).abs()).collect();
    let logarithms: Vec<f64> = pairs.iter().map(|(_, ln)| *ln).collect();
    Score {
        rows: pairs.len(),
        median: percentile(&errors, 0.5),
        p90: percentile(&errors, 0.9),
        bias_ln: percentile(&logarithms, 0.5),
        tau: tau(pairs),
    }
}

/// Percentile by linear interpolation; NaN for no values.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share * (sorted.len() as f64 - 1.0);
    let (below, above) = (place.floor(), place.ceil());
    let at = |place: f64| sorted.get(place as usize).copied().unwrap_or(f64::NAN);
    at(below) + (at(above) - at(below)) * (place - below)
}

fn tau(pairs: &[(f64, f64)]) -> f64 {
    let (mut agreed, mut compared) = (0.0, 0.0);
    for (index, (left, left_ln)) in pairs.iter().enumerate() {
        for (right, right_ln) in &pairs[..index] {
            if left == right {
                continue;
            }
            compared += 1.0;
            let predicted = left * exp(*left_ln) - right * exp(*right_ln);
            if predicted != 0.0 {
                agreed += predicted.signum() * (left - right).signum();
            }
        }
    }
    agreed / compared
}

/// The error of each row under constants that were fitted without its fold.
///
/// Errors: a fit fails.
pub(crate) fn left_out(
    problem: &Problem<'_>,
    rows: &[Measured],
    fold_of: &[usize],
) -> Result<Vec<f64>> {
    let mut errors = vec![f64::NAN; rows.len()];
    let count = fold_of.iter().max().map_or(0, |last| last + 1);
    for fold in 0..count {
        let inside = |index: &usize| fold_of[*index] == fold;
        let fitted_to: Vec<&Measured> = (0..rows.len())
            .filter(|index| !inside(index))
            .map(|index| &rows[index])
            .collect();
        let constants = problem.fit(&fitted_to)?;
        for index in (0..rows.len()).filter(inside) {
            errors[index] = rows[index].error_ln(&constants);
        }
    }
    Ok(errors)
}

/// The fold of each row where every chip, or every source, is one.
pub(crate) fn numbered(rows: &[Measured], name: impl Fn(&Measured) -> &str) -> Vec<usize> {
    let mut numbers = BTreeMap::new();
    for row in rows {
        let next = numbers.len();
        numbers.entry(name(row)).or_insert(next);
    }
    rows.iter().map(|row| numbers[name(row)]).collect()
}

/// The errors of a cross-validation, with the fold of each row.
pub(crate) struct CrossValidated {
    pub(crate) fold_of: Vec<usize>,
    pub(crate) errors: Vec<f64>,
}

/// Five folds over whole combinations.
///
/// Errors: a fit fails.
pub(crate) fn cross_validate(
    problem: &Problem<'_>,
    rows: &[Measured],
    seed: u64,
) -> Result<CrossValidated> {
    let fold_of = folds(rows, FOLDS, seed);
    let errors = left_out(problem, rows, &fold_of)?;
    Ok(CrossValidated { fold_of, errors })
}

/// The score of these errors over the rows that `wanted` picks.
pub(crate) fn score_of(
    rows: &[Measured],
    errors: &[f64],
    wanted: impl Fn(&Measured) -> bool,
) -> Score {
    let pairs = rows.iter().zip(errors).filter(|(row, _)| wanted(row));
    let pairs: Vec<_> = pairs.map(|(row, error)| (row.value, *error)).collect();
    score(&pairs)
}

impl CrossValidated {
    /// Of the rows that `wanted` picks.
    pub(crate) fn score(&self, rows: &[Measured], wanted: impl Fn(&Measured) -> bool) -> Score {
        score_of(rows, &self.errors, wanted)
    }

    /// The share of rows within intervals whose widths come from the other folds alone.
    pub(crate) fn coverage(&self, rows: &[Measured]) -> f64 {
        let covered = (0..rows.len()).filter(|index| {
            let others = (0..rows.len()).filter(|other| {
                self.fold_of[*other] != self.fold_of[*index]
                    && group(&rows[*other]) == group(&rows[*index])
            });
            let errors: Vec<f64> = others.map(|other| self.errors[other]).collect();
            self.errors[*index].abs() <= half_width(&errors)
        });
        covered.count() as f64 / rows.len() as f64
    }

    fn half_width_of(&self, rows: &[Measured], wanted: u8) -> f64 {
        let chosen = rows.iter().zip(&self.errors);
        let chosen = chosen.filter(|(row, _)| group(row) == wanted);
        half_width(&chosen.map(|(_, error)| *error).collect::<Vec<_>>())
    }
}

/// The factor, as a logarithm, within which four of five errors lie: their conformal quantile.
pub(crate) fn half_width(errors: &[f64]) -> f64 {
    let mut sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let place = ((sizes.len() as f64 + 1.0) * COVERED).ceil() as usize;
    let place = place.min(sizes.len()).saturating_sub(1);
    sizes.get(place).copied().unwrap_or(f64::NAN)
}

/// The group whose rows share a width.
fn group(row: &Measured) -> u8 {
    match row.case.ground() {
        Ground::Training(TrainingGround { mixture: true, .. }) => 2,
        Ground::Training(TrainingGround {
            several_domains, ..
        }) => u8::from(several_domains),
        Ground::Inference(InferenceGround::Dense, _) => 3,
        Ground::Inference(InferenceGround::Mixture, _) => 4,
        Ground::Inference(InferenceGround::LayoutUnknown, _) => 5,
        Ground::Inference(InferenceGround::OtherEngine, _) => 6,
    }
}

/// The widths for training.
pub(crate) fn training_intervals(
    rows: &[Measured],
    errors: &CrossValidated,
    of_chips: &[f64],
) -> TrainingIntervals {
    let (here, elsewhere) = calibrated(rows, &errors.errors);
    TrainingIntervals {
        one_domain: rounded(errors.half_width_of(rows, 0)),
        several_domains: rounded(errors.half_width_of(rows, 1)),
        mixture: rounded(errors.half_width_of(rows, 2)),
        family: rounded(half_width(of_chips)),
        calibrated: rounded(half_width(&here)),
        calibrated_elsewhere: rounded(half_width(&elsewhere)),
    }
}

/// The widths for serving.
pub(crate) fn inference_intervals(
    rows: &[Measured],
    errors: &CrossValidated,
    of_chips: &[f64],
) -> InferenceIntervals {
    InferenceIntervals {
        dense: rounded(errors.half_width_of(rows, 3)),
        mixture: rounded(errors.half_width_of(rows, 4)),
        layout_unknown: rounded(errors.half_width_of(rows, 5)),
        other_engine: rounded(errors.half_width_of(rows, 6)),
        family: rounded(half_width(of_chips)),
    }
}

fn rounded(width: f64) -> f64 {
    (width * 1e4).round() / 1e4
}

/// The remaining errors after the first row of the same model, on the same chip or on another, has set the
/// scale.
fn calibrated(rows: &[Measured], errors: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let mut first: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (index, row) in rows.iter().enumerate() {
        first.entry(row.combination()).or_insert(index);
    }
    let (mut here, mut elsewhere) = (Vec::new(), Vec::new());
    for (index, row) in rows.iter().enumerate() {
        for ((model, gpu), step) in &first {
            let left = errors[index] - errors[*step];
            if *model != row.model || *step == index {
                continue;
            }
            if *gpu == row.gpu {
                here.push(left);
            } else {
                elsewhere.push(left);
            }
        }
    }
    (here, elsewhere)
}

/// A ranking that knows one figure of a chip: value in proportion to it, over the parameters that a
/// token uses, at the best single scale of the other folds.
pub(crate) fn baseline(
    rows: &[Measured],
    fold_of: &[usize],
    figure: impl Fn(&Measured) -> Option<f64>,
) -> Score {
    let scaled: Vec<Option<f64>> = rows
        .iter()
        .map(|row| {
            let known = figure(row)? * row.gpus / row.active_b;
            Some(ln(known / row.value))
        })
        .collect();
    let mut pairs = Vec::new();
    for fold in 0..FOLDS {
        let others: Vec<f64> = (0..rows.len())
            .filter(|index| fold_of[*index] != fold)
            .filter_map(|index| scaled[index])
            .collect();
        let scale = percentile(&others, 0.5);
        for index in (0..rows.len()).filter(|index| fold_of[*index] == fold) {
            pairs.extend(scaled[index].map(|ln| (rows[index].value, ln - scale)));
        }
    }
    score(&pairs)
}

/// The score of constants over the rows that `wanted` picks and to which they were fitted. It is no measure
/// for other rows.
pub(crate) fn fitted(
    rows: &[Measured],
    constants: &Constants,
    wanted: impl Fn(&Measured) -> bool,
) -> Score {
    let errors: Vec<f64> = rows.iter().map(|row| row.error_ln(constants)).collect();
    score_of(rows, &errors, wanted)
}

/// The name of a table in headings.
pub(crate) const fn title(table: Table) -> &'static str {
    match table {
        Table::Training => "Training",
        Table::Inference => "Serving",
    }
}
