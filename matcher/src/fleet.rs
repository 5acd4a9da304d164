//! How many nodes of which offers make the cheapest fleet that carries a load: a small integer
//! program, solved exactly as far as a budget of work reaches, and with a proved bound beyond.
//!
//! A [`FleetProblem`] knows offers as [`Column`]s alone: price, capacity, stock, and failure domain.
//! [`solve`] first drops columns that cannot matter (`reduce`). It then uses the dynamic program of
//! `covering` where there is no rule on losses and the numbers are small, else the branch and bound of
//! `branch`, whose bound is proved. [`FleetProblem::check`] checks an answer independently. `crate::serve`
//! computes the capacity of a node.
//!
//! All quantities are integers, so nothing depends on rounding. The caller rounds capacities down and needs
//! up, so that an answer stays feasible.

mod branch;
mod convex;
mod covering;
mod reduce;

#[cfg(test)]
mod tests;

use std::cell::Cell;

pub use branch::{NODE_LIMIT, branch_and_bound};
pub use covering::cover;
pub use reduce::{Reduced, reduce};

/// Cells of the dynamic program's table above which branch and bound is taken.
const COVERING_CELLS: u64 = 2_000_000;

/// Open problems that all searches of one plan look at together. The first of them may take
/// [`NODE_LIMIT`].
const PLAN_NODES: usize = 2 * NODE_LIMIT;

/// The work that may still be spent on one plan, over all the programs that are solved for it.
#[derive(Debug)]
pub struct Budget {
    nodes: Cell<usize>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            nodes: Cell::new(PLAN_NODES),
        }
    }
}

impl Budget {
    /// A budget with nothing left.
    #[cfg(test)]
    pub(crate) fn spent() -> Self {
        Self {
            nodes: Cell::new(0),
        }
    }

    /// Open problems that the next program may examine: half of the remaining budget, so that the first
    /// programs leave something to those that follow.
    fn share(&self) -> usize {
        (self.nodes.get() / 2).min(NODE_LIMIT)
    }

    fn spend(&self, nodes: usize) {
        self.nodes.set(self.nodes.get().saturating_sub(nodes));
    }
}

/// Nodes of one offer, as a fleet is made of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// The price of a node for an hour, above zero. Units: 1e-8 US dollars.
    pub price_units: i64,
    /// The load that a node carries. Units: those of the need.
    pub capacity: u64,
    /// Nodes that can be had.
    pub stock: u32,
    /// Its failure domain: columns of one number fail together.
    pub domain: u32,
}

/// A load, and the columns that may carry it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetProblem {
    /// The offers.
    pub columns: Vec<Column>,
    /// The least load that the fleet must carry.
    pub need: u64,
    /// The load that it must still carry when any one domain is lost; zero without a rule on losses.
    pub kept: u64,
}

/// A fleet: nodes of each column, in the order of the columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    /// Nodes of each column.
    pub counts: Vec<u32>,
    /// Their cost. Units: 1e-8 US dollars per hour.
    pub cost_units: i128,
    /// A proved lower bound on the cost of any fleet that carries the load. Units: the same.
    pub lower_bound_units: i128,
}

/// The fault of a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// It has counts for other columns.
    #[error("it is of another number of columns")]
    Shape,
    /// More nodes of a column than there are.
    #[error("it takes more nodes of column {0} than there are")]
    Stock(usize),
    /// It carries too little.
    #[error("it carries too little")]
    Need,
    /// It carries too little once a domain is lost.
    #[error("it carries too little once domain {0} is lost")]
    Loss(u32),
    /// Its cost is not the sum of its nodes' prices.
    #[error("its cost is not the sum of its nodes' prices")]
    Cost,
}

impl Fleet {
    /// Whether no cheaper fleet exists.
    #[must_use]
    pub const fn is_optimal(&self) -> bool {
        self.cost_units == self.lower_bound_units
    }
}

impl FleetProblem {
    /// Checks a fleet independently: adds it up again, and removes each domain, one at a time.
    ///
    /// Errors: the first [`Violation`].
    pub fn check(&self, fleet: &Fleet) -> Result<(), Violation> {
        if fleet.counts.len() != self.columns.len() {
            return Err(Violation::Shape);
        }
        let mut cost = 0_i128;
        for (at, (column, count)) in self.columns.iter().zip(&fleet.counts).enumerate() {
            if *count > column.stock {
                return Err(Violation::Stock(at));
            }
            cost += i128::from(column.price_units) * i128::from(*count);
        }
        if cost != fleet.cost_units {
            return Err(Violation::Cost);
        }
        let carried = |lost: Option<u32>| -> u128 {
            let standing = self.columns.iter().zip(&fleet.counts);
            standing
                .filter(|(column, _)| Some(column.domain) != lost)
                .map(|(column, count)| u128::from(column.capacity) * u128::from(*count))
                .sum()
        };
        if carried(None) < u128::from(self.need) {
            return Err(Violation::Need);
        }
        let hit = |column: &&Column| carried(Some(column.domain)) < u128::from(self.kept);
        match self.columns.iter().find(hit) {
            Some(column) if self.kept > 0 => Err(Violation::Loss(column.domain)),
            _ if self.kept > 0 && self.columns.is_empty() => Err(Violation::Need),
            _ => Ok(()),
        }
    }

    /// The load that all columns together carry.
    fn supply(&self) -> u128 {
        let each = self.columns.iter();
        each.map(|column| u128::from(column.capacity) * u128::from(column.stock))
            .sum()
    }

    fn cost_of(&self, counts: &[u32]) -> i128 {
        let each = self.columns.iter().zip(counts);
        each.map(|(column, count)| i128::from(column.price_units) * i128::from(*count))
            .sum()
    }
}

/// The cheapest fleet, or the best that was found with the bound that was proved for it; `None`
/// where no fleet carries the load.
#[must_use]
pub fn solve(problem: &FleetProblem) -> Option<Fleet> {
    solve_within(problem, &Budget::default())
}

/// As [`solve`], within the remaining budget of work, which it reduces by the work done.
#[must_use]
pub fn solve_within(problem: &FleetProblem, budget: &Budget) -> Option<Fleet> {
    // A need above the supply fails before anything is allocated for it.
    if problem.supply() < u128::from(problem.need.max(problem.kept)) {
        return None;
    }
    let reduced = reduce(problem);
    let fleet = if reduced.problem.kept == 0 && covering_cells(&reduced.problem) <= COVERING_CELLS {
        cover(&reduced.problem)
    } else {
        let (fleet, nodes) = branch::search(&reduced.problem, budget.share());
        budget.spend(nodes);
        fleet
    }?;
    Some(reduced.expand(&fleet))
}

/// Cells of the dynamic program's tables. One table is as long as the need, even for few items.
fn covering_cells(problem: &FleetProblem) -> u64 {
    // A stock is split into powers of two, each an item.
    let items: u64 = (problem.columns.iter())
        .map(|column| u64::from(32 - column.stock.leading_zeros()))
        .sum();
    problem.need.saturating_add(1).saturating_mul(items.max(1))
}
