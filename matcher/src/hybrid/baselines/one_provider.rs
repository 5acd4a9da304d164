//! The cheapest way to do both halves on demand at one provider.
//!
//! The cheapest run and the cheapest fleet need not be the cheapest pair: their places decide the cost of
//! moving the weights. So the search takes runs and fleets in the order of their costs for as long as a pair
//! of them may still be the cheapest. A fleet of several offers is at first the cheapest over all regions.
//! RestrictedSearch fewer regions a fleet may cost more and save more on the transfer. So the search also looks for the
//! cheapest fleet within every small set of regions, as long as it may win.

use std::collections::{BTreeMap, BTreeSet};

use market::ids::ProviderId;
use market::offer::Terms;

use super::{RestrictedSearch, Searched, Way, may_beat, take};
use crate::filter::Among;
use crate::plan::Candidate;
use crate::search::{Query, SearchOptions, answer};

/// How many times as many runs and fleets are looked at where the best few may not hold the cheapest
/// pair.
const STEP: usize = 8;

/// The number of sets of regions to try for each provider.
const MOST_SETS: usize = 256;

impl RestrictedSearch<'_> {
    /// The cheapest pair at a provider that has both on demand.
    pub(super) fn one_provider(&self) -> Option<Way> {
        let partitions = self.search.snapshot.partitions().iter();
        let sold = partitions.filter(|partition| partition.key().terms == Terms::OnDemand);
        let mut providers: BTreeMap<&ProviderId, BTreeSet<Option<&str>>> = BTreeMap::new();
        for group in sold.flat_map(|partition| partition.groups()) {
            let regions = providers.entry(group.provider()).or_default();
            regions.insert(group.region());
        }
        let mut best = None;
        for (provider, regions) in providers {
            let regions: Vec<_> = regions.into_iter().collect();
            self.at_provider(provider, &regions, &mut best);
        }
        best
    }

    /// Takes the cheapest pair at this provider where it is better than the best so far. A region is `None`
    /// for offers whose place the provider does not state.
    fn at_provider(&self, provider: &ProviderId, regions: &[Option<&str>], best: &mut Option<Way>) {
        let mut limit = 1;
        let (runs, cheapest) = loop {
            let runs = self.best_at(&self.train, provider, None, limit);
            if runs.is_empty() {
                return;
            }
            let fleets = self.best_at(&self.serve, provider, None, limit);
            let Some(cheapest) = fleets.first() else {
                return;
            };
            let floor = |run: &Candidate, fleet| self.reckoning.floor(run, fleet);
            if !may_beat(best.as_ref(), floor(&runs[0], cheapest)) {
                return;
            }
            self.take_pairs(provider, &runs, &fleets, best);
            // Candidates that were not seen cost no less than the last one that was.
            let goes_on =
                |seen: &[Candidate], floor| seen.len() >= limit && may_beat(best.as_ref(), floor);
            let last = |seen: &[Candidate]| seen.len() - 1;
            if !goes_on(&runs, floor(&runs[last(&runs)], cheapest))
                && !goes_on(&fleets, floor(&runs[0], &fleets[last(&fleets)]))
            {
                break (runs, cheapest.clone());
            }
            limit *= STEP;
        };
        if matches!(&*self.serve.query, Query::Serve(serve) if !serve.is_pile()) {
            self.within_regions(provider, regions, (&runs, &cheapest), best);
        }
    }

    /// Takes pairs with the cheapest fleet within each set of some of the regions, the fewest first.
    fn within_regions(
        &self,
        provider: &ProviderId,
        regions: &[Option<&str>],
        (runs, cheapest): (&[Candidate], &Candidate),
        best: &mut Option<Way>,
    ) {
        let mut left = MOST_SETS;
        for count in 1..regions.len() {
            // For a fleet in more regions the transfer costs no less.
            let mut may = false;
            let mut set: Vec<usize> = (0..count).collect();
            loop {
                let some: Vec<_> = set.iter().map(|at| regions[*at]).collect();
                let floors = runs
                    .iter()
                    .map(|run| self.reckoning.floor_in(run, cheapest, &some));
                if floors
                    .into_iter()
                    .any(|floor| may_beat(best.as_ref(), floor))
                {
                    may = true;
                    let fleets = self.best_at(&self.serve, provider, Some(&some), 1);
                    self.take_pairs(provider, runs, &fleets, best);
                }
                left -= 1;
                if left == 0 {
                    return;
                }
                if !advance(&mut set, regions.len()) {
                    break;
                }
            }
            if !may {
                return;
            }
        }
    }

    fn take_pairs(
        &self,
        provider: &ProviderId,
        runs: &[Candidate],
        fleets: &[Candidate],
        best: &mut Option<Way>,
    ) {
        let sellers = self.reckoning.sellers_of(provider);
        let in_time = |run: &&Candidate| self.reckoning.may_outlast(run, &sellers);
        for run in runs.iter().filter(in_time) {
            for fleet in fleets {
                if may_beat(best.as_ref(), self.reckoning.floor(run, fleet)) {
                    take(best, self.way(run, fleet));
                }
            }
        }
    }

    /// The best candidates for a half among the provider's on-demand offers, in these regions where some are
    /// named.
    fn best_at(
        &self,
        half: &Searched<'_>,
        provider: &ProviderId,
        regions: Option<&[Option<&str>]>,
        limit: usize,
    ) -> Vec<Candidate> {
        let options = SearchOptions {
            limit,
            ..self.options.clone()
        };
        let among = Among::OnDemandOf(provider, regions);
        answer(&half.query, &self.filter(half, among, &options)).candidates
    }
}

/// The next set of this many numbers below `most`, in lexicographic order; `false` after the last.
fn advance(set: &mut [usize], most: usize) -> bool {
    let size = set.len();
    let Some(at) = (0..size).rev().find(|at| set[*at] < most - size + at) else {
        return false;
    };
    set[at] += 1;
    for next in at + 1..size {
        set[next] = set[next - 1] + 1;
    }
    true
}
