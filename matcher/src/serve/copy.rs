//! One replica of the model, calibrated by a measured one.

use market::demand::{LatencyObjective, ServeCalibration};
use market::gpu::GpuSpec;

use super::ServeQuery;
use crate::MatchError;
use crate::perf::calibration::Calibration;
use crate::perf::chip::Chip;
use crate::perf::constants::InferenceConstants;
use crate::perf::replica::CannotServe;
use crate::perf::serving::{Replica, ServingWork};

impl ServeQuery {
    /// The measured speed of the replica over the predicted one.
    pub(crate) fn speed(&self) -> f64 {
        (self.calibration.as_ref()).map_or(1.0, Calibration::factor)
    }

    /// One replica, calibrated by the measured one. Limits are scaled by the factor before they are compared
    /// with the prediction.
    pub(super) fn replica(
        &self,
        chip: &Chip,
        spec: &'static GpuSpec,
        gpus: u32,
        network_seconds: f64,
    ) -> Result<Replica, CannotServe> {
        let speed = self.speed();
        let stretched = |ms: Option<f64>| ms.map(|ms| ms * speed);
        let work = |first_token_ms: Option<f64>| ServingWork {
            latency: LatencyObjective {
                first_token_ms,
                per_token_ms: stretched(self.work.latency.per_token_ms),
                ..self.work.latency.clone()
            },
            ..self.work.clone()
        };
        let mut known = self.patient.borrow_mut();
        let patient = known.entry((spec.canonical.as_str(), gpus));
        let patient =
            *patient.or_insert_with(|| work(None).replica(self.constants, chip, gpus, 0.0));
        let limited = work(stretched(self.work.latency.first_token_ms));
        let network_seconds = network_seconds * speed;
        let limit = limited.first_token_limit(network_seconds);
        // A limit that the best replica meets anyway changes nothing, since no replica is better under a
        // limit. And a model that is too large or too slow without a limit stays so with one.
        let replica = match patient {
            Ok(copy) if limit.is_some_and(|limit| copy.first_token_seconds > limit) => {
                limited.replica(self.constants, chip, gpus, network_seconds)
            }
            other => other,
        }?;
        Ok(Replica {
            tokens_per_second: replica.tokens_per_second * speed,
            first_token_seconds: replica.first_token_seconds / speed,
            per_token_seconds: replica.per_token_seconds / speed,
            ..replica
        })
    }
}

pub(super) fn calibration(
    copy: Option<&ServeCalibration>,
    work: &ServingWork,
    constants: &InferenceConstants,
) -> Result<Option<Calibration>, MatchError> {
    copy.map(|copy| Calibration::of_copy(work, constants, copy))
        .transpose()
}
