//! Decides whether the memory column of a list is for one GPU, or the sum over all GPUs of a row.
//!
//! Lists do not state it, and a list of several sellers may mix both. A row is clear if only one of the two
//! readings fits the name of its GPU. If nine in ten of the clear rows agree, every row is read that way.
//! Otherwise each clear row is read in its own way, and the memory of the others stays unknown.

use super::row::{Reader, Row, RowRead};

/// How many rows of a list fit only one reading, for each reading.
#[derive(Debug, Default)]
struct Votes {
    of_one: usize,
    sum: usize,
}

impl Votes {
    /// The reading of at least nine in ten of these rows, if any. The others may be cards that do not match
    /// their name.
    fn decided(&self) -> Option<MemoryScope> {
        let all = self.of_one + self.sum;
        let is_nearly = |votes: usize| votes > 0 && votes * 10 >= all * 9;
        match (is_nearly(self.of_one), is_nearly(self.sum)) {
            (true, _) => Some(MemoryScope::OfOne),
            (_, true) => Some(MemoryScope::Sum),
            _ => None,
        }
    }
}

/// A reading of the column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemoryScope {
    OfOne,
    Sum,
}

/// Sets the memory of every row of a list. It becomes unknown where the reading is undecided, because the
/// wrong reading could turn the row into a cheaper card.
pub(super) fn settle(rows: &mut [RowRead<'_>], reader: &mut Reader) {
    let mut votes = Votes::default();
    for row in rows.iter().flatten().flatten() {
        match possible(row, reader) {
            [true, false] => votes.of_one += 1,
            [false, true] => votes.sum += 1,
            _ => {}
        }
    }
    let decided = votes.decided();
    for row in rows.iter_mut().flatten().flatten() {
        let column = match (decided, possible(row, reader)) {
            (Some(column), _) => Some(column),
            (None, [true, false]) => Some(MemoryScope::OfOne),
            (None, [false, true]) => Some(MemoryScope::Sum),
            (None, [true, true]) => None,
            // Neither reading fits its name: the row is refused later.
            (None, [false, false]) => Some(MemoryScope::OfOne),
        };
        if let Some(if_sum) = row.memory_if_sum_mib.take() {
            match column {
                Some(MemoryScope::OfOne) => {}
                Some(MemoryScope::Sum) => row.gpu_memory_mib = Some(if_sum),
                None => row.gpu_memory_mib = None,
            }
        }
    }
}

/// Whether the figure fits the row as the memory of one GPU, and as the sum. For a row of one GPU or without
/// a figure, both are false.
fn possible(row: &Row<'_>, reader: &mut Reader) -> [bool; 2] {
    match (row.gpu_memory_mib, row.memory_if_sum_mib) {
        (Some(of_one), Some(if_sum)) => [of_one, if_sum].map(|mib| reader.may_have(row, mib)),
        _ => [false, false],
    }
}
