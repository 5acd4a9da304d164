//! The search: it counts refused offers, ranks eligible ones, and explains the best.
//!
//! `walk` visits the snapshot's columns, `ranking` keeps the best offers, `ties` orders near ties, and
//! `eligible` makes candidates of them. Nothing is allocated per offer: words and copies are made only for
//! the candidates that are shown, for one example of each rejection (`tally`), and for offers that the caller
//! names.

mod alternatives;
mod eligible;
mod tally;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use market::capacity::OwnCapacity;
use market::demand::{Demand, HybridDemand, Shared};
use market::gpu::{GpuFit, GpuSpec, GpuWanted};
use market::ids::OfferId;
use market::money::{Money, Rate};
use market::offer::Terms;
use market::quantity::GpuCount;

use crate::MatchError;
use crate::filter::{Among, Filter};
use crate::fleet::Budget;
use crate::fleet_search::search_fleets;
use crate::gpus::GpusQuery;
use crate::hardware::TrainingClass;
use crate::hybrid::{HybridSearch, search_hybrid};
use crate::plan::{Candidate, Plan};
use crate::ranking::Ranking;
use crate::reason::ReasonCode;
use crate::serve::{ServeFit, ServeQuery};
use crate::snapshot::{PartitionKey, Row, RowId, Snapshot};
use crate::ties::settle;
use crate::train::{TrainFit, TrainQuery, run_cost_units};
use crate::walk::{HeldRows, walk};

use self::alternatives::with_alternatives;

pub(crate) use eligible::{Eligible, first_hour};
pub(crate) use tally::Tally;

/// Nodes of each offer that are held or leased already, by us.
pub type Held = HashMap<OfferId, u32>;

/// Offers that failed several times recently, with the end of each cool-down.
pub type Cooling = BTreeMap<OfferId, DateTime<Utc>>;

/// The most nodes that one candidate takes.
pub(crate) const MAX_NODES: u32 = 10_000;

/// How a search is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchOptions {
    /// How many candidates are shown.
    pub limit: usize,
    /// Whether only offers are eligible that can be ordered here.
    pub orderable_only: bool,
    /// Whether the search also computes the cost of fleets with weights of other precisions.
    pub alternatives: bool,
    /// The time until which evidence of certifications must at least be valid, beyond the demand's own end:
    /// the fleet of a hybrid demand begins after its run.
    pub evidence_until: Option<DateTime<Utc>>,
    /// The number of best fleets whose requests are simulated, for their tail latency.
    pub simulated: usize,
    /// Whether anything but the cost decides the order. A candidate within a tenth of the cheapest ties with
    /// it, so that the surer price comes first. Simulated fleets that miss their objective come after those
    /// that meet it, and the search also tries fleets with more spare capacity. The halves of a hybrid demand
    /// go by cost alone: its pairs rank by their total cost.
    pub ties: bool,
    /// The tenant's own capacity. Agreed prices are in the snapshot already ([`crate::at_own_prices`]); the
    /// reasons use them from here.
    pub own: Arc<OwnCapacity>,
    /// The offers in cool-down for this tenant now.
    pub cooling: Arc<Cooling>,
    /// Offers whose refusal the plan explains, beside one example of each reason.
    pub asked: Vec<OfferId>,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            limit: 10,
            orderable_only: false,
            alternatives: false,
            evidence_until: None,
            simulated: 0,
            ties: true,
            own: Arc::default(),
            cooling: Arc::default(),
            asked: Vec::new(),
        }
    }
}

impl SearchOptions {
    /// The same for a half of a hybrid demand: cheapest first, without ties.
    #[must_use]
    pub fn of_half(&self) -> Self {
        Self {
            ties: false,
            ..self.clone()
        }
    }
}

/// Finds the offers that satisfy a demand.
///
/// Every offer of the snapshot is either eligible or counted under exactly one reason, the first that applies
/// in the order of [`ReasonCode::ALL`]. The test that evidence lasts until a run is predicted to be done
/// happens with the prediction. The order of candidates is total: equal cost and certainty are ordered by
/// provider, SKU, place and offer id.
/// Errors: [`MatchError`], for a demand that no market can satisfy.
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
/// Errors: [`MatchError`], for a demand that no market can satisfy.
pub fn search_within(
    snapshot: &Snapshot,
    demand: &Demand,
    held: &Held,
    now: DateTime<Utc>,
    options: &SearchOptions,
    budget: &Budget,
) -> Result<Plan, MatchError> {
    let query = match Wanted::new(demand, now)? {
        Wanted::Query(query) => query,
        Wanted::Hybrid(demand) => {
            let options = &options.of_half();
            let search = HybridSearch {
                snapshot,
                held,
                now,
                options,
                budget,
            };
            return search_hybrid(&search, demand, |half, options| {
                search_within(snapshot, half, held, now, options, budget)
            });
        }
    };
    let filter = Filter {
        shared: demand.shared(),
        snapshot,
        among: Among::All,
        held,
        now,
        ends_by: demand.ends_by(now),
        options,
        kind: demand.kind(),
        budget,
    };
    let plan = answer(&query, &filter);
    Ok(if options.alternatives {
        with_alternatives(plan, &query, &filter)
    } else {
        plan
    })
}

/// The plan for a prepared demand. A demand that was used before reuses its predictions.
pub(crate) fn answer(query: &Query<'_>, filter: &Filter<'_>) -> Plan {
    if let Query::Serve(serve) = query
        && !serve.is_pile()
    {
        return search_fleets(query, serve, filter);
    }
    let held = HeldRows::of(filter);
    let mut tally = Tally::new(filter);
    let mut ranking = Ranking::new(filter.options.limit);
    let mut eligible = 0;
    walk(query, filter, &held, &mut tally, |group, tally| {
        let (rows, count) = group.count(filter, tally);
        eligible += count;
        ranking.take(query, filter, group, rows);
    });
    let mut best = ranking.into_sorted();
    let cheapest = settle(&mut best, |(ranked, _)| ranked.standing());
    let told = cheapest.map(|at| {
        let cheapest = &best[at].0;
        let name = cheapest.name();
        best[0].0.standing().before(&cheapest.standing(), &name)
    });
    best.truncate(filter.options.limit);
    let mut candidates: Vec<_> = (1..)
        .zip(best)
        .filter_map(|(rank, (ranked, fit))| {
            let best = Eligible::at(filter, ranked.at, fit)?;
            let candidate = best.into_candidate(rank, query, filter)?;
            let also_at = ranked.also_at();
            Some(Candidate {
                also_at,
                ..candidate
            })
        })
        .collect();
    if let (Some(first), Some(told)) = (candidates.first_mut(), told) {
        first.reasons.insert(0, told);
    }
    Plan {
        generation: filter.snapshot.generation(),
        kind: filter.kind,
        eligible,
        candidates,
        rejected: tally.rejections(),
        refused: tally.refused(query, filter, None),
        alternatives: Vec::new(),
        hybrid: None,
    }
}

/// The demand, prepared for tests of offers.
pub(crate) enum Query<'a> {
    Gpus(GpusQuery<'a>),
    Train(TrainQuery<'a>),
    Serve(ServeQuery),
}

/// How the demand would use an eligible offer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fit {
    pub(crate) nodes: u32,
    pub(crate) key: Key,
    /// The class of machine of a run; the same for every other kind of demand.
    pub(crate) class: TrainingClass,
    pub(crate) figures: Figures,
}

/// The rank of an eligible offer: smaller is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) cost: i128,
    /// The order between equals, before their names.
    pub(crate) then: (u64, u64),
}

/// The figures of a fit, by kind of demand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Figures {
    Gpus,
    Train(TrainFit),
    Serve(ServeFit),
}

/// A prepared demand: one query, or two halves that are searched separately.
pub(crate) enum Wanted<'a> {
    Query(Box<Query<'a>>),
    Hybrid(&'a HybridDemand),
}

impl<'a> Wanted<'a> {
    pub(crate) fn new(demand: &'a Demand, now: DateTime<Utc>) -> Result<Self, MatchError> {
        Ok(Self::Query(Box::new(match demand {
            Demand::Gpus(demand) => Query::Gpus(GpusQuery::new(demand)),
            Demand::Train(demand) => Query::Train(TrainQuery::new(demand, now)?),
            Demand::ServeRealtime(demand) => Query::Serve(ServeQuery::of_realtime(demand)?),
            Demand::ServeBatch(demand) => Query::Serve(ServeQuery::of_batch(demand, now)?),
            Demand::Hybrid(demand) => return Ok(Self::Hybrid(demand)),
        })))
    }

    /// The one query; `None` for two halves.
    pub(crate) fn into_query(self) -> Option<Box<Query<'a>>> {
        match self {
            Self::Query(query) => Some(query),
            Self::Hybrid(_) => None,
        }
    }
}

impl Query<'_> {
    /// Whether it accepts these terms. Runs that a provider may end at will are not supported yet.
    pub(crate) fn takes(&self, terms: Terms) -> bool {
        match self {
            Self::Gpus(query) => query.terms() == terms,
            Self::Train(_) => terms == Terms::OnDemand,
            Self::Serve(query) => query.takes(terms),
        }
    }

    /// The first reason that refuses every offer of a partition.
    pub(crate) fn check_partition(
        &self,
        key: &PartitionKey,
        shared: Shared<'_>,
    ) -> Result<(), ReasonCode> {
        if !key.priced {
            return Err(ReasonCode::NoPrice);
        }
        check_gpu(key, shared)?;
        match self {
            Self::Gpus(query) => query.check_count(key),
            Self::Train(_) | Self::Serve(_) => known(key.spec(), key.gpus).map(|_| ()),
        }?;
        if self.takes(key.terms) {
            Ok(())
        } else {
            Err(ReasonCode::Terms)
        }
    }

    /// How the demand would use each offer of a group, given its first offer. All but the cost is the same
    /// for all of them. `evidence_hours` are those of [`Filter::evidence_hours`].
    pub(crate) fn fit_group(
        &self,
        snapshot: &Snapshot,
        first: RowId,
        evidence_hours: Option<f64>,
    ) -> Result<Fit, ReasonCode> {
        match self {
            Self::Gpus(query) => {
                let joined_by = snapshot.offer_at(first).internode();
                query.fit(snapshot.price_at(first), joined_by)
            }
            Self::Train(_) => self.fit(&snapshot.row(first), evidence_hours),
            Self::Serve(query) => {
                let row = snapshot.row(first);
                let (spec, gpus) = known_node(&row)?;
                query.fit_any(&row, spec, gpus, evidence_hours)
            }
        }
    }

    /// How an offer would be taken that has more nodes to take, where that costs less: the next
    /// larger number that does.
    pub(crate) fn larger(&self, fit: &Fit) -> Option<Fit> {
        match (self, &fit.figures) {
            (Self::Train(query), Figures::Train(train)) => query.larger(train),
            _ => None,
        }
    }

    /// The rank of an offer at this price with this fit.
    pub(crate) fn key(&self, fit: &Fit, partition: &PartitionKey, price: Money) -> Key {
        // No open group contains a price that cannot be charged.
        let each = || partition.node_price_units(price).unwrap_or(i64::MAX);
        self.key_of(fit, price, || partition.rate(price), each)
    }

    /// The rank of an offer with this mean rate.
    pub(crate) fn key_at(&self, fit: &Fit, mean: Rate, gpus: u32) -> Key {
        let units = mean.money_per_gpu_hour().units();
        // The mean is below a price that can be charged, whose product did not overflow.
        let each = units.saturating_mul(i64::from(gpus));
        self.key_of(fit, Money::usd_units(each), || Some(mean), || each)
    }

    fn key_of(
        &self,
        fit: &Fit,
        price: Money,
        rate: impl FnOnce() -> Option<Rate>,
        node_price_units: impl FnOnce() -> i64,
    ) -> Key {
        let cost = match (self, &fit.figures) {
            (Self::Train(_), Figures::Train(train)) => {
                run_cost_units(rate(), train.run.gpu_hours())
            }
            (Self::Serve(query), Figures::Serve(node)) => {
                query.cost(node, fit.nodes, node_price_units())
            }
            _ => GpusQuery::cost(price),
        };
        Key { cost, ..fit.key }
    }

    /// How the demand would use the offer with the fewest sufficient nodes, within the
    /// [`Filter::evidence_hours`] of its provider.
    pub(crate) fn fit(&self, row: &Row, evidence_hours: Option<f64>) -> Result<Fit, ReasonCode> {
        match self {
            Self::Gpus(query) => query.fit(row.offer.price_per_node_hour, row.offer.internode),
            Self::Train(query) => {
                let (spec, gpus) = known_node(row)?;
                query.fit(row, spec, gpus, evidence_hours)
            }
            Self::Serve(query) => {
                let (spec, gpus) = known_node(row)?;
                query.fit(row, spec, gpus, evidence_hours)
            }
        }
    }
}

/// Whether the GPUs of a partition are those of the demand, with enough memory.
pub(crate) fn check_gpu(key: &PartitionKey, shared: Shared<'_>) -> Result<(), ReasonCode> {
    let published = key.open_memory_mib;
    let fit = shared.gpu.map(|gpu| gpu.fit(&key.gpu, published));
    let least = shared.gpu_memory_gib.map(GpuWanted::WithMemory);
    let memory = least.map(|least| least.fit(&key.gpu, published));
    let reasons = [
        (fit, GpuFit::No, ReasonCode::Gpu),
        (fit, GpuFit::FormOpen, ReasonCode::GpuFormUnknown),
        (memory, GpuFit::FormOpen, ReasonCode::GpuFormUnknown),
        (memory, GpuFit::No, ReasonCode::GpuMemory),
    ];
    let mut reasons = reasons.into_iter();
    match reasons.find(|(is, refused, _)| *is == Some(*refused)) {
        Some((_, _, code)) => Err(code),
        None => Ok(()),
    }
}

/// The GPU's published figures and the GPUs of a node, where both are known and whole.
pub(crate) fn known_node(row: &Row) -> Result<(&'static GpuSpec, u32), ReasonCode> {
    known(row.spec, row.offer.gpus)
}

fn known(
    spec: Option<&'static GpuSpec>,
    gpus: GpuCount,
) -> Result<(&'static GpuSpec, u32), ReasonCode> {
    let spec = spec.ok_or(ReasonCode::GpuFormUnknown)?;
    let gpus_per_node = gpus.as_whole().ok_or(ReasonCode::Slice)?;
    Ok((spec, gpus_per_node))
}

/// The charged cost of a node-hour: the frozen rate for each of its GPUs.
/// Units: 1e-8 US dollars.
pub(crate) fn node_price_units(row: &Row) -> Option<i64> {
    let gpus = row.offer.gpus.as_whole()?;
    let rate = row.rate?.money_per_gpu_hour().units();
    rate.checked_mul(i64::from(gpus))
}

/// A number of nodes, if one candidate may have so many.
pub(crate) fn most_nodes(nodes: f64) -> Option<u32> {
    let nodes = nodes.ceil();
    // The range keeps the cast exact.
    (1.0..=f64::from(MAX_NODES))
        .contains(&nodes)
        .then_some(nodes as u32)
}

#[cfg(test)]
mod tests;
