//! The provider's bill. It has its own arithmetic in decimals, shared with nobody on purpose: the broker's
//! ledger is compared with it as the oracle.
//!
//! The bill starts when a machine is created, not when it is up, and stops when its end is accepted. It
//! counts whole seconds, at the list price of the launch.

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use serde::Serialize;

use crate::Provider;
use crate::machine::Record;

/// The smallest amount: the eighth decimal of a dollar. Rounded half to even.
const DECIMALS: u32 = 8;

/// The cost of one machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BillLine {
    /// The provider's id of the machine.
    pub id: String,
    /// The name given at launch.
    pub name: String,
    /// The SKU as [`crate::Row::key`] writes it.
    pub sku: String,
    /// When the machine was created.
    pub from: DateTime<Utc>,
    /// When its end was accepted; the present while it is running.
    pub to: DateTime<Utc>,
    /// Whether it is still running.
    pub open: bool,
    /// Whole seconds billed.
    pub seconds: i64,
    /// List price of all its nodes for an hour.
    pub price_usd_hour: Decimal,
    /// Its cost so far, rounded half to even at the eighth decimal.
    pub amount_usd: Decimal,
    /// Launched by someone else with the same account.
    pub foreign: bool,
}

/// All charges of a provider to the account.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bill {
    /// The provider.
    pub provider: Provider,
    /// Up to when.
    pub at: DateTime<Utc>,
    /// One line per machine, in the order of their creation.
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
    let to = record.ended_at(now).unwrap_or(now);
    let seconds = (to - record.created_at).num_seconds().max(0);
    let price_usd_hour = record.price_usd_hour();
    BillLine {
        id: record.id.clone(),
        name: record.order.name.clone(),
        sku: record.order.sku.clone(),
        from: record.created_at,
        to,
        open: record.is_alive(now),
        seconds,
        price_usd_hour,
        amount_usd: (price_usd_hour * Decimal::from(seconds) / Decimal::from(3600))
            .round_dp(DECIMALS),
        foreign: record.order.foreign,
    }
}
