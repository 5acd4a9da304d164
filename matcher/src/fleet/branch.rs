//! Branch and bound, best bound first.
//!
//! The bound is the relaxation in which nodes may be cut: a need of `need`, and where losses are
//! survived, a number `m` such that no domain carries more than `m` and all together carry `kept`
//! and `m` beside it. For a given `m` that is filled cheapest first; over `m` the cost is convex, so
//! its least is found by bisection. The cut node decides where to branch, and rounding it up gives a fleet,
//! since more nodes in one domain hurt no other.
//!
//! Amounts are integers, and costs are summed in fractions of a unit that are rounded down, so the bound
//! never exceeds the true cost. Sums use a wider type than amounts, so that none overflows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::convex::least;
use super::{Column, Fleet, FleetProblem};

/// The open problems to examine before the search returns the best fleet so far, with its bound.
pub const NODE_LIMIT: usize = 2_000;

/// Fractions of a unit in which costs are summed: 2^24 of them.
const FRACTION_BITS: u32 = 24;

/// The most that rounding takes off a sum of costs, in those fractions: a 64th of a unit.
const ROUNDING: i128 = 1 << (FRACTION_BITS - 6);

/// The least and most nodes of each column.
type Bounds = Vec<(u32, u32)>;

/// The cheapest fleet, or after `node_limit` open problems the best so far; `None` where no fleet
/// carries the load.
#[must_use]
pub fn branch_and_bound(problem: &FleetProblem, node_limit: usize) -> Option<Fleet> {
    search(problem, node_limit).0
}

/// As [`branch_and_bound`], with the number of open problems that it examined.
pub(super) fn search(problem: &FleetProblem, node_limit: usize) -> (Option<Fleet>, usize) {
    let search = Search::new(problem);
    let whole: Bounds = problem.columns.iter().map(|one| (0, one.stock)).collect();
    let Some(root) = search.relax(&whole) else {
        return (None, 0);
    };
    let mut best = search.rounded_up(&whole, &search.taken(&whole, root.most));
    let mut open = BinaryHeap::new();
    let mut looked_at = 0;
    open.push(Reverse((root.bound_units, 0_usize, whole, root.most)));
    while let Some(Reverse((bound_units, _, bounds, most))) = open.pop() {
        if bound_units >= best.cost_units {
            break;
        }
        if looked_at >= node_limit {
            best.lower_bound_units = bound_units;
            return (Some(best), looked_at);
        }
        looked_at += 1;
        let taken = search.taken(&bounds, most);
        let found = search.rounded_up(&bounds, &taken);
        if found.cost_units < best.cost_units {
            best = found;
        }
        let Some((column, whole_nodes)) = search.cut_most(&bounds, &taken) else {
            // No node is cut, so the relaxation is a fleet, and it is recorded.
            continue;
        };
        let (least, most) = bounds[column];
        for part in [(least, whole_nodes), (whole_nodes + 1, most)] {
            let mut child = bounds.clone();
            child[column] = part;
            let Some(relaxed) = search.relax(&child) else {
                continue;
            };
            // A part of a problem is never cheaper than the whole.
            let bound = relaxed.bound_units.max(bound_units);
            if bound < best.cost_units {
                open.push(Reverse((bound, looked_at, child, relaxed.most)));
            }
        }
    }
    best.lower_bound_units = best.cost_units;
    (Some(best), looked_at)
}

struct Search<'a> {
    problem: &'a FleetProblem,
    /// Columns by price per capacity, cheapest first.
    by_worth: Vec<usize>,
    /// The domain of each column, numbered from zero.
    domains: Vec<usize>,
    domain_count: usize,
    /// A common divisor of all costs.
    step_units: i128,
}

/// The optimum where nodes may be cut.
struct Relaxed {
    /// The most that any domain carries.
    most: u128,
    /// A proved lower bound of every fleet within the bounds.
    bound_units: i128,
}

/// The load of the least nodes and the largest possible load, by domain and in total.
struct Room {
    base_total: u128,
    base: Vec<u128>,
    full: Vec<u128>,
    base_cost: i128,
}

impl<'a> Search<'a> {
    fn new(problem: &'a FleetProblem) -> Self {
        let columns = &problem.columns;
        let mut by_worth: Vec<usize> = (0..columns.len())
            .filter(|at| columns[*at].capacity > 0)
            .collect();
        let per = |at: usize, other: usize| {
            i128::from(columns[at].price_units) * i128::from(columns[other].capacity)
        };
        by_worth.sort_by(|a, b| per(*a, *b).cmp(&per(*b, *a)).then(a.cmp(b)));
        let mut names: Vec<u32> = columns.iter().map(|column| column.domain).collect();
        names.sort_unstable();
        names.dedup();
        let number = |column: &Column| names.partition_point(|name| *name < column.domain);
        let step = columns.iter().fold(0, |step, column| {
            greatest_common_divisor(step, column.price_units)
        });
        Self {
            problem,
            by_worth,
            domains: columns.iter().map(number).collect(),
            domain_count: names.len(),
            step_units: i128::from(step.max(1)),
        }
    }

    fn room(&self, bounds: &Bounds) -> Room {
        let mut room = Room {
            base_total: 0,
            base: vec![0; self.domain_count],
            full: vec![0; self.domain_count],
            base_cost: 0,
        };
        for (at, (least, most)) in bounds.iter().enumerate() {
            let column = &self.problem.columns[at];
            let carried = column.carried(*least);
            let domain = self.domains[at];
            room.base[domain] += carried;
            room.full[domain] += column.carried(*most);
            room.base_total += carried;
            room.base_cost += i128::from(column.price_units) * i128::from(*least);
        }
        room
    }

    /// The relaxation within the bounds; `None` where nothing within them carries the load.
    fn relax(&self, bounds: &Bounds) -> Option<Relaxed> {
        let room = self.room(bounds);
        let mut carried = Vec::new();
        let mut cost = |most| self.fill(bounds, &room, most, &mut carried, |_, _| {});
        if self.problem.kept == 0 {
            let most = u128::MAX;
            return Some(self.relaxed(cost(most)?, most));
        }
        let (mut low, high) = (*room.base.iter().max()?, *room.full.iter().max()?);
        let fits = |most: u128| {
            let within = room.full.iter().map(|full| *full.min(&most));
            within.sum::<u128>() >= self.needed(most)
        };
        if !fits(high) {
            return None;
        }
        // Up to the largest domain a higher `m` only makes it easier to carry enough.
        let mut above = high;
        while low < above {
            let middle = low + (above - low) / 2;
            if fits(middle) {
                above = middle;
            } else {
                low = middle + 1;
            }
        }
        let (most, least) = least(low, high, cost)?;
        Some(self.relaxed(least, most))
    }

    /// The load that each column carries beyond its least nodes, in the relaxation in which no domain carries
    /// more than `most`.
    fn taken(&self, bounds: &Bounds, most: u128) -> Vec<u128> {
        let mut taken = vec![0; bounds.len()];
        let room = self.room(bounds);
        self.fill(bounds, &room, most, &mut Vec::new(), |at, amount| {
            taken[at] = amount;
        });
        taken
    }

    fn needed(&self, most: u128) -> u128 {
        let need = u128::from(self.problem.need);
        match self.problem.kept {
            0 => need,
            kept => need.max(u128::from(kept) + most),
        }
    }

    /// The cost of the cheapest filling in which no domain carries more than `most`, in fractions of a unit.
    /// `take` receives the amount that each column carries. `carried` is scratch space.
    fn fill(
        &self,
        bounds: &Bounds,
        room: &Room,
        most: u128,
        carried: &mut Vec<u128>,
        mut take: impl FnMut(usize, u128),
    ) -> Option<i128> {
        let mut left = self.needed(most).saturating_sub(room.base_total);
        carried.clone_from(&room.base);
        let mut cost = room.base_cost << FRACTION_BITS;
        for at in &self.by_worth {
            if left == 0 {
                break;
            }
            let (column, domain) = (&self.problem.columns[*at], self.domains[*at]);
            let (least, upper) = bounds[*at];
            let all = column.carried(upper - least);
            let amount = all.min(most.saturating_sub(carried[domain])).min(left);
            if amount == 0 {
                continue;
            }
            take(*at, amount);
            carried[domain] += amount;
            left -= amount;
            let price = i128::from(column.price_units);
            if amount == all {
                cost += (price * i128::from(upper - least)) << FRACTION_BITS;
            } else {
                // Whole nodes apart from the cut one, so that the products stay small.
                let (nodes, part) = column.cut(amount);
                cost += (price * i128::from(nodes)) << FRACTION_BITS;
                cost += column.price_of_part(part);
            }
        }
        (left == 0).then_some(cost)
    }

    fn relaxed(&self, cost: i128, most: u128) -> Relaxed {
        let units = ((cost - ROUNDING) >> FRACTION_BITS) + 1;
        let steps = units.max(0).div_euclid(self.step_units)
            + i128::from(units.max(0).rem_euclid(self.step_units) > 0);
        Relaxed {
            most,
            bound_units: steps * self.step_units,
        }
    }

    /// The fleet of whole nodes that covers the relaxation, less the nodes that it does not need.
    fn rounded_up(&self, bounds: &Bounds, taken: &[u128]) -> Fleet {
        let columns = &self.problem.columns;
        let mut counts: Vec<u32> = (bounds.iter().zip(taken).zip(columns))
            .map(|(((least, most), taken), column)| {
                let (nodes, part) = column.cut(*taken);
                // It takes no more than the stock.
                least + nodes.saturating_add(u32::from(part > 0)).min(most - least)
            })
            .collect();
        let mut carried = vec![0_u128; self.domain_count];
        for (at, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            carried[self.domains[at]] += columns[at].carried(*count);
        }
        let mut dearest: Vec<usize> = (0..columns.len()).filter(|at| counts[*at] > 0).collect();
        dearest.sort_by_key(|at| (Reverse(columns[*at].price_units), *at));
        for at in dearest {
            // The fewest sufficient nodes, by bisection: fewer never carry more.
            let domain = self.domains[at];
            let beside = carried[domain] - columns[at].carried(counts[at]);
            let (mut few, mut enough) = (0, counts[at]);
            while few < enough {
                let middle = few + (enough - few) / 2;
                carried[domain] = beside + columns[at].carried(middle);
                if self.carries(&carried) {
                    enough = middle;
                } else {
                    few = middle + 1;
                }
            }
            carried[domain] = beside + columns[at].carried(enough);
            counts[at] = enough;
        }
        Fleet {
            cost_units: self.problem.cost_of(&counts),
            lower_bound_units: 0,
            counts,
        }
    }

    /// Whether the domains carry enough.
    fn carries(&self, carried: &[u128]) -> bool {
        let total: u128 = carried.iter().sum();
        let largest = carried.iter().max().copied().unwrap_or(0);
        total >= u128::from(self.problem.need) && total - largest >= u128::from(self.problem.kept)
    }

    /// The column with the most expensive cut node, and its number of whole nodes.
    fn cut_most(&self, bounds: &Bounds, taken: &[u128]) -> Option<(usize, u32)> {
        let cut = |at: &usize| {
            let column = &self.problem.columns[*at];
            let (_, part) = column.cut(taken[*at]);
            let nearest = part.min(column.capacity - part);
            (part > 0).then(|| {
                let weight = i128::from(column.price_units) * i128::from(nearest) * 1_000;
                (weight / i128::from(column.capacity), Reverse(*at))
            })
        };
        let (_, Reverse(at)) = self.by_worth.iter().filter_map(cut).max()?;
        let (nodes, _) = self.problem.columns[at].cut(taken[at]);
        Some((at, bounds[at].0 + nodes))
    }
}

impl Column {
    /// The amount that so many nodes carry.
    fn carried(&self, nodes: u32) -> u128 {
        u128::from(self.capacity) * u128::from(nodes)
    }

    /// The whole nodes that carry no more than this amount, and the remainder.
    fn cut(&self, amount: u128) -> (u32, u64) {
        if let Ok(amount) = u64::try_from(amount) {
            let capacity = self.capacity.max(1);
            let nodes = u32::try_from(amount / capacity).unwrap_or(u32::MAX);
            return (nodes, amount % capacity);
        }
        let capacity = u128::from(self.capacity.max(1));
        let nodes = u32::try_from(amount / capacity).unwrap_or(u32::MAX);
        // Less than its capacity.
        (nodes, u64::try_from(amount % capacity).unwrap_or(u64::MAX))
    }

    /// The cost of a part of a node with this load, rounded down. Units: fractions of a unit.
    fn price_of_part(&self, part: u64) -> i128 {
        let price = u64::try_from(self.price_units).ok();
        if let Some(product) = price.and_then(|price| price.checked_mul(part))
            && self.capacity < 1 << (u64::BITS - FRACTION_BITS)
        {
            // The same in short divisions.
            let (whole, rest) = (product / self.capacity, product % self.capacity);
            let rest = (rest << FRACTION_BITS) / self.capacity;
            return (i128::from(whole) << FRACTION_BITS) + i128::from(rest);
        }
        let product = i128::from(self.price_units) * i128::from(part);
        (product << FRACTION_BITS) / i128::from(self.capacity)
    }
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}
