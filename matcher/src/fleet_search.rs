//! The search for fleets: what each offer carries, and which offers carry the load together at the
//! least cost. What is shown of them is made in `shown`.
//!
//! Fleets of one offer are ranked like every candidate. Before them stands the cheapest fleet of
//! several offers, where it is cheaper than any of one (or none of one carries the load). Where a
//! loss is to be survived no single offer does, so all candidates are of several: the cheapest
//! fleet, and for each failure domain that it stands in the cheapest one without it.

mod shown;

use std::collections::HashMap;

use market::capacity::Covered;
use market::demand::Survive;
use market::money::{Currency, Money, Rate};

use crate::filter::{Filter, free_nodes};
use crate::fleet::{Column, FleetProblem, solve_within};
use crate::own::Taken;
use crate::plan::Plan;
use crate::ranking::Ranking;
use crate::reason::ReasonCode;
use crate::search::{Figures, Query, Tally};
use crate::serve::{ServeFit, ServeQuery};
use crate::snapshot::{GroupRef, OfferRef, RowId};
use crate::walk::{Allowed, AllowedRow, HeldRows, OpenGroup, walk};

pub(crate) use shown::Waits;

/// So many nodes of one offer, with what each carries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FleetLine<'a> {
    pub(crate) row: &'a AllowedRow,
    pub(crate) nodes: u32,
    pub(crate) node: ServeFit,
    /// By which commitment the nodes are paid for.
    pub(crate) covered: Option<Covered>,
}

/// A fleet of several offers, with what is proved of its cost.
pub(crate) struct Mix<'a> {
    pub(crate) lines: Vec<FleetLine<'a>>,
    pub(crate) cost: Money,
    /// No fleet of these offers costs less. Units: 1e-8 US dollars per hour.
    pub(crate) lower_bound_units: i128,
    /// Offers that it was chosen from.
    pub(crate) chosen_from: usize,
    /// Its own nodes, as the integer program knows them.
    pub(crate) columns: &'a [Column],
}

/// Finds the fleets for a serving demand.
pub(crate) fn search_fleets(query: &Query<'_>, serve: &ServeQuery, filter: &Filter<'_>) -> Plan {
    let held = HeldRows::of(filter);
    let mut tally = Tally::default();
    let mut ranking = Ranking::new(filter.options.limit);
    let mut cheapest: Option<i128> = None;
    let mut parts = Parts::default();
    walk(query, filter, &held, &mut tally, |group, tally| {
        parts.take(query, serve.need(), filter, group, tally);
        if serve.survive.is_some() {
            return;
        }
        let (rows, alone) = group.eligible(filter);
        if let Some(first) = alone {
            let own = group.own().iter().filter(|row| rows.contains(row));
            let own = own.filter(|row| group.test(filter, **row).is_ok());
            let own = own.map(|row| group.own_key(query, filter, *row).cost);
            let costs = own.chain([group.key(query, first).cost]);
            cheapest = cheapest.into_iter().chain(costs).min();
            ranking.take(query, filter, group, rows);
        }
    });
    let found = match serve.survive {
        None => {
            let choice = Market::new(&parts, None).cheapest(serve.need(), filter, None);
            let cheaper = |choice: &Choice| {
                let cost = i128::from(choice.cost.units());
                choice.lines.len() > 1 && cheapest.is_none_or(|alone| cost < alone)
            };
            choice.map(|choice| Some(choice).filter(cheaper).into_iter().collect())
        }
        Some(survive) => surviving(&mut parts, survive, serve.need(), filter),
    };
    let (found, none) = match found {
        Ok(found) => (found, None),
        Err(none) => {
            // What is refused alone is so for what it lacks, unless nothing is proved of all.
            let unproved = none.code() == ReasonCode::CeilingUnproved;
            if serve.survive.is_some() || (unproved && cheapest.is_none()) {
                parts.settle(Err(none.code()));
            }
            (Vec::new(), Some(none))
        }
    };
    for (at, _) in found.iter().flat_map(|choice| &choice.lines) {
        // What carries a part of a candidate satisfies the demand.
        parts.all[*at].alone = Ok(());
    }
    let mut eligible = 0;
    // An offer of which nodes are paid for is several parts next to each other.
    let offers = parts.all.chunk_by(|a, b| a.at == b.at);
    let used = offers.map(|parts| {
        let any = parts.iter().find(|part| part.alone.is_ok());
        (parts[0].at.at(), any.unwrap_or(&parts[0]).alone)
    });
    for (at, outcome) in used.chain(parts.spare.iter().copied()) {
        match outcome {
            Ok(()) => eligible += 1,
            Err(code) => tally.count(code, at),
        }
    }
    Plan {
        generation: filter.snapshot.generation(),
        kind: filter.kind,
        eligible,
        candidates: shown::candidates(query, serve, filter, &parts, &found, ranking),
        rejected: tally.rejections(),
        refused: tally.examples(query, filter, none.as_ref()),
        alternatives: Vec::new(),
        hybrid: None,
    }
}

/// Why no fleet is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoFleet {
    /// None carries the load.
    Spread,
    /// The cheapest found is dearer than the ceiling. Units: 1e-8 US dollars per hour.
    Dear {
        cost_units: i128,
        /// What every fleet costs at least.
        lower_bound_units: i128,
        ceiling: Option<Money>,
    },
}

impl NoFleet {
    /// What is refused for it.
    pub(crate) fn code(&self) -> ReasonCode {
        // More than a sum of money can hold is above any ceiling.
        let most = |ceiling: Option<Money>| ceiling.map_or(i64::MAX, Money::units);
        match self {
            Self::Spread => ReasonCode::Spread,
            Self::Dear {
                lower_bound_units,
                ceiling,
                ..
            } if *lower_bound_units <= i128::from(most(*ceiling)) => ReasonCode::CeilingUnproved,
            Self::Dear { .. } => ReasonCode::Ceiling,
        }
    }
}

/// The cheapest fleet that survives, and the cheapest without each domain that it stands in.
///
/// Errors: why none does.
fn surviving(
    parts: &mut Parts<'_>,
    survive: Survive,
    need: u64,
    filter: &Filter<'_>,
) -> Result<Vec<Choice>, NoFleet> {
    let market = Market::new(parts, Some(survive));
    let best = market.cheapest(need, filter, None)?;
    let mut without: Vec<u32> = (best.lines.iter())
        .map(|(at, _)| market.columns[*at].domain)
        .collect();
    without.sort_unstable();
    without.dedup();
    let mut choices = vec![best];
    for domain in without {
        if let Ok(other) = market.cheapest(need, filter, Some(domain))
            && choices.iter().all(|known| known.lines != other.lines)
        {
            choices.push(other);
        }
    }
    choices.sort_by_key(|choice| choice.cost.units());
    parts.settle(Ok(()));
    Ok(choices)
}

/// What all offers may add to a fleet, in the order of the snapshot.
#[derive(Default)]
struct Parts<'a> {
    groups: Vec<(GroupRef<'a>, ServeFit)>,
    all: Vec<Part>,
    /// Offers that could be parts and of which no cheapest fleet is made, and whether a fleet of
    /// each alone is one.
    spare: Vec<(RowId, Result<(), ReasonCode>)>,
    /// Nodes of commitments that are parts already: the first offers in the order of the snapshot
    /// have them.
    taken: Taken,
}

/// What one offer may add to a fleet.
struct Part {
    at: Allowed,
    /// The place of its group among those of the parts.
    group: usize,
    price_units: i64,
    stock: u32,
    /// What of it is paid for.
    covered: Option<(Covered, Rate)>,
    /// Whether a fleet of it alone is one, or why not.
    alone: Result<(), ReasonCode>,
}

impl<'a> Parts<'a> {
    /// Takes in the offers of a group of which a node may be taken, and counts the others.
    ///
    /// They carry the same and fail together, and come cheapest first: once they carry the need,
    /// a fleet has no use for those that follow.
    fn take(
        &mut self,
        query: &Query<'_>,
        need: u64,
        filter: &Filter<'_>,
        group: &OpenGroup<'a>,
        tally: &mut Tally,
    ) {
        let Figures::Serve(node) = group.fit.figures else {
            return;
        };
        let key = group.group.partition().key();
        let number = self.groups.len();
        self.groups.push((group.group, node));
        let mut carried = 0_u64;
        for row in group.group.rows() {
            let alone = group.test(filter, row);
            // What is eligible alone is a part.
            let part = alone.ok().or_else(|| group.part(filter, row));
            let alone = alone.map(|_| ());
            let (stock, held) = group.stock(row);
            let stock = free_nodes(&stock, held);
            let price = group.price(row);
            match (alone, part) {
                (Err(code), None) => tally.count(code, group.row_id(row)),
                (Ok(()), None) => {}
                (_, Some(at)) if carried >= need && !group.own().contains(&row) => {
                    self.spare.push((at.at(), alone));
                }
                (_, Some(at)) => {
                    carried = carried.saturating_add(node.capacity.saturating_mul(stock.into()));
                    let paid = self.take_paid(query, filter, group, (at, stock, number, alone));
                    // A price that cannot be charged stands in no open group.
                    let price_units = key.node_price_units(price).unwrap_or(i64::MAX);
                    self.all.push(Part {
                        at,
                        group: number,
                        price_units,
                        stock: stock - paid,
                        covered: None,
                        alone,
                    });
                }
            }
        }
    }

    /// Takes in the nodes of an offer that are paid for, and says how many they are.
    fn take_paid(
        &mut self,
        query: &Query<'_>,
        filter: &Filter<'_>,
        group: &OpenGroup<'a>,
        (at, stock, number, alone): (Allowed, u32, usize, Result<(), ReasonCode>),
    ) -> u32 {
        let row = at.at().row;
        if !group.own().contains(&row) {
            return 0;
        }
        let offer = filter.snapshot.offer_in(group.group, row).to_offer();
        let gpus = i64::from(offer.gpus.as_whole().unwrap_or(0));
        let cover = group.cover(query, filter, &offer, stock, &self.taken);
        let mut paid = 0;
        for (nodes, covered) in cover.into_iter().flat_map(|cover| cover.parts) {
            let Some(mean) = group.mean_of(query, filter, &offer, (nodes, covered)) else {
                continue;
            };
            paid += nodes;
            *self.taken.entry(covered.commitment_id).or_default() += nodes;
            self.all.push(Part {
                at,
                group: number,
                price_units: mean.money_per_gpu_hour().units().saturating_mul(gpus),
                stock: nodes,
                covered: Some((covered, mean)),
                alone,
            });
        }
        paid
    }

    /// Counts all of them as eligible, or as refused for one reason.
    fn settle(&mut self, outcome: Result<(), ReasonCode>) {
        for part in &mut self.all {
            part.alone = outcome;
        }
        for (_, alone) in &mut self.spare {
            *alone = outcome;
        }
    }

    fn group_of(&self, part: &Part) -> &(GroupRef<'a>, ServeFit) {
        &self.groups[part.group]
    }

    /// The offers of a fleet.
    fn offers<'s>(
        &self,
        filter: &Filter<'s>,
        choice: &Choice,
    ) -> impl Iterator<Item = OfferRef<'s>> {
        let lines = choice.lines.iter();
        lines.map(|(at, _)| filter.snapshot.offer_at(self.all[*at].at.at()))
    }

    /// The offers of a fleet in full, in the order in which they are shown.
    fn rows(&self, filter: &Filter<'_>, choice: &Choice) -> Vec<(usize, u32, AllowedRow)> {
        let lines = choice.lines.iter();
        let mut rows: Vec<_> = lines
            .map(|(at, nodes)| {
                let offer = filter.snapshot.offer_at(self.all[*at].at.at());
                (*at, *nodes, offer)
            })
            .collect();
        rows.sort_by(|(_, _, a), (_, _, b)| a.tie_order(*b));
        let full = rows.into_iter();
        full.map(|(at, nodes, _)| {
            let part = &self.all[at];
            let row = part.at.row(filter.snapshot);
            // What is reckoned from a price is reckoned from the mean over the time wanted.
            let row = match part.covered {
                Some((_, mean)) => row.at_rate(mean),
                None => row,
            };
            (at, nodes, row)
        })
        .collect()
    }

    fn mix<'r>(&self, choice: &'r Choice, rows: &'r [(usize, u32, AllowedRow)]) -> Mix<'r> {
        let lines = rows.iter().map(|(at, nodes, row)| FleetLine {
            row,
            nodes: *nodes,
            node: self.group_of(&self.all[*at]).1,
            covered: self.all[*at].covered.map(|(covered, _)| covered),
        });
        Mix {
            lines: lines.collect(),
            cost: choice.cost,
            lower_bound_units: choice.lower_bound_units,
            chosen_from: self.all.len() + self.spare.len(),
            columns: &choice.columns,
        }
    }
}

/// A fleet that the integer program chose.
struct Choice {
    /// Nodes of parts, by their places, in the order of the parts.
    lines: Vec<(usize, u32)>,
    cost: Money,
    lower_bound_units: i128,
    /// Those nodes as columns, of which there are no more.
    columns: Vec<Column>,
}

/// The parts as columns of the integer program.
struct Market {
    columns: Vec<Column>,
    survives: bool,
}

impl Market {
    fn new(parts: &Parts<'_>, survive: Option<Survive>) -> Self {
        let domains = survive.map(|survive| domains(parts, survive));
        let columns = parts.all.iter().map(|part| Column {
            price_units: part.price_units,
            capacity: parts.group_of(part).1.capacity,
            stock: part.stock,
            domain: domains.as_ref().map_or(0, |domains| domains[part.group]),
        });
        Self {
            columns: columns.collect(),
            survives: survive.is_some(),
        }
    }

    /// The cheapest fleet that carries the need, without one domain if so asked.
    ///
    /// Errors: why none is.
    fn cheapest(
        &self,
        need: u64,
        filter: &Filter<'_>,
        without: Option<u32>,
    ) -> Result<Choice, NoFleet> {
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
        let fleet = solve_within(&problem, filter.budget).ok_or(NoFleet::Spread)?;
        let ceiling = filter.shared.ceiling.and_then(|limit| limit.usd_per_hour);
        let dear = NoFleet::Dear {
            cost_units: fleet.cost_units,
            lower_bound_units: fleet.lower_bound_units,
            ceiling,
        };
        let cost = i64::try_from(fleet.cost_units).map_err(|_| dear)?;
        let cost = Money::from_units(cost, Currency::Usd);
        if ceiling.is_some_and(|limit| cost > limit) {
            return Err(dear);
        }
        let lines = fleet.counts.into_iter().enumerate();
        let lines: Vec<_> = lines.filter(|(_, nodes)| *nodes > 0).collect();
        let columns = lines.iter().map(|(at, nodes)| Column {
            stock: *nodes,
            ..self.columns[*at]
        });
        Ok(Choice {
            columns: columns.collect(),
            lines,
            cost,
            lower_bound_units: fleet.lower_bound_units,
        })
    }
}

/// The failure domain of each group: offers fail with their provider, or with their zone.
///
/// A zone is what the seller calls one, within its region. Where an offer of a region has no
/// zone, it may stand in any of them, so the region counts as one; where an offer of a provider
/// has no region, the provider does. Only groups that a part is of count.
fn domains(parts: &Parts<'_>, survive: Survive) -> Vec<u32> {
    let mut used = vec![false; parts.groups.len()];
    for part in &parts.all {
        used[part.group] = true;
    }
    let groups = || parts.groups.iter().map(|(group, _)| group);
    let mut zoned: HashMap<(&str, Option<&str>), bool> = HashMap::new();
    let mut placed: HashMap<&str, bool> = HashMap::new();
    for (group, _) in groups().zip(&used).filter(|(_, used)| **used) {
        let provider = group.provider().as_str();
        *placed.entry(provider).or_insert(true) &= group.region().is_some();
        *zoned.entry((provider, group.region())).or_insert(true) &= group.zone().is_some();
    }
    let mut numbers: HashMap<(&str, Option<&str>, Option<&str>), u32> = HashMap::new();
    let numbered = groups().map(|group| {
        let provider = group.provider().as_str();
        let holds = |known: Option<&bool>| known.copied().unwrap_or(true);
        let by_region = survive == Survive::Zone && holds(placed.get(provider));
        let by_zone = by_region && holds(zoned.get(&(provider, group.region())));
        let key = (
            provider,
            group.region().filter(|_| by_region),
            group.zone().filter(|_| by_zone),
        );
        let next = numbers.len() as u32;
        *numbers.entry(key).or_insert(next)
    });
    numbered.collect()
}
