//! Near ties: what costs within a tenth of the cheapest counts as equal to it, since predictions err
//! by as much. Of those the surer price comes first, then the lower one.
//!
//! A tie is with the cheapest alone: what is within a tenth of another one of the tie is not in it
//! for that. It ends at the tier of the cheapest, which says what kind of machine will do.

use chrono::{DateTime, TimeDelta, Utc};

use crate::filter::Filter;
use crate::search::Key;

/// How sure it is that an offer is had at its price; the smaller the surer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Certainty {
    /// Whether it stands in a price list: what can be ordered has its price frozen by a quote.
    listed: bool,
    read: Read,
}

/// How long ago a price was read. Prices of one class are as sure as each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Read {
    #[default]
    WithinHour,
    WithinDay,
    WithinWeek,
    WithinMonth,
    Before,
}

/// What of a candidate decides where it stands among others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Standing {
    pub(crate) tier: u8,
    /// What ranks: a rate, or the cost of the whole. Units: 1e-8 US dollars.
    pub(crate) cost: i128,
    pub(crate) certainty: Certainty,
}

impl Read {
    const CLASSES: [(Self, TimeDelta, &str); 4] = [
        (Self::WithinHour, TimeDelta::hours(1), "within the hour"),
        (Self::WithinDay, TimeDelta::days(1), "within a day"),
        (Self::WithinWeek, TimeDelta::days(7), "within a week"),
        (Self::WithinMonth, TimeDelta::days(30), "within 30 days"),
    ];

    fn of(age: TimeDelta) -> Self {
        let classes = Self::CLASSES.iter();
        let mut within = classes.filter(|(_, most, _)| age <= *most);
        within.next().map_or(Self::Before, |(class, _, _)| *class)
    }

    fn words(self) -> &'static str {
        let mut classes = Self::CLASSES.iter();
        let own = classes.find(|(class, _, _)| *class == self);
        own.map_or("more than 30 days ago", |(_, _, words)| *words)
    }
}

impl Filter<'_> {
    /// How sure the price of an offer is; the same for all where nothing ties.
    pub(crate) fn certainty(&self, orderable: bool, observed_at: DateTime<Utc>) -> Certainty {
        if !self.options.ties {
            return Certainty::default();
        }
        Certainty {
            listed: !orderable,
            read: Read::of(self.now - observed_at),
        }
    }
}

/// Whether a candidate ties with the cheapest.
pub(crate) const fn is_tie((tier, cost): (u8, i128), cheapest: (u8, i128)) -> bool {
    // No cost is below zero, so the difference holds where ten times a cost may not.
    tier == cheapest.0 && cost - cheapest.1 <= cheapest.1 / 10
}

impl Standing {
    pub(crate) const fn of(key: &Key, certainty: Certainty) -> Self {
        Self {
            tier: key.tier,
            cost: key.cost,
            certainty,
        }
    }

    const fn rank(&self) -> (u8, i128) {
        (self.tier, self.cost)
    }

    /// Why it stands before the cheapest, with which it ties.
    pub(crate) fn before(&self, cheapest: &Self, name: &str) -> String {
        let more = (self.cost - cheapest.cost) as f64 / (cheapest.cost.max(1)) as f64 * 100.0;
        let (own, other) = (self.certainty, cheapest.certainty);
        let why = if own.listed == other.listed {
            format!(
                "this one was read {}, that one {}",
                own.read.words(),
                other.read.words()
            )
        } else {
            "this one can be ordered, that one stands in a price list".to_owned()
        };
        format!(
            "It costs {more:.1} % more than the cheapest, {name}: up to 10 % is a tie, in which the \
             surer price comes first; {why}"
        )
    }
}

/// Puts what stands cheapest first in the order of a plan. Where another one is first then, gives
/// the place of the cheapest.
pub(crate) fn settle<T>(sorted: &mut [T], of: impl Fn(&T) -> Standing) -> Option<usize> {
    let cheapest = of(sorted.first()?);
    let tied = sorted.partition_point(|one| is_tie(of(one).rank(), cheapest.rank()));
    let tied = &mut sorted[..tied];
    tied.sort_by_key(|one| of(one).certainty);
    let at = tied.partition_point(|one| of(one).certainty < cheapest.certainty);
    (at > 0).then_some(at)
}
