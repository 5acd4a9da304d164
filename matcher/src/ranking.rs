//! The best so many of a search: a heap of them, and when a group can add nothing more.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::filter::Filter;
use crate::search::{Fit, Key, Query};
use crate::snapshot::{OfferRef, RowId};
use crate::walk::OpenGroup;

/// An eligible offer with its rank key: the smaller the better.
pub(crate) struct Ranked<'s> {
    pub(crate) key: Key,
    pub(crate) at: RowId,
    /// The place of its group's fit among the ranking's.
    fit: usize,
    offer: OfferRef<'s>,
}

impl Ord for Ranked<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_key = self.key.cmp(&other.key);
        by_key.then_with(|| self.offer.tie_order(other.offer))
    }
}

impl PartialOrd for Ranked<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked<'_> {}

/// How a row was taken.
enum Kept {
    /// It is among the best.
    In,
    /// It is as good as the worst of the best, and comes after it.
    Equal,
    /// It is worse than all of the best.
    Worse,
}

/// The best so many that were seen.
pub(crate) struct Ranking<'s> {
    limit: usize,
    /// The worst of them on top.
    best: BinaryHeap<Ranked<'s>>,
    /// The fits of the groups that an offer was taken of.
    fits: Vec<Fit>,
    /// How many offers were looked at for their rank.
    scored: usize,
}

impl<'s> Ranking<'s> {
    pub(crate) const fn new(limit: usize) -> Self {
        Self {
            limit,
            best: BinaryHeap::new(),
            fits: Vec::new(),
            scored: 0,
        }
    }

    /// Takes in those of a group's rows that are among the best.
    ///
    /// They come cheapest first, so the walk ends at the first one that is dearer than the worst of
    /// the best; of several at one price, at the first that is no better.
    pub(crate) fn take(
        &mut self,
        query: &Query<'_>,
        filter: &Filter<'s>,
        group: &OpenGroup<'s>,
        rows: Range<u32>,
    ) {
        if self.limit == 0 {
            return;
        }
        let fit = self.fits.len();
        for row in group.own().iter().copied().filter(|row| rows.contains(row)) {
            if group.test(filter, row).is_ok() {
                let key = group.own_key(query, filter, row);
                self.offer(filter, group, (row, key), fit);
            }
        }
        let prices = group.group.partition().prices(&rows);
        let mut next = 0;
        while let Some(price) = prices.get(next) {
            let row = rows.start + next as u32;
            next += 1;
            if group.own().contains(&row) || group.test(filter, row).is_err() {
                continue;
            }
            let key = group.key(query, row);
            match self.offer(filter, group, (row, key), fit) {
                Kept::In => {}
                Kept::Equal => next += prices[next..].partition_point(|other| other == price),
                Kept::Worse => return,
            }
        }
    }

    /// Takes in one row where it is among the best, and says how it compares with the worst of them.
    fn offer(
        &mut self,
        filter: &Filter<'s>,
        group: &OpenGroup<'s>,
        (row, key): (u32, Key),
        fit: usize,
    ) -> Kept {
        self.scored += 1;
        let ranked = Ranked {
            key,
            at: group.row_id(row),
            fit,
            offer: filter.snapshot.offer_in(group.group, row),
        };
        if self.best.len() < self.limit {
            self.best.push(ranked);
            self.fits.resize(fit + 1, group.fit);
            return Kept::In;
        }
        let Some(mut worst) = self.best.peek_mut() else {
            return Kept::Worse;
        };
        if ranked < *worst {
            *worst = ranked;
            self.fits.resize(fit + 1, group.fit);
            Kept::In
        } else if ranked.key > worst.key {
            Kept::Worse
        } else {
            Kept::Equal
        }
    }

    /// How many offers were looked at for their rank.
    #[cfg(test)]
    pub(crate) const fn scored(&self) -> usize {
        self.scored
    }

    /// The best, best first, each with how it would be taken.
    pub(crate) fn into_sorted(self) -> impl Iterator<Item = (Ranked<'s>, Fit)> {
        let fits = self.fits;
        let best = self.best.into_sorted_vec().into_iter();
        best.map(move |ranked| {
            let fit = fits[ranked.fit];
            (ranked, fit)
        })
    }
}
