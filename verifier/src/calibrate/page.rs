//! A calibration for people to read.

use std::fmt::Write as _;

use market::verification::{CollectiveAlgorithm, Pattern};

use super::goals::{permille, why_not};
use super::rows::{figures, share};
use super::{Calibration, GpuCalibration, goals, missing};
use crate::deadlines::proof_limit_ms;
use crate::floors::Metric;
use crate::framework::FrameworkRun;
use crate::median;
use crate::prf::SLOW_LINKS;
use crate::rules::named_gpu;
use crate::tensor::LibraryRun;
use crate::vectors::Played;

/// What no run on one machine shows.
const UNPROVEN: &str = "\
The network between nodes was not measured, nor was any other architecture than that of the GPUs above:
their floors stay `provisional`.
";
/// What a run on one GPU does not show either.
const UNPROVEN_ALONE: &str = "\
Copies between GPUs and collective operations stay unproven: there is one GPU.
";

/// The page.
#[must_use]
pub fn page(calibration: &Calibration) -> String {
    let cuda = calibration.cuda_version.map_or_else(
        || "unknown".to_owned(),
        |version| format!("{}.{}", version / 1_000, version % 1_000 / 10),
    );
    let mut page = format!(
        "# Calibration\n\nMeasured by `verifier calibrate` {} on {} with driver {} (CUDA {cuda}).\n\n\
         Kernels `{}`, agent `{}`, built from commit `{}`.\n",
        calibration.agent,
        calibration.measured_at.format("%Y-%m-%d"),
        calibration.driver,
        calibration.kernels,
        calibration.agent_sha256,
        calibration.commit.as_deref().unwrap_or("unknown"),
    );
    if let Err(why) = calibration.check() {
        // Writing to a string does not fail, here and below.
        let _ = writeln!(page, "\nNo floor follows from it: {why}.");
    }
    page.push_str(&summary(calibration));
    for (gpu, shown) in calibration.gpus.iter().enumerate() {
        let _ = writeln!(page, "\n## GPU {gpu}: {}\n", shown.claim.name);
        page.push_str("| figure | median | unit |\n|---|---|---|\n");
        for (name, _, figure) in figures(shown) {
            let unit = match name {
                _ if name.starts_with("gemm") => "GFLOPS",
                "exact_chain" => "Gop/s",
                _ => "MB/s",
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
        page.push_str(&slow_links(shown));
        let _ = writeln!(page, "| hash of all memory | {} | ms |", shown.digest_ms);
        page.push_str(&proof(shown));
        let (vectors, equal) = (&shown.vectors, |equal| {
            let same = |vector: &&Played| vector.is_equal() == equal;
            shown.vectors.iter().filter(same).count()
        });
        let _ = writeln!(
            page,
            "| shared vectors: equal bit for bit, different, not played, of {} | {}, {}, {} | |",
            vectors.len(),
            equal(Some(true)),
            equal(Some(false)),
            equal(None)
        );
        for vector in vectors.iter().filter(|v| v.is_equal() == Some(false)) {
            let _ = writeln!(page, "| differs: vector {vector} | | |");
        }
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
    page.push_str(&links(calibration));
    page.push_str(&trials(calibration));
    let _ = write!(page, "\n## What this does not show\n\n{UNPROVEN}");
    if calibration.gpus.len() < 2 {
        page.push_str(UNPROVEN_ALONE);
    }
    page
}

/// Each goal with what was shown, and what is missing.
#[must_use]
pub fn summary(calibration: &Calibration) -> String {
    let mut text = "\n## Goals\n\n| goal | shown | |\n|---|---|---|\n".to_owned();
    for goal in goals(calibration) {
        // Writing to a string does not fail, here and below.
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            goal.what,
            goal.shown,
            goal.reached.words()
        );
    }
    text.push_str("\nMissing:\n\n");
    let missing = missing(calibration);
    for what in &missing {
        let _ = writeln!(text, "- {what}");
    }
    if missing.is_empty() {
        text.push_str("- nothing\n");
    }
    text
}

/// How long the slow fill is meant to take. Units: ms.
const SLOW_FILL_MS: u64 = 4_000;

/// How often the slow fill would go through its function in as long as it is meant to take.
fn slow_links(shown: &GpuCalibration) -> String {
    let mut slow = shown.passes.iter().filter(|p| p.pattern == Pattern::Slow);
    let Some(fill_ms) = slow.next().map(|pass| pass.fill_ms.max(1)) else {
        return String::new();
    };
    let links = u64::from(SLOW_LINKS) * SLOW_FILL_MS / fill_ms;
    format!(
        "| slow fill: links that would take {SLOW_FILL_MS} ms; it has {SLOW_LINKS} | {links} | |\n"
    )
}

/// How long the proof of all memory takes, and what limit follows.
fn proof(shown: &GpuCalibration) -> String {
    let Some(proof) = &shown.proof else {
        return String::new();
    };
    let least = proof.mb_per_s().unwrap_or(0) * u64::from(share(Metric::MemoryProof)) * 1_000;
    let gpu = named_gpu(&shown.claim);
    let limit = gpu.map(|gpu| proof_limit_ms(gpu, proof.bytes, least));
    let limit = limit.map_or("not known".to_owned(), |ms| ms.to_string());
    format!(
        "| proof of memory, {} MiB in blocks of {} KiB, its tree by {} threads; its limit | {}; {} | ms |\n",
        proof.bytes >> 20,
        proof.block_bytes >> 10,
        proof.threads,
        median::lower(&proof.elapsed_us).unwrap_or(0) / 1_000,
        limit,
    )
}

/// What was measured between GPUs.
fn links(calibration: &Calibration) -> String {
    let Some(links) = &calibration.links else {
        return String::new();
    };
    let mut text = "\n## Between GPUs\n\n| figure | value | unit |\n|---|---|---|\n".to_owned();
    let pairs = links.rates.iter().flat_map(|rates| &rates.pairs);
    let slowest = pairs.clone().min_by_key(|pair| pair.mb_per_s);
    if let Some(slowest) = slowest {
        let all: Vec<u64> = pairs.map(|pair| pair.mb_per_s).collect();
        // Writing to a string does not fail, here and below.
        let _ = writeln!(
            text,
            "| copies of {} pairs: median; slowest, GPU {} to GPU {} | {}; {} | MB/s |",
            all.len(),
            slowest.from,
            slowest.to,
            median::lower(&all).unwrap_or(0),
            slowest.mb_per_s
        );
    }
    let ring = links
        .rates
        .as_ref()
        .and_then(|rates| rates.collective.as_ref());
    let by_nccl = |way| links.library.iter().find(|sum| sum.algorithm == way);
    let sums = [
        ("own ring", ring),
        ("NCCL", by_nccl(CollectiveAlgorithm::NcclDefault)),
        ("NCCL round a ring", by_nccl(CollectiveAlgorithm::NcclRing)),
    ];
    for (what, sum) in sums {
        let _ = match sum {
            Some(sum) => writeln!(
                text,
                "| sum by {what}, {} MiB each, {} elements wrong | {} | MB/s |",
                sum.payload_bytes >> 20,
                sum.wrong_elements,
                sum.bus_mb_per_s
            ),
            None => writeln!(text, "| sum by {what} | not measured | |"),
        };
    }
    text
}

/// What the driver and the vendor's libraries show beside the kernels.
fn beside(shown: &GpuCalibration) -> String {
    let beside_it = |own: Option<u64>, other: Option<u64>| match (permille(own, other), other) {
        (Some(share), Some(other)) => {
            let (whole, permille) = (share / 1_000, share % 1_000);
            format!("{other}; the kernel shows {whole}.{permille:03} of it")
        }
        _ => "not measured".to_owned(),
    };
    let copies = beside_it(
        median::lower(&shown.copy_mb_per_s),
        median::lower(&shown.driver_copy_mb_per_s),
    );
    let mut rows = format!("| copy by the driver | {copies} | MB/s |\n");
    let framework = match &shown.framework {
        None => "not come to".to_owned(),
        Some(FrameworkRun::Measured {
            framework,
            mb_per_s,
        }) => {
            let told = beside_it(median::lower(&shown.copy_mb_per_s), median::lower(mb_per_s));
            format!("{framework}: {told}")
        }
        Some(other) => format!(
            "{}; the driver's copy stands in for it",
            other.why_not().unwrap_or_default()
        ),
    };
    // Writing to a string does not fail, here and below.
    let _ = writeln!(rows, "| copy by a framework | {framework} | MB/s |");
    for tensor in &shown.tensor {
        let gflops = tensor.library_gflops();
        // The way of the run whose rate is told.
        let told = tensor.library.iter().find_map(|run| match run {
            LibraryRun::Measured {
                library,
                way,
                gflops: of_run,
            } if Some(*of_run) == gflops => Some(format!("{library} ({way})")),
            _ => None,
        });
        let said = match (told, tensor.library.first()) {
            (Some(told), _) => {
                let rates = beside_it(median::lower(&tensor.gflops), gflops);
                format!("{told}: {rates}")
            }
            (None, None | Some(LibraryRun::NotInstalled)) => "not installed".to_owned(),
            (None, Some(_)) => why_not(tensor),
        };
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
        let guests = median::lower(&trial.guests_mb_per_s);
        let guests = guests.map(|rate| format!("the others streamed at {rate} MB/s each"));
        let spoke = spoke.chain(guests).chain(trial.not_staged.clone());
        let spoke: Vec<String> = spoke.collect();
        // Writing to a string does not fail.
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} |",
            trial.staged.words(),
            trial.level.as_str(),
            trial.runs,
            trial.right,
            median::lower(&trial.elapsed_ms).unwrap_or(0),
            spoke.join(", "),
        );
    }
    table
}
