//! The allowed ranges of the cells of a row: no run or test has a figure outside of them.

use std::ops::RangeInclusive;

use super::RowError;
use crate::models::ModelFigures;

/// Tokens of a sequence, a prompt or an answer.
pub(super) const TOKENS: RangeInclusive<f64> = 1.0..=1e9;

/// Sequences, batches, requests.
pub(super) const COUNT: RangeInclusive<f64> = 1.0..=1e9;

/// GPUs, and ways to share work out over them.
pub(super) const GPUS: RangeInclusive<f64> = 1.0..=1e6;

/// A number of a column, which must lie within these bounds.
///
/// Errors: [`RowError::OutOfRange`], also for a value that is not a number.
pub(super) fn within(
    column: &'static str,
    value: f64,
    range: RangeInclusive<f64>,
) -> Result<f64, RowError> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(RowError::OutOfRange {
        column,
        value,
        wanted: format!("a number from {} to {}", range.start(), range.end()),
    })
}

/// The same for a whole number.
///
/// Errors: [`RowError::OutOfRange`].
pub(super) fn whole(
    column: &'static str,
    value: f64,
    range: RangeInclusive<f64>,
) -> Result<f64, RowError> {
    if range.contains(&value) && value.fract() == 0.0 {
        return Ok(value);
    }
    Err(RowError::OutOfRange {
        column,
        value,
        wanted: format!("a whole number from {} to {}", range.start(), range.end()),
    })
}

/// The same of a cell that may be blank and then means one.
///
/// Errors: [`RowError::OutOfRange`].
pub(super) fn whole_or_one(
    column: &'static str,
    cell: Option<f64>,
    range: RangeInclusive<f64>,
) -> Result<f64, RowError> {
    cell.map_or(Ok(1.0), |value| whole(column, value, range))
}

/// Whether a model can be split in this way: each GPU has whole heads, and each stage a layer.
///
/// Errors: [`RowError::Layout`].
pub(super) fn check_split(
    model: &ModelFigures,
    tensor: f64,
    pipeline: f64,
) -> Result<(), RowError> {
    let (heads, layers) = (f64::from(model.heads), f64::from(model.layers));
    if heads % tensor != 0.0 {
        return Err(RowError::Layout(format!(
            "`tp` {tensor} does not divide the {heads} attention heads; give a divisor of them"
        )));
    }
    if pipeline > layers {
        return Err(RowError::Layout(format!(
            "`pp` {pipeline} is more than the {layers} layers; give no more stages than layers"
        )));
    }
    Ok(())
}
