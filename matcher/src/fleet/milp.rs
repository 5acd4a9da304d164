//! The same problem for a general solver of mixed integer programs, as an oracle: nothing of the
//! product's own search is in it. Behind the feature `milp`; `cargo xtask fleets` compares both.

use good_lp::{
    Expression, ProblemVariables, Solution, SolutionStatus, SolverModel, Variable, WithTimeLimit,
    constraint, microlp, solvers::microlp::MicroLpProblem, variable,
};

use super::{Fleet, FleetProblem};

/// What the solver found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The fleet, its costs added up in integers. Its bound is that of the solver: its own cost
    /// where that is proved, else nothing.
    pub fleet: Fleet,
    /// Whether the solver proved, within its tolerances, that none is cheaper.
    pub proved: bool,
}

/// Solves the problem, in so many seconds at most; `None` where the solver finds no fleet.
///
/// It reckons in floating point, so an answer is looked at with [`FleetProblem::check`].
#[must_use]
pub fn solve(problem: &FleetProblem, seconds: f64) -> Option<Found> {
    let model = Model::new(problem, Nodes::Whole);
    let solution = model.rules.with_time_limit(seconds).solve().ok()?;
    let counts: Vec<u32> = (model.nodes.iter())
        // Between nothing and the stock.
        .map(|count| solution.value(*count).round() as u32)
        .collect();
    let proved = matches!(solution.status(), SolutionStatus::Optimal);
    let cost_units = problem.cost_of(&counts);
    Some(Found {
        fleet: Fleet {
            counts,
            cost_units,
            lower_bound_units: if proved { cost_units } else { 0 },
        },
        proved,
    })
}

/// What every fleet costs at least, since with nodes that may be cut none costs less; `None` where
/// even so none carries the load. It takes the solver no search. Units: 1e-8 US dollars per hour.
///
/// It reckons in floating point: the bound holds within the solver's tolerances.
#[must_use]
pub fn bound_units(problem: &FleetProblem) -> Option<f64> {
    let model = Model::new(problem, Nodes::Cut);
    let solution = model.rules.solve().ok()?;
    let prices = problem
        .columns
        .iter()
        .map(|column| column.price_units as f64);
    let nodes = model.nodes.iter().map(|count| solution.value(*count));
    Some(prices.zip(nodes).map(|(price, nodes)| price * nodes).sum())
}

/// Whether nodes are taken whole.
#[derive(Clone, Copy, PartialEq)]
enum Nodes {
    Whole,
    Cut,
}

/// The problem as the solver takes it.
struct Model {
    nodes: Vec<Variable>,
    rules: MicroLpProblem,
}

impl Model {
    fn new(problem: &FleetProblem, of: Nodes) -> Self {
        let mut variables = ProblemVariables::new();
        let nodes: Vec<Variable> = (problem.columns.iter())
            .map(|column| {
                let count = variable().min(0).max(column.stock);
                variables.add(if of == Nodes::Whole {
                    count.integer()
                } else {
                    count
                })
            })
            .collect();
        // In dollars and in shares of the need all numbers are near one.
        let dollars = |at: usize| problem.columns[at].price_units as f64 / 1e8;
        let share = |at: usize| problem.columns[at].capacity as f64 / problem.need as f64;
        let cost: Expression = (nodes.iter().enumerate())
            .map(|(at, count)| dollars(at) * *count)
            .sum();
        let carried = |lost: Option<u32>| -> Expression {
            let standing = nodes.iter().enumerate();
            standing
                .filter(|(at, _)| Some(problem.columns[*at].domain) != lost)
                .map(|(at, count)| share(at) * *count)
                .sum()
        };
        let mut rules =
            (variables.minimise(cost).using(microlp)).with(constraint!(carried(None) >= 1.0));
        if problem.kept > 0 {
            let kept = problem.kept as f64 / problem.need as f64;
            let mut domains: Vec<u32> = problem.columns.iter().map(|one| one.domain).collect();
            domains.sort_unstable();
            domains.dedup();
            for domain in domains {
                rules = rules.with(constraint!(carried(Some(domain)) >= kept));
            }
        }
        Self { nodes, rules }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::tests::{Draw, SMALL, problem_of};
    use super::super::{Column, NODE_LIMIT, branch_and_bound, reduce};
    use super::*;

    /// Prices and capacities as offers have them, of twelve providers.
    fn market(draw: &mut Draw, offers: u64) -> FleetProblem {
        let columns = (0..offers).map(|_| {
            let gpus = [1, 2, 4, 8][draw.within(0, 3) as usize];
            // Tokens per second of a GPU, and cents an hour for them, more for faster ones.
            let speed = draw.within(500, 9_000);
            let cents = speed / 20 + draw.within(10, 150);
            Column {
                price_units: (cents * gpus * 1_000_000) as i64,
                capacity: speed * gpus * 1_000,
                stock: draw.within(0, 12) as u32,
                domain: draw.within(0, 11) as u32,
            }
        });
        let columns: Vec<Column> = columns.collect();
        let need = draw.within(20_000, 2_000_000) * 1_000;
        let kept = if draw.within(0, 1) == 1 { need } else { 0 };
        FleetProblem {
            columns,
            need,
            kept,
        }
    }

    #[test]
    fn the_solver_finds_what_the_own_search_finds_on_small_fleets() {
        let mut draw = Draw(11);
        for _ in 0..50 {
            let problem = problem_of(&mut draw, 6, 4, true, SMALL);
            let own = branch_and_bound(&problem, NODE_LIMIT);
            let found = solve(&problem, 10.0);
            assert_eq!(
                found.map(|found| found.fleet.cost_units),
                own.map(|fleet| fleet.cost_units),
                "{problem:?}"
            );
        }
    }

    /// `FLEETS` and `OFFERS` say how many of how many; prints a line for each.
    #[test]
    fn both_lie_within_each_others_bounds_on_large_fleets() {
        let number = |name: &str, usual: u64| {
            let given = std::env::var(name).ok();
            given.map_or(usual, |given| given.parse().expect("a number"))
        };
        let (fleets, offers) = (number("FLEETS", 3), number("OFFERS", 40));
        let seconds = number("SECONDS", 20) as f64;
        let mut draw = Draw(12);
        let (mut optimal, mut answered, mut proved, mut as_cheap) = (0, 0, 0, 0);
        let (mut widest, mut furthest) = (0_f64, 0_f64);
        for at in 1..=fleets {
            let problem = market(&mut draw, offers);
            let started = Instant::now();
            let own = super::super::solve(&problem).expect("plenty is on sale");
            let own_seconds = started.elapsed().as_secs_f64();
            assert_eq!(problem.check(&own), Ok(()));
            let started = Instant::now();
            let found = solve(&problem, seconds);
            let told = found.as_ref().map_or("nothing".to_owned(), |found| {
                let unproved = if found.proved { "" } else { ", unproved" };
                format!("{}{unproved}", found.fleet.cost_units)
            });
            println!(
                "fleet {at}: {} of {offers} columns, kept {}: own {} (bound {}, {own_seconds:.3} s), \
                 solver {told} ({:.3} s)",
                reduce(&problem).problem.columns.len(),
                problem.kept > 0,
                own.cost_units,
                own.lower_bound_units,
                started.elapsed().as_secs_f64(),
            );
            let gap = (own.cost_units - own.lower_bound_units) as f64 / own.cost_units as f64;
            widest = widest.max(gap);
            optimal += u64::from(own.is_optimal());
            // The solver's tolerances are relative.
            let slack = |cost: i128| cost + cost / 1_000_000;
            let bound = bound_units(&problem).expect("plenty is on sale").ceil() as i128;
            assert!(bound <= slack(own.cost_units), "{bound}");
            let above = (own.cost_units - bound) as f64 / own.cost_units as f64;
            furthest = furthest.max(above);
            // Plenty is on sale, but in its time the solver may find no whole nodes of it.
            let Some(found) = found else {
                continue;
            };
            answered += 1;
            proved += u64::from(found.proved);
            as_cheap += u64::from(own.cost_units <= found.fleet.cost_units);
            assert!(own.lower_bound_units <= slack(found.fleet.cost_units));
            assert!(bound <= slack(found.fleet.cost_units));
            // What the solver found is so far above its bound at most, and so is the own fleet.
            let gap = found.fleet.cost_units - bound;
            assert!(own.cost_units <= slack(found.fleet.cost_units + gap));
            if found.proved {
                assert!(found.fleet.cost_units <= slack(own.cost_units));
                assert!(!own.is_optimal() || own.cost_units <= slack(found.fleet.cost_units));
            }
        }
        println!(
            "{fleets} fleets: own search proved {optimal} optimal and all within {:.3} % of their bound, \
             and within {:.3} % of the solver's bound with nodes that may be cut; the solver answered \
             {answered} and proved {proved}; of what it answered the own fleet was as cheap or cheaper \
             in {as_cheap}",
            widest * 100.0,
            furthest * 100.0,
        );
        assert!(2 * answered >= fleets, "too few answers to compare with");
        // Every fleet is held to a bound that owes nothing to the own search, however little the
        // solver proves of its own answers in its time.
        assert!(furthest <= 0.05, "{furthest} above a bound");
    }
}
