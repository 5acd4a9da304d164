//! Whether the memory column of a list is for one GPU or the sum over the GPUs of a row.
//!
//! Lists do not state it, and one collected from several sellers may mix both. Where at least nine of ten rows
//! that can be read in one way only agree, every row is read that way. Otherwise each such row decides for
//! itself, and the memory of the others stays unknown.

use super::row::{Reader, Row, RowRead};

/// Counts of the rows of a list that can be read in only one way.
#[derive(Debug, Default)]
struct Votes {
    of_one: usize,
    sum: usize,
}

impl Votes {
    /// The reading of nearly all rows, if any: one row in ten may be a card that does not match its name.
    fn decided(&self) -> Option<Column> {
        let all = self.of_one + self.sum;
        let is_nearly = |votes: usize| votes > 0 && votes * 10 >= all * 9;
        match (is_nearly(self.of_one), is_nearly(self.sum)) {
            (true, _) => Some(Column::OfOne),
            (_, true) => Some(Column::Sum),
            _ => None,
        }
    }
}

/// The meaning of the column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    OfOne,
    Sum,
}

/// Decides it for the rows of a list. Where nothing decides it, their memory stays unknown: the wrong reading
/// would make a cheaper card of it.
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
            (None, [true, false]) => Some(Column::OfOne),
            (None, [false, true]) => Some(Column::Sum),
            (None, [true, true]) => None,
            // It contradicts its name either way, and is refused for it.
            (None, [false, false]) => Some(Column::OfOne),
        };
        if let Some(if_sum) = row.memory_if_sum_mib.take() {
            match column {
                Some(Column::OfOne) => {}
                Some(Column::Sum) => row.gpu_memory_mib = Some(if_sum),
                None => row.gpu_memory_mib = None,
            }
        }
    }
}

/// Whether a row is plausible with the memory of one GPU, and with the sum. A row that does not separate the
/// two does not count.
fn possible(row: &Row<'_>, reader: &mut Reader) -> [bool; 2] {
    match (row.gpu_memory_mib, row.memory_if_sum_mib) {
        (Some(of_one), Some(if_sum)) => [of_one, if_sum].map(|mib| reader.may_have(row, mib)),
        _ => [false, false],
    }
}
