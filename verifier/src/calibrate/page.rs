//! A calibration for people to read.

use std::fmt::Write as _;

use super::{Calibration, figures};

/// What no run on one machine shows.
const UNPROVEN: &str = "\
Copies between GPUs, collective operations and the network between nodes were not measured, nor was
any other architecture than that of the GPUs above: their floors stay `provisional`. Nothing was
compared with the vendor's libraries on the same machine.
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
        }
    }
    let _ = write!(page, "\n## What this does not show\n\n{UNPROVEN}");
    page
}
