//! The best offers of a search, up to a limit: heaps of them, and the test that a group cannot add more.
//!
//! The ties with the cheapest are known only after all offers. So the heaps keep the best offers of each
//! precedence within a tie, and the plan chooses its own from them ([`crate::ties`]).

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::filter::Filter;
use crate::plan::AlsoAt;
use crate::search::{Fit, Key, Query};
use crate::snapshot::OfferRef;
use crate::ties::{Precedence, Standing, is_tie};
use crate::walk::{Allowed, OpenGroup};

/// An eligible offer with its rank key: the smaller the better.
pub(crate) struct Ranked<'s> {
    pub(crate) key: Key,
    pub(crate) at: Allowed,
    precedence: Precedence,
    /// The place of its group's fit among the ranking's.
    fit: usize,
    offer: OfferRef<'s>,
    /// Offers that differ from it only in their place and come after it.
    also: Vec<OfferRef<'s>>,
}

impl Ranked<'_> {
    /// The other places of the same thing at the same price, in their order.
    pub(crate) fn also_at(&self) -> Vec<AlsoAt> {
        let mut also = self.also.clone();
        also.sort_unstable_by(|one, other| one.tie_order(*other));
        let at = |offer: OfferRef<'_>| AlsoAt {
            offer_id: offer.offer_id(),
            place: offer.place(),
        };
        also.into_iter().map(at).collect()
    }

    pub(crate) const fn standing(&self) -> Standing {
        Standing {
            cost: self.key.cost,
            precedence: self.precedence,
        }
    }

    /// Its provider and SKU.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.offer.provider(), self.offer.sku())
    }
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
    /// It is among the best of its class.
    In,
    /// It is as good as the worst of the best, and comes after it.
    Equal,
    /// It is worse than all of the best.
    Worse,
}

/// The best offers of one precedence, up to a limit, with the worst of them on top.
struct Best<'s> {
    precedence: Precedence,
    heap: BinaryHeap<Ranked<'s>>,
}

/// The best offers so far, up to a limit.
pub(crate) struct Ranking<'s> {
    limit: usize,
    /// One for each class that occurs: a few.
    best: Vec<Best<'s>>,
    /// The cost of the cheapest that was seen.
    least: Option<i128>,
    /// The fits of the groups that an offer was taken of.
    fits: Vec<Fit>,
    /// The number of offers whose rank was computed.
    scored: usize,
}

/// Attaches an offer to the kept one that differs from it only in its place; returns it where there is none.
fn with_its_like<'s>(heap: &mut BinaryHeap<Ranked<'s>>, ranked: Ranked<'s>) -> Option<Ranked<'s>> {
    let is_like = |kept: &Ranked<'s>| {
        kept.key == ranked.key && kept.offer.differs_in_place_alone(ranked.offer)
    };
    if !heap.iter().any(is_like) {
        return Some(ranked);
    }
    let mut all = std::mem::take(heap).into_vec();
    let mut first = ranked;
    if let Some(kept) = all
        .iter_mut()
        .find(|kept| kept.key == first.key && kept.offer.differs_in_place_alone(first.offer))
    {
        if first < *kept {
            std::mem::swap(kept, &mut first);
            kept.also.append(&mut first.also);
        }
        kept.also.push(first.offer);
    }
    *heap = all.into();
    None
}

impl<'s> Ranking<'s> {
    pub(crate) const fn new(limit: usize) -> Self {
        Self {
            limit,
            best: Vec::new(),
            least: None,
            fits: Vec::new(),
            scored: 0,
        }
    }

    /// Adds the rows of a group that are among the best.
    ///
    /// They come cheapest first. Where all have one precedence, this stops at the first row that costs more
    /// than the worst of the best, and among rows of one price at the first that is not better. Otherwise it
    /// stops only where no row can be in a tie any more either.
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
            if let Some(at) = group.taken(filter, row) {
                let key = group.own_key(query, filter, row);
                let precedence = group.precedence(filter, row);
                self.offer(filter, group, (at, key, precedence), fit);
            }
        }
        let one_class = group.precedence_of_all(filter);
        let prices = group.group.partition().prices(&rows);
        let mut next = 0;
        while let Some(price) = prices.get(next) {
            let row = rows.start + next as u32;
            next += 1;
            if group.own().contains(&row) {
                continue;
            }
            let Some(at) = group.taken(filter, row) else {
                continue;
            };
            let key = group.key(query, row);
            let precedence = one_class.unwrap_or_else(|| group.precedence(filter, row));
            let kept = self.offer(filter, group, (at, key, precedence), fit);
            match (kept, one_class) {
                (Kept::In, _) | (Kept::Equal, None) => {}
                (Kept::Equal, Some(_)) => {
                    next += prices[next..].partition_point(|other| other == price);
                }
                (Kept::Worse, Some(_)) => return,
                (Kept::Worse, None) => {
                    if self.is_of_no_use(&key) {
                        return;
                    }
                }
            }
        }
    }

    /// Whether no offer at this rank can be shown, of any class: it is in no tie, and enough offers are
    /// better.
    fn is_of_no_use(&self, key: &Key) -> bool {
        let better = || {
            let all = self.best.iter().flat_map(|best| &best.heap);
            all.filter(|known| known.key < *key).count()
        };
        let ties = |least| is_tie(key.cost, least);
        !self.least.is_some_and(ties) && better() >= self.limit
    }

    /// Adds one row if it is among the best of its class, and returns how it compares with the worst of them.
    fn offer(
        &mut self,
        filter: &Filter<'s>,
        group: &OpenGroup<'s>,
        (at, key, precedence): (Allowed, Key, Precedence),
        fit: usize,
    ) -> Kept {
        self.scored += 1;
        let ranked = Ranked {
            key,
            at,
            precedence,
            fit,
            offer: filter.snapshot.offer_in(group.group, at.at().row),
            also: Vec::new(),
        };
        self.least = Some(self.least.map_or(key.cost, |least| least.min(key.cost)));
        let heap = match self
            .best
            .iter()
            .position(|best| best.precedence == precedence)
        {
            Some(known) => &mut self.best[known].heap,
            None => {
                let heap = BinaryHeap::new();
                self.best.push(Best { precedence, heap });
                let last = self.best.len() - 1;
                &mut self.best[last].heap
            }
        };
        // Orderable offers keep a candidate for each place: if one fails, the next one is used. The halves of
        // a hybrid demand do so too, since their total cost depends on the places.
        let apart = group.group.orderable() || !filter.options.ties;
        let new = match apart {
            true => Some(ranked),
            false => with_its_like(heap, ranked),
        };
        let Some(ranked) = new else {
            self.fits.resize(fit + 1, group.fit);
            return Kept::In;
        };
        if heap.len() < self.limit {
            heap.push(ranked);
            self.fits.resize(fit + 1, group.fit);
            return Kept::In;
        }
        let Some(mut worst) = heap.peek_mut() else {
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

    /// The number of offers whose rank was computed.
    #[cfg(test)]
    pub(crate) const fn scored(&self) -> usize {
        self.scored
    }

    /// The best of every class, cheapest first, each with its fit: all that a plan may show, and usually
    /// more.
    pub(crate) fn into_sorted(self) -> Vec<(Ranked<'s>, Fit)> {
        let fits = self.fits;
        let all = self.best.into_iter().flat_map(|best| best.heap);
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        let best = all.into_iter().map(|ranked| {
            let fit = fits[ranked.fit];
            (ranked, fit)
        });
        best.collect()
    }
}
