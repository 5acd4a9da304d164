//! The proof that an offer passed a demand's tests. Only the walk makes one, and a candidate's line needs
//! one.

use std::ops::Deref;

use market::money::Rate;
use market::offer::Offer;

use crate::snapshot::{Row, RowId, Snapshot};

/// An offer that passes a demand's policy, places, kinds of machine, ages and ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Allowed(RowId);

impl Allowed {
    /// The caller must have tested the offer.
    pub(super) const fn new(at: RowId) -> Self {
        Self(at)
    }

    /// The position of the offer.
    pub(crate) const fn at(self) -> RowId {
        self.0
    }

    /// The offer in full.
    pub(crate) fn row(self, snapshot: &Snapshot) -> AllowedRow {
        AllowedRow(snapshot.row(self.0))
    }
}

/// The same in full. Nothing but its rate can be changed.
#[derive(Debug, Clone)]
pub(crate) struct AllowedRow(Row);

impl AllowedRow {
    /// The same at another rate than its own. All figures that depend on a price use that rate.
    pub(crate) fn at_rate(self, rate: Rate) -> Self {
        Self(Row {
            rate: Some(rate),
            ..self.0
        })
    }
}

impl From<AllowedRow> for Offer {
    fn from(row: AllowedRow) -> Self {
        row.0.offer
    }
}

impl Deref for AllowedRow {
    type Target = Row;

    fn deref(&self) -> &Row {
        &self.0
    }
}
