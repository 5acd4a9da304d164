//! The figures of a calibration, and the rows of `data/floors.csv` that follow from them.

use std::collections::BTreeMap;

use market::gpu::Gpu;

use super::{Calibration, ChainTimes, GpuCalibration, NoReference, ProofTimes};
use crate::floors::Metric;
use crate::median;
use crate::rules::named_gpu;
use crate::tensor::Format;

/// What a good card must show of its own kernel's figure. Units: thousandths.
///
/// Bandwidths scatter by less than products, which hang on power and heat; the host link hangs on
/// the host.
pub(super) const fn share(metric: Metric) -> u32 {
    match metric {
        Metric::HbmCopy
        | Metric::HbmRead
        | Metric::HbmTriad
        | Metric::AllreduceOwnRing
        | Metric::AllreduceNcclRing
        | Metric::AllreduceNcclDefault => 930,
        Metric::HostLink => 850,
        // The limit leaves twice the time.
        Metric::MemoryProof => 500,
        // The limit leaves four thirds of the time, which is too little for a chip that does two chains.
        Metric::ExactChain => 750,
        _ => 920,
    }
}

/// The metrics of a GPU with its figure.
pub(super) fn figures(shown: &GpuCalibration) -> Vec<(&'static str, Metric, u64)> {
    let tensor = |format| {
        let of = shown.tensor.iter().find(|tensor| tensor.format == format);
        of.and_then(|tensor| median::lower(&tensor.gflops))
    };
    let proof = shown.proof.as_ref().and_then(ProofTimes::mb_per_s);
    let chain = shown.chain.as_ref().and_then(ChainTimes::gops);
    let links = [&shown.from_host_mb_per_s, &shown.to_host_mb_per_s];
    let figures = [
        (
            "hbm_copy",
            Metric::HbmCopy,
            median::lower(&shown.copy_mb_per_s),
        ),
        (
            "hbm_read",
            Metric::HbmRead,
            median::lower(&shown.read_mb_per_s),
        ),
        (
            "hbm_triad",
            Metric::HbmTriad,
            median::lower(&shown.triad_mb_per_s),
        ),
        (
            "host_link",
            Metric::HostLink,
            links.into_iter().filter_map(|l| median::lower(l)).min(),
        ),
        ("gemm_16bit", Metric::Gemm16Bit, tensor(Format::Bf16)),
        ("gemm_fp8", Metric::GemmFp8, tensor(Format::Fp8)),
        ("memory_proof", Metric::MemoryProof, proof),
        ("exact_chain", Metric::ExactChain, chain),
    ];
    let there = figures.into_iter();
    there
        .filter_map(|(name, metric, figure)| Some((name, metric, figure?)))
        .collect()
}

/// The figures of the links between GPUs of one kind, where something is published that they can be held
/// against: of the pairs the slowest one's, and of sums those without a wrong element.
fn link_figures(calibration: &Calibration) -> Vec<(Gpu, &'static str, Metric, u64)> {
    let mut kinds = calibration.gpus.iter().map(|g| named_gpu(&g.claim));
    let (Some(Some(gpu)), Some(links)) = (kinds.next(), &calibration.links) else {
        return Vec::new();
    };
    if kinds.any(|kind| kind != Some(gpu)) || Metric::GpuLink.published(gpu.spec()).is_none() {
        return Vec::new();
    }
    let pairs = links.rates.iter().flat_map(|rates| &rates.pairs);
    let ring = links.rates.as_ref().and_then(|r| r.collective.as_ref());
    let sums = ring.into_iter().chain(&links.library);
    let sums = sums
        .filter(|sum| sum.wrong_elements == 0)
        .filter_map(|sum| {
            let metric = Metric::of_collective(sum.algorithm);
            let name = match metric {
                Metric::AllreduceOwnRing => "allreduce_own_ring",
                Metric::AllreduceNcclDefault => "allreduce_nccl_default",
                Metric::AllreduceNcclRing => "allreduce_nccl_ring",
                _ => return None,
            };
            Some((gpu, name, metric, sum.bus_mb_per_s))
        });
    let slowest = pairs.map(|pair| pair.mb_per_s).min();
    let slowest = slowest.map(|rate| (gpu, "gpu_link", Metric::GpuLink, rate));
    slowest.into_iter().chain(sums).collect()
}

/// Rows for `data/floors.csv`, under this version of it: of each kind of GPU the slowest one's.
///
/// Errors: [`NoReference`] when one of the GPUs is none.
pub fn floors(calibration: &Calibration, version: u32) -> Result<String, NoReference> {
    calibration.check()?;
    let mut slowest: BTreeMap<(&str, &str), (Metric, u64)> = Default::default();
    for shown in &calibration.gpus {
        let Some(gpu) = named_gpu(&shown.claim) else {
            continue;
        };
        for (name, metric, figure) in figures(shown) {
            let row = slowest
                .entry((Gpu::name(gpu), name))
                .or_insert((metric, figure));
            row.1 = row.1.min(figure);
        }
    }
    for (gpu, name, metric, figure) in link_figures(calibration) {
        slowest.insert((Gpu::name(gpu), name), (metric, figure));
    }
    let rows = slowest.into_iter().map(|((gpu, name), (metric, figure))| {
        format!(
            "{version},{gpu},{name},{},{figure},{},expected,calibrated,verifier calibrate on {} \
             with driver {}\n",
            calibration.kernels,
            share(metric),
            calibration.measured_at.format("%Y-%m-%d"),
            calibration.driver,
        )
    });
    Ok(rows.collect())
}
