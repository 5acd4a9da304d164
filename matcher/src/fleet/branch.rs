//! Branch and bound, best bound first.
//!
//! The bound is the relaxation in which nodes may be cut: a need of `need`, and where losses are
//! survived, a number `m` such that no domain carries more than `m` and all together carry `kept`
//! and `m` beside it. For a given `m` that is filled cheapest first; over `m` the cost is convex, so
//! its least is found by bisection. Whatever is cut decides where to branch, and rounding it up
//! gives a fleet, since more nodes in one domain hurt no other.
//!
//! Amounts are integers, and costs are summed in fractions of a unit that are rounded down, so the
//! bound never exceeds what it bounds. Sums of amounts are wider than amounts, so that none is too
//! large.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Column, Fleet, FleetProblem};

/// Open problems that are looked at before the best fleet so far is taken, with its bound.
pub const NODE_LIMIT: usize = 2_000;

/// Fractions of a unit in which costs are summed: 2^24 of them.
const FRACTION_BITS: u32 = 24;

/// What rounding may take of a sum of costs, in those fractions: a 64th of a unit.
const ROUNDING: i128 = 1 << (FRACTION_BITS - 6);

/// The least and most nodes of each column.
type Bounds = Vec<(u32, u32)>;

/// The cheapest fleet, or after `node_limit` open problems the best so far; `None` where no fleet
/// carries the load.
#[must_use]
pub fn branch_and_bound(problem: &FleetProblem, node_limit: usize) -> Option<Fleet> {
    search(problem, node_limit).0
}

/// As [`branch_and_bound`], with the number of open problems that were looked at.
pub(super) fn search(problem: &FleetProblem, node_limit: usize) -> (Option<Fleet>, usize) {
    let search = Search::new(problem);
    let whole: Bounds = problem.columns.iter().map(|one| (0, one.stock)).collect();
    let Some(root) = search.relax(&whole) else {
        return (None, 0);
    };
    let mut best = search.rounded_up(&whole, &root);
    let mut open = BinaryHeap::new();
    let mut looked_at = 0;
    open.push(Reverse((root.bound_units, 0_usize, whole)));
    while let Some(Reverse((bound_units, _, bounds))) = open.pop() {
        if bound_units >= best.cost_units {
            break;
        }
        if looked_at >= node_limit {
            best.lower_bound_units = bound_units;
            return (Some(best), looked_at);
        }
        looked_at += 1;
        let Some(relaxed) = search.relax(&bounds) else {
            continue;
        };
        let found = search.rounded_up(&bounds, &relaxed);
        if found.cost_units < best.cost_units {
            best = found;
        }
        let Some((column, whole_nodes)) = search.cut_most(&bounds, &relaxed) else {
            // Nothing is cut, so the relaxation is a fleet, and was taken.
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
                open.push(Reverse((bound, looked_at, child)));
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
    /// What every cost is a multiple of.
    step_units: i128,
}

/// The optimum where nodes may be cut.
struct Relaxed {
    /// What each column carries beyond its least nodes.
    taken: Vec<u128>,
    /// A proved lower bound of every fleet within the bounds.
    bound_units: i128,
}

/// What the least nodes carry and can carry at most, by domain and in all.
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
        if self.problem.kept == 0 {
            let (cost, taken) = self.fill(bounds, &room, u128::MAX)?;
            return Some(self.relaxed(cost, taken));
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
        let mut best = self.fill(bounds, &room, low)?;
        let mut above = high;
        while low < above {
            let middle = low + (above - low) / 2;
            let (here, next) = (
                self.fill(bounds, &room, middle)?,
                self.fill(bounds, &room, middle + 1)?,
            );
            let falls = next.0 < here.0;
            for found in [here, next] {
                if found.0 < best.0 {
                    best = found;
                }
            }
            if falls {
                low = middle + 1;
            } else {
                above = middle;
            }
        }
        Some(self.relaxed(best.0, best.1))
    }

    fn needed(&self, most: u128) -> u128 {
        let need = u128::from(self.problem.need);
        match self.problem.kept {
            0 => need,
            kept => need.max(u128::from(kept) + most),
        }
    }

    /// The cheapest filling in which no domain carries more than `most`, in fractions of a unit.
    fn fill(&self, bounds: &Bounds, room: &Room, most: u128) -> Option<(i128, Vec<u128>)> {
        let mut left = self.needed(most).saturating_sub(room.base_total);
        let mut carried = room.base.clone();
        let mut taken = vec![0; bounds.len()];
        let mut cost = room.base_cost << FRACTION_BITS;
        for at in &self.by_worth {
            if left == 0 {
                break;
            }
            let (column, domain) = (&self.problem.columns[*at], self.domains[*at]);
            let take = (column.carried(bounds[*at].1 - bounds[*at].0))
                .min(most.saturating_sub(carried[domain]))
                .min(left);
            taken[*at] = take;
            carried[domain] += take;
            left -= take;
            // Whole nodes apart from the cut one, so that the products stay small.
            let (nodes, part) = column.cut(take);
            let price = i128::from(column.price_units);
            cost += (price * i128::from(nodes)) << FRACTION_BITS;
            cost += ((price * i128::from(part)) << FRACTION_BITS) / i128::from(column.capacity);
        }
        (left == 0).then_some((cost, taken))
    }

    fn relaxed(&self, cost: i128, taken: Vec<u128>) -> Relaxed {
        let units = ((cost - ROUNDING) >> FRACTION_BITS) + 1;
        let steps = units.max(0).div_euclid(self.step_units)
            + i128::from(units.max(0).rem_euclid(self.step_units) > 0);
        Relaxed {
            taken,
            bound_units: steps * self.step_units,
        }
    }

    /// The fleet of whole nodes that covers the relaxation, less what is not needed after all.
    fn rounded_up(&self, bounds: &Bounds, relaxed: &Relaxed) -> Fleet {
        let columns = &self.problem.columns;
        let mut counts: Vec<u32> = (bounds.iter().zip(&relaxed.taken).zip(columns))
            .map(|(((least, most), taken), column)| {
                let (nodes, part) = column.cut(*taken);
                // No more is taken than there is.
                least + nodes.saturating_add(u32::from(part > 0)).min(most - least)
            })
            .collect();
        let mut dearest: Vec<usize> = (0..columns.len()).filter(|at| counts[*at] > 0).collect();
        dearest.sort_by_key(|at| (Reverse(columns[*at].price_units), *at));
        for at in dearest {
            // The fewest nodes that will do, by bisection: fewer never carry more.
            let (mut few, mut enough) = (0, counts[at]);
            while few < enough {
                counts[at] = few + (enough - few) / 2;
                if self.carries(&counts) {
                    enough = counts[at];
                } else {
                    few = counts[at] + 1;
                }
            }
            counts[at] = enough;
        }
        Fleet {
            cost_units: self.problem.cost_of(&counts),
            lower_bound_units: relaxed.bound_units,
            counts,
        }
    }

    fn carries(&self, counts: &[u32]) -> bool {
        let mut carried = vec![0_u128; self.domain_count];
        for (at, count) in counts.iter().enumerate() {
            carried[self.domains[at]] += self.problem.columns[at].carried(*count);
        }
        let total: u128 = carried.iter().sum();
        let largest = carried.iter().max().copied().unwrap_or(0);
        total >= u128::from(self.problem.need) && total - largest >= u128::from(self.problem.kept)
    }

    /// The column whose cut node is dearest, and the whole nodes of it.
    fn cut_most(&self, bounds: &Bounds, relaxed: &Relaxed) -> Option<(usize, u32)> {
        let cut = |at: &usize| {
            let column = &self.problem.columns[*at];
            let (_, part) = column.cut(relaxed.taken[*at]);
            let nearest = part.min(column.capacity - part);
            (part > 0).then(|| {
                let weight = i128::from(column.price_units) * i128::from(nearest) * 1_000;
                (weight / i128::from(column.capacity), Reverse(*at))
            })
        };
        let (_, Reverse(at)) = self.by_worth.iter().filter_map(cut).max()?;
        let (nodes, _) = self.problem.columns[at].cut(relaxed.taken[at]);
        Some((at, bounds[at].0 + nodes))
    }
}

impl Column {
    /// What so many nodes carry.
    fn carried(&self, nodes: u32) -> u128 {
        u128::from(self.capacity) * u128::from(nodes)
    }

    /// The whole nodes that carry no more than so much, and what is left of it.
    fn cut(&self, amount: u128) -> (u32, u64) {
        let capacity = u128::from(self.capacity.max(1));
        let nodes = u32::try_from(amount / capacity).unwrap_or(u32::MAX);
        // Less than its capacity.
        (nodes, u64::try_from(amount % capacity).unwrap_or(u64::MAX))
    }
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}
