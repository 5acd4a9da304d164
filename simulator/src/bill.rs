//! What the provider bills. Its own arithmetic in decimals, deliberately shared with nobody: it
//! is the oracle against which the broker's ledger is held.
//!
//! The bill starts when a machine is made, not when it is up, and stops when its end is
//! accepted. Whole seconds that have passed count, at the list price of the launch.

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use serde::Serialize;

use crate::Provider;
use crate::machine::Record;

/// The smallest amount: the eighth decimal of a dollar. Rounded half to even.
const DECIMALS: u32 = 8;

/// What one machine costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BillLine {
    /// The provider's id of the machine.
    pub id: String,
    /// The name given at launch.
    pub name: String,
    /// The SKU as [`crate::Row::key`] writes it.
    pub sku: String,
    /// When the machine was made.
    pub from: DateTime<Utc>,
    /// When its end was accepted; the present while it runs.
    pub to: DateTime<Utc>,
    /// Whether it still runs.
    pub open: bool,
    /// Whole seconds billed.
    pub seconds: i64,
    /// List price of all its nodes for an hour.
    pub price_usd_hour: Decimal,
    /// What it costs so far, rounded half to even at the eighth decimal.
    pub amount_usd: Decimal,
    /// Launched by someone else with the same account.
    pub foreign: bool,
}

/// Everything a provider bills to the account.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bill {
    /// Who bills.
    pub provider: Provider,
    /// Up to when.
    pub at: DateTime<Utc>,
    /// One line a machine, in the order in which they were made.
    pub lines: Vec<BillLine>,
    /// The sum of the lines.
    pub total_usd: Decimal,
}

impl Bill {
    pub(crate) fn of<'a>(
        provider: Provider,
        records: impl Iterator<Item = &'a Record>,
        now: DateTime<Utc>,
    ) -> Self {
        let lines: Vec<BillLine> = records.map(|record| line(record, now)).collect();
        let total_usd = lines.iter().map(|line| line.amount_usd).sum();
        Self {
            provider,
            at: now,
            lines,
            total_usd,
        }
    }
}

fn line(record: &Record, now: DateTime<Utc>) -> BillLine {
    let to = record.ended_at.unwrap_or(now);
    let seconds = (to - record.created_at).num_seconds().max(0);
    let price_usd_hour = record.price_usd_hour();
    BillLine {
        id: record.id.clone(),
        name: record.order.name.clone(),
        sku: record.order.sku.clone(),
        from: record.created_at,
        to,
        open: record.ended_at.is_none(),
        seconds,
        price_usd_hour,
        amount_usd: (price_usd_hour * Decimal::from(seconds) / Decimal::from(3600))
            .round_dp(DECIMALS),
        foreign: record.order.foreign,
    }
}
