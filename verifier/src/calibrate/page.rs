//! A calibration for people to read.

use std::fmt::Write as _;

use super::{Calibration, GpuCalibration, figures, median};
use crate::tensor::LibraryRun;

/// What no run on one machine shows.
const UNPROVEN: &str = "\
Copies between GPUs, collective operations and the network between nodes were not measured, nor was
any other architecture than that of the GPUs above: their floors stay `provisional`.
";

/// The page.
#[must_use]
pub fn page(calibration: &Calibration) -> String {
    let mut page = format!(
        "# Calibration\n\nMeasured by `verifier calibrate` {} on {} with driver {}; kernels `{}`.\n",
        calibration.agent,
        calibration.measured_at.format("%Y-%m-%d"),
        calibration.driver,
        calibration.kernels,
    );
    if let Err(why) = calibration.check() {
        // Writing to a string does not fail, here and below.
        let _ = writeln!(page, "\nNo floor follows from it: {why}.");
    }
    for (gpu, shown) in calibration.gpus.iter().enumerate() {
        let _ = writeln!(page, "\n## GPU {gpu}: {}\n", shown.claim.name);
        page.push_str("| figure | median | unit |\n|---|---|---|\n");
        for (name, _, figure) in figures(shown) {
            let unit = if name.starts_with("gemm") {
                "GFLOPS"
            } else {
                "MB/s"
            };
            let _ = writeln!(page, "| {name} | {figure} | {unit} |");
        }
        page.push_str(&beside(shown));
        for pass in &shown.passes {
            let _ = writeln!(
                page,
                "| {:?}: fill, compare {} MiB | {}, {} | ms |",
                pass.pattern, shown.allocatable_mib, pass.fill_ms, pass.compare_ms
            );
        }
        let _ = writeln!(page, "| hash of all memory | {} | ms |", shown.digest_ms);
        for tensor in &shown.tensor {
            let _ = writeln!(
                page,
                "| {:?} products that differ, of {} | {} | |",
                tensor.format, tensor.checked, tensor.different
            );
        }
        if let Some(burned) = &shown.burned {
            let burn = &burned.burn;
            let _ = writeln!(
                page,
                "| load: first third, last third | {}, {} | GFLOPS |",
                burn.first_third_gflops, burn.last_third_gflops
            );
            page.push_str(
                "\n| load until, ms | GFLOPS | W | degrees C | MHz |\n|---|---|---|---|---|\n",
            );
            for point in &burned.curve {
                let shown = |figure: Option<u32>| figure.map_or("-".to_owned(), |f| f.to_string());
                let _ = writeln!(
                    page,
                    "| {} | {} | {} | {} | {} |",
                    point.at_ms,
                    point.gflops,
                    shown(point.power_w),
                    shown(point.temperature_c),
                    shown(point.sm_mhz),
                );
            }
        }
    }
    page.push_str(&trials(calibration));
    let _ = write!(page, "\n## What this does not show\n\n{UNPROVEN}");
    page
}

/// What the driver and the vendor's libraries show beside the kernels.
fn beside(shown: &GpuCalibration) -> String {
    let share = |own: Option<u64>, other: Option<u64>| match (own, other) {
        (Some(own), Some(other)) if other > 0 => {
            format!(
                "{other}; the kernel shows {:.3} of it",
                own as f64 / other as f64
            )
        }
        _ => "not measured".to_owned(),
    };
    let copies = share(
        median(&shown.copy_mb_per_s),
        median(&shown.driver_copy_mb_per_s),
    );
    let mut rows = format!("| copy by the driver | {copies} | MB/s |\n");
    for tensor in &shown.tensor {
        let run = tensor.library.first();
        let said = match run {
            None | Some(LibraryRun::NotInstalled) => "not installed".to_owned(),
            Some(LibraryRun::NoSuchProduct) => "has no such product".to_owned(),
            Some(LibraryRun::Measured { library, .. }) => {
                let shares = share(median(&tensor.gflops), tensor.library_gflops());
                format!("{library}: {shares}")
            }
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            rows,
            "| {:?} by cuBLASLt | {said} | GFLOPS |",
            tensor.format
        );
    }
    let collectives = shown.collective_library.as_deref();
    let _ = writeln!(
        rows,
        "| NCCL | {} | |",
        collectives.unwrap_or("not installed")
    );
    rows
}

/// The runs of the agent.
fn trials(calibration: &Calibration) -> String {
    if calibration.trials.is_empty() {
        return String::new();
    }
    let mut table = "\n## Runs of the agent\n\n\
        | staged | level | runs | ended as they should | median, ms | spoke against it |\n\
        |---|---|---|---|---|---|\n"
        .to_owned();
    for trial in &calibration.trials {
        let spoke = trial
            .spoke
            .iter()
            .map(|(code, runs)| format!("`{code}` {runs}"));
        let spoke: Vec<String> = spoke.chain(trial.not_staged.clone()).collect();
        // Writing to a string does not fail.
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} |",
            trial.staged.words(),
            trial.level.as_str(),
            trial.runs,
            trial.right,
            median(&trial.elapsed_ms).unwrap_or(0),
            spoke.join(", "),
        );
    }
    table
}
