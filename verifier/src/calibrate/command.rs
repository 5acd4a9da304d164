//! The command.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use market::verification::Level;
use serde::Serialize;

use crate::cli::{NOT_PASSED, PASSED, WRONG_INPUT};
use crate::cuda;
use crate::driver::{NodeIdentity, Patience, open_node};

use super::staged::Stage;
use super::trials::{CLEAN_RUNS, FAULT_RUNS, Staged, Trial};
use super::{Calibration, Goal, NoReference, Size, floors, goals, missing, page, summary};

/// All that is known, which a later run of the command goes on from.
const RAW: &str = "calibration.json";
/// The rows for `data/floors.csv`.
const FLOORS: &str = "floors.csv";

/// Exit status: what the GPUs showed rules floors out, whatever is run on them.
const RULED_OUT: u8 = 3;
/// Exit status: a GPU was given up, which the same command tries again.
const GIVEN_UP: u8 = 4;

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
    /// Only this part of it: measure, clean, or fault=NAME (bandwidth_hogs, memory_held, preloaded_shim,
    /// one_poses_as_two, work_shrunk, memory_invented); may be named again and again. Without it, all that
    /// is not done yet
    #[arg(long = "part", value_name = "PART", value_parser = Part::parse)]
    parts: Vec<Part>,
    #[command(flatten)]
    size: SizeArgs,
}

/// A part of a calibration that can be done on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Measure,
    Clean,
    Fault(Staged),
}

impl Part {
    fn parse(text: &str) -> Result<Self, String> {
        let named = |name: &str| {
            Staged::FAULTS
                .into_iter()
                .find(|fault| fault.name() == name)
        };
        match text {
            "measure" => Ok(Self::Measure),
            "clean" => Ok(Self::Clean),
            _ => text
                .strip_prefix("fault=")
                .and_then(named)
                .map(Self::Fault)
                .ok_or_else(|| "a part is measure, clean or fault=NAME".to_owned()),
        }
    }

    /// The part in which something is staged.
    const fn of(staged: Staged) -> Self {
        match staged {
            Staged::Nothing => Self::Clean,
            fault => Self::Fault(fault),
        }
    }
}

impl CalibrateArgs {
    fn wants(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }
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

/// Measures the GPUs of this machine, as far as an earlier run into the same folder did not, and writes
/// what they showed. Gives the exit status.
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
        patience: Patience {
            most: Duration::from_secs(60),
            for_driver: false,
        },
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
    let begun = Calibration::begin(&mut node, kernels, args.size.size());
    let mut calibration = match read_raw(&args.out) {
        Some(before) if begun.goes_on_from(&before) => before,
        _ => begun,
    };
    if args.wants(Part::Measure) && !calibration.is_measured() {
        calibration = calibration.measure(&mut node, &keep);
    }
    // The runs begin on empty GPUs, and without those that would hold up each until its deadlines.
    drop(node);
    let stage = Stage {
        agent: &agent,
        identity,
        claims: calibration
            .gpus
            .iter()
            .map(|gpu| gpu.claim.clone())
            .collect(),
        left_out: calibration.given_up(),
        size: args.size.size(),
        folder: args.out.clone(),
    };
    if stage.left_out.len() < calibration.gpus.len() {
        stage_all(&stage, args, &mut calibration, &keep);
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
            Ok(match why {
                NoReference::Stopped { .. } => GIVEN_UP,
                why if why.is_of_a_gpu() => RULED_OUT,
                _ => NOT_PASSED,
            })
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
    write(folder, RAW, &text)
}

/// What an earlier run of the command wrote; none where it is not there, or of another form.
fn read_raw(folder: &Path) -> Option<Calibration> {
    let text = std::fs::read_to_string(folder.join(RAW)).ok()?;
    serde_json::from_str(&text).ok()
}

/// Does all runs that are wanted and not done: one at the standard level for its time, then the clean ones
/// and those with faults.
fn stage_all(
    stage: &Stage<'_>,
    args: &CalibrateArgs,
    calibration: &mut Calibration,
    keep: &dyn Fn(&Calibration),
) {
    // Of those that left out other GPUs nothing follows for these.
    calibration
        .trials
        .retain(|trial| trial.left_out == stage.left_out);
    let clean = [
        (Staged::Nothing, Level::Standard, args.clean_runs.min(1)),
        (Staged::Nothing, Level::Quick, args.clean_runs),
    ];
    let faults = Staged::FAULTS.map(|fault| (fault, Level::Quick, args.fault_runs));
    let wanted = clean.into_iter().chain(faults);
    let wanted = wanted.filter(|(staged, _, _)| args.wants(Part::of(*staged)));
    for (staged, level, runs) in wanted.filter(|(_, _, runs)| *runs > 0) {
        let is_it = |trial: &Trial| (trial.staged, trial.level) == (staged, level);
        let at = match calibration.trials.iter().position(is_it) {
            Some(at) => at,
            None => {
                let trial = Trial::new(staged, level, stage.left_out.clone());
                calibration.trials.push(trial);
                calibration.trials.len() - 1
            }
        };
        let left = runs.saturating_sub(calibration.trials[at].runs);
        if left == 0 {
            continue;
        }
        eprintln!(
            "{left} runs at level {} with {} staged",
            level.as_str(),
            staged.words()
        );
        for _ in 0..left {
            let goes_on = stage.add_run(&mut calibration.trials[at]);
            keep(calibration);
            if !goes_on {
                break;
            }
        }
    }
    // In whichever order they were done.
    let place = |trial: &Trial| (trial.staged, trial.level != Level::Standard);
    calibration.trials.sort_by_key(place);
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
    // Whole or not at all: whoever goes on from it must be able to read it.
    let (path, unfinished) = (folder.join(name), folder.join(format!("{name}.new")));
    let written =
        std::fs::write(&unfinished, text).and_then(|()| std::fs::rename(&unfinished, &path));
    written.map_err(|why| format!("cannot write {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::Args;

    use super::*;

    #[test]
    fn a_fault_has_the_same_name_in_json_in_the_help_and_in_the_script() {
        for staged in [Staged::Nothing].into_iter().chain(Staged::FAULTS) {
            let json = serde_json::to_value(staged).expect("json");
            assert_eq!(json, staged.name());
        }
        let names = Staged::FAULTS.map(Staged::name);
        let command = CalibrateArgs::augment_args(clap::Command::new("calibrate"));
        let part = command.get_arguments().find(|arg| arg.get_id() == "parts");
        let help = part
            .and_then(clap::Arg::get_help)
            .expect("a help")
            .to_string();
        let said = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let list = format!("fault=NAME ({})", names.join(", "));
        assert!(said.contains(&list), "{said}");
        let script = include_str!("../../calibrate.sh");
        let list = format!(
            "for part in measure clean fault={{{}}}; do",
            names.join(",")
        );
        assert!(script.contains(&list), "{list}");
    }
}
