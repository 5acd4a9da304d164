//! The search: every offer is tested once, the eligible are ranked, the best are explained.
//!
//! The test itself allocates nothing for an offer; words and copies are made for the candidates
//! that are shown and for one example of each rejection.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use market::demand::{Demand, Precision, ServeRealtimeDemand};
use market::gpu::GpuSpec;
use market::ids::OfferId;
use market::money::{Money, Rate};
use market::offer::{Offer, Terms};

use crate::MatchError;
use crate::explain;
use crate::filter::Filter;
use crate::fleet::Budget;
use crate::fleet_search::{FleetLine, search_fleets};
use crate::gpus::GpusQuery;
use crate::launch::launches;
use crate::perf::serving::weight_format;
use crate::plan::{Alternative, Candidate, CandidateLine, Plan, Refused, Rejections};
use crate::reason::ReasonCode;
use crate::serve::{ServeFit, ServeQuery};
use crate::snapshot::{Row, Snapshot};
use crate::train::{TrainFit, TrainQuery};

/// Nodes of each offer that are held or leased already, by us.
pub type Held = HashMap<OfferId, u32>;

/// The most nodes that one candidate takes.
pub(crate) const MAX_NODES: u32 = 10_000;

/// How a search is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchOptions {
    /// How many candidates are shown.
    pub limit: usize,
    /// Whether only offers are eligible that can be ordered here.
    pub orderable_only: bool,
    /// Whether it is looked up what fleets would cost with weights of other precisions.
    pub alternatives: bool,
    /// For how many of the best fleets requests are simulated, to see how long the slow ones wait.
    pub simulated: usize,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            limit: 10,
            orderable_only: false,
            alternatives: false,
            simulated: 0,
        }
    }
}

/// Finds what satisfies a demand.
///
/// Every offer of the snapshot is either eligible or counted under exactly one reason, the first
/// that applies in the order of [`ReasonCode::ALL`]. The order of candidates is total: ties go by
/// provider, SKU, place and offer id.
/// Errors: [`MatchError`], for a demand that cannot be matched whatever is on sale.
pub fn search(
    snapshot: &Snapshot,
    demand: &Demand,
    held: &Held,
    now: DateTime<Utc>,
    options: &SearchOptions,
) -> Result<Plan, MatchError> {
    search_within(snapshot, demand, held, now, options, &Budget::default())
}

/// As [`search()`], for one of several searches that share a budget of work.
///
/// Errors: [`MatchError`], for a demand that cannot be matched whatever is on sale.
pub fn search_within(
    snapshot: &Snapshot,
    demand: &Demand,
    held: &Held,
    now: DateTime<Utc>,
    options: &SearchOptions,
    budget: &Budget,
) -> Result<Plan, MatchError> {
    let query = Query::new(demand, now)?;
    let filter = Filter {
        shared: demand.shared(),
        snapshot,
        held,
        now,
        options,
        kind: demand.kind(),
        budget,
    };
    if let Query::Serve(serve) = &query
        && !serve.is_pile()
    {
        let plan = search_fleets(&query, serve, &filter);
        return Ok(if options.alternatives {
            with_alternatives(plan, demand, &filter)
        } else {
            plan
        });
    }
    let mut eligible = Vec::new();
    let mut tally = Tally::default();
    for row in snapshot.rows() {
        match test(&query, &filter, row) {
            Ok(taken) => eligible.push(taken),
            Err(code) => tally.count(code, row),
        }
    }
    let count = eligible.len();
    keep_best(&mut eligible, options.limit);
    Ok(Plan {
        generation: snapshot.generation(),
        kind: demand.kind(),
        eligible: count,
        candidates: (1..)
            .zip(&eligible)
            .map(|(rank, best)| best.candidate(rank, &query, &filter))
            .collect(),
        rejected: tally.rejections(),
        refused: tally.examples(&query, &filter),
        alternatives: Vec::new(),
    })
}

/// Adds what the best fleet would cost with weights of each other precision that can be served.
fn with_alternatives(mut plan: Plan, demand: &Demand, filter: &Filter<'_>) -> Plan {
    use Precision::{Bf16, Fp4, Fp8, Int4, Int8};
    let (Demand::ServeRealtime(asked), Some(best)) = (demand, plan.candidates.first()) else {
        return plan;
    };
    let best = best.cost_per_hour;
    let options = SearchOptions {
        limit: 1,
        alternatives: false,
        simulated: 0,
        ..*filter.options
    };
    for weights in [Bf16, Fp8, Int8, Fp4, Int4] {
        if weight_format(weights) == weight_format(asked.weights) {
            continue;
        }
        let other = Demand::ServeRealtime(ServeRealtimeDemand {
            weights,
            ..asked.clone()
        });
        let (snapshot, held, now) = (filter.snapshot, filter.held, filter.now);
        let found = search_within(snapshot, &other, held, now, &options, filter.budget);
        let Some(first) = found
            .ok()
            .and_then(|plan| plan.candidates.into_iter().next())
        else {
            continue;
        };
        let saved = best.units() - first.cost_per_hour.units();
        plan.alternatives.push(Alternative {
            weights,
            price_usd_hour: first.cost_per_hour,
            saves_usd_hour: Money::from_units(saved, best.currency()),
        });
    }
    plan.alternatives.sort_by_key(|other| other.price_usd_hour);
    plan
}

/// The demand, made ready to be tested against offers.
pub(crate) enum Query<'a> {
    Gpus(GpusQuery<'a>),
    Train(TrainQuery<'a>),
    Serve(ServeQuery),
}

/// How an eligible offer would be taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fit {
    pub(crate) nodes: u32,
    pub(crate) key: Key,
    pub(crate) figures: Figures,
}

/// Where an eligible offer ranks: smaller is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) tier: u8,
    pub(crate) cost: i128,
    /// What decides between equals, before their names do.
    pub(crate) then: (u64, u64),
}

/// The figures of a fit, by kind of demand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Figures {
    Gpus,
    Train(TrainFit),
    Serve(ServeFit),
}

impl<'a> Query<'a> {
    fn new(demand: &'a Demand, now: DateTime<Utc>) -> Result<Self, MatchError> {
        match demand {
            Demand::Gpus(demand) => Ok(Self::Gpus(GpusQuery::new(demand))),
            Demand::Train(demand) => Ok(Self::Train(TrainQuery::new(demand, now)?)),
            Demand::ServeRealtime(demand) => Ok(Self::Serve(ServeQuery::of_realtime(demand)?)),
            Demand::ServeBatch(demand) => Ok(Self::Serve(ServeQuery::of_batch(demand, now)?)),
            Demand::Hybrid(_) => Err(MatchError::KindNotSupported(demand.kind())),
        }
    }

    /// Whether it buys on these terms. A run that a provider may end at will is not planned yet.
    pub(crate) fn takes(&self, terms: Terms) -> bool {
        match self {
            Self::Gpus(query) => query.terms() == terms,
            Self::Train(_) => terms == Terms::OnDemand,
            Self::Serve(query) => query.takes(terms),
        }
    }

    fn check_shape(&self, row: &Row) -> Result<(), ReasonCode> {
        match self {
            Self::Gpus(query) => query.check_shape(row),
            Self::Train(_) | Self::Serve(_) => known_node(row).map(|_| ()),
        }
    }

    /// How the offer would be taken.
    pub(crate) fn fit(&self, row: &Row) -> Result<Fit, ReasonCode> {
        match self {
            Self::Gpus(query) => Ok(query.fit(row)),
            Self::Train(query) => {
                known_node(row).and_then(|(spec, gpus)| query.fit(row, spec, gpus))
            }
            Self::Serve(query) => {
                known_node(row).and_then(|(spec, gpus)| query.fit(row, spec, gpus))
            }
        }
    }
}

/// The GPU's published figures and the GPUs of a node, where both are known and whole.
pub(crate) fn known_node(row: &Row) -> Result<(&'static GpuSpec, u32), ReasonCode> {
    let spec = row.spec.ok_or(ReasonCode::GpuFormUnknown)?;
    let gpus_per_node = row.offer.gpus.as_whole().ok_or(ReasonCode::Slice)?;
    Ok((spec, gpus_per_node))
}

/// Tests one offer: how it would be taken and what that costs, or the first reason why it is not
/// eligible.
pub(crate) fn test<'a>(
    query: &Query<'_>,
    filter: &Filter<'_>,
    row: &'a Row,
) -> Result<Eligible<'a>, ReasonCode> {
    let rate = row.rate.ok_or(ReasonCode::NoPrice)?;
    query.check_shape(row)?;
    if !query.takes(row.offer.terms) {
        return Err(ReasonCode::Terms);
    }
    filter.check_offer(&row.offer)?;
    let fit = query.fit(row)?;
    filter.check_stock(&row.offer, fit.nodes)?;
    let cost_per_hour = filter.check_cost(&row.offer, rate, fit.nodes)?;
    Ok(Eligible {
        row,
        fit,
        rate,
        cost_per_hour,
    })
}

/// What a node costs an hour as it is charged: the frozen rate for each of its GPUs.
/// Units: 1e-8 US dollars.
pub(crate) fn node_price_units(row: &Row) -> Option<i64> {
    let gpus = row.offer.gpus.as_whole()?;
    let rate = row.rate?.money_per_gpu_hour().units();
    rate.checked_mul(i64::from(gpus))
}

/// A number of nodes, if one candidate may take so many.
pub(crate) fn most_nodes(nodes: f64) -> Option<u32> {
    let nodes = nodes.ceil();
    // The range keeps the cast exact.
    (1.0..=f64::from(MAX_NODES))
        .contains(&nodes)
        .then_some(nodes as u32)
}

pub(crate) struct Eligible<'a> {
    row: &'a Row,
    pub(crate) fit: Fit,
    rate: Rate,
    cost_per_hour: Money,
}

impl<'a> Eligible<'a> {
    /// The fleet of this offer alone; `None` where it is none.
    pub(crate) fn fleet_line(&self) -> Option<FleetLine<'a>> {
        let Figures::Serve(node) = self.fit.figures else {
            return None;
        };
        Some(FleetLine {
            row: self.row,
            nodes: self.fit.nodes,
            node,
        })
    }

    pub(crate) fn candidate(
        &self,
        rank: usize,
        query: &Query<'_>,
        filter: &Filter<'_>,
    ) -> Candidate {
        let Self {
            row,
            fit,
            rate,
            cost_per_hour,
        } = *self;
        Candidate {
            rank,
            lines: vec![CandidateLine {
                offer: row.offer.clone(),
                nodes: fit.nodes,
            }],
            rate,
            cost_per_hour,
            facts: explain::facts(query, row, &fit),
            reasons: explain::reasons(query, filter, row, &fit, rate, cost_per_hour),
            launch: match (query, self.fleet_line()) {
                (Query::Serve(serve), Some(line)) => launches(serve, &[line]),
                _ => Vec::new(),
            },
        }
    }
}

/// Leaves the best `limit`, best first.
pub(crate) fn keep_best(eligible: &mut Vec<Eligible<'_>>, limit: usize) {
    let order = |a: &Eligible<'_>, b: &Eligible<'_>| {
        a.fit
            .key
            .cmp(&b.fit.key)
            .then_with(|| tie_order(&a.row.offer, &b.row.offer))
    };
    if eligible.len() > limit {
        if limit > 0 {
            eligible.select_nth_unstable_by(limit - 1, order);
        }
        eligible.truncate(limit);
    }
    eligible.sort_unstable_by(order);
}

/// The order of offers that are equally good: total, and the same on every run.
pub(crate) fn tie_order(a: &Offer, b: &Offer) -> Ordering {
    a.provider
        .cmp(&b.provider)
        .then_with(|| a.sku.cmp(&b.sku))
        .then_with(|| a.place.cmp(&b.place))
        .then_with(|| a.offer_id.cmp(&b.offer_id))
}

/// Counts rejections and keeps the first offer of each reason.
#[derive(Default)]
pub(crate) struct Tally<'a> {
    counts: [usize; ReasonCode::ALL.len()],
    first: [Option<&'a Row>; ReasonCode::ALL.len()],
}

impl<'a> Tally<'a> {
    pub(crate) fn count(&mut self, code: ReasonCode, row: &'a Row) {
        self.counts[code as usize] += 1;
        self.first[code as usize].get_or_insert(row);
    }

    pub(crate) fn rejections(&self) -> Rejections {
        let by_reason: BTreeMap<_, _> = ReasonCode::ALL
            .into_iter()
            .zip(self.counts)
            .filter(|(_, count)| *count > 0)
            .collect();
        Rejections {
            total: self.counts.iter().sum(),
            by_reason,
        }
    }

    pub(crate) fn examples(&self, query: &Query<'_>, filter: &Filter<'_>) -> Vec<Refused> {
        let found = ReasonCode::ALL.into_iter().zip(self.first);
        found
            .filter_map(|(reason, row)| {
                let row = row?;
                Some(Refused {
                    reason,
                    offer_id: row.offer.offer_id,
                    provider: row.offer.provider.clone(),
                    sku: row.offer.sku.clone(),
                    why: explain::why_not(reason, query, filter, row),
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
