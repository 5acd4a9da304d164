//! How long a training run takes, from peak rates and an assumed share of them.
//!
//! The share is one figure for all GPUs and models, so the estimate ranks offers by price per
//! peak and bounds no deadline tightly; it is shown wherever it is used.

use market::demand::{Precision, TrainMethod};
use market::gpu::GpuSpec;

use crate::models::ModelFigures;

/// The share of the 16-bit peak that a run is assumed to reach within one fast fabric: the usual
/// figure of published runs on Hopper and Ampere.
pub const ASSUMED_SHARE: f64 = 0.40;

/// The same of the 8-bit peak: casts and what stays in 16 bits take a larger part.
pub const ASSUMED_SHARE_FP8: f64 = 0.30;

/// What remains of the share when the gradients of full training cross plain Ethernet: about the
/// ratio of 100 Gb/s with TCP to RDMA at 400 Gb/s per GPU for a 70B model on 256 GPUs.
pub const ETHERNET_FACTOR: f64 = 0.13;

/// The peak that a run in this precision is measured against. Units: TFLOPS.
#[must_use]
pub fn peak_tflops(spec: &GpuSpec, precision: Precision) -> Option<f64> {
    match precision {
        Precision::Bf16 => spec.bf16_tflops_dense,
        Precision::Fp16 => spec.fp16_tflops_dense,
        Precision::Fp8 => spec.fp8_tflops_dense,
        _ => None,
    }
}

/// The share of the peak that a run is assumed to reach.
///
/// Adapters exchange almost nothing between nodes, so the fabric does not slow them.
#[must_use]
pub fn assumed_share(precision: Precision, method: TrainMethod, over_ethernet: bool) -> f64 {
    let share = if precision == Precision::Fp8 {
        ASSUMED_SHARE_FP8
    } else {
        ASSUMED_SHARE
    };
    let slowed = over_ethernet && method == TrainMethod::Full;
    if slowed {
        share * ETHERNET_FACTOR
    } else {
        share
    }
}

/// Work of the run: 6 operations per active parameter and token (2 forward, 4 backward), or 4
/// where frozen weights need no gradient. Source: Kaplan et al. 2020.
#[must_use]
pub fn run_flop(model: &ModelFigures, method: TrainMethod, tokens: u64) -> f64 {
    let per_param = if method == TrainMethod::Full {
        6.0
    } else {
        4.0
    };
    per_param * model.params_active * tokens as f64
}

/// GPU-hours of so much work at a share of a peak.
#[must_use]
pub fn gpu_hours(flop: f64, peak_tflops: f64, share: f64) -> f64 {
    flop / (peak_tflops * 1e12 * share) / 3_600.0
}

#[cfg(test)]
mod tests {
    use market::demand::Model;
    use market::gpu::Gpu;

    use super::*;

    #[test]
    fn a_70b_on_15_trillion_tokens_takes_millions_of_gpu_hours() {
        let model = ModelFigures::of(&Model::Named("Llama 3 70B".into())).expect("known");
        let flop = run_flop(&model, TrainMethod::Full, 15_000_000_000_000);
        let hours = gpu_hours(flop, 989.0, ASSUMED_SHARE);
        // The published figure of the 70B run is 6.4 million, at a lower share of the peak.
        assert!((4.0e6..6.4e6).contains(&hours), "{hours}");
    }

    #[test]
    fn a_gpu_without_a_published_rate_has_no_peak() {
        let ampere = Gpu::parse("A100-SXM-80").expect("a GPU").spec();
        assert_eq!(peak_tflops(ampere, Precision::Bf16), Some(312.0));
        assert_eq!(peak_tflops(ampere, Precision::Fp8), None);
        let volta = Gpu::parse("V100-SXM2-32").expect("a GPU").spec();
        assert_eq!(peak_tflops(volta, Precision::Bf16), None);
    }

    #[test]
    fn ethernet_slows_full_training_and_not_adapters() {
        let share = |method, ethernet| assumed_share(Precision::Bf16, method, ethernet);
        assert!(share(TrainMethod::Full, true) < share(TrainMethod::Full, false) / 5.0);
        assert_eq!(
            share(TrainMethod::Lora, true),
            share(TrainMethod::Lora, false)
        );
    }
}
