//! Near ties: a candidate within a tenth of the cheapest counts as equal to it, since predictions err by as
//! much. Within a tie orderable offers come first, then, for training runs, the better class of machine.
//! After that come the younger price, the provider with the better recent orders, and the lower price.
//!
//! A tie is with the cheapest alone: being within a tenth of another member of the tie is not enough.

use chrono::{DateTime, TimeDelta, Utc};
use market::acceptance::Reliability;
use market::ids::ProviderId;
use market::offer::MachineOperator;

use crate::filter::Filter;
use crate::hardware::TrainingClass;

/// The rule of a tie where no machine is better than another.
const SURER: &str = "the surer price comes first";

/// The order within a tie; the smaller comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Precedence {
    /// Whether it cannot be ordered. A quote freezes the price of an orderable offer.
    listed: bool,
    /// The class of machine of a run; the same for every other kind of demand.
    class: TrainingClass,
    read: Read,
    /// The outcomes of other tenants' orders there.
    reliability: Reliability,
}

/// How long ago a price was read. Prices of one class are equally sure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Read {
    #[default]
    WithinHour,
    WithinDay,
    WithinWeek,
    WithinMonth,
    Before,
}

/// The parts of a candidate that decide its rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Standing {
    /// The amount that ranks: a rate, or the total cost. Units: 1e-8 US dollars.
    pub(crate) cost: i128,
    pub(crate) precedence: Precedence,
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
    /// The order of an offer within a tie; the same for all where nothing ties.
    pub(crate) fn precedence(
        &self,
        orderable: bool,
        class: TrainingClass,
        observed_at: DateTime<Utc>,
        reliability: Reliability,
    ) -> Precedence {
        if !self.options.ties {
            return Precedence::default();
        }
        Precedence {
            listed: !orderable,
            class,
            read: Read::of(self.now - observed_at),
            reliability,
        }
    }

    /// The recent outcomes of orders at a provider, of an operator's machines.
    pub(crate) fn reliability(
        &self,
        provider: &ProviderId,
        operator: &MachineOperator,
    ) -> Reliability {
        let view = self.snapshot.provider(provider);
        view.map_or_else(Reliability::default, |view| view.reliability(operator))
    }
}

/// The recent orders of a provider, in words.
const fn words_of(reliability: Reliability) -> &'static str {
    match reliability {
        Reliability::Good => "have nearly always succeeded recently",
        Reliability::Unproven => "are too few, or succeed too rarely, to rely on",
        Reliability::Poor => "have often failed recently",
    }
}

/// Whether this cost ties with the cheapest.
pub(crate) const fn is_tie(cost: i128, cheapest: i128) -> bool {
    // No cost is below zero, so the difference holds where ten times a cost may not.
    cost - cheapest <= cheapest / 10
}

impl Standing {
    /// Why it ranks before the cheapest, with which it ties.
    pub(crate) fn before(&self, cheapest: &Self, name: &str) -> String {
        let more = (self.cost - cheapest.cost) as f64 / (cheapest.cost.max(1)) as f64 * 100.0;
        let (own, other) = (self.precedence, cheapest.precedence);
        let (first, why) = if own.listed != other.listed {
            let why = "this one can be ordered, that one cannot";
            (SURER, why.to_owned())
        } else if own.class != other.class {
            let (own, other) = (own.class.words(), other.class.words());
            let why = format!("this one runs on {own}, that one on {other}");
            ("the better machine comes first", why)
        } else if own.read != other.read {
            let (own, other) = (own.read.words(), other.read.words());
            (SURER, format!("this one was read {own}, that one {other}"))
        } else {
            let (own, other) = (words_of(own.reliability), words_of(other.reliability));
            let why = format!("orders at its provider {own}, at that one's {other}");
            ("the more reliable provider comes first", why)
        };
        format!(
            "It costs {more:.1} % more than the cheapest, {name}: up to 10 % is a tie, in which \
             {first}; {why}"
        )
    }
}

/// Reorders the near ties of a list that is sorted by cost. Returns the place of the cheapest where another
/// one is first afterwards.
pub(crate) fn settle<T>(sorted: &mut [T], of: impl Fn(&T) -> Standing) -> Option<usize> {
    let cheapest = of(sorted.first()?);
    let tied = sorted.partition_point(|one| is_tie(of(one).cost, cheapest.cost));
    let tied = &mut sorted[..tied];
    tied.sort_by_key(|one| of(one).precedence);
    let at = tied.partition_point(|one| of(one).precedence < cheapest.precedence);
    (at > 0).then_some(at)
}
