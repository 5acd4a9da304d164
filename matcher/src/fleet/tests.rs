//! Exactness: against full enumeration, against each other, and as problems change.

use super::*;

/// SplitMix64: small, seeded, and the same everywhere.
pub(super) struct Draw(pub(super) u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }
}

/// A problem of up to so many columns. With `survive` it mostly has a rule on losses: the whole need must be
/// kept, as in plans, or a part of it. Every other problem has capacities as large as those of plans.
fn any_problem(draw: &mut Draw, columns: u64, stock: u64, survive: bool) -> FleetProblem {
    let most = match draw.within(0, 1) {
        1 => LARGE,
        _ => SMALL,
    };
    problem_of(draw, columns, stock, survive, most)
}

/// The most that a node carries in problems with small tables, and in those of plans, where it is some ten
/// thousand tokens per second in thousandths.
pub(super) const SMALL: u64 = 30;
const LARGE: u64 = 30_000_000;

pub(super) fn problem_of(
    draw: &mut Draw,
    columns: u64,
    stock: u64,
    survive: bool,
    most: u64,
) -> FleetProblem {
    let columns: Vec<Column> = (0..draw.within(1, columns))
        .map(|_| Column {
            price_units: draw.within(1, 40) as i64,
            capacity: draw.within(most.div_ceil(100), most),
            stock: draw.within(0, stock) as u32,
            domain: draw.within(0, 3) as u32,
        })
        .collect();
    let all: u64 = (columns.iter())
        .map(|column| column.capacity * u64::from(column.stock))
        .sum();
    let need = draw.within(1, all.max(1) * 11 / 10 + 1);
    let kept = match draw.within(0, 2) {
        1 if survive => need,
        2 if survive => draw.within(1, need),
        _ => 0,
    };
    FleetProblem {
        columns,
        need,
        kept,
    }
}

/// Every fleet there is, one after the other.
fn enumerated(problem: &FleetProblem) -> Option<i128> {
    let mut counts = vec![0_u32; problem.columns.len()];
    let mut best: Option<i128> = None;
    loop {
        let cost_units = problem.cost_of(&counts);
        if best.is_none_or(|known| cost_units < known) {
            let fleet = Fleet {
                cost_units,
                lower_bound_units: 0,
                counts: counts.clone(),
            };
            if problem.check(&fleet).is_ok() {
                best = Some(cost_units);
            }
        }
        let Some(at) = (0..counts.len()).find(|at| counts[*at] < problem.columns[*at].stock) else {
            return best;
        };
        counts[..at].fill(0);
        counts[at] += 1;
    }
}

#[track_caller]
fn cost(problem: &FleetProblem, fleet: Option<&Fleet>) -> Option<i128> {
    fleet.map(|fleet| {
        assert_eq!(problem.check(fleet), Ok(()), "{problem:?} {fleet:?}");
        assert!(fleet.is_optimal(), "{problem:?} {fleet:?}");
        fleet.cost_units
    })
}

// S64
#[test]
fn both_methods_equal_full_enumeration_on_a_thousand_small_fleets() {
    let mut draw = Draw(1);
    let mut carried = 0;
    for _ in 0..1_000 {
        let problem = any_problem(&mut draw, 6, 4, true);
        let exact = enumerated(&problem);
        carried += usize::from(exact.is_some());
        let branched = branch_and_bound(&problem, usize::MAX);
        assert_eq!(cost(&problem, branched.as_ref()), exact, "{problem:?}");
        assert_eq!(cost(&problem, solve(&problem).as_ref()), exact);
        if problem.kept == 0 && covering_cells(&problem) <= COVERING_CELLS {
            assert_eq!(cost(&problem, cover(&problem).as_ref()), exact);
        }
    }
    assert!((500..1_000).contains(&carried), "{carried}");
}

#[test]
fn both_methods_equal_each_other_on_a_thousand_larger_fleets() {
    let mut draw = Draw(2);
    for _ in 0..1_000 {
        let problem = problem_of(&mut draw, 40, 12, false, SMALL);
        let branched = branch_and_bound(&problem, usize::MAX);
        let covered = cover(&problem);
        let covered = cost(&problem, covered.as_ref());
        assert_eq!(cost(&problem, branched.as_ref()), covered, "{problem:?}");
        // As large as those of plans, which no table holds.
        let mut larger = problem.clone();
        let factor = draw.within(300_000, 1_000_000);
        larger.need *= factor;
        for column in &mut larger.columns {
            column.capacity *= factor;
        }
        let branched = branch_and_bound(&larger, usize::MAX);
        assert_eq!(cost(&larger, branched.as_ref()), covered, "{larger:?}");
    }
}

#[test]
fn what_is_left_out_beforehand_changes_no_optimum() {
    let mut draw = Draw(3);
    let mut smaller = 0;
    for _ in 0..1_000 {
        let problem = any_problem(&mut draw, 16, 20, true);
        let reduced = reduce(&problem);
        smaller += usize::from(reduced.problem.columns.len() < problem.columns.len());
        let whole = branch_and_bound(&problem, usize::MAX);
        let small = branch_and_bound(&reduced.problem, usize::MAX);
        let expanded = small.map(|fleet| reduced.expand(&fleet));
        assert_eq!(
            cost(&problem, expanded.as_ref()),
            cost(&problem, whole.as_ref()),
            "{problem:?}"
        );
    }
    assert!(smaller > 300, "{smaller}");
}

#[test]
fn more_offers_lower_prices_and_smaller_needs_never_cost_more() {
    let mut draw = Draw(4);
    let optimum =
        |problem: &FleetProblem| cost(problem, solve(problem).as_ref()).unwrap_or(i128::MAX);
    for _ in 0..500 {
        let problem = any_problem(&mut draw, 12, 8, true);
        let before = optimum(&problem);
        let mut more = problem.clone();
        more.columns.push(Column {
            price_units: draw.within(1, 40) as i64,
            capacity: draw.within(1, 30),
            stock: draw.within(0, 8) as u32,
            domain: draw.within(0, 4) as u32,
        });
        assert!(optimum(&more) <= before);
        let mut cheaper = problem.clone();
        let at = draw.within(0, cheaper.columns.len() as u64 - 1) as usize;
        let price = &mut cheaper.columns[at].price_units;
        *price = draw.within(1, *price as u64) as i64;
        assert!(optimum(&cheaper) <= before);
        let mut less = problem.clone();
        less.need = draw.within(1, less.need);
        assert!(optimum(&less) <= before);
        less.kept /= 2;
        assert!(optimum(&less) <= before);
    }
}

#[test]
fn scaled_prices_scale_the_optimum() {
    let mut draw = Draw(5);
    for _ in 0..500 {
        let problem = any_problem(&mut draw, 12, 8, true);
        let factor = draw.within(2, 1_000_000_000);
        let mut scaled = problem.clone();
        for column in &mut scaled.columns {
            column.price_units *= factor as i64;
        }
        let (before, after) = (solve(&problem), solve(&scaled));
        let (before, after) = (
            cost(&problem, before.as_ref()),
            cost(&scaled, after.as_ref()),
        );
        assert_eq!(after, before.map(|cost| cost * i128::from(factor)));
    }
}

#[test]
fn a_search_cut_short_says_by_how_much_it_may_be_wrong() {
    let mut draw = Draw(6);
    let mut cut_short = 0;
    for _ in 0..200 {
        let problem = any_problem(&mut draw, 20, 10, true);
        let Some(exact) = branch_and_bound(&problem, usize::MAX) else {
            continue;
        };
        let short = branch_and_bound(&problem, 1).expect("it carries the load");
        assert_eq!(problem.check(&short), Ok(()));
        assert!(short.lower_bound_units <= exact.cost_units);
        assert!(short.cost_units >= exact.cost_units);
        cut_short += usize::from(!short.is_optimal());
    }
    assert!(cut_short > 0);
}

#[test]
fn the_checker_refuses_what_is_wrong() {
    let column = |domain| Column {
        price_units: 5,
        capacity: 10,
        stock: 3,
        domain,
    };
    let problem = FleetProblem {
        columns: vec![column(0), column(1)],
        need: 20,
        kept: 10,
    };
    let fleet = |counts: [u32; 2], cost_units| Fleet {
        counts: counts.into(),
        cost_units,
        lower_bound_units: cost_units,
    };
    assert_eq!(problem.check(&fleet([1, 1], 10)), Ok(()));
    assert_eq!(problem.check(&fleet([4, 0], 20)), Err(Violation::Stock(0)));
    assert_eq!(problem.check(&fleet([1, 1], 9)), Err(Violation::Cost));
    assert_eq!(problem.check(&fleet([1, 0], 5)), Err(Violation::Need));
    assert_eq!(problem.check(&fleet([2, 0], 10)), Err(Violation::Loss(0)));
    let other = Fleet {
        counts: vec![1],
        ..fleet([1, 1], 5)
    };
    assert_eq!(problem.check(&other), Err(Violation::Shape));
}

/// A column of one domain at the price of one.
fn at_one(capacity: u64, stock: u32) -> Column {
    Column {
        price_units: 1,
        capacity,
        stock,
        domain: 0,
    }
}

#[test]
fn a_need_that_nothing_carries_is_refused_before_a_table_is_made_for_it() {
    for (need, kept) in [(1_000_000_000_000, 0), (u64::MAX, 0), (1, u64::MAX)] {
        for columns in [
            vec![],
            vec![at_one(0, 9)],
            vec![at_one(9, 0)],
            vec![at_one(7, 3)],
        ] {
            let problem = FleetProblem {
                columns,
                need,
                kept,
            };
            assert_eq!(solve(&problem), None, "{problem:?}");
            if need > 21 {
                assert_eq!(cover(&problem), None, "{problem:?}");
            }
        }
    }
}

#[test]
fn a_table_is_as_long_as_the_need_even_for_one_item() {
    let problem = |need| FleetProblem {
        columns: vec![at_one(u64::MAX, 1)],
        need,
        kept: 0,
    };
    assert!(covering_cells(&problem(COVERING_CELLS)) > COVERING_CELLS);
    for need in [1, 1_000_000_000_000, u64::MAX] {
        let fleet = solve(&problem(need)).expect("one node carries everything");
        assert_eq!(
            (fleet.counts.as_slice(), fleet.is_optimal()),
            (&[1][..], true)
        );
    }
}

#[test]
fn amounts_whose_sums_pass_the_largest_integer_are_carried_all_the_same() {
    let strong = |domain| Column {
        domain,
        price_units: 10_000_000_000_000,
        ..at_one(1 << 40, u32::MAX)
    };
    for domains in [2, 3] {
        let problem = FleetProblem {
            columns: (0..domains).map(strong).collect(),
            need: u64::MAX,
            kept: u64::MAX,
        };
        let fleet = solve(&problem).expect("all but one carry it");
        assert_eq!(problem.check(&fleet), Ok(()));
    }
}

#[test]
fn programs_of_one_plan_share_their_work_and_each_is_answered() {
    let mut draw = Draw(13);
    assert_eq!(Budget::default().share(), NODE_LIMIT);
    // Far less than they need together.
    let (mut answered, mut given) = (0, 200);
    let budget = Budget {
        nodes: Cell::new(given),
    };
    let mut cut_short = 0;
    for _ in 0..400 {
        let problem = any_problem(&mut draw, 20, 10, true);
        let share = budget.share();
        assert!(share <= NODE_LIMIT && share <= given);
        let found = solve_within(&problem, &budget);
        let exact = branch_and_bound(&problem, usize::MAX);
        assert_eq!(found.is_some(), exact.is_some(), "{problem:?}");
        if let (Some(found), Some(exact)) = (found, exact) {
            assert_eq!(problem.check(&found), Ok(()));
            assert!(found.lower_bound_units <= exact.cost_units);
            answered += 1;
            cut_short += usize::from(!found.is_optimal());
        }
        let left = budget.nodes.get();
        assert!(given - left <= share);
        given = left;
    }
    assert!(
        answered > 200 && cut_short > 0,
        "{answered} {cut_short} {given}"
    );
}
