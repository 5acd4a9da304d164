//! The command.

use std::path::{Path, PathBuf};
use std::time::Duration;

use market::verification::Level;

use crate::cli::{NOT_PASSED, PASSED, WRONG_INPUT};
use crate::cuda;
use crate::device::DeviceError;
use crate::driver::{NodeIdentity, open_node};

use super::staged::Stage;
use super::trials::{Staged, Trial};
use super::{Calibration, Size, floors, page};

/// Arguments of `verifier calibrate`.
#[derive(Debug, Clone, clap::Args)]
pub struct CalibrateArgs {
    /// Where calibration.md, floors.csv and calibration.json are written
    #[arg(long, value_name = "DIR", default_value = "calibration")]
    out: PathBuf,
    /// The version of data/floors.csv that the new rows belong to
    #[arg(long, value_name = "N")]
    floors_version: u32,
    /// Runs of the agent with nothing wrong, which must pass
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    clean_runs: u32,
    /// Runs with each fault, which must be noticed
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=10_000))]
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
    let mut node = open_node(&agent, identity.clone())
        .map_err(|why| format!("nothing can be calibrated here: {why}"))?;
    if let Some(trouble) = node.troubles.first() {
        return Err(format!("a GPU does not open: {}", trouble.detail));
    }
    let measured = Calibration::measure(&mut node, kernels, args.size.size());
    let mut calibration = measured.map_err(|errors| {
        let words: Vec<String> = errors.iter().map(DeviceError::to_string).collect();
        words.join("; ")
    })?;
    let claims = node.inventory().gpus;
    // The runs begin on empty GPUs.
    drop(node);
    make_folder(&args.out)?;
    let stage = Stage {
        agent: &agent,
        identity,
        claims,
        size: args.size.size(),
        folder: args.out.clone(),
    };
    calibration.trials = trials(&stage, args);
    let raw = serde_json::to_string_pretty(&calibration).map_err(|why| why.to_string())?;
    write(&args.out, "calibration.json", &raw)?;
    write(&args.out, "calibration.md", &page(&calibration))?;
    match floors(&calibration, args.floors_version) {
        Ok(rows) => {
            write(&args.out, "floors.csv", &rows)?;
            Ok(PASSED)
        }
        Err(why) => {
            eprintln!("no floors were written: {why}");
            Ok(NOT_PASSED)
        }
    }
}

/// All runs: one at the standard level for its time, then the clean ones and those with faults.
fn trials(stage: &Stage<'_>, args: &CalibrateArgs) -> Vec<Trial> {
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
        .collect()
}

fn make_folder(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder)
        .map_err(|why| format!("cannot make {}: {why}", folder.display()))
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), String> {
    let path = folder.join(name);
    std::fs::write(&path, text).map_err(|why| format!("cannot write {}: {why}", path.display()))
}
