//! What failures leave of a training run's throughput.
//!
//! Sources: Young 1974 and Daly 2006 (the best interval between checkpoints), Dubey et al. 2024
//! (how often GPUs fail).

/// GPU-hours between two unexpected interruptions: 419 in 54 days on 16,384 GPUs, as published for
/// Llama 3 405B.
pub const GPU_HOURS_PER_FAILURE: f64 = 51_000.0;

/// How a run is interrupted and taken up again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interruptions {
    /// Mean time between two of them, for the whole job. Units: seconds.
    pub between_seconds: f64,
    /// How long a checkpoint blocks the run. Units: seconds.
    pub checkpoint_seconds: f64,
    /// From an interruption to the next useful step. Units: seconds.
    pub restart_seconds: f64,
}

impl Interruptions {
    /// Those of a job on so many GPUs, any of which stops it.
    #[must_use]
    pub fn of_gpus(gpus: f64, checkpoint_seconds: f64, restart_seconds: f64) -> Self {
        Self {
            between_seconds: GPU_HOURS_PER_FAILURE * 3_600.0 / gpus,
            checkpoint_seconds,
            restart_seconds,
        }
    }

    /// The same job on machines whose seller ends them so often besides. Units: 1 per second.
    #[must_use]
    pub fn with_evictions(self, per_second: f64) -> Self {
        Self {
            between_seconds: (self.between_seconds.recip() + per_second).recip(),
            ..self
        }
    }

    /// The interval between checkpoints that loses least, by Daly's higher-order estimate; one
    /// failure's distance where a checkpoint takes twice as long as that. Units: seconds.
    #[must_use]
    pub fn best_interval_seconds(&self) -> f64 {
        let (cost, mean) = (self.checkpoint_seconds, self.between_seconds);
        if cost >= 2.0 * mean {
            return mean;
        }
        let first = (2.0 * cost * mean).sqrt();
        let ratio = cost / (2.0 * mean);
        first * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - cost
    }

    /// The share of the time that is useful work, with checkpoints at an interval (seconds).
    #[must_use]
    pub fn goodput(&self, interval_seconds: f64) -> f64 {
        let lost = self.checkpoint_seconds / interval_seconds
            + (interval_seconds / 2.0 + self.restart_seconds) / self.between_seconds;
        (1.0 - lost).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn loss(gpus: f64, checkpoint: f64, restart: f64) -> f64 {
        let job = Interruptions::of_gpus(gpus, checkpoint, restart);
        // Young's first-order interval, for which these losses are usually quoted.
        let interval = (2.0 * checkpoint * job.between_seconds).sqrt();
        1.0 - job.goodput(interval)
    }

    #[test]
    fn a_larger_job_loses_more_and_by_how_much_is_known() {
        let known = [(64.0, 0.7), (512.0, 2.0), (4_096.0, 6.5), (16_384.0, 16.0)];
        for (gpus, percent) in known {
            let lost = loss(gpus, 60.0, 600.0) * 100.0;
            assert!((lost / percent - 1.0).abs() < 0.07, "{gpus}: {lost}");
        }
    }

    #[test]
    fn evictions_come_on_top_of_failures() {
        let alone = Interruptions::of_gpus(64.0, 60.0, 600.0);
        let spot = alone.with_evictions(1.0 / 86_400.0);
        assert!(spot.between_seconds < alone.between_seconds.min(86_400.0));
        let interval = spot.best_interval_seconds();
        assert!(spot.goodput(interval) < alone.goodput(interval));
    }

    // S76
    #[test]
    fn checkpoints_that_outlast_the_machines_leave_nothing() {
        let job = Interruptions::of_gpus(1e9, 3_600.0, 600.0);
        assert_eq!(job.best_interval_seconds(), job.between_seconds);
        assert_eq!(job.goodput(job.best_interval_seconds()), 0.0);
    }

    proptest! {
        // S76
        #[test]
        fn no_other_interval_is_much_better(
            gpus in 1.0_f64..5_000.0, checkpoint in 1.0_f64..120.0, factor in 0.1_f64..10.0,
        ) {
            let job = Interruptions::of_gpus(gpus, checkpoint, 600.0);
            let best = job.best_interval_seconds();
            prop_assert!(job.goodput(best * factor) <= job.goodput(best) + 0.005);
        }
    }
}
