//! The measured tables, read once: each row with its case, its value and the groups that it is
//! judged by.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use market::math::ln;
use matcher::perf::constants::Constants;
use matcher::perf::rows::{Case, Table, read};
use serde::Deserialize;

/// A prediction that is refused for a row that ran counts as wrong by this factor.
const REFUSED_FACTOR: f64 = 7.4;

/// One measurement.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    /// Its figures in the models.
    pub(crate) case: Case,
    /// The measured value, in the unit of the case.
    pub(crate) value: f64,
    /// Its publisher.
    pub(crate) source: String,
    /// The model.
    pub(crate) model: String,
    /// The chip, by its name in the table.
    pub(crate) gpu: String,
    /// Parameters that a token uses, in billions.
    pub(crate) active_b: f64,
    /// GPUs that the measured value covers: 1 where it is stated for one.
    pub(crate) gpus: f64,
    /// GPUs that took part.
    pub(crate) all_gpus: f64,
    /// The rate of a node's network cards in one direction. Units: GB/s.
    pub(crate) net_gb_s_node: Option<f64>,
    /// The software, as the table writes it.
    pub(crate) framework: String,
    /// The longest that a token could take. Units: milliseconds.
    pub(crate) token_limit_ms: Option<f64>,
}

#[derive(Deserialize)]
struct Columns {
    source: String,
    model: String,
    gpu: String,
    gpus: f64,
    active_b: f64,
    framework: String,
    internode_gb_s_per_node: Option<f64>,
    tpot_limit_ms: Option<f64>,
    fit: u8,
    tok_s_gpu: Option<f64>,
    value: Option<f64>,
}

impl Measured {
    /// The natural logarithm of the prediction over the measurement.
    pub(crate) fn error_ln(&self, constants: &Constants) -> f64 {
        match self.case.predict(constants) {
            Ok(predicted) if predicted > 0.0 => ln(predicted / self.value),
            _ => ln(REFUSED_FACTOR),
        }
    }

    /// The unit that is left out whole: a model on a chip.
    pub(crate) fn combination(&self) -> (&str, &str) {
        (&self.model, &self.gpu)
    }
}

/// Reads `training_measured.csv` or `inference_measured.csv` of a folder. Rows that are marked as
/// outliers (`fit` is 0) are left out.
///
/// Errors: there is no such table, or a row that is not marked cannot be read.
pub(crate) fn load(table: Table, folder: &Path) -> Result<Vec<Measured>> {
    let path = folder.join(match table {
        Table::Training => "training_measured.csv",
        Table::Inference => "inference_measured.csv",
    });
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("the measured table {} is not there", path.display()))?;
    let cases = read(table, text.as_bytes())?;
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let mut rows = Vec::new();
    for (number, (case, columns)) in (1..).zip(cases.into_iter().zip(reader.deserialize())) {
        let columns: Columns = columns.with_context(|| format!("row {number}"))?;
        if columns.fit != 1 {
            continue;
        }
        let (value, gpus) = match (table, columns.tok_s_gpu, columns.value) {
            (Table::Training, Some(value), _) => (value, 1.0),
            (Table::Inference, _, Some(value)) => (value, columns.gpus),
            _ => bail!("row {number} of {} has no measured value", path.display()),
        };
        rows.push(Measured {
            case: case.with_context(|| format!("row {number} of {}", path.display()))?,
            value,
            source: columns.source,
            model: columns.model,
            gpu: columns.gpu,
            active_b: columns.active_b,
            gpus,
            all_gpus: columns.gpus,
            net_gb_s_node: columns.internode_gb_s_per_node,
            framework: columns.framework,
            token_limit_ms: columns.tpot_limit_ms,
        });
    }
    Ok(rows)
}

/// Deals the rows to so many folds, whole combinations together. The seed decides the folds.
///
/// Combinations are ordered by a hash of seed and names and dealt out round-robin.
pub(crate) fn folds(rows: &[Measured], count: usize, seed: u64) -> Vec<usize> {
    let combinations: BTreeSet<_> = rows
        .iter()
        .map(|row| (hash(seed, row.combination()), row.combination()))
        .collect();
    let dealt: Vec<_> = combinations.into_iter().map(|(_, pair)| pair).collect();
    rows.iter()
        .map(|row| {
            let place = dealt.iter().position(|pair| *pair == row.combination());
            place.unwrap_or_default() % count
        })
        .collect()
}

/// FNV-1a, finished by the mixer of `MurmurHash3`: the same on every machine and in every release.
fn hash(seed: u64, (model, gpu): (&str, &str)) -> u64 {
    let start = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xcbf2_9ce4_8422_2325;
    let bytes = model.bytes().chain([b'|']).chain(gpu.bytes());
    let hash = bytes.fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}
