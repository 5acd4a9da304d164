//! The fleets that a plan shows: their choice, their order, and the tail latency of their requests.

use std::collections::{BTreeMap, HashMap};

use market::ids::OfferId;

use super::choice::Choice;
use super::parts::Parts;
use super::{FleetLine, Mix};
use crate::explain;
use crate::filter::Filter;
use crate::hardware::TrainingClass;
use crate::launch::launches;
use crate::perf::chip::Chip;
use crate::perf::replica::tails::Arrivals;
use crate::plan::{Candidate, CandidateLine};
use crate::ranking::{Ranked, Ranking};
use crate::search::{Eligible, Fit, Query, first_hour};
use crate::serve::{Load, ServeQuery};
use crate::ties::{Standing, settle};

/// A fleet that may be shown.
enum Found<'a, 's> {
    OfSeveral(&'a Choice),
    OfOne(&'a (Ranked<'s>, Fit)),
}

impl Found<'_, '_> {
    fn standing(&self, filter: &Filter<'_>, parts: &Parts<'_>) -> Standing {
        match self {
            Self::OfSeveral(choice) => Standing {
                cost: i128::from(choice.cost.units()),
                // It is as sure as its least sure line.
                precedence: (parts.offers(filter, choice))
                    .map(|offer| {
                        let class = TrainingClass::default();
                        let reliability = filter.reliability(offer.provider(), offer.operator());
                        let read = offer.observed_at();
                        filter.precedence(offer.orderable(), class, read, reliability)
                    })
                    .max()
                    .unwrap_or_default(),
            },
            Self::OfOne((ranked, _)) => ranked.standing(),
        }
    }

    /// Its providers and SKUs.
    fn name(&self, filter: &Filter<'_>, parts: &Parts<'_>) -> String {
        match self {
            Self::OfSeveral(choice) => {
                let offers = parts.offers(filter, choice);
                let names = offers.map(|offer| format!("{} {}", offer.provider(), offer.sku()));
                names.collect::<Vec<_>>().join(" with ")
            }
            Self::OfOne((ranked, _)) => ranked.name(),
        }
    }
}

/// The fleets of several offers and those of one, in the order of a plan, as many as the plan shows.
///
/// Those of several offers come cheapest first. One that is listed beside fleets of one offer is cheaper than
/// all of them.
pub(super) fn candidates(
    query: &Query<'_>,
    serve: &ServeQuery,
    filter: &Filter<'_>,
    parts: &Parts<'_>,
    found: &[Choice],
    ranking: Ranking<'_>,
    known: &mut SimulatedLatencies,
) -> Vec<Candidate> {
    let of_one = ranking.into_sorted();
    let of_several = found.iter().map(Found::OfSeveral);
    let mut fleets: Vec<_> = of_several.chain(of_one.iter().map(Found::OfOne)).collect();
    let cheapest = settle(&mut fleets, |fleet| fleet.standing(filter, parts));
    let told = cheapest.map(|at| {
        let cheapest = &fleets[at];
        let name = cheapest.name(filter, parts);
        let standing = cheapest.standing(filter, parts);
        fleets[0].standing(filter, parts).before(&standing, &name)
    });
    let mut all: Vec<Candidate> = Vec::new();
    let mut first_told = told;
    for fleet in fleets.iter().take(filter.options.limit) {
        let simulates = all.len() < filter.options.simulated;
        let mut waits_of =
            |lines: &[FleetLine<'_>]| simulates.then(|| known.simulated(serve, lines)).flatten();
        let (candidate, waits) = match fleet {
            Found::OfSeveral(choice) => {
                let rows = parts.rows(filter, choice);
                let mix = parts.mix(choice, &rows);
                (mix.candidate(serve, filter), waits_of(&mix.lines))
            }
            Found::OfOne((ranked, fit)) => {
                let Some(single) = Eligible::at(filter, ranked.at, *fit) else {
                    continue;
                };
                let waits = single.fleet_line().and_then(|line| waits_of(&[line]));
                (single.into_candidate(0, query, filter), waits)
            }
        };
        let Some(mut candidate) = candidate else {
            continue;
        };
        if let Some(waits) = waits {
            explain::add_waits(serve, &mut candidate, &waits);
        }
        if let Some(told) = first_told.take() {
            candidate.reasons.insert(0, told);
        }
        if let Found::OfOne((ranked, _)) = fleet {
            candidate.also_at = ranked.also_at();
        }
        all.push(candidate);
    }
    (1..)
        .zip(all)
        .map(|(rank, candidate)| Candidate { rank, ..candidate })
        .collect()
}

/// Moves the fleets that meet the objective in the simulation before those that miss it, and keeps the order
/// within both. If this changes the first fleet, it gets a reason for that.
pub(super) fn put_missing_last(simulated: &mut [Candidate]) {
    let misses = |one: &Candidate| one.facts.meets_objective == Some(false);
    let before = simulated.iter().take_while(|one| misses(one)).count();
    if before == simulated.len() {
        return;
    }
    simulated.sort_by_key(misses);
    if before > 0 {
        let words = explain::before_missing(before);
        simulated[0].reasons.insert(0, words);
    }
}

/// The latencies of fleets that were simulated already, at any planned share of their replicas' capacity.
#[derive(Default)]
pub(super) struct SimulatedLatencies(HashMap<Nodes, Option<Waits>>);

/// The nodes of a fleet by offer, with or without a commitment.
type Nodes = BTreeMap<OfferId, u32>;

impl SimulatedLatencies {
    fn simulated(&mut self, serve: &ServeQuery, lines: &[FleetLine<'_>]) -> Option<Waits> {
        let of_lines = lines
            .iter()
            .map(|line| (line.row.offer.offer_id, line.nodes));
        let fleet = self.0.entry(nodes(of_lines));
        *fleet.or_insert_with(|| simulated(serve, lines))
    }

    /// The latencies of these nodes, where they were simulated.
    pub(super) fn of(&self, lines: &[CandidateLine]) -> Option<Waits> {
        let of_lines = lines.iter().map(|line| (line.offer.offer_id, line.nodes));
        self.0.get(&nodes(of_lines)).copied().flatten()
    }
}

fn nodes(lines: impl Iterator<Item = (OfferId, u32)>) -> Nodes {
    let mut nodes = Nodes::new();
    for (offer, more) in lines {
        *nodes.entry(offer).or_default() += more;
    }
    nodes
}

/// The tail latencies of a fleet.
#[derive(Clone, Copy)]
pub(crate) struct Waits {
    /// Of the percentile that the objective is for.
    pub(crate) asked: Tail,
    pub(crate) p95: Tail,
    pub(crate) p99: Tail,
}

/// The latency that one percentile of the requests has at most. Units: milliseconds.
#[derive(Clone, Copy)]
pub(crate) struct Tail {
    /// For their first token, network and queueing included.
    pub(crate) first_token_ms: f64,
    /// For each further one, on the mean over a request.
    pub(crate) per_token_ms: f64,
}

impl Tail {
    /// The longer of both.
    fn or_slower(self, other: Self) -> Self {
        Self {
            first_token_ms: self.first_token_ms.max(other.first_token_ms),
            per_token_ms: self.per_token_ms.max(other.per_token_ms),
        }
    }
}

/// Simulates a replica of each line of a fleet, with its share of the load. The slowest line counts.
fn simulated(serve: &ServeQuery, lines: &[FleetLine<'_>]) -> Option<Waits> {
    let capacity: f64 = (lines.iter())
        .map(|line| line.node.capacity as f64 * f64::from(line.nodes))
        .sum();
    let of_line = |line: &FleetLine<'_>| {
        let chip = Chip::of_spec(line.row.spec?)?;
        let share = line.node.capacity as f64 / f64::from(line.node.replicas_per_node) / capacity;
        let arrivals = match serve.load() {
            // The predicted times scale with the factor of the measured replica.
            Load::RequestsPerSecond(rate) => Arrivals::PerSecond(rate * share / serve.speed()),
            // The cast stops at the largest integer; the simulation counts far fewer.
            Load::Concurrency(count) => Arrivals::InFlight((count * share).ceil() as u32),
            Load::Pile(..) => return None,
        };
        let replica = &line.node.replica;
        let tails = (serve.work).tails(serve.constants, &chip, replica, arrivals)?;
        let offer = &line.row.offer;
        let tail = |percentile: f64| Tail {
            first_token_ms: tails.first_token_seconds(percentile) / serve.speed() * 1e3
                + serve.network_ms_of(offer, percentile).unwrap_or(0.0),
            per_token_ms: tails.per_token_seconds(percentile) / serve.speed() * 1e3,
        };
        Some(Waits {
            asked: tail(serve.percentile()),
            p95: tail(95.0),
            p99: tail(99.0),
        })
    };
    let waits: Option<Vec<_>> = lines.iter().map(of_line).collect();
    waits?.into_iter().reduce(|a, b| Waits {
        asked: a.asked.or_slower(b.asked),
        p95: a.p95.or_slower(b.p95),
        p99: a.p99.or_slower(b.p99),
    })
}

impl Mix<'_> {
    /// `None` for a fleet of nothing, or at no price: neither is ever made.
    fn candidate(&self, serve: &ServeQuery, filter: &Filter<'_>) -> Option<Candidate> {
        let lines = self.lines.iter();
        let lines =
            lines.map(|line| CandidateLine::new(line.row.clone(), line.nodes, line.covered));
        let lines: Vec<_> = lines.collect();
        let first = lines.first()?;
        Some(Candidate {
            rank: 0,
            half: None,
            rate: first.starting_rate(first.offer.rate().ok()?),
            cost_per_hour: first_hour(&lines)?,
            lines,
            facts: explain::fleet_facts(serve, &self.lines),
            reasons: explain::fleet_reasons(serve, filter, self),
            launch: launches(serve, &self.lines),
            also_at: Vec::new(),
        })
    }
}
