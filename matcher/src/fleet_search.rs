//! The search for fleets: what each offer carries, and which offers carry the load together at the
//! least cost.
//!
//! Fleets of one offer are ranked like every candidate. Before them stands the cheapest fleet of
//! several offers, where it is cheaper than any of one (or none of one carries the load). Where a
//! loss is to be survived no single offer does, so all candidates are of several: the cheapest
//! fleet, and for each failure domain that it stands in the cheapest one without it.

use std::collections::HashMap;

use market::demand::Survive;
use market::ids::OfferId;
use market::money::{Currency, Money};
use market::offer::Offer;

use crate::explain;
use crate::filter::Filter;
use crate::fleet::{Column, Fleet, FleetProblem, solve_within};
use crate::launch::launches;
use crate::perf::chip::Chip;
use crate::perf::replica::tails::Arrivals;
use crate::plan::{Candidate, CandidateLine, Plan};
use crate::reason::ReasonCode;
use crate::search::{Query, Tally, keep_best, known_node, node_price_units, test, tie_order};
use crate::serve::{Load, ServeFit, ServeQuery};
use crate::snapshot::Row;

/// So many nodes of one offer, with what each carries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FleetLine<'a> {
    pub(crate) row: &'a Row,
    pub(crate) nodes: u32,
    pub(crate) node: ServeFit,
}

/// A fleet of several offers, with what is proved of its cost.
pub(crate) struct Mix<'a> {
    pub(crate) lines: Vec<FleetLine<'a>>,
    pub(crate) cost: Money,
    /// No fleet of these offers costs less. Units: 1e-8 US dollars per hour.
    pub(crate) lower_bound_units: i128,
    /// Offers that it was chosen from.
    pub(crate) chosen_from: usize,
}

/// Finds the fleets for a serving demand.
pub(crate) fn search_fleets(query: &Query<'_>, serve: &ServeQuery, filter: &Filter<'_>) -> Plan {
    let rows = filter.snapshot.rows();
    let mut singles = Vec::new();
    let mut parts: Vec<Part<'_>> = Vec::new();
    let mut outcomes: Vec<Result<(), ReasonCode>> = Vec::with_capacity(rows.len());
    for (at, row) in rows.iter().enumerate() {
        let single = test(query, filter, row);
        let code = single.as_ref().err().copied();
        if let Some(part) = Part::of(serve, filter, row, at, code) {
            parts.push(part);
        }
        outcomes.push(code.map_or(Ok(()), Err));
        singles.extend(single);
    }
    let mixes = match serve.survive {
        None => {
            let best = singles.iter().map(|single| single.fit.key.cost).min();
            let mix = Market::new(&parts, None).cheapest(serve.need(), filter, None);
            mix.ok()
                .filter(|mix| {
                    mix.lines.len() > 1
                        && best.is_none_or(|best| i128::from(mix.cost.units()) < best)
                })
                .into_iter()
                .collect()
        }
        Some(survive) => {
            singles.clear();
            surviving(&parts, survive, serve.need(), filter, &mut outcomes)
        }
    };
    for line in mixes.iter().flat_map(|mix| &mix.lines) {
        // What carries a part of a candidate satisfies the demand.
        if let Some(part) = parts.iter().find(|part| std::ptr::eq(part.row, line.row)) {
            outcomes[part.at] = Ok(());
        }
    }
    let mut tally = Tally::default();
    for (row, outcome) in rows.iter().zip(&outcomes) {
        if let Err(code) = outcome {
            tally.count(*code, row);
        }
    }
    let limit = filter.options.limit;
    keep_best(&mut singles, limit.saturating_sub(mixes.len()));
    let mixed =
        (mixes.iter()).filter_map(|mix| Some((mix.candidate(serve, filter)?, mix.lines.clone())));
    let single = singles.iter().map(|single| {
        let candidate = single.candidate(0, query, filter);
        (candidate, single.fleet_line().into_iter().collect())
    });
    let mut candidates: Vec<(Candidate, Vec<FleetLine<'_>>)> =
        mixed.chain(single).take(limit).collect();
    for (candidate, lines) in candidates.iter_mut().take(filter.options.simulated) {
        if let Some(waits) = simulated(serve, lines) {
            explain::add_waits(serve, candidate, &waits);
        }
    }
    Plan {
        generation: filter.snapshot.generation(),
        kind: filter.kind,
        eligible: outcomes.iter().filter(|outcome| outcome.is_ok()).count(),
        candidates: (1..)
            .zip(candidates)
            .map(|(rank, (candidate, _))| Candidate { rank, ..candidate })
            .collect(),
        rejected: tally.rejections(),
        refused: tally.examples(query, filter),
        alternatives: Vec::new(),
    }
}

/// The cheapest fleet that survives, and the cheapest without each domain that it stands in.
///
/// Where none does, every offer that could have been a part is refused for it.
fn surviving<'a>(
    parts: &[Part<'a>],
    survive: Survive,
    need: u64,
    filter: &Filter<'_>,
    outcomes: &mut [Result<(), ReasonCode>],
) -> Vec<Mix<'a>> {
    let market = Market::new(parts, Some(survive));
    let best = market.cheapest(need, filter, None);
    for part in parts {
        outcomes[part.at] = best.as_ref().map(|_| ()).map_err(|code| *code);
    }
    let Ok(best) = best else {
        return Vec::new();
    };
    let mut without: Vec<u32> = (best.lines.iter())
        .filter_map(|line| market.domain_of(line.row))
        .collect();
    without.sort_unstable();
    without.dedup();
    let mut mixes = vec![best];
    for domain in without {
        if let Ok(other) = market.cheapest(need, filter, Some(domain))
            && mixes.iter().all(|known| known.offers() != other.offers())
        {
            mixes.push(other);
        }
    }
    mixes.sort_by_key(|mix| mix.cost.units());
    mixes
}

/// What the requests to a fleet wait, of the percentile that the objective is for.
pub(crate) struct Waits {
    pub(crate) first_token_ms: f64,
    pub(crate) per_token_ms: f64,
}

/// Simulates a copy of each line of a fleet, with its share of the load; the slowest line counts.
fn simulated(serve: &ServeQuery, lines: &[FleetLine<'_>]) -> Option<Waits> {
    let capacity: f64 = (lines.iter())
        .map(|line| line.node.capacity as f64 * f64::from(line.nodes))
        .sum();
    let of_line = |line: &FleetLine<'_>| {
        let chip = Chip::of_spec(line.row.spec?)?;
        let share = line.node.capacity as f64 / f64::from(line.node.replicas_per_node) / capacity;
        let arrivals = match serve.load {
            Load::RequestsPerSecond(rate) => Arrivals::PerSecond(rate * share),
            // The cast stops at the largest integer; the simulation counts far fewer.
            Load::Concurrency(count) => Arrivals::InFlight((count * share).ceil() as u32),
            Load::Pile(..) => return None,
        };
        let replica = &line.node.replica;
        let tails = (serve.work).tails(serve.constants, &chip, replica, arrivals)?;
        let percentile = serve.percentile();
        Some(Waits {
            first_token_ms: tails.first_token_seconds(percentile) * 1e3
                + line.node.network_ms.unwrap_or(0.0),
            per_token_ms: tails.per_token_seconds(percentile) * 1e3,
        })
    };
    let waits: Option<Vec<_>> = lines.iter().map(of_line).collect();
    waits?.into_iter().reduce(|a, b| Waits {
        first_token_ms: a.first_token_ms.max(b.first_token_ms),
        per_token_ms: a.per_token_ms.max(b.per_token_ms),
    })
}

/// What one offer may add to a fleet.
struct Part<'a> {
    row: &'a Row,
    /// Its place in the snapshot.
    at: usize,
    node: ServeFit,
    price_units: i64,
    stock: u32,
}

impl<'a> Part<'a> {
    /// `None` where no node of the offer may be taken; `code` is why a fleet of it alone is none.
    fn of(
        serve: &ServeQuery,
        filter: &Filter<'_>,
        row: &'a Row,
        at: usize,
        code: Option<ReasonCode>,
    ) -> Option<Self> {
        use ReasonCode::{Ceiling, Held, NotEnoughNodes};
        if !matches!(code, None | Some(Ceiling | Held | NotEnoughNodes)) {
            return None;
        }
        filter.check_cost(&row.offer, row.rate?, 1).ok()?;
        let stock = filter.free_nodes(&row.offer);
        let (spec, gpus) = known_node(row).ok()?;
        (stock > 0).then_some(Self {
            row,
            at,
            node: serve.node(&row.offer, spec, gpus).ok()?,
            price_units: node_price_units(row)?,
            stock,
        })
    }
}

/// The parts as columns of the integer program.
struct Market<'p, 'a> {
    parts: &'p [Part<'a>],
    columns: Vec<Column>,
    survives: bool,
}

impl<'p, 'a> Market<'p, 'a> {
    fn new(parts: &'p [Part<'a>], survive: Option<Survive>) -> Self {
        let domains = survive.map(|survive| Domains::of(parts, survive));
        let columns = parts.iter().enumerate().map(|(at, part)| Column {
            price_units: part.price_units,
            capacity: part.node.capacity,
            stock: part.stock,
            domain: domains.as_ref().map_or(0, |domains| domains.0[at]),
        });
        Self {
            parts,
            columns: columns.collect(),
            survives: survive.is_some(),
        }
    }

    fn domain_of(&self, row: &Row) -> Option<u32> {
        let at = self
            .parts
            .iter()
            .position(|part| std::ptr::eq(part.row, row))?;
        Some(self.columns[at].domain)
    }

    /// The cheapest fleet that carries the need, without one domain if so asked.
    fn cheapest(
        &self,
        need: u64,
        filter: &Filter<'_>,
        without: Option<u32>,
    ) -> Result<Mix<'a>, ReasonCode> {
        let stock = |column: &Column| match without == Some(column.domain) {
            true => 0,
            false => column.stock,
        };
        let columns = self.columns.iter().map(|column| Column {
            stock: stock(column),
            ..*column
        });
        let problem = FleetProblem {
            columns: columns.collect(),
            need,
            kept: if self.survives { need } else { 0 },
        };
        let fleet = solve_within(&problem, filter.budget).ok_or(ReasonCode::Spread)?;
        let cost = i64::try_from(fleet.cost_units).map_err(|_| ReasonCode::Ceiling)?;
        let cost = Money::from_units(cost, Currency::Usd);
        let ceiling = filter.shared.ceiling.and_then(|limit| limit.usd_per_hour);
        if ceiling.is_some_and(|limit| cost > limit) {
            return Err(ReasonCode::Ceiling);
        }
        Ok(self.mix(&fleet, cost))
    }

    fn mix(&self, fleet: &Fleet, cost: Money) -> Mix<'a> {
        let taken = self.parts.iter().zip(&fleet.counts);
        let mut taken: Vec<_> = taken.filter(|(_, nodes)| **nodes > 0).collect();
        taken.sort_by(|(a, _), (b, _)| tie_order(&a.row.offer, &b.row.offer));
        let lines = taken.iter().map(|(part, nodes)| FleetLine {
            row: part.row,
            nodes: **nodes,
            node: part.node,
        });
        Mix {
            lines: lines.collect(),
            cost,
            lower_bound_units: fleet.lower_bound_units,
            chosen_from: self.parts.len(),
        }
    }
}

/// The failure domain of each part.
struct Domains(Vec<u32>);

impl Domains {
    /// Offers fail with their provider, or with their zone.
    ///
    /// A zone is what the seller calls one, within its region. Where an offer of a region has no
    /// zone, it may stand in any of them, so the region counts as one; where an offer of a provider
    /// has no region, the provider does.
    fn of(parts: &[Part<'_>], survive: Survive) -> Self {
        let place = |offer: &Offer| (offer.place.region.clone(), offer.place.zone.clone());
        let mut zoned: HashMap<(&str, Option<String>), bool> = HashMap::new();
        let mut placed: HashMap<&str, bool> = HashMap::new();
        for part in parts {
            let (region, zone) = place(&part.row.offer);
            let provider = part.row.offer.provider.as_str();
            *placed.entry(provider).or_insert(true) &= region.is_some();
            *zoned.entry((provider, region)).or_insert(true) &= zone.is_some();
        }
        let mut numbers: HashMap<(&str, Option<String>, Option<String>), u32> = HashMap::new();
        let mut domains = Vec::with_capacity(parts.len());
        for part in parts {
            let provider = part.row.offer.provider.as_str();
            let (region, zone) = place(&part.row.offer);
            let by_region = survive == Survive::Zone && placed[provider];
            let by_zone = by_region && zoned[&(provider, region.clone())];
            let key = (
                provider,
                region.filter(|_| by_region),
                zone.filter(|_| by_zone),
            );
            let next = numbers.len() as u32;
            domains.push(*numbers.entry(key).or_insert(next));
        }
        Self(domains)
    }
}

impl Mix<'_> {
    /// What tells it from others.
    fn offers(&self) -> Vec<(OfferId, u32)> {
        let each = self.lines.iter();
        each.map(|line| (line.row.offer.offer_id, line.nodes))
            .collect()
    }

    /// `None` for a fleet of nothing, or at no price: neither is ever made.
    fn candidate(&self, serve: &ServeQuery, filter: &Filter<'_>) -> Option<Candidate> {
        let lines = self.lines.iter().map(|line| CandidateLine {
            offer: line.row.offer.clone(),
            nodes: line.nodes,
        });
        Some(Candidate {
            rank: 0,
            lines: lines.collect(),
            rate: self.lines.first()?.row.rate?,
            cost_per_hour: self.cost,
            facts: explain::fleet_facts(&self.lines),
            reasons: explain::fleet_reasons(serve, filter, self),
            launch: launches(serve, &self.lines),
        })
    }
}
