//! The search behind a plan: the best candidates, and behind them the best that can be ordered.

use chrono::{DateTime, Utc};
use market::demand::Demand;
use matcher::fleet::Budget;
use matcher::{Candidate, Held, HybridSearch, MatchError, Plan, SearchOptions, Snapshot};

/// The inputs of a search.
#[derive(Debug)]
pub struct Question<'a> {
    /// The demand.
    pub demand: &'a Demand,
    /// The market, at the tenant's own prices.
    pub snapshot: &'a Snapshot,
    /// The nodes of it that are held or leased.
    pub held: &'a Held,
    /// When.
    pub now: DateTime<Utc>,
    /// How it is searched.
    pub options: &'a SearchOptions,
    /// How many candidates that can be ordered come behind the best, where those are not among them:
    /// a plan that price lists fill to the end would be nothing to reserve from.
    pub orderable_kept: usize,
}

impl Question<'_> {
    /// Searches.
    ///
    /// Errors: [`MatchError`], for a demand that no supply can match.
    pub fn answer(&self) -> Result<Plan, MatchError> {
        let budget = Budget::default();
        match self.demand {
            Demand::Hybrid(hybrid) => {
                let options = self.options.of_half();
                let search = HybridSearch {
                    snapshot: self.snapshot,
                    held: self.held,
                    now: self.now,
                    options: &options,
                    budget: &budget,
                };
                matcher::search_hybrid(&search, hybrid, |half, options| {
                    self.find(half, options, &budget)
                })
            }
            demand => self.find(demand, self.options, &budget),
        }
    }

    /// The candidates of a demand of one kind.
    fn find(
        &self,
        demand: &Demand,
        options: &SearchOptions,
        budget: &Budget,
    ) -> Result<Plan, MatchError> {
        let search = |options: &SearchOptions| {
            matcher::search_within(self.snapshot, demand, self.held, self.now, options, budget)
        };
        let mut plan = search(options)?;
        let of_lists = |candidate: &Candidate| {
            candidate.lines.len() > 1 && candidate.lines.iter().any(|line| !line.offer.orderable)
        };
        let more = plan.eligible > plan.candidates.len() || plan.candidates.iter().any(of_lists);
        if self.orderable_kept == 0 || !more {
            return Ok(plan);
        }
        let orderable = SearchOptions {
            limit: self.orderable_kept,
            orderable_only: true,
            alternatives: false,
            ..options.clone()
        };
        for candidate in search(&orderable)?.candidates {
            if plan
                .candidates
                .iter()
                .all(|known| known.lines != candidate.lines)
            {
                let rank = plan.candidates.len() + 1;
                plan.candidates.push(Candidate { rank, ..candidate });
            }
        }
        Ok(plan)
    }
}
