//! The throughput of a training run after failures.
//!
//! Sources: Young 1974 and Daly 2006 (the best interval between checkpoints), Dubey et al. 2024
//! (how often GPUs fail).

use market::math::exp;

/// GPU-hours between two unexpected interruptions: 419 in 54 days on 16,384 GPUs, as published for
/// Llama 3 405B.
pub const GPU_HOURS_PER_FAILURE: f64 = 51_000.0;

/// The interruptions of a run, and its recovery.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interruptions {
    /// Mean time between two interruptions of the whole job. Units: seconds.
    pub between_seconds: f64,
    /// How long a checkpoint blocks the run. Units: seconds.
    pub checkpoint_seconds: f64,
    /// From an interruption to the next useful step. Units: seconds.
    pub restart_seconds: f64,
}

impl Interruptions {
    /// The interruptions of a job on so many GPUs, each of which can stop it.
    #[must_use]
    pub fn of_gpus(gpus: f64, checkpoint_seconds: f64, restart_seconds: f64) -> Self {
        Self {
            between_seconds: GPU_HOURS_PER_FAILURE * 3_600.0 / gpus,
            checkpoint_seconds,
            restart_seconds,
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

/// The assumed time that a run without a spare waits for another node in place of a failed one, beside the
/// time to restart. Units: seconds.
pub const REPLACEMENT_SECONDS: f64 = 1_800.0;

/// Spare nodes, and the share of a run that each choice costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spares {
    /// The number worth holding: with it the run costs least, including the time to wait for other nodes.
    pub nodes: u32,
    /// The share of the time that waiting for other nodes takes without any.
    pub waited_without: f64,
    /// The share of the time with this number.
    pub waited_with: f64,
}

impl Spares {
    /// The spares of a run on so many nodes, with these interruptions and checkpoints at an interval
    /// (seconds). A failed node counts as a spare again once another one replaces it.
    #[must_use]
    pub fn of(run: &Interruptions, interval_seconds: f64, nodes: u32) -> Self {
        // The mean number of nodes that are out at the same time; the number follows a Poisson distribution.
        let out = REPLACEMENT_SECONDS / run.between_seconds;
        let useful = |no_spare: f64| {
            let restart_seconds = run.restart_seconds + no_spare * REPLACEMENT_SECONDS;
            let waiting = Interruptions {
                restart_seconds,
                ..*run
            };
            waiting.goodput(interval_seconds)
        };
        let never_waits = useful(0.0);
        let waited = |no_spare: f64| never_waits - useful(no_spare);
        let mut best = (f64::from(nodes) / useful(1.0), 0, 1.0);
        // The chance that `spares` or more are out, and that just as many are.
        let (mut no_spare, mut just) = (1.0, exp(-out));
        for spares in 1.. {
            no_spare = f64::max(no_spare - just, 0.0);
            just *= out / f64::from(spares);
            let paid = f64::from(nodes) + f64::from(spares);
            // Even without any waiting, so many spares would cost more than the best choice.
            if paid / never_waits >= best.0 || never_waits <= 0.0 {
                break;
            }
            let cost = paid / useful(no_spare);
            if cost < best.0 {
                best = (cost, spares, no_spare);
            }
        }
        Self {
            nodes: best.1,
            waited_without: waited(1.0),
            waited_with: waited(best.2),
        }
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

    // S76
    #[test]
    fn checkpoints_that_outlast_the_machines_leave_nothing() {
        let job = Interruptions::of_gpus(1e9, 3_600.0, 600.0);
        assert_eq!(job.best_interval_seconds(), job.between_seconds);
        assert_eq!(job.goodput(job.best_interval_seconds()), 0.0);
    }

    #[test]
    fn spares_are_held_where_a_run_is_large_and_none_where_one_is_a_large_part_of_it() {
        let of = |nodes: u32| {
            let run = Interruptions::of_gpus(f64::from(nodes * 8), 60.0, 600.0);
            Spares::of(&run, run.best_interval_seconds(), nodes)
        };
        assert_eq!(of(1).nodes, 0);
        assert_eq!(of(8).nodes, 0);
        // 2,048 nodes fail once in three hours, so that waiting takes a sixth of the time.
        let large = of(2_048);
        assert!((1..=4).contains(&large.nodes), "{large:?}");
        assert!((large.waited_without - 1_800.0 * 16_384.0 / 51_000.0 / 3_600.0).abs() < 1e-9);
        assert!(large.waited_with < large.waited_without / 10.0);
    }

    proptest! {
        // The oracle: each number by itself, with the chances added up from the terms.
        #[test]
        fn no_other_number_of_spares_is_cheaper(nodes in 1_u32..10_000, checkpoint in 1.0_f64..300.0) {
            let run = Interruptions::of_gpus(f64::from(nodes * 8), checkpoint, 600.0);
            let interval = run.best_interval_seconds();
            let found = Spares::of(&run, interval, nodes);
            let out = f64::from(nodes * 8) / 51_000.0 / 2.0;
            let term = |count: u32| (1..=count).fold(exp(-out), |term, k| term * out / f64::from(k));
            let cost = |spares: u32| {
                let enough: f64 = (0..spares).map(term).sum();
                let restart_seconds = 600.0 + (1.0 - enough).max(0.0) * 1_800.0;
                let left = Interruptions { restart_seconds, ..run }.goodput(interval);
                f64::from(nodes + spares) / left
            };
            let least = (0..60).map(cost).fold(f64::INFINITY, f64::min);
            prop_assert!(cost(found.nodes) <= least * (1.0 + 1e-9));
        }

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
