//! Predictions for tables of measurements: one row per run or test, beside its measured value.
//!
//! The columns are those of public collections of measurements; `training` and `inference` list the ones that
//! are read. A prediction never reads the measured value.

mod columns;
mod inference;
mod ranges;
mod training;

#[cfg(test)]
mod tests;

use std::io::Read;

use market::gpu::Gpu;
use market::math::exp;
use serde::Serialize;

pub use columns::Column;

use self::ranges::{whole, within};
use super::chip::{Basis, Chip};
use super::constants::{Constants, InferenceGround, TrainingGround};
use super::replica::CannotServe;
use crate::models::ModelFigures;

/// Which model a table asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Tokens per second and GPU of training runs.
    Training,
    /// Throughput or times of serving tests.
    Inference,
}

/// The prediction for one row, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RowPrediction {
    /// The row, from 1; the header is not counted.
    pub row: usize,
    /// The prediction.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The outcome of one row.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// A prediction.
    Predicted(Predicted),
    /// None.
    Refused {
        /// The cause, and the remedy.
        why: String,
    },
}

/// A prediction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Predicted {
    /// The value.
    pub predicted: f64,
    /// Its unit, as in the table's measured column.
    pub unit: String,
    /// Where the 80 % interval begins, in which four of five measurements are expected.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
    /// A caveat for readers of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Why a row cannot be predicted.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// The row is not readable.
    #[error("the row cannot be read: {0}")]
    Unreadable(#[from] csv::Error),
    /// A cell is missing.
    #[error("`{0}` is missing; give it")]
    Missing(&'static str),
    /// A word that the column does not accept.
    #[error("`{word}` in `{column}` is not known; known are {known}")]
    UnknownWord {
        /// The column.
        column: &'static str,
        /// The word.
        word: String,
        /// The words that it knows.
        known: &'static str,
    },
    /// A number that no run and no test has.
    #[error("`{column}` is {value}; give {wanted}")]
    OutOfRange {
        /// The column.
        column: &'static str,
        /// The number.
        value: f64,
        /// The values that it accepts.
        wanted: String,
    },
    /// The model cannot be split over so many GPUs in this layout.
    #[error("{0}")]
    Layout(String),
    /// The prediction is not a finite positive number.
    #[error("the prediction is {0}, which is not a valid figure; check the numbers of the row")]
    NoFigure(f64),
    /// No such chip.
    #[error("the GPU `{0}` is not known, or nothing is published that a rate could be taken from")]
    UnknownGpu(String),
    /// No such model, and its figures are not in the row.
    #[error(
        "the model `{0}` is not known; name a known one or fill params_b, active_b, layers, hidden, heads and kv_heads"
    )]
    UnknownModel(String),
    /// It does not serve at all.
    #[error("it cannot be served: {0}")]
    CannotServe(#[from] CannotServe),
}

/// A row of a table that was read: all that its prediction takes but the constants.
#[derive(Debug, Clone)]
pub struct Case(Asked);

#[derive(Debug, Clone)]
enum Asked {
    Training(training::Run),
    Inference(inference::Test),
}

/// The group that decides the expected error of a prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// Of a training run.
    Training(TrainingGround),
    /// Of a serving test.
    Inference(InferenceGround, Basis),
}

impl Case {
    /// The prediction, in [`Self::unit`].
    ///
    /// Errors: it does not serve at all.
    pub fn predict(&self, constants: &Constants) -> Result<f64, RowError> {
        Ok(match &self.0 {
            Asked::Training(run) => run.predict(&constants.training),
            Asked::Inference(test) => test.predict(&constants.inference)?,
        })
    }

    /// The unit of the measured value.
    #[must_use]
    pub fn unit(&self) -> &str {
        match &self.0 {
            Asked::Training(_) => "tok/s/GPU",
            Asked::Inference(test) => &test.unit,
        }
    }

    /// The chip.
    #[must_use]
    pub fn chip(&self) -> &Chip {
        match &self.0 {
            Asked::Training(run) => &run.chip,
            Asked::Inference(test) => &test.chip,
        }
    }

    /// The peak of the chip in the format that the row computes in. Units: FLOP/s.
    #[must_use]
    pub fn peak_flops(&self) -> f64 {
        match &self.0 {
            Asked::Training(run) => run.chip.peak_flops(run.product),
            Asked::Inference(test) => test.chip.peak_flops(test.weights.product()),
        }
    }

    /// Whether each token uses only a part of the parameters.
    #[must_use]
    pub fn is_mixture(&self) -> bool {
        match &self.0 {
            Asked::Training(run) => run.model.is_mixture(),
            Asked::Inference(test) => test.model.is_mixture(),
        }
    }

    /// Whether a run spans scale-up domains; of serving tests it is not asked.
    #[must_use]
    pub fn several_domains(&self) -> bool {
        matches!(self.ground(), Ground::Training(ground) if ground.several_domains)
    }

    /// Tokens of a sequence, or of a prompt.
    #[must_use]
    pub fn sequence_tokens(&self) -> f64 {
        match &self.0 {
            Asked::Training(run) => run.sequence_tokens,
            Asked::Inference(test) => test.input_tokens,
        }
    }

    /// Share of the memory, as it is sold, that weights fill when they serve as laid out; of
    /// training runs it is not asked.
    #[must_use]
    pub fn weights_share(&self) -> f64 {
        match &self.0 {
            Asked::Training(_) => 0.0,
            Asked::Inference(test) => test.weights_share(),
        }
    }

    /// The half-width of its 80 % interval: the natural logarithm of the factor either way.
    #[must_use]
    pub fn half_width(&self, constants: &Constants) -> f64 {
        let widths = &constants.interval_80_ln;
        match self.ground() {
            Ground::Training(ground) => widths.training.half_width(ground),
            Ground::Inference(ground, basis) => widths.inference.half_width(ground, basis),
        }
    }

    /// The group that decides that width.
    #[must_use]
    pub fn ground(&self) -> Ground {
        match &self.0 {
            Asked::Training(run) => Ground::Training(run.ground()),
            Asked::Inference(test) => Ground::Inference(test.ground(), test.chip.inference_basis),
        }
    }

    fn predicted(&self, constants: &Constants) -> Result<Predicted, RowError> {
        let value = self.predict(constants)?;
        let half_width = self.half_width(constants);
        let (low, high) = interval(value, half_width)?;
        let (work, basis) = match self.ground() {
            Ground::Training(ground) => ("training", ground.basis),
            Ground::Inference(_, basis) => ("serving", basis),
        };
        let note = (basis == Basis::Family).then(|| {
            format!(
                "no {work} measurement of {} was at hand: predicted from its family, with the \
                 interval of chips that were left out",
                self.chip().name
            )
        });
        Ok(Predicted {
            predicted: value,
            unit: self.unit().to_owned(),
            low,
            high,
            note,
        })
    }
}

/// The bounds around a prediction at this distance (the natural logarithm of the factor).
///
/// Errors: [`RowError::NoFigure`], for values that are not finite and positive.
fn interval(value: f64, half_width: f64) -> Result<(f64, f64), RowError> {
    let (low, high) = (value * exp(-half_width), value * exp(half_width));
    if low > 0.0 && high.is_finite() {
        Ok((low, high))
    } else {
        Err(RowError::NoFigure(value))
    }
}

/// Reads each row of a table.
///
/// Errors: the table has no header, or is no text.
pub fn read(table: Table, text: impl Read) -> Result<Vec<Result<Case, RowError>>, csv::Error> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text);
    let header = reader.headers()?.clone();
    let mut cases = Vec::new();
    for record in reader.records() {
        let record = match record {
            // After an I/O error the next row cannot be read either.
            Err(error) if error.is_io_error() => return Err(error),
            record => record,
        };
        cases.push(record.map_err(RowError::from).and_then(|record| {
            Ok(Case(match table {
                Table::Training => {
                    Asked::Training(training::Run::read(&record.deserialize(Some(&header))?)?)
                }
                Table::Inference => {
                    Asked::Inference(inference::Test::read(record.deserialize(Some(&header))?)?)
                }
            }))
        }));
    }
    Ok(cases)
}

/// Predicts each row of a table.
///
/// Errors: as [`read`].
pub fn predict(
    table: Table,
    constants: &Constants,
    text: impl Read,
) -> Result<Vec<RowPrediction>, csv::Error> {
    let cases = read(table, text)?.into_iter();
    let outcome = |case: Result<Case, RowError>| {
        case.and_then(|case| case.predicted(constants)).map_or_else(
            |error| Outcome::Refused {
                why: error.to_string(),
            },
            Outcome::Predicted,
        )
    };
    Ok((1..)
        .zip(cases)
        .map(|(row, case)| RowPrediction {
            row,
            outcome: outcome(case),
        })
        .collect())
}

/// The predictions as a table, one line per row; absent values are blank.
///
/// Errors: a value cannot be written, which does not happen for text in memory.
pub fn as_csv(predictions: &[RowPrediction]) -> Result<String, csv::Error> {
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record(["row", "predicted", "unit", "low", "high", "note", "why"])?;
    for RowPrediction { row, outcome } in predictions {
        let row = row.to_string();
        match outcome {
            Outcome::Predicted(found) => table.write_record([
                &row,
                &found.predicted.to_string(),
                &found.unit,
                &found.low.to_string(),
                &found.high.to_string(),
                found.note.as_deref().unwrap_or_default(),
                "",
            ])?,
            Outcome::Refused { why } => table.write_record([&row, "", "", "", "", "", why])?,
        }
    }
    let bytes = table.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The chip of a row: by the name that measured tables use, or by its canonical name.
fn chip(name: &str) -> Result<Chip, RowError> {
    let listed = Chip::of_row_name(name).cloned();
    let found = listed.or_else(|| Chip::of_spec(Gpu::parse(name).ok()?.spec()));
    found.ok_or_else(|| RowError::UnknownGpu(name.to_owned()))
}

/// The figures of a model in a row.
#[derive(Debug, Clone, Copy, Default)]
struct RowFigures {
    params_b: Option<f64>,
    active_b: Option<f64>,
    layers: Option<u32>,
    hidden: Option<u32>,
    heads: Option<u32>,
    kv_heads: Option<u32>,
}

impl RowFigures {
    /// A model that is known from the row alone: no experts, no windows, and an output head that shares the
    /// embedding; `None` where figures are missing.
    ///
    /// Errors: [`RowError::OutOfRange`], for figures that no model has.
    fn alone(&self, name: &str) -> Result<Option<ModelFigures>, RowError> {
        let given = (self.params_b, self.layers, self.hidden, self.heads);
        let (Some(params_b), Some(layers), Some(hidden), Some(heads)) = given else {
            return Ok(None);
        };
        let params_b = within("params_b", params_b, 0.001..=1e5)?;
        let active_b = self.active_b.unwrap_or(params_b);
        let active_b = within("active_b", active_b, 0.001..=params_b)?;
        whole("layers", layers.into(), 1.0..=1e3)?;
        whole("hidden", hidden.into(), 1.0..=1e6)?;
        whole("heads", heads.into(), 1.0..=hidden.into())?;
        let kv_heads = self.kv_heads.unwrap_or(heads);
        whole("kv_heads", kv_heads.into(), 1.0..=heads.into())?;
        let head_dim = hidden / heads;
        let kept = f64::from(kv_heads) * f64::from(head_dim);
        Ok(Some(ModelFigures {
            name: name.to_owned(),
            params_total: params_b * 1e9,
            params_active: active_b * 1e9,
            layers,
            hidden,
            heads,
            head_dim,
            embedding_params: 0.0,
            experts: None,
            latent_attention: false,
            kv_heads,
            kv_elements_per_token: 2.0 * f64::from(layers) * kept,
            sliding: None,
        }))
    }
}

/// The model of a row: the known model of that name, else a model with the figures of the row.
fn model(name: &str, row: &RowFigures) -> Result<ModelFigures, RowError> {
    let named = market::demand::Model::Named(name.to_owned());
    if let Ok(known) = ModelFigures::of(&named) {
        return Ok(known);
    }
    let alone = row.alone(name)?;
    alone.ok_or_else(|| RowError::UnknownModel(name.to_owned()))
}
