//! What a calibration is to show of the kernels and of the agent, and what of it is missing.

use market::verification::Level;
use serde::Serialize;

use super::measure::is_through;
use super::trials::{CLEAN_RUNS, FAULT_RUNS, Staged, Trial};
use super::{Calibration, GpuCalibration, TensorCalibration};
use crate::framework::FrameworkRun;
use crate::median;
use crate::tensor::{Format, LibraryRun};

/// Of the copy of a framework, or else of the driver, what the kernel's is to reach. Units of this and the next two: thousandths.
const COPY_PERMILLE: u64 = 970;
/// Of cuBLASLt's rate, what BF16 products are to reach.
const BF16_PERMILLE: u64 = 900;
/// Of cuBLASLt's rate, what FP8 products are to reach.
const FP8_PERMILLE: u64 = 850;
/// How long a run at level `standard` on one GPU may take. Units: milliseconds.
const STANDARD_MS: u64 = 60_000;
/// The check that is to refuse memory that is not there.
const REFUSES: &str = "mem.proof";

/// Whether something was shown as it was to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reached {
    /// It was.
    Met,
    /// It was not.
    Missed,
    /// Nothing tells.
    NotMeasured,
}

impl Reached {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::NotMeasured => "not measured",
        }
    }

    const fn of(met: bool) -> Self {
        if met { Self::Met } else { Self::Missed }
    }
}

/// Something that a calibration is to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Goal {
    /// What it is about, with what is wanted.
    pub what: &'static str,
    /// What was shown, or why nothing was.
    pub shown: String,
    /// Whether that is as it was to be.
    pub reached: Reached,
}

/// All goals, in a fixed order.
#[must_use]
pub fn goals(calibration: &Calibration) -> Vec<Goal> {
    vec![
        copies(calibration),
        products(
            calibration,
            "BF16 products: at least 0.900 of cuBLASLt's rate",
            Format::Bf16,
            BF16_PERMILLE,
        ),
        products(
            calibration,
            "FP8 products: at least 0.850 of cuBLASLt's rate",
            Format::Fp8,
            FP8_PERMILLE,
        ),
        standard_level(calibration),
        invented_memory(calibration),
        missed(calibration),
        rejected(calibration),
    ]
}

/// The lowest share of all GPUs against what is wanted. Shares are in thousandths, or in words why one
/// is not known.
fn shares(
    what: &'static str,
    wanted: u64,
    shares: impl Iterator<Item = Result<u64, String>>,
) -> Goal {
    let lowest = shares
        .zip(0..)
        .map(|(share, gpu)| match share {
            Ok(share) => Ok((share, gpu)),
            Err(why) => Err(format!("GPU {gpu}: {why}")),
        })
        .collect::<Result<Vec<(u64, u32)>, String>>()
        .map(|all| all.into_iter().min());
    let (shown, reached) = match lowest {
        Ok(Some((share, gpu))) => (
            format!("{}.{:03} (GPU {gpu})", share / 1_000, share % 1_000),
            Reached::of(share >= wanted),
        ),
        Ok(None) => ("there is no GPU".to_owned(), Reached::NotMeasured),
        Err(why) => (why, Reached::NotMeasured),
    };
    Goal {
        what,
        shown,
        reached,
    }
}

/// What one rate is of another, rounded down, as goals are held: a goal is not met by rounding. Units: thousandths.
pub(super) fn permille(own: Option<u64>, other: Option<u64>) -> Option<u64> {
    let other = other.filter(|other| *other > 0)?;
    own?.checked_mul(1_000).map(|own| own / other)
}

fn copies(calibration: &Calibration) -> Goal {
    let of = |shown: &GpuCalibration| {
        let own = median::lower(&shown.copy_mb_per_s);
        permille(own, peer_copy(shown)).ok_or_else(|| "no copies".to_owned())
    };
    let what = "copies within memory: at least 0.970 of a framework's, or else of the driver's own";
    let mut goal = shares(what, COPY_PERMILLE, calibration.gpus.iter().map(of));
    let framework =
        |shown: &GpuCalibration| matches!(shown.framework, Some(FrameworkRun::Measured { .. }));
    if goal.reached != Reached::NotMeasured && !calibration.gpus.iter().all(framework) {
        goal.shown
            .push_str(", of the driver's own where no framework copied");
    }
    goal
}

/// What copies within memory are held against. Units: 1e6 bytes per second.
fn peer_copy(shown: &GpuCalibration) -> Option<u64> {
    match &shown.framework {
        Some(FrameworkRun::Measured { mb_per_s, .. }) => median::lower(mb_per_s),
        _ => median::lower(&shown.driver_copy_mb_per_s),
    }
}

fn products(calibration: &Calibration, what: &'static str, format: Format, wanted: u64) -> Goal {
    let of = |shown: &GpuCalibration| {
        let of_format = |tensor: &&TensorCalibration| tensor.format == format;
        let Some(tensor) = shown.tensor.iter().find(of_format) else {
            return Err("no such products".to_owned());
        };
        let known = permille(median::lower(&tensor.gflops), tensor.library_gflops());
        known.ok_or_else(|| format!("cuBLASLt {}", why_not(tensor)))
    };
    shares(what, wanted, calibration.gpus.iter().map(of))
}

/// Why the vendor's library has no rate, in words that follow its name.
pub(super) fn why_not(tensor: &TensorCalibration) -> String {
    match tensor.library.first() {
        Some(LibraryRun::NoSuchProduct) => "has no such product".to_owned(),
        Some(LibraryRun::Failed { why }) => format!("failed: {why}"),
        Some(LibraryRun::Measured { .. }) => "measured".to_owned(),
        Some(LibraryRun::NotInstalled) | None => "is not installed".to_owned(),
    }
}

fn standard_level(calibration: &Calibration) -> Goal {
    let mut trials = calibration.trials.iter();
    let standard = |t: &&Trial| t.staged == Staged::Nothing && t.level == Level::Standard;
    let trial = trials.find(standard);
    let took = trial.and_then(|t| Some((t, median::lower(&t.elapsed_ms)?)));
    let gpus = calibration.gpus.len();
    let (shown, reached) = match took {
        None => ("no run".to_owned(), Reached::NotMeasured),
        // One that failed may have ended early.
        Some((trial, ms)) if !trial.is_right() => (
            format!(
                "{} of {} runs passed, {ms} ms with {gpus} GPUs",
                trial.right, trial.runs
            ),
            Reached::Missed,
        ),
        Some((_, ms)) => (
            format!("{ms} ms with {gpus} GPUs"),
            match (ms < STANDARD_MS, gpus) {
                (true, _) => Reached::Met,
                (false, 1) => Reached::Missed,
                // What several take tells nothing of one.
                (false, _) => Reached::NotMeasured,
            },
        ),
    };
    Goal {
        what: "a run at level `standard` on one GPU: passes in less than 60 s",
        shown,
        reached,
    }
}

fn invented_memory(calibration: &Calibration) -> Goal {
    let mut trials = calibration.trials.iter();
    let trial = trials.find(|t| t.staged == Staged::MemoryInvented && t.runs > 0);
    let (shown, reached) = match trial {
        None => ("no run".to_owned(), Reached::NotMeasured),
        Some(trial) => {
            let refused = trial.spoke.get(REFUSES).copied().unwrap_or(0);
            let all = refused == trial.runs && trial.is_right();
            (
                format!("refused in {refused} of {} runs", trial.runs),
                Reached::of(all),
            )
        }
    };
    Goal {
        what: "1.25 times the memory: refused by its proof (`mem.proof`) in every run",
        shown,
        reached,
    }
}

/// How many runs came out wrong, of how many, and whether there were as many as are wanted.
fn counted(calibration: &Calibration, staged: &[Staged], wanted: u32) -> (u32, u32, bool) {
    let mut sum = (0, 0, true);
    for one in staged {
        let of_it = calibration.trials.iter().filter(|t| t.staged == *one);
        let mut runs = 0;
        for trial in of_it {
            sum.0 += trial.runs - trial.right;
            runs += trial.runs;
        }
        sum.1 += runs;
        sum.2 &= runs >= wanted;
    }
    sum
}

fn missed(calibration: &Calibration) -> Goal {
    let counted = counted(calibration, &Staged::FAULTS, FAULT_RUNS);
    wrong_runs(
        "staged faults: none missed in 20 runs with each",
        "missed",
        counted,
    )
}

fn rejected(calibration: &Calibration) -> Goal {
    let counted = counted(calibration, &[Staged::Nothing], CLEAN_RUNS);
    wrong_runs(
        "runs with nothing staged: none of 50 rejected",
        "rejected",
        counted,
    )
}

fn wrong_runs(what: &'static str, word: &str, (wrong, runs, enough): (u32, u32, bool)) -> Goal {
    let reached = match (wrong, enough) {
        (0, false) => Reached::NotMeasured,
        (wrong, _) => Reached::of(wrong == 0),
    };
    Goal {
        what,
        shown: format!("{wrong} of {runs} {word}"),
        reached,
    }
}

/// What was to be measured and was not, in words.
#[must_use]
pub fn missing(calibration: &Calibration) -> Vec<String> {
    let mut missing = Vec::new();
    for (gpu, shown) in calibration.gpus.iter().enumerate() {
        let mut add = |what: String| missing.push(format!("GPU {gpu}: {what}"));
        if let Some(why) = &shown.stopped {
            add(format!("it was given up: {why}"));
        } else if !is_through(shown) {
            add("it was not measured to its end".to_owned());
        }
        if let Some(why) = shown.framework.as_ref().and_then(FrameworkRun::why_not) {
            add(format!("copies by a framework: {why}"));
        }
        for vector in shown.vectors.iter().filter(|v| v.gave.is_none()) {
            add(format!("vector {} was not played", vector.name));
        }
        for format in Format::ALL {
            let of_format = |tensor: &&TensorCalibration| tensor.format == format;
            match shown.tensor.iter().find(of_format) {
                None => add(format!("no {} products", format.words())),
                Some(tensor) if tensor.library_gflops().is_none() => {
                    let why = why_not(tensor);
                    add(format!("{} by cuBLASLt: it {why}", format.words()));
                }
                Some(_) => {}
            }
        }
    }
    match (&calibration.links, calibration.gpus.len()) {
        (_, ..2) => missing.push("links between GPUs: there is one GPU".to_owned()),
        (Some(links), _) => {
            if links.rates.is_none() {
                missing.push("links between GPUs: not measured, or not in time".to_owned());
            }
            if links.library.is_empty() {
                missing.push("NCCL's sum: not installed, or not in time".to_owned());
            }
        }
        (None, _) => missing.push("links between GPUs: not come to".to_owned()),
    }
    if let Err(why) = calibration.check_runs() {
        missing.push(why.to_string());
    }
    missing
}
