//! A quote: our price for a placement, frozen until it lapses. For a later start it is a bound.

use std::ops::Range;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use crate::capacity::Covered;
use crate::demand::{Ceiling, Half};
use crate::ids::{PlanId, QuoteId};
use crate::money::{Currency, Money, MoneyError, Rate};
use crate::offer::Offer;

/// One line of a quote: a number of nodes of one offer at a frozen rate, or, for a later start, at today's
/// rate and under a bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuoteLine {
    /// The line's number, from 0; leases and charges name it.
    pub line: u32,
    /// The offer as it was when quoted.
    pub offer: Offer,
    /// Nodes taken of it.
    pub nodes: u32,
    /// The tenant's price per GPU-hour, at any cost of a replacement to the broker. For a later start it is
    /// today's price.
    pub rate: Rate,
    /// The bound of a later start per GPU-hour; `None`: the rate is frozen. What is ordered instead of this line
    /// may cost more per GPU, but everything together no more than all bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_at_most: Option<Rate>,
    /// The half of a hybrid demand that it is for; absent for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half: Option<Half>,
    /// The tenant's commitment whose rate the line has for a while, and until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered: Option<Covered>,
}

impl QuoteLine {
    /// The tenant's price per GPU-hour at this time.
    #[must_use]
    pub fn rate_at(&self, now: DateTime<Utc>) -> Rate {
        match self.covered {
            Some(covered) if now < covered.until => covered.rate_usd_gpu_hour,
            _ => self.rate,
        }
    }

    /// The spans of a lease's use and the rate of each. The committed rate ends at a whole second from the
    /// hand-off, in the tenant's favour.
    pub fn rates_between(
        &self,
        handed_off_at: DateTime<Utc>,
        from: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> impl Iterator<Item = (Range<DateTime<Utc>>, Rate)> {
        let covered = self.covered.map(|covered| {
            let millis = (covered.until - handed_off_at).num_milliseconds().max(0);
            let seconds = (millis + 999) / 1_000;
            let end = handed_off_at + TimeDelta::seconds(seconds);
            (end.clamp(from, until), covered.rate_usd_gpu_hour)
        });
        let (turn, first) = covered.unwrap_or((from, self.rate));
        let spans = [(from..turn, first), (turn..until, self.rate)];
        spans.into_iter().filter(|(span, _)| !span.is_empty())
    }

    /// GPUs of all its nodes. A slice counts as one device.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.nodes
            .saturating_mul(self.offer.gpus.as_whole().unwrap_or(1))
    }

    /// The cost of the line for an hour at the frozen rate, as if nothing were covered.
    ///
    /// Errors: [`MoneyError::Overflow`].
    pub fn cost_per_hour(&self) -> Result<Money, MoneyError> {
        self.rate
            .money_per_gpu_hour()
            .checked_mul(i64::from(self.gpus()))
    }
}

/// The most that lines with bounds cost for an hour: the sum of the bounds, or the ceiling on everything where
/// that is lower.
///
/// Errors: [`MoneyError::Overflow`].
pub fn most_per_hour(lines: &[QuoteLine], ceiling: Option<&Ceiling>) -> Result<Money, MoneyError> {
    let mut sum = Money::zero(Currency::Usd);
    for line in lines {
        let bound = line.rate_at_most.unwrap_or(line.rate).money_per_gpu_hour();
        sum = sum.checked_add(bound.checked_mul(i64::from(line.gpus()))?)?;
    }
    let limit = ceiling.and_then(|ceiling| ceiling.usd_per_hour);
    Ok(limit.map_or(sum, |limit| sum.min(limit)))
}

/// Whether these lines have bounds instead of frozen rates: those of a later start that is not ordered yet, for
/// which nothing is set aside.
#[must_use]
pub fn is_bounded(lines: &[QuoteLine]) -> bool {
    lines.iter().any(|line| line.rate_at_most.is_some())
}

/// The run that a fleet waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follows<Run> {
    /// The run: its quote, then its reservation.
    pub run: Run,
    /// How long the weights take from the run to the fleet. Units: seconds.
    pub staging_seconds: i64,
}

/// Our price for a placement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Quote {
    /// The quote's id.
    pub id: QuoteId,
    /// The plan whose candidate it prices.
    pub plan_id: PlanId,
    /// The sold lines.
    pub lines: Vec<QuoteLine>,
    /// The later start that it is for; `None`: from its confirmation on.
    pub starts_at: Option<DateTime<Utc>>,
    /// The quote of the run after which the fleet starts.
    pub follows: Option<Follows<QuoteId>>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it lapses.
    pub expires_at: DateTime<Utc>,
}

impl Quote {
    /// Whether it can no longer be taken at `now`.
    #[must_use]
    pub fn has_lapsed(&self, now: DateTime<Utc>) -> bool {
        now >= self.expires_at
    }
}
