//! Calibration with one measurement of a job: all its predictions are multiplied by the measured value over
//! the predicted one, and the 80 % interval becomes narrower.
//!
//! A job's own software is the part of an error that all hardware shares, so the factor applies everywhere.
//! Its transfer was measured on the rows to which the constants are fitted (`docs/accuracy.md`). It transfers
//! well to another number of the same GPUs, and badly to another GPU. So the interval on another GPU is never
//! narrower than without calibration.

use market::demand::{ServeCalibration, TrainCalibration};
use market::gpu::{Gpu, GpuSpec};

use super::chip::Chip;
use super::constants::{Constants, InferenceConstants, TrainingIntervals};
use super::replica::{Limits, serve};
use super::run::{RunNodes, RunWork};
use super::serving::ServingWork;
use crate::MatchError;

/// The factor within which a repetition of the same measurement lies in four of five cases, as its logarithm:
/// 5 %, assumed.
const REPEATED_LN: f64 = 0.05;

/// The largest factor between a measurement and its prediction; beyond it the measurement counts as a
/// mistake.
const LARGEST_FACTOR: f64 = 5.0;

/// A measurement beside its prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// The measured rate. Units: tokens per second.
    pub measured: f64,
    /// The predicted rate there. Units: tokens per second.
    pub predicted: f64,
    /// The GPU that it was measured on.
    pub gpu: Gpu,
    /// How many of them.
    pub gpus: u32,
}

/// How similar hardware is to that of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nearness {
    /// The same GPUs, and as many.
    Same,
    /// Another number of the same GPUs.
    SameGpu,
    /// Another GPU.
    Elsewhere,
}

impl Calibration {
    /// A measured step of the run.
    ///
    /// Errors: [`MatchError::Calibration`], where the run does not fit there, or the measurement
    /// cannot be of it.
    pub fn of_run(work: &RunWork, step: &TrainCalibration) -> Result<Self, MatchError> {
        let spec = step.gpu.spec();
        let nodes = RunNodes::new(spec, step.gpus_per_node, step.internode);
        let run = nodes.and_then(|nodes| work.best_on(Constants::product(), &nodes, step.nodes));
        let run = run.ok_or_else(|| {
            MatchError::Calibration(format!(
                "the run does not fit on {} x {} {}",
                step.nodes, step.gpus_per_node, step.gpu
            ))
        })?;
        let of_step = (step.seconds_per_step).map(|seconds| work.tokens_of_a_step() / seconds);
        let measured = step.tokens_per_second.or(of_step).unwrap_or(f64::NAN);
        Self::checked(measured, run.tokens_per_second, step.gpu, run.gpus)
    }

    /// A measured replica.
    ///
    /// Errors: [`MatchError::Calibration`], as above.
    pub fn of_copy(
        work: &ServingWork,
        constants: &InferenceConstants,
        copy: &ServeCalibration,
    ) -> Result<Self, MatchError> {
        let limits = Limits {
            concurrency: Some(f64::from(copy.concurrency)),
            ..Limits::default()
        };
        let predicted = Chip::of_spec(copy.gpu.spec()).and_then(|chip| {
            let rates = (work.layouts(&chip, copy.gpus))
                .filter_map(|setup| serve(constants, &setup, &limits).ok())
                .map(|served| served.tokens_per_second);
            rates.reduce(f64::max)
        });
        let predicted = predicted.ok_or_else(|| {
            MatchError::Calibration(format!(
                "a replica does not fit on {} x {}",
                copy.gpus, copy.gpu
            ))
        })?;
        Self::checked(copy.tokens_per_second, predicted, copy.gpu, copy.gpus)
    }

    fn checked(measured: f64, predicted: f64, gpu: Gpu, gpus: u32) -> Result<Self, MatchError> {
        let factor = measured / predicted;
        if !(LARGEST_FACTOR.recip()..=LARGEST_FACTOR).contains(&factor) {
            return Err(MatchError::Calibration(format!(
                "{measured:.0} tokens/s on {gpus} x {gpu} are {factor:.2} times what is predicted; give \
                 the rate over all GPUs, of the same model, sequence length and batch"
            )));
        }
        Ok(Self {
            measured,
            predicted,
            gpu,
            gpus,
        })
    }

    /// The factor on all predictions.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.measured / self.predicted
    }

    /// How similar so many GPUs are to the measured ones.
    #[must_use]
    pub fn nearness(&self, spec: &GpuSpec, gpus: u32) -> Nearness {
        match (
            self.gpu.spec().canonical == spec.canonical,
            self.gpus == gpus,
        ) {
            (true, true) => Nearness::Same,
            (true, false) => Nearness::SameGpu,
            (false, _) => Nearness::Elsewhere,
        }
    }
}

impl Nearness {
    /// The half-width of a run's interval, which is `without` where nothing was measured.
    #[must_use]
    pub fn of_run(self, without: f64, widths: &TrainingIntervals) -> f64 {
        match self {
            Self::Same => REPEATED_LN,
            Self::SameGpu => without.min(widths.calibrated),
            Self::Elsewhere => without.max(widths.calibrated_elsewhere),
        }
    }

    /// The half-width of a replica's interval. The transfer from one replica to others was not measured, so a
    /// measured replica narrows the interval of its own kind alone.
    #[must_use]
    pub fn of_copy(self, without: f64) -> f64 {
        match self {
            Self::Same => REPEATED_LN,
            Self::SameGpu | Self::Elsewhere => without,
        }
    }
}
