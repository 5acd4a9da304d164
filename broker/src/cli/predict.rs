//! `broker predict`: the performance models over tables of runs. No server, no database.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use matcher::perf::constants::Constants;
use matcher::perf::rows::{Outcome, Table, as_csv, predict};

use super::Ending;
use super::table::print_line;

/// Which table is predicted.
#[derive(Debug, Subcommand)]
pub(super) enum PredictCommand {
    /// Predicts tokens per second and GPU of training runs.
    Training(PredictArgs),
    /// Predicts throughput or times of serving tests.
    Inference(PredictArgs),
}

/// A table of runs.
///
/// Exit status: 0 at least one row is predicted, 1 none is, 2 the table cannot be read.
#[derive(Debug, Args)]
pub(super) struct PredictArgs {
    /// One row for each run, as CSV with a header; `-` reads standard input. What was measured is
    /// never read.
    #[arg(long, value_name = "FILE.csv")]
    rows: PathBuf,
    /// One JSON array on one line instead of CSV.
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
    } else {
        print_line(as_csv(&predictions)?.trim_end())?;
    }
    let refused = |outcome: &Outcome| matches!(outcome, Outcome::Refused { .. });
    if predictions.iter().all(|row| refused(&row.outcome)) {
        let why = "no row can be predicted; each says why in its last column";
        return Err(Ending::No(why.into()));
    }
    Ok(())
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
