//! `broker predict`: the performance models on tables of runs. No server, no database.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use matcher::perf::constants::Constants;
use matcher::perf::rows::{Outcome, RowPrediction, Table, as_csv, predict};

use crate::terminal::aside::tell;
use crate::terminal::ending::Ending;
use crate::terminal::screen::is_stdout_a_terminal;
use crate::terminal::table::table;
use crate::terminal::text::{hanging, print_line};

/// The kind of table to predict.
#[derive(Debug, Subcommand)]
pub(super) enum PredictCommand {
    /// Predicts tokens per second and GPU of training runs.
    #[command(after_long_help = described(Table::Training))]
    Training(PredictArgs),
    /// Predicts throughput or latency of serving tests.
    #[command(after_long_help = described(Table::Inference))]
    Inference(PredictArgs),
}

/// A table of runs.
#[derive(Debug, Args)]
pub(super) struct PredictArgs {
    /// One row for each run, as CSV with a header; `-` reads standard input. Columns of measurements
    /// are never read.
    #[arg(long, value_name = "FILE.csv")]
    rows: PathBuf,
    /// Prints one JSON array, instead of CSV or of the table on a terminal.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &PredictCommand) -> Result<(), Ending> {
    let (table, args) = match command {
        PredictCommand::Training(args) => (Table::Training, args),
        PredictCommand::Inference(args) => (Table::Inference, args),
    };
    let predictions = predict(table, Constants::product(), open(&args.rows)?)
        .map_err(|error| unreadable(&args.rows, &error))?;
    if args.json {
        print_line(&serde_json::to_string(&predictions)?)?;
    } else if is_stdout_a_terminal() {
        print_line(&as_table(&predictions))?;
    } else {
        print_line(as_csv(&predictions)?.trim_end())?;
    }
    let is_refused = |row: &&RowPrediction| matches!(row.outcome, Outcome::Refused { .. });
    let (all, refused) = (
        predictions.len(),
        predictions.iter().filter(is_refused).count(),
    );
    if refused == all {
        let why = "no row can be predicted; each says why in its last column";
        return Err(Ending::No(why.into()));
    }
    if refused > 0 {
        tell(&format!(
            "{refused} of {all} rows cannot be predicted; each says why in its last column"
        ));
    }
    Ok(())
}

/// The predictions as a table for people.
fn as_table(predictions: &[RowPrediction]) -> String {
    let rows = predictions.iter().map(|RowPrediction { row, outcome }| {
        let row = row.to_string();
        match outcome {
            Outcome::Predicted(found) => vec![
                row,
                figure(found.predicted),
                found.unit.clone(),
                format!("{} to {}", figure(found.low), figure(found.high)),
                found.note.clone().unwrap_or_default(),
            ],
            Outcome::Refused { why } => {
                let nothing = String::new;
                vec![row, nothing(), nothing(), nothing(), why.clone()]
            }
        }
    });
    table(&["row", "predicted", "unit", "80 % interval", "note"], rows)
}

/// A figure with at least three digits.
fn figure(value: f64) -> String {
    let places = match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 => 2,
        _ => 4,
    };
    format!("{value:.places$}")
}

/// The columns of a table, for people.
fn described(table: Table) -> String {
    let mut lines = vec!["Columns, in any order; others are ignored:".to_owned()];
    for column in table.columns() {
        let needed = if column.needed { "" } else { " (optional)" };
        let words = column.words.map(|words| format!(": {words}"));
        let told = format!("{}{needed}{}", column.meaning, words.unwrap_or_default());
        lines.push(hanging(&format!("  {:<24}", column.name), &told));
    }
    lines.push(
        "\nExit status: 0 at least one row is predicted (stderr counts the others), 1 none is, \
         2 the table\ncannot be read."
            .to_owned(),
    );
    lines.join("\n")
}

fn open(file: &Path) -> Result<Box<dyn Read>, Ending> {
    if file == Path::new("-") {
        return Ok(Box::new(std::io::stdin()));
    }
    match File::open(file) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(unreadable(file, &error)),
    }
}

fn unreadable(file: &Path, error: &dyn std::fmt::Display) -> Ending {
    Ending::wrong_input(format!(
        "the table {} cannot be read: {error}; give a CSV file with a header",
        file.display()
    ))
}
