//! Fleets with more spare capacity. Where the first fleet misses the objective in the simulation, the search
//! plans replicas at a smaller share of their capacity, so that more replicas have less load each.
//!
//! The shares are the same for every objective, so that a looser objective tries all the shares of a tighter
//! one. The cheapest fleet at a smaller share is never cheaper. So the search ends at the first share at
//! which no fleet can be cheaper than one that already meets the objective. No fleet is simulated twice: two
//! shares may give the same nodes.

use market::money::Money;

use super::Round;
use super::shown::{self, SimulatedLatencies, put_missing_last};
use crate::explain;
use crate::filter::Filter;
use crate::plan::Candidate;
use crate::search::{Query, SearchOptions, Tally};
use crate::serve::ServeQuery;
use crate::snapshot::RowId;
use crate::walk::HeldRows;

/// The shares of capacity at which fleets are planned, as far as they are below the first share of the
/// demand.
const SHARES: [f64; 7] = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3];

/// A fleet that is planned at a smaller share than others.
struct Wider {
    candidate: Candidate,
    share: f64,
}

/// Moves fleets that meet the objective first. The cheapest fleet with more spare capacity comes before all
/// of them where it costs less, or where no simulated fleet meets the objective. Returns the offers of such a
/// fleet.
///
/// Where no fleet meets the objective, the first one gets a reason that lists the shares tried. Where the
/// cost alone decides ([`SearchOptions::ties`]), this moves nothing and searches for nothing.
pub(super) fn put_meeting_first(
    serve: &ServeQuery,
    filter: &Filter<'_>,
    held: &HeldRows,
    candidates: &mut Vec<Candidate>,
    known: &mut SimulatedLatencies,
) -> Vec<RowId> {
    let simulated = filter.options.simulated.min(candidates.len());
    let first_misses = candidates[..simulated].first().is_some_and(misses);
    if !filter.options.ties || !first_misses {
        return Vec::new();
    }
    let (found, tried) = cheaper(serve, filter, held, candidates, known);
    put_missing_last(&mut candidates[..simulated]);
    let mut on = Vec::new();
    if let Some(wider) = found {
        let first = put_first(serve, wider, candidates, simulated, known);
        let lines = first.lines.iter();
        on.extend(lines.filter_map(|line| filter.snapshot.find(&line.offer.offer_id)));
        candidates.truncate(filter.options.limit);
    } else if misses(&candidates[0]) {
        let words = explain::widened_in_vain(&tried);
        candidates[0].reasons.push(words);
    }
    for (rank, candidate) in (1..).zip(candidates) {
        candidate.rank = rank;
    }
    on
}

/// Puts a fleet with more room before all others, and gives it. Where the same nodes are among them, though
/// they were not simulated, they are moved there instead: they stay planned as they were.
fn put_first<'c>(
    serve: &ServeQuery,
    Wider { candidate, share }: Wider,
    candidates: &'c mut Vec<Candidate>,
    simulated: usize,
    known: &SimulatedLatencies,
) -> &'c Candidate {
    let before = &candidates[..simulated];
    let same = candidates
        .iter()
        .position(|one| one.lines == candidate.lines);
    let (mut first, words) = match same {
        None => {
            let shares = (share, serve.planned_share);
            let words = explain::planned_wider(&candidate, before, shares);
            (candidate, words)
        }
        Some(at) => {
            let words = explain::moved_up(&candidate, before);
            let mut same = candidates.remove(at);
            if let Some(waits) = known.of(&same.lines) {
                explain::add_waits(serve, &mut same, &waits);
            }
            (same, words)
        }
    };
    first.reasons.insert(0, words);
    candidates.insert(0, first);
    &candidates[0]
}

/// The cheapest fleet with more room that meets the objective, where it costs less than every one of these
/// that does; and the shares that were tried.
fn cheaper(
    serve: &ServeQuery,
    filter: &Filter<'_>,
    held: &HeldRows,
    candidates: &[Candidate],
    known: &mut SimulatedLatencies,
) -> (Option<Wider>, Vec<f64>) {
    let options = SearchOptions {
        limit: filter.options.simulated.min(candidates.len()),
        ties: false,
        ..filter.options.clone()
    };
    let filter = filter.with(&options);
    let mut met = cheapest(candidates.iter().filter(|one| meets(one)));
    // No fleet with more room costs less: the cheapest of all is among these, unless more tie with it than
    // are shown or the search for it was cut short.
    let mut least = cheapest(candidates.iter());
    let mut found = None;
    let mut tried = Vec::new();
    for share in SHARES {
        if share >= serve.planned_share {
            continue;
        }
        if met.is_some_and(|met| least.is_none_or(|least| met <= least)) {
            break;
        }
        tried.push(share);
        let all = at_share(serve.at_share(share), &filter, held, known);
        least = cheapest(all.iter());
        let best = all.into_iter().filter(meets);
        let best = best.min_by_key(|one| one.cost_per_hour);
        if let Some(candidate) = best
            && met.is_none_or(|met| candidate.cost_per_hour < met)
        {
            met = Some(candidate.cost_per_hour);
            found = Some(Wider { candidate, share });
        }
        if least.is_none() {
            // There are not enough nodes.
            break;
        }
    }
    (found, tried)
}

fn cheapest<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> Option<Money> {
    candidates.map(|one| one.cost_per_hour).min()
}

/// The fleets that are planned at one share, cheapest first.
fn at_share(
    serve: ServeQuery,
    filter: &Filter<'_>,
    held: &HeldRows,
    known: &mut SimulatedLatencies,
) -> Vec<Candidate> {
    let query = Query::Serve(serve);
    let Query::Serve(serve) = &query else {
        return Vec::new();
    };
    let round = Round::of(&query, serve, filter, held, &mut Tally::new(filter));
    let found = round.found.unwrap_or_default();
    shown::candidates(
        &query,
        serve,
        filter,
        &round.parts,
        &found,
        round.ranking,
        known,
    )
}

fn meets(candidate: &Candidate) -> bool {
    candidate.facts.meets_objective == Some(true)
}

fn misses(candidate: &Candidate) -> bool {
    candidate.facts.meets_objective == Some(false)
}
