//! The fit itself: weighted least squares in logarithms, by Levenberg and Marquardt's method.
//!
//! Each constant is fitted as its logarithm and drawn to its prior (`data/priors.csv`), so that a constant
//! without evidence in the rows stays there. Rows of a combination with many measurements have a little less
//! weight each, and outliers have less weight the farther off they are. The fit is deterministic: the same
//! rows give the same constants.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use market::math::{exp, ln, pow};
use matcher::perf::constants::Constants;
use matcher::perf::rows::Table;
use nalgebra::{Cholesky, DMatrix, DVector};
use serde::Deserialize;
use serde_json::Value;

use super::measured::Measured;

/// The expected error of a usual row. Units: logarithm.
const USUAL_ERROR: f64 = 0.1;

/// Errors of a combination with n rows are multiplied by n to the power of minus this, so that its
/// rows weigh n to the power of minus twice this in the sum of squares.
const CROWDING: f64 = 0.1;

/// The error from which on rows count less.
const OUTLIER: f64 = 0.1;

/// The largest error that counts; larger ones count as this.
const LARGEST: f64 = 2.0;

/// The step over which slopes are taken.
const SLOPE_STEP: f64 = 1e-3;

/// Rounds at most; most fits end earlier.
const ROUNDS: usize = 60;

/// The gain, as a share of the cost, below which a fit has ended.
const ENOUGH: f64 = 1e-5;

/// The prior of a constant.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Prior {
    table: String,
    /// Its name in the set of constants.
    pub(crate) constant: String,
    start: f64,
    /// The width of the prior. Units: logarithm.
    width_ln: f64,
    /// Its upper bound, for any rows.
    pub(crate) most: Option<f64>,
    /// Where the reference has it: itself, or the constant that it equals there. Nothing where the
    /// reference switches it off.
    pub(crate) reference: Option<String>,
    /// Constants that are given the same value.
    #[serde(skip)]
    also: Vec<String>,
}

/// The constants that are fitted for a table.
///
/// Errors: the list cannot be read.
pub(crate) fn priors(table: Table) -> Result<Vec<Prior>> {
    let text = include_str!("../../data/priors.csv");
    let all: Vec<Prior> = csv::Reader::from_reader(text.as_bytes())
        .into_deserialize()
        .collect::<Result<_, _>>()
        .context("the list of priors cannot be read")?;
    let wanted = part(table);
    Ok(all.into_iter().filter(|row| row.table == wanted).collect())
}

/// The constants that the reference has for a table, expected where the product's are.
///
/// Errors: the list cannot be read.
pub(crate) fn reference_priors(table: Table) -> Result<Vec<Prior>> {
    let all = priors(table)?;
    let equal_to = |own: &Prior| {
        let others = all.iter().filter(|other| other.constant != own.constant);
        let equal = others.filter(|other| other.reference.as_ref() == Some(&own.constant));
        equal.map(|other| other.constant.clone()).collect()
    };
    let own = all
        .iter()
        .filter(|prior| prior.reference.as_ref() == Some(&prior.constant));
    Ok(own
        .map(|prior| Prior {
            also: equal_to(prior),
            ..prior.clone()
        })
        .collect())
}

/// The part of a set of constants that a table is predicted with.
pub(crate) const fn part(table: Table) -> &'static str {
    match table {
        Table::Training => "training",
        Table::Inference => "inference",
    }
}

/// Constants that can be changed by name.
pub(crate) struct Problem<'a> {
    table: Table,
    priors: &'a [Prior],
    base: Value,
}

impl<'a> Problem<'a> {
    /// A fit for a table. Constants without a prior keep their value in `base`.
    ///
    /// Errors: the base cannot be written as JSON, which a set of constants always can.
    pub(crate) fn new(table: Table, priors: &'a [Prior], base: &Constants) -> Result<Self> {
        Ok(Self {
            table,
            priors,
            base: serde_json::to_value(base)?,
        })
    }

    /// Fits to these rows alone.
    ///
    /// Errors: a prior names no constant.
    pub(crate) fn fit(&self, rows: &[&Measured]) -> Result<Constants> {
        let start = self.column(|prior| ln(prior.start));
        let most = self.column(|prior| prior.most.map_or(f64::INFINITY, ln));
        let mut at = start.inf(&most);
        let crowd = crowding(rows);
        let mut damping = 1.0;
        for _ in 0..ROUNDS {
            let errors = self.errors(rows, &at)?;
            let weights = DVector::from_fn(rows.len(), |row, _| {
                let outlying = (OUTLIER / errors[row].abs().max(1e-9)).min(1.0);
                crowd[row] * outlying.sqrt() / USUAL_ERROR
            });
            let slopes = self.slopes(rows, &at, &errors, &weights)?;
            let pull = self.column(|prior| (prior.width_ln * prior.width_ln).recip());
            let mut curvature = slopes.transpose() * &slopes + DMatrix::from_diagonal(&pull);
            let mut gradient = slopes.transpose() * errors.component_mul(&weights)
                + (&at - &start).component_mul(&pull);
            // A constant that would leave its bound stays at it, and the others are fitted to that.
            for index in 0..self.priors.len() {
                if at[index] >= most[index] && gradient[index] < 0.0 {
                    gradient[index] = 0.0;
                    curvature.row_mut(index).fill(0.0);
                    curvature.column_mut(index).fill(0.0);
                }
            }
            let cost = |at: &DVector<f64>| -> Result<f64> {
                let missed = self.errors(rows, at)?.component_mul(&weights);
                let moved = at - &start;
                Ok(missed.norm_squared() + moved.component_mul(&moved).dot(&pull))
            };
            let before = cost(&at)?;
            let mut gain = 0.0;
            for _ in 0..8 {
                let mut damped = curvature.clone();
                for index in 0..self.priors.len() {
                    damped[(index, index)] += damping * (curvature[(index, index)] + 1e-6);
                }
                let solved = Cholesky::new(damped).context("the fit has no solution")?;
                let step = solved.solve(&-&gradient).map(|step| step.clamp(-0.4, 0.4));
                let tried = (&at + step).inf(&most);
                let after = cost(&tried)?;
                if after < before {
                    (at, gain) = (tried, before - after);
                    damping = f64::max(damping / 3.0, 1e-6);
                    break;
                }
                damping *= 4.0;
            }
            if gain < ENOUGH * before {
                break;
            }
        }
        self.constants(&at)
    }

    fn column(&self, of: impl Fn(&Prior) -> f64) -> DVector<f64> {
        DVector::from_iterator(self.priors.len(), self.priors.iter().map(of))
    }

    fn constants(&self, at: &DVector<f64>) -> Result<Constants> {
        let mut value = self.base.clone();
        let part = &mut value[part(self.table)];
        for (prior, at) in self.priors.iter().zip(at) {
            for name in std::iter::once(&prior.constant).chain(&prior.also) {
                part[name.as_str()] = exp(*at).into();
            }
        }
        serde_json::from_value(value).context("a prior names no constant")
    }

    fn errors(&self, rows: &[&Measured], at: &DVector<f64>) -> Result<DVector<f64>> {
        let constants = self.constants(at)?;
        let errors = rows.iter().map(|row| row.error_ln(&constants));
        let bounded = errors.map(|error| error.clamp(-LARGEST, LARGEST));
        Ok(DVector::from_iterator(rows.len(), bounded))
    }

    fn slopes(
        &self,
        rows: &[&Measured],
        at: &DVector<f64>,
        errors: &DVector<f64>,
        weights: &DVector<f64>,
    ) -> Result<DMatrix<f64>> {
        let mut slopes = DMatrix::zeros(rows.len(), self.priors.len());
        for index in 0..self.priors.len() {
            let mut beside = at.clone();
            beside[index] += SLOPE_STEP;
            let change = (self.errors(rows, &beside)? - errors) / SLOPE_STEP;
            slopes.set_column(index, &change.component_mul(weights));
        }
        Ok(slopes)
    }
}

/// The weight on the error of each row for its combination, one on average.
fn crowding(rows: &[&Measured]) -> Vec<f64> {
    let mut counts: BTreeMap<_, f64> = BTreeMap::new();
    for row in rows {
        *counts.entry(row.combination()).or_default() += 1.0;
    }
    let weights = rows
        .iter()
        .map(|row| pow(counts[&row.combination()], -CROWDING));
    let weights: Vec<f64> = weights.collect();
    let mean = weights.iter().sum::<f64>() / weights.len() as f64;
    weights.into_iter().map(|weight| weight / mean).collect()
}
