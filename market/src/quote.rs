//! A quote: our price for a placement, frozen until it lapses.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::demand::Half;
use crate::ids::{PlanId, QuoteId};
use crate::money::{Money, MoneyError, Rate};
use crate::offer::Offer;

/// One line of a quote: so many nodes of one offer at a frozen rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuoteLine {
    /// The line's number, from 0; leases and charges name it.
    pub line: u32,
    /// The offer as it was when quoted.
    pub offer: Offer,
    /// Nodes taken of it.
    pub nodes: u32,
    /// What the tenant pays per GPU-hour, whatever a replacement costs the broker.
    pub rate: Rate,
    /// The half of a hybrid demand that it is for; nothing for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half: Option<Half>,
}

impl QuoteLine {
    /// GPUs of all its nodes. A slice counts as one device.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.nodes
            .saturating_mul(self.offer.gpus.as_whole().unwrap_or(1))
    }

    /// What the line costs for an hour at the frozen rate.
    ///
    /// Errors: [`MoneyError::Overflow`].
    pub fn cost_per_hour(&self) -> Result<Money, MoneyError> {
        self.rate
            .money_per_gpu_hour()
            .checked_mul(i64::from(self.gpus()))
    }
}

/// Our price for a placement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Quote {
    /// The quote's id.
    pub id: QuoteId,
    /// The plan whose candidate it prices.
    pub plan_id: PlanId,
    /// What is sold.
    pub lines: Vec<QuoteLine>,
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
