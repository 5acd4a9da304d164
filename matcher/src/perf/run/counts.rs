//! The numbers of nodes on which a run costs least.
//!
//! The search tries every number, but not every layout on it. With a batch that divides without a remainder
//! no layout takes fewer GPU-seconds on more nodes. Its matrix products stay the same. Its waiting time, the
//! time lost to failures and the fixed part of a step times its GPUs all grow. So a layout whose GPU-seconds
//! without a remainder are above the least found so far stays above it on all further nodes.

use super::layouts::{Way, ways};
use super::{Run, RunNodes, RunWork};
use crate::perf::constants::Constants;

/// The most by which rounding separates two equal sums.
const ROUNDING: f64 = 1e-9;

/// The numbers of nodes to try, and the limits on them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counts {
    /// The fewest.
    pub at_least: u32,
    /// The most.
    pub at_most: u32,
    /// The hours within which the run must be done.
    pub within_hours: f64,
    /// The factor on all predicted rates.
    pub speed: f64,
}

/// A layout that may still be the best one on more nodes.
struct Open {
    /// Its place among all ways: of equals the first is taken.
    nth: usize,
    way: Way,
    /// The fewest nodes on which it fits.
    from: u32,
    /// A lower bound on GPU-seconds, valid from the number of nodes for which it was computed.
    least: f64,
    /// The number of nodes from which it is computed again.
    again_at: u32,
}

impl RunWork {
    /// The runs that finish in time, by increasing number of nodes, each with fewer GPU-seconds than on all
    /// fewer nodes. An offer with a limit on nodes uses the last run within its limit: all GPUs of an offer
    /// cost the same, so it costs least, and of equals it has the fewest nodes.
    #[must_use]
    pub fn ever_cheaper(
        &self,
        constants: &Constants,
        nodes: &RunNodes,
        counts: &Counts,
    ) -> Vec<Run> {
        let mut open: Vec<Open> = (ways(self, nodes).enumerate())
            .filter_map(|(nth, way)| {
                Some(Open {
                    nth,
                    way,
                    from: self.fits_from(nodes, way, counts)?,
                    least: 0.0,
                    again_at: 0,
                })
            })
            .collect();
        let mut found: Vec<Run> = Vec::new();
        let mut count = counts.at_least;
        while count <= counts.at_most && !open.is_empty() {
            let gpus = nodes.gpus_per_node * count;
            for one in open.iter_mut().filter(|one| one.again_at <= count) {
                let gpus = nodes.gpus_per_node * count.max(one.from);
                one.least = self.least_gpu_seconds(constants, nodes, one.way, gpus) / counts.speed;
                one.again_at = count + count / 2 + 1;
            }
            let best = found
                .last()
                .map_or(f64::INFINITY, |run| run.gpu_seconds() as f64);
            open.retain(|one| {
                let may_be_best = one.least.is_finite() && one.least <= best * (1.0 + ROUNDING);
                may_be_best && !one.way.is_past(self, gpus)
            });
            if found.is_empty() {
                let least = open
                    .iter()
                    .map(|one| one.least)
                    .fold(f64::INFINITY, f64::min);
                let gpus = least / 3_600.0 / counts.within_hours * (1.0 - ROUNDING);
                // The cast stops at the largest integer, which is above the most.
                let in_time = (gpus / f64::from(nodes.gpus_per_node)).ceil() as u32;
                if in_time > count {
                    count = in_time;
                    continue;
                }
            }
            open.sort_unstable_by(|a, b| a.least.total_cmp(&b.least));
            let run = self.fastest_of(constants, nodes, &open, count, counts.speed);
            found.extend(run.filter(|run| {
                let cheaper = found
                    .last()
                    .is_none_or(|best| run.gpu_seconds() < best.gpu_seconds());
                cheaper && run.hours.is_finite() && run.hours <= counts.within_hours
            }));
            count += 1;
        }
        found
    }

    /// The run in the fastest of these ways, which come by the least that they may take.
    fn fastest_of(
        &self,
        constants: &Constants,
        nodes: &RunNodes,
        open: &[Open],
        count: u32,
        speed: f64,
    ) -> Option<Run> {
        let gpus = nodes.gpus_per_node * count;
        let mut best: Option<(Run, usize)> = None;
        for one in open.iter().filter(|one| one.from <= count) {
            let is_slower = |(best, _): &(Run, usize)| {
                one.least > best.gpu_hours() * 3_600.0 * (1.0 + ROUNDING)
            };
            if best.as_ref().is_some_and(is_slower) {
                break;
            }
            let Some(choice) = one.way.on(self, nodes, gpus) else {
                continue;
            };
            let run = self.run_of(constants, nodes, gpus, &choice).at_speed(speed);
            let is_faster = |(best, nth): &(Run, usize)| {
                let (own, other) = (run.tokens_per_second, best.tokens_per_second);
                own > other || (own == other && one.nth < *nth)
            };
            if best.as_ref().is_none_or(is_faster) {
                best = Some((run, one.nth));
            }
        }
        best.map(|(run, _)| run)
    }

    /// The fewest nodes of those that are tried on which a way fits; more never need more memory.
    fn fits_from(&self, nodes: &RunNodes, way: Way, counts: &Counts) -> Option<u32> {
        let room = nodes.room_bytes();
        let fits = |count: u32| way.bytes_per_gpu(self, nodes, nodes.gpus_per_node * count) <= room;
        let (mut least, mut most) = (counts.at_least, counts.at_most);
        if fits(least) {
            return Some(least);
        }
        if !fits(most) {
            return None;
        }
        while most - least > 1 {
            let middle = least + (most - least) / 2;
            if fits(middle) {
                most = middle;
            } else {
                least = middle;
            }
        }
        Some(most)
    }

    /// GPU-seconds of the run with a batch that divides without a remainder.
    fn least_gpu_seconds(
        &self,
        constants: &Constants,
        nodes: &RunNodes,
        way: Way,
        gpus: u32,
    ) -> f64 {
        let choice = way.without_rest(self, nodes, gpus);
        let step = self.step(constants, nodes, gpus, &choice);
        let (_, goodput) = self.goodput(gpus);
        let steps = self.tokens as f64 / self.tokens_of_a_step();
        steps * step.seconds * f64::from(gpus) / goodput
    }
}

#[cfg(test)]
mod tests {
    use market::demand::TrainMethod;
    use market::fabric::Internode;
    use proptest::prelude::*;

    use super::*;
    use crate::perf::run::tests::{nodes, work};

    proptest! {
        // S32: the assumption behind everything that the search for the cheapest number of nodes skips.
        #[test]
        fn no_layout_trains_more_in_a_gpu_second_on_more_nodes(
            name in prop::sample::select(vec!["Llama 3 8B", "Llama 3 70B", "Mixtral 8x7B", "Qwen2.5 7B"]),
            gpu in prop::sample::select(vec!["H100-SXM", "B200-SXM", "A100-SXM-80", "V100-SXM2-32", "L40S"]),
            internode in prop::sample::select(vec![Internode::InfinibandNdr400, Internode::Ethernet]),
            method in prop::sample::select(vec![TrainMethod::Full, TrainMethod::Lora]),
            batch in prop::option::of(1_u32..3_000),
            (fewer, more) in (1_u32..600, 1_u32..600),
        ) {
            let work = RunWork { step_sequences: batch, ..work(name, method) };
            let nodes = nodes(gpu, internode);
            let seconds = |way, count| {
                work.least_gpu_seconds(Constants::product(), &nodes, way, count * nodes.gpus_per_node)
            };
            for way in ways(&work, &nodes) {
                let (on_few, on_more) = (seconds(way, fewer), seconds(way, fewer + more));
                prop_assert!(on_more >= on_few * (1.0 - ROUNDING), "{way:?}: {on_few} {on_more}");
            }
        }
    }
}
