//! Fleets with more room: where all fleets that are simulated miss the objective, copies are planned at
//! less of what they can, so that there are more of them with less to do each.
//!
//! By how much less follows from how far the nearest was from the objective; a few times at most, since
//! each is a search of its own. What is found is the cheapest at the share that it is planned at, and it
//! is not said that no other share would do with less.

use super::{Round, shown};
use crate::explain;
use crate::filter::Filter;
use crate::plan::Candidate;
use crate::search::{Query, SearchOptions, Tally};
use crate::serve::ServeQuery;
use crate::snapshot::RowId;
use crate::walk::HeldRows;

/// How often fleets are planned at less.
const ROUNDS: usize = 2;

/// What of a share the next one is at most and at least.
const STEP: (f64, f64) = (0.4, 0.9);

/// Puts a fleet with more room before those that were simulated, where all of these miss the objective
/// and it meets it. Gives the offers that it stands on.
///
/// Where there is none, the first says what was tried. In the halves of a hybrid demand nothing is put
/// first: its pairs rank by what the whole costs.
pub(super) fn put_first(
    serve: &ServeQuery,
    filter: &Filter<'_>,
    held: &HeldRows,
    candidates: &mut Vec<Candidate>,
) -> Vec<RowId> {
    let simulated = filter.options.simulated.min(candidates.len());
    let missing = &candidates[..simulated];
    let all_miss = missing.iter().all(|one| meets(one) == Some(false));
    if !filter.options.ties || missing.is_empty() || !all_miss {
        return Vec::new();
    }
    let options = SearchOptions {
        limit: simulated,
        ties: false,
        ..filter.options.clone()
    };
    let limit = filter.options.limit;
    let filter = filter.with(&options);
    let mut tried = Vec::new();
    let mut share = serve.planned_share;
    let mut nearest = nearest(serve, missing);
    while let Some(reached) = nearest.filter(|_| tried.len() < ROUNDS) {
        // Waits fall more slowly than the load of a copy: what one step left is made up for.
        let step = if tried.is_empty() {
            reached
        } else {
            reached * reached
        };
        share *= step.clamp(STEP.0, STEP.1);
        tried.push(share);
        let found = at_share(serve.at_share(share), &filter, held);
        let Some(at) = found.iter().position(|one| meets(one) == Some(true)) else {
            nearest = self::nearest(serve, &found);
            continue;
        };
        let mut wider = found[at].clone();
        let words = explain::planned_wider(&wider, missing, (share, serve.planned_share));
        wider.reasons.insert(0, words);
        let on = wider.lines.iter();
        let on = on.filter_map(|line| filter.snapshot.find(&line.offer.offer_id));
        let on = on.collect();
        candidates.insert(0, wider);
        candidates.truncate(limit);
        for (rank, candidate) in (1..).zip(candidates) {
            candidate.rank = rank;
        }
        return on;
    }
    candidates[0].reasons.push(explain::widened_in_vain(&tried));
    Vec::new()
}

/// The fleets that are planned at one share, cheapest first.
fn at_share(serve: ServeQuery, filter: &Filter<'_>, held: &HeldRows) -> Vec<Candidate> {
    let query = Query::Serve(serve);
    let Query::Serve(serve) = &query else {
        return Vec::new();
    };
    let round = Round::of(&query, serve, filter, held, &mut Tally::new(filter));
    let found = round.found.unwrap_or_default();
    shown::candidates(&query, serve, filter, &round.parts, &found, round.ranking)
}

fn meets(candidate: &Candidate) -> Option<bool> {
    candidate.facts.meets_objective
}

/// How much of its objective the nearest of these reached: what it may take of what it takes, without
/// the network, which no copy more makes shorter. `None` of none.
fn nearest(serve: &ServeQuery, simulated: &[Candidate]) -> Option<f64> {
    let latency = &serve.work.latency;
    let reached = |candidate: &Candidate| {
        let facts = &candidate.facts;
        let network = facts.network_ms.unwrap_or(0.0);
        let of = |limit: Option<f64>, tail: Option<f64>, network: f64| {
            let (limit, tail) = limit.zip(tail)?;
            Some((limit - network) / (tail - network))
        };
        let first = of(latency.first_token_ms, facts.first_token_tail_ms, network);
        let further = of(latency.per_token_ms, facts.per_token_tail_ms, 0.0);
        first.into_iter().chain(further).reduce(f64::min)
    };
    simulated.iter().filter_map(reached).reduce(f64::max)
}
