//! The simple form, without a rule on losses: a bounded covering knapsack, by dynamic programming over the
//! load that is carried.

use super::{Fleet, FleetProblem};

/// A number of nodes of a column, taken together or not at all.
struct Item {
    column: usize,
    count: u32,
    capacity: u64,
    price_units: i128,
}

/// The cheapest fleet that carries the need; `None` where none does.
///
/// It ignores the rule on losses. Time and memory grow with the need times the items; a need
/// above all that there is costs nothing.
#[must_use]
pub fn cover(problem: &FleetProblem) -> Option<Fleet> {
    if problem.supply() < u128::from(problem.need) {
        return None;
    }
    let need = usize::try_from(problem.need).ok()?;
    let items = items(problem);
    // The least cost of carrying each amount, and for each item whether it is used.
    let mut least: Vec<Option<i128>> = vec![None; need + 1];
    least[0] = Some(0);
    let mut taken: Vec<Vec<bool>> = Vec::with_capacity(items.len());
    for item in &items {
        let mut with = vec![false; need + 1];
        for carried in (1..=need).rev() {
            let before = carried.saturating_sub(usize::try_from(item.capacity).unwrap_or(need));
            let Some(cost) = least[before].map(|cost| cost + item.price_units) else {
                continue;
            };
            if least[carried].is_none_or(|known| cost < known) {
                least[carried] = Some(cost);
                with[carried] = true;
            }
        }
        taken.push(with);
    }
    let cost_units = least[need]?;
    let mut counts = vec![0; problem.columns.len()];
    let mut carried = need;
    for (item, with) in items.iter().zip(&taken).rev() {
        if with[carried] {
            counts[item.column] += item.count;
            carried = carried.saturating_sub(usize::try_from(item.capacity).unwrap_or(need));
        }
    }
    Some(Fleet {
        counts,
        cost_units,
        lower_bound_units: cost_units,
    })
}

/// Splits each stock into powers of two and a remainder, which can form every count.
fn items(problem: &FleetProblem) -> Vec<Item> {
    let mut items = Vec::new();
    for (at, column) in problem.columns.iter().enumerate() {
        let (mut left, mut size) = (column.stock, 1);
        while left > 0 {
            let count = left.min(size);
            items.push(Item {
                column: at,
                count,
                capacity: column.capacity.saturating_mul(u64::from(count)),
                price_units: i128::from(column.price_units) * i128::from(count),
            });
            left -= count;
            size = size.saturating_mul(2);
        }
    }
    items
}
