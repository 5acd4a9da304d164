//! Decision records: written with the result of `broker match` or for a plan of the service, and
//! replayed.

use std::path::Path;

use chrono::SecondsFormat;
use serde_json::json;

use crate::flow::decision::{DecisionRecord, ReplayError};
use crate::terminal::ending::Ending;
use crate::terminal::text::print_answer;

/// Writes a decision record to a file.
pub(super) fn write_record(file: &Path, record: &DecisionRecord) -> Result<(), Ending> {
    let text = serde_json::to_string(record)?;
    std::fs::write(file, text).map_err(|error| {
        let shown = file.display();
        Ending::wrong_input(format!("the record {shown} cannot be written: {error}"))
    })
}

/// Replays the record in a file. Exit status 1 if the result differs.
pub(super) fn replay(file: &Path, json: bool) -> Result<(), Ending> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| {
        Ending::wrong_input(format!("the record {shown} cannot be read: {error}"))
    })?;
    let record = DecisionRecord::parse(&text)
        .map_err(|error| Ending::wrong_input(format!("{shown}: {error}")))?;
    tell_replay(&record, json)
}

/// Replays a record and reports whether the result is the same. Exit status 1 if it differs.
pub(super) fn tell_replay(record: &DecisionRecord, json: bool) -> Result<(), Ending> {
    match record.replay() {
        Ok(plan) => {
            let decided_at = record.decided_at();
            let told = if json {
                json!({
                    "same": true, "decided_at": decided_at, "candidates": plan.candidates.len(),
                })
                .to_string()
            } else {
                format!(
                    "The decision of {} replays bit for bit: {} candidates.",
                    decided_at.to_rfc3339_opts(SecondsFormat::Secs, true),
                    plan.candidates.len()
                )
            };
            Ok(print_answer(&told, json)?)
        }
        Err(error @ (ReplayError::Models { .. } | ReplayError::Differs(_))) => {
            Err(Ending::No(error.to_string()))
        }
        Err(error) => Err(Ending::wrong_input(error)),
    }
}
