//! The integer program over the nodes that offers may add to a fleet, and the cost of the chosen fleet.

use std::collections::HashMap;

use market::capacity::Covered;
use market::demand::Survive;
use market::ids::CommitmentId;
use market::money::{Currency, Money, Rate};

use super::parts::{Part, Parts, domains};
use crate::filter::Filter;
use crate::fleet::{Column, Fleet, FleetProblem, solve_within};
use crate::own;
use crate::reason::ReasonCode;
use crate::walk::Allowed;

/// A fleet that the integer program chose.
pub(super) struct Choice {
    /// Nodes by offer and by the commitment that pays for them, in the order of the parts.
    pub(super) lines: Vec<ChosenLine>,
    pub(super) cost: Money,
    /// No fleet that may be taken costs less. Units: 1e-8 US dollars per hour.
    pub(super) lower_bound_units: i128,
    /// Those nodes as columns.
    pub(super) columns: Vec<Column>,
}

/// A number of nodes of one offer of a fleet.
#[derive(Clone, PartialEq)]
pub(super) struct ChosenLine {
    /// The first of its parts.
    pub(super) part: usize,
    pub(super) at: Allowed,
    /// The place of its group among those of the parts.
    pub(super) group: usize,
    pub(super) nodes: u32,
    /// The commitment that pays for them and its end, and the mean rate of a GPU-hour over the requested
    /// time.
    pub(super) covered: Option<(Covered, Rate)>,
    /// The cost of a node-hour at that mean. Units: 1e-8 US dollars.
    price_units: i64,
}

impl Choice {
    /// Whether it is of more offers than one.
    pub(super) fn is_of_several(&self) -> bool {
        let first = self.lines.first().map(|line| line.at);
        self.lines.iter().any(|line| Some(line.at) != first)
    }
}

/// Why no fleet is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoFleet {
    /// None carries the load.
    Spread,
    /// The cheapest fleet found costs more than the ceiling. Units: 1e-8 US dollars per hour.
    Dear {
        cost_units: i128,
        /// The least cost of any fleet.
        lower_bound_units: i128,
        ceiling: Option<Money>,
    },
}

impl NoFleet {
    /// The reason with which it refuses offers.
    pub(crate) fn code(&self) -> ReasonCode {
        // A cost that overflows is above any ceiling.
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

/// The parts as columns of the integer program.
pub(super) struct Market<'p, 'a> {
    parts: &'p Parts<'a>,
    columns: Vec<Column>,
    survives: bool,
}

impl<'p, 'a> Market<'p, 'a> {
    pub(super) fn new(parts: &'p Parts<'a>, survive: Option<Survive>) -> Self {
        let domains = survive.map(|survive| domains(parts, survive));
        let columns = parts.all.iter().map(|part| Column {
            price_units: part.price_units,
            capacity: parts.node_of(part.group).capacity,
            stock: part.stock,
            domain: domains.as_ref().map_or(0, |domains| domains[part.group]),
        });
        Self {
            columns: columns.collect(),
            parts,
            survives: survive.is_some(),
        }
    }

    /// The cheapest fleet that carries the need, optionally without one domain.
    ///
    /// The ceiling applies to the offers' own prices. Where the cheapest fleet is above the ceiling at these
    /// prices, this takes the fleet that is cheapest at own prices. That fleet need not be the cheapest under
    /// the ceiling while commitments last, but it is under the ceiling exactly where any fleet is.
    /// Errors: why there is no fleet.
    pub(super) fn cheapest(
        &self,
        need: u64,
        filter: &Filter<'_>,
        without: Option<u32>,
    ) -> Result<Choice, NoFleet> {
        let problem = self.problem(need, without);
        let fleet = solve_within(&problem, filter.budget).ok_or(NoFleet::Spread)?;
        let fleet = without_idle(&problem, fleet);
        let lower_bound_units = fleet.lower_bound_units;
        let fleet = match self.check_ceiling(&fleet, filter) {
            Ok(()) => fleet,
            Err(dear) if !self.has_paid() => return Err(dear),
            Err(_) => {
                let at_own_prices = self.at_own_prices(problem);
                let fleet = solve_within(&at_own_prices, filter.budget).ok_or(NoFleet::Spread)?;
                self.check_ceiling(&fleet, filter)?;
                fleet
            }
        };
        let lines = self.lines(&fleet.counts, filter);
        let cost_units: i128 = lines.iter().map(ChosenLine::cost_units).sum();
        let columns = lines.iter().map(|line| Column {
            price_units: line.price_units,
            stock: line.nodes,
            ..self.columns[line.part]
        });
        let cost = i64::try_from(cost_units).map_err(|_| NoFleet::Dear {
            cost_units,
            lower_bound_units,
            ceiling: None,
        })?;
        Ok(Choice {
            columns: columns.collect(),
            lines,
            cost: Money::from_units(cost, Currency::Usd),
            // A mean is rounded up for all nodes of a line together, which may make them cheaper
            // than its parts by less than a unit for each GPU.
            lower_bound_units: lower_bound_units.min(cost_units),
        })
    }

    fn problem(&self, need: u64, without: Option<u32>) -> FleetProblem {
        let stock = |column: &Column| match without == Some(column.domain) {
            true => 0,
            false => column.stock,
        };
        let columns = self.columns.iter().map(|column| Column {
            stock: stock(column),
            ..*column
        });
        FleetProblem {
            columns: columns.collect(),
            need,
            kept: if self.survives { need } else { 0 },
        }
    }

    /// The same problem at the offers' own prices, without commitments.
    fn at_own_prices(&self, problem: FleetProblem) -> FleetProblem {
        let parts = self.parts.all.iter();
        let columns = parts.zip(&problem.columns).map(|(part, column)| Column {
            price_units: part.own_units,
            ..*column
        });
        FleetProblem {
            columns: columns.collect(),
            ..problem
        }
    }

    fn has_paid(&self) -> bool {
        self.parts.all.iter().any(|part| part.paid.is_some())
    }

    /// Whether a fleet is under the ceiling at its offers' own prices.
    ///
    /// The bound of one that is not holds for those prices where it was chosen at them, and where
    /// nothing is paid for.
    fn check_ceiling(&self, fleet: &Fleet, filter: &Filter<'_>) -> Result<(), NoFleet> {
        let counts = self.parts.all.iter().zip(&fleet.counts);
        let cost_units: i128 = counts
            .map(|(part, count)| i128::from(part.own_units) * i128::from(*count))
            .sum();
        let ceiling = filter.shared.ceiling.and_then(|limit| limit.usd_per_hour);
        // A cost that overflows is above any ceiling.
        let limit = ceiling.map_or(i64::MAX, Money::units);
        if cost_units <= i128::from(limit) {
            return Ok(());
        }
        Err(NoFleet::Dear {
            cost_units,
            lower_bound_units: fleet.lower_bound_units,
            ceiling,
        })
    }

    /// The nodes of a fleet by offer and commitment. The nodes of an offer that are paid for come first, and
    /// all nodes that share a commitment determine how long it lasts.
    fn lines(&self, counts: &[u32], filter: &Filter<'_>) -> Vec<ChosenLine> {
        let parts = &self.parts.all;
        let mut lines: Vec<(usize, u32)> = Vec::new();
        let mut taken: HashMap<CommitmentId, u32> = HashMap::new();
        let mut first = 0;
        for offer in parts.chunk_by(|a, b| a.at == b.at) {
            let mut left: u32 = counts[first..first + offer.len()].iter().sum();
            for (at, part) in (first..).zip(offer) {
                let nodes = left.min(part.stock);
                left -= nodes;
                if nodes == 0 {
                    continue;
                }
                if let Some(paid) = part.paid {
                    *taken.entry(paid.commitment).or_default() += nodes;
                }
                match lines.last_mut() {
                    Some((last, all)) if is_one_line(&parts[*last], part) => *all += nodes,
                    _ => lines.push((at, nodes)),
                }
            }
            first += offer.len();
        }
        let lines = lines.into_iter();
        lines
            .map(|(at, nodes)| self.line(at, nodes, &taken, filter))
            .collect()
    }

    fn line(
        &self,
        at: usize,
        nodes: u32,
        taken: &HashMap<CommitmentId, u32>,
        filter: &Filter<'_>,
    ) -> ChosenLine {
        let part = &self.parts.all[at];
        let covered = part.paid.and_then(|paid| {
            let open = own::open(filter, paid.commitment)?;
            let covered = Covered {
                commitment_id: paid.commitment,
                rate_usd_gpu_hour: paid.rate,
                until: open.covers(*taken.get(&paid.commitment)?, filter.now)?,
            };
            let wanted = (nodes, self.parts.wanted_seconds);
            let mean = own::mean(&[(nodes, covered)], paid.own_rate, wanted, filter.now);
            Some((covered, mean, paid.node_units(mean)))
        });
        ChosenLine {
            part: at,
            at: part.at,
            group: part.group,
            nodes,
            covered: covered.map(|(covered, mean, _)| (covered, mean)),
            price_units: covered.map_or(part.own_units, |(_, _, units)| units),
        }
    }
}

impl ChosenLine {
    /// Units: 1e-8 US dollars per hour.
    fn cost_units(&self) -> i128 {
        i128::from(self.price_units) * i128::from(self.nodes)
    }
}

/// Whether the nodes of two parts of one offer form one line.
fn is_one_line(a: &Part, b: &Part) -> bool {
    let by = |part: &Part| part.paid.map(|paid| paid.commitment);
    a.at == b.at && by(a) == by(b)
}

/// The same fleet without nodes that cost nothing and that it does without.
fn without_idle(problem: &FleetProblem, mut fleet: Fleet) -> Fleet {
    for (at, column) in problem.columns.iter().enumerate() {
        if column.price_units > 0 {
            continue;
        }
        while fleet.counts[at] > 0 {
            fleet.counts[at] -= 1;
            if problem.check(&fleet).is_err() {
                fleet.counts[at] += 1;
                break;
            }
        }
    }
    fleet
}
