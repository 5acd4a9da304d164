//! How many nodes of which offers make the cheapest fleet that carries a load: a small integer
//! program, solved exactly as far as a budget of work reaches, and with a proved bound beyond.
//!
//! A [`FleetProblem`] knows offers as [`Column`]s alone: price, capacity, stock, and the failure
//! domain that each stands in. [`solve`] first drops what cannot matter (`reduce`), then takes the
//! dynamic program of `covering` where there is no rule on losses and the numbers are small, else
//! the branch and bound of `branch`, whose bound is proved. [`FleetProblem::check`] looks at an
//! answer from outside. What a node carries is `crate::serve`'s business.
//!
//! All quantities are integers, so nothing depends on rounding. Capacities are rounded down and
//! needs up by whoever makes the columns, so that an answer stays feasible.

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
    /// One of which nothing is left.
    #[cfg(test)]
    pub(crate) fn spent() -> Self {
        Self {
            nodes: Cell::new(0),
        }
    }

    /// Open problems that the next program may look at: half of what is left, so that the first
    /// ones leave something to those that follow.
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
    /// What a node carries. Units: those of the need.
    pub capacity: u64,
    /// Nodes that can be had.
    pub stock: u32,
    /// What is lost together with it: columns of one number fail together.
    pub domain: u32,
}

/// A load, and what it may be carried by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetProblem {
    /// The offers.
    pub columns: Vec<Column>,
    /// What the fleet carries at least.
    pub need: u64,
    /// What it still carries when any one domain is lost; zero where nothing is asked.
    pub kept: u64,
}

/// A fleet: nodes of each column, in the order of the columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    /// Nodes of each column.
    pub counts: Vec<u32>,
    /// What they cost. Units: 1e-8 US dollars per hour.
    pub cost_units: i128,
    /// What any fleet that carries the load costs at least, proved. Units: the same.
    pub lower_bound_units: i128,
}

/// What is wrong with a fleet.
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
    /// Looks at a fleet from outside: adds it up once more, and takes each domain away in turn.
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

    /// What all columns together carry.
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

/// As [`solve`], with no more work than is left of a budget; what is done is taken from it.
#[must_use]
pub fn solve_within(problem: &FleetProblem, budget: &Budget) -> Option<Fleet> {
    // Whoever asks for more than there is learns it before anything is made for it.
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

/// Cells of the dynamic program's tables, of which one is as long as the need however few items
/// there are.
fn covering_cells(problem: &FleetProblem) -> u64 {
    // A stock is split into powers of two, each an item.
    let items: u64 = (problem.columns.iter())
        .map(|column| u64::from(32 - column.stock.leading_zeros()))
        .sum();
    problem.need.saturating_add(1).saturating_mul(items.max(1))
}
