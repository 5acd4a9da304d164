//! The search for fleets: the load that each offer carries, and the cheapest combination of offers that
//! carries the whole load. `parts` holds the nodes that each offer may add, `choice` the integer program and
//! its result, and `shown` the fleets of a plan. `wider` plans fleets with more spare capacity where the
//! latency objective is missed.
//!
//! Fleets of one offer are ranked like every candidate. The cheapest fleet of several offers comes before
//! them where it is cheaper than any of one offer, or where none of one offer carries the load. A fleet that
//! must survive a loss needs several offers. Then the candidates are the cheapest fleet, and for each of its
//! failure domains the cheapest fleet without that domain.

mod choice;
mod parts;
mod shown;
mod wider;

use market::capacity::Covered;
use market::demand::Survive;
use market::money::Money;

use crate::filter::Filter;
use crate::fleet::Column;
use crate::plan::Plan;
use crate::ranking::Ranking;
use crate::reason::ReasonCode;
use crate::search::{Query, Tally};
use crate::serve::{ServeFit, ServeQuery};
use crate::walk::{AllowedRow, HeldRows, walk};

use self::choice::{Choice, Market};
use self::parts::Parts;
use self::shown::SimulatedLatencies;

pub(crate) use choice::NoFleet;
pub(crate) use shown::{Tail, Waits};

/// A number of nodes of one offer, and the load that each carries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FleetLine<'a> {
    pub(crate) row: &'a AllowedRow,
    pub(crate) nodes: u32,
    pub(crate) node: ServeFit,
    /// The commitment that pays for the nodes.
    pub(crate) covered: Option<Covered>,
}

/// A fleet of several offers, with the proved bound on its cost.
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

/// The result for a serving demand at one planned share.
struct Round<'a> {
    parts: Parts<'a>,
    /// The fleets of several offers that are shown, or why there is none.
    found: Result<Vec<Choice>, NoFleet>,
    /// The cost of the cheapest fleet of one offer.
    cheapest: Option<i128>,
    ranking: Ranking<'a>,
}

/// Finds the fleets for a serving demand.
pub(crate) fn search_fleets(query: &Query<'_>, serve: &ServeQuery, filter: &Filter<'_>) -> Plan {
    let held = HeldRows::of(filter);
    let mut tally = Tally::new(filter);
    let Round {
        mut parts,
        found,
        cheapest,
        ranking,
    } = Round::of(query, serve, filter, &held, &mut tally);
    let (found, none) = match found {
        Ok(found) => (found, None),
        Err(none) => {
            // An offer that is refused by itself keeps its own reason, unless nothing is proved of all
            // fleets.
            let unproved = none.code() == ReasonCode::CeilingUnproved;
            if serve.survive.is_some() || (unproved && cheapest.is_none()) {
                parts.settle(Err(none.code()));
            }
            (Vec::new(), Some(none))
        }
    };
    let mut known = SimulatedLatencies::default();
    let mut candidates =
        shown::candidates(query, serve, filter, &parts, &found, ranking, &mut known);
    let wider = wider::put_meeting_first(serve, filter, &held, &mut candidates, &mut known);
    for line in found.iter().flat_map(|choice| &choice.lines) {
        // An offer that carries a part of a candidate satisfies the demand.
        parts.all[line.part].alone = Ok(());
    }
    parts.take_in(&wider);
    let mut eligible = 0;
    // An offer with nodes that are already paid for has several adjacent parts.
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
        candidates,
        rejected: tally.rejections(),
        refused: tally.refused(query, filter, none.as_ref()),
        alternatives: Vec::new(),
        hybrid: None,
    }
}

impl<'a> Round<'a> {
    /// Looks at all offers once.
    fn of(
        query: &Query<'_>,
        serve: &ServeQuery,
        filter: &Filter<'a>,
        held: &'a HeldRows,
        tally: &mut Tally,
    ) -> Self {
        let mut ranking = Ranking::new(filter.options.limit);
        let mut cheapest: Option<i128> = None;
        let mut parts = Parts::default();
        walk(query, filter, held, tally, |group, tally| {
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
                    choice.is_of_several() && cheapest.is_none_or(|alone| cost < alone)
                };
                choice.map(|choice| Some(choice).filter(cheaper).into_iter().collect())
            }
            Some(survive) => surviving(&mut parts, survive, serve.need(), filter),
        };
        Self {
            parts,
            found,
            cheapest,
            ranking,
        }
    }
}

/// The cheapest fleet that survives a loss, and the cheapest one without each of its domains.
///
/// Errors: why no fleet survives.
fn surviving(
    parts: &mut Parts<'_>,
    survive: Survive,
    need: u64,
    filter: &Filter<'_>,
) -> Result<Vec<Choice>, NoFleet> {
    let market = Market::new(parts, Some(survive));
    let best = market.cheapest(need, filter, None)?;
    let mut without: Vec<u32> = best.columns.iter().map(|one| one.domain).collect();
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
