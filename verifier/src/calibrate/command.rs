//! The command.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use market::verification::Level;
use serde::Serialize;

use crate::cli::{NOT_PASSED, PASSED, WRONG_INPUT};
use crate::cuda;
use crate::driver::{NodeIdentity, open_node};

use super::staged::Stage;
use super::trials::{CLEAN_RUNS, FAULT_RUNS, Staged, Trial};
use super::{Calibration, Goal, Size, floors, goals, missing, page, summary};

/// The rows for `data/floors.csv`.
const FLOORS: &str = "floors.csv";

/// Arguments of `verifier calibrate`.
#[derive(Debug, Clone, clap::Args)]
pub struct CalibrateArgs {
    /// Where calibration.md, floors.csv and calibration.json are written
    #[arg(long, value_name = "DIR", default_value = "calibration")]
    out: PathBuf,
    /// The version of data/floors.csv that the new rows belong to
    #[arg(long, value_name = "N")]
    floors_version: u32,
    /// Runs of the agent with nothing wrong, which must pass; with fewer than 50 no floor is made
    #[arg(long, value_name = "N", default_value_t = CLEAN_RUNS, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    clean_runs: u32,
    /// Runs with each fault, which must be noticed; with fewer than 20 no floor is made
    #[arg(long, value_name = "N", default_value_t = FAULT_RUNS, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    fault_runs: u32,
    #[command(flatten)]
    size: SizeArgs,
}

/// What is done less of, to try the command out: no floor is made of a shortened calibration.
#[derive(Debug, Clone, clap::Args)]
struct SizeArgs {
    /// How much memory is filled at most, MiB; without it, all that can be had
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    memory_mib: Option<u64>,
    /// Samples of each rate
    #[arg(long, value_name = "N", default_value_t = Size::FULL.samples, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    samples: u32,
    /// Rows, columns and inner dimension of the products
    #[arg(long, value_name = "N", default_value_t = Size::FULL.n, value_parser = clap::value_parser!(u32).range(1..=32_768))]
    product: u32,
    /// Products that are timed, and as many that are looked at, for each sample
    #[arg(long, value_name = "N", default_value_t = Size::FULL.checked, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    products: u32,
    /// How long the load lasts, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = Size::FULL.burn.as_secs(), value_parser = clap::value_parser!(u64).range(1..=3_600))]
    burn_seconds: u64,
}

impl SizeArgs {
    fn size(&self) -> Size {
        Size {
            memory_bytes: self.memory_mib.map_or(u64::MAX, |mib| mib << 20),
            samples: self.samples,
            n: self.product,
            timed: self.products,
            checked: self.products,
            burn: Duration::from_secs(self.burn_seconds),
            ..Size::FULL
        }
    }
}

/// Measures the GPUs of this machine and writes what they showed. Gives the exit status.
#[must_use]
pub fn run(args: &CalibrateArgs) -> u8 {
    match calibrate(args) {
        Ok(status) => status,
        Err(why) => {
            eprintln!("{why}");
            WRONG_INPUT
        }
    }
}

fn calibrate(args: &CalibrateArgs) -> Result<u8, String> {
    let agent = std::env::current_exe().map_err(|why| format!("no agent to start: {why}"))?;
    let kernels = cuda::images::kernels_digest();
    let identity = NodeIdentity {
        host: "localhost".to_owned(),
        kind: cuda::DEVICE_KIND,
        kernels,
        fabric_patience: Duration::from_secs(60),
        root: "/".into(),
    };
    make_folder(&args.out)?;
    // Floors of an earlier run are not this one's.
    forget(&args.out, FLOORS)?;
    let mut node = open_node(&agent, identity.clone())
        .map_err(|why| format!("nothing can be calibrated here: {why}"))?;
    if let Some(trouble) = node.troubles.first() {
        return Err(format!("a GPU does not open: {}", trouble.detail));
    }
    let keep = |so_far: &Calibration| {
        if let Err(why) = write_raw(&args.out, so_far) {
            eprintln!("{why}");
        }
    };
    let mut calibration = Calibration::measure(&mut node, kernels, args.size.size(), &keep);
    let claims = node.inventory().gpus;
    // The runs begin on empty GPUs.
    drop(node);
    let stage = Stage {
        agent: &agent,
        identity,
        claims,
        size: args.size.size(),
        folder: args.out.clone(),
    };
    // A GPU that was given up would hold up each of them until its deadlines.
    if calibration.is_through() {
        for trial in trials(&stage, args) {
            calibration.trials.push(trial);
            keep(&calibration);
        }
    }
    write_raw(&args.out, &calibration)?;
    write(&args.out, "calibration.md", &page(&calibration))?;
    println!("{}", summary(&calibration).trim());
    match floors(&calibration, args.floors_version) {
        Ok(rows) => {
            write(&args.out, FLOORS, &rows)?;
            Ok(PASSED)
        }
        Err(why) => {
            eprintln!("no floors were written: {why}");
            Ok(NOT_PASSED)
        }
    }
}

/// A calibration with what follows from it.
#[derive(Serialize)]
struct Raw<'a> {
    #[serde(flatten)]
    calibration: &'a Calibration,
    goals: Vec<Goal>,
    missing: Vec<String>,
}

/// Writes all that is known, in place of what was known before.
fn write_raw(folder: &Path, calibration: &Calibration) -> Result<(), String> {
    let raw = Raw {
        calibration,
        goals: goals(calibration),
        missing: missing(calibration),
    };
    let text = serde_json::to_string_pretty(&raw).map_err(|why| why.to_string())?;
    write(folder, "calibration.json", &text)
}

/// All runs: one at the standard level for its time, then the clean ones and those with faults.
fn trials<'a>(
    stage: &'a Stage<'_>,
    args: &'a CalibrateArgs,
) -> impl Iterator<Item = Trial> + use<'a> {
    let clean = [
        (Staged::Nothing, Level::Standard, args.clean_runs.min(1)),
        (Staged::Nothing, Level::Quick, args.clean_runs),
    ];
    let faults = Staged::FAULTS.map(|fault| (fault, Level::Quick, args.fault_runs));
    let wanted = clean.into_iter().chain(faults);
    wanted
        .filter(|(_, _, runs)| *runs > 0)
        .map(|(staged, level, runs)| {
            eprintln!(
                "{runs} runs at level {} with {} staged",
                level.as_str(),
                staged.words()
            );
            stage.trial(staged, level, runs)
        })
}

fn make_folder(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder)
        .map_err(|why| format!("cannot make {}: {why}", folder.display()))
}

/// Removes a file, where it is there.
fn forget(folder: &Path, name: &str) -> Result<(), String> {
    let path = folder.join(name);
    match std::fs::remove_file(&path) {
        Err(why) if why.kind() != ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {why}", path.display()))
        }
        _ => Ok(()),
    }
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), String> {
    let path = folder.join(name);
    std::fs::write(&path, text).map_err(|why| format!("cannot write {}: {why}", path.display()))
}
