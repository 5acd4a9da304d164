//! Removes columns and nodes without a change of the optimum: columns that are worse than another one in
//! every way, useless nodes, and columns that differ in name alone.

use std::collections::HashMap;

use super::{Column, Fleet, FleetProblem};

/// A problem with fewer columns and the same optimum.
#[derive(Debug)]
pub struct Reduced {
    /// The smaller problem.
    pub problem: FleetProblem,
    /// The columns of the first problem that each column of the smaller one represents, with their stocks.
    members: Vec<Vec<(usize, u32)>>,
    columns: usize,
}

/// Merges equal columns, and drops those that a better one of the same domain makes useless.
///
/// Once the nodes in one domain carry the larger of need and kept, more nodes there are useless: they do not
/// help when that domain is lost, and no other loss needs them. So each column counts at most as many nodes
/// as carry that much alone. A column with that many nodes replaces every more expensive and weaker one of
/// its domain: its nodes take their places until it carries everything.
#[must_use]
pub fn reduce(problem: &FleetProblem) -> Reduced {
    let most = problem.need.max(problem.kept);
    // Without a rule on losses the domain of a node does not matter.
    let domain = |column: &Column| if problem.kept == 0 { 0 } else { column.domain };
    let mut groups: HashMap<(u32, i64, u64), usize> = HashMap::new();
    let mut merged: Vec<(Column, Vec<(usize, u32)>)> = Vec::new();
    for (at, column) in problem.columns.iter().enumerate() {
        if column.capacity == 0 || column.stock == 0 {
            continue;
        }
        let useful = most.div_ceil(column.capacity);
        let useful = u32::try_from(useful).unwrap_or(u32::MAX);
        let key = (domain(column), column.price_units, column.capacity);
        let group = *groups.entry(key).or_insert_with(|| {
            let empty = Column {
                stock: 0,
                domain: domain(column),
                ..*column
            };
            merged.push((empty, Vec::new()));
            merged.len() - 1
        });
        let (column_of_group, members) = &mut merged[group];
        let stock = column.stock.min(useful - column_of_group.stock);
        if stock > 0 {
            column_of_group.stock += stock;
            members.push((at, stock));
        }
    }
    // Cheapest first, and of one price the strongest: a column is dropped by one before it.
    merged.sort_by_key(|(column, members)| {
        let first = members.first().map(|(at, _)| *at);
        (
            column.domain,
            column.price_units,
            std::cmp::Reverse(column.capacity),
            first,
        )
    });
    let mut kept: Vec<(Column, Vec<(usize, u32)>)> = Vec::new();
    // The strongest column of the domain so far that could carry everything by itself.
    let mut plenty: Option<Column> = None;
    for (column, members) in merged {
        let stronger = plenty
            .filter(|better| better.domain == column.domain && better.capacity >= column.capacity);
        if stronger.is_some() {
            continue;
        }
        if u64::from(column.stock) >= most.div_ceil(column.capacity) {
            plenty = Some(column);
        }
        kept.push((column, members));
    }
    let (columns, members) = kept.into_iter().unzip();
    Reduced {
        problem: FleetProblem {
            columns,
            ..*problem
        },
        members,
        columns: problem.columns.len(),
    }
}

impl Reduced {
    /// The fleet in terms of the first problem's columns.
    #[must_use]
    pub fn expand(&self, fleet: &Fleet) -> Fleet {
        let mut counts = vec![0; self.columns];
        for (members, count) in self.members.iter().zip(&fleet.counts) {
            let mut left = *count;
            for (at, stock) in members {
                let here = left.min(*stock);
                counts[*at] = here;
                left -= here;
            }
        }
        Fleet {
            counts,
            ..fleet.clone()
        }
    }
}
