//! A cost report as CSV text that a spreadsheet opens without running anything.

use super::{CostReport, Dimension};
use crate::PriceError;

/// The text of a cell where the charges carry no such tag.
const UNTAGGED: &str = "(untagged)";

/// Writes a report as CSV: a header, a row a group, and a last row `total`.
///
/// The columns are the dimensions, `gpu_seconds` and `amount_usd`. Words that a spreadsheet would
/// run as a formula (beginning with `=`, `+`, `-`, `@`, tab or carriage return) get a leading
/// apostrophe; a missing tag reads `(untagged)`. Without a dimension the first column is `total`.
/// Errors: [`PriceError::Csv`].
pub fn csv_text(report: &CostReport, dimensions: &[Dimension]) -> Result<String, PriceError> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut header: Vec<String> = dimensions.iter().map(|d| inert(&d.to_string())).collect();
    if header.is_empty() {
        header.push("total".to_owned());
    }
    let columns = header.len();
    header.extend(["gpu_seconds".to_owned(), "amount_usd".to_owned()]);
    writer.write_record(&header)?;
    if !dimensions.is_empty() {
        for row in &report.rows {
            let words = row
                .group
                .iter()
                .map(|g| inert(g.value.as_deref().unwrap_or(UNTAGGED)));
            let figures = [row.gpu_seconds.to_string(), row.amount_usd.to_string()];
            writer.write_record(words.chain(figures))?;
        }
    }
    let mut total = vec![String::new(); columns];
    total[0] = "total".to_owned();
    total.extend([
        report.total_gpu_seconds.to_string(),
        report.total_usd.to_string(),
    ]);
    writer.write_record(&total)?;
    let bytes = writer
        .into_inner()
        .map_err(|error| csv::Error::from(error.into_error()))?;
    // Every cell was a `str`, so the bytes are UTF-8 and nothing is replaced.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The word with an apostrophe before it if a spreadsheet would take it for a formula.
fn inert(word: &str) -> String {
    if word.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        return format!("'{word}");
    }
    word.to_owned()
}
