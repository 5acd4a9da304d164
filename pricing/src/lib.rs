//! From a price to a rate, a quote, a charge, postings and a cost report. Pure.
//!
//! In the order of the flow: [`rate`] makes a provider's price a rate per GPU-hour, [`quote`] freezes it,
//! [`meter`] prices usage at the frozen rate, [`postings`] books charges and providers' costs in double
//! entry, [`report`] sums charges for finance. `market::money` defines money; the store keeps postings.

#![forbid(unsafe_code)]

pub mod meter;
pub mod postings;
pub mod quote;
pub mod rate;
pub mod report;

#[cfg(test)]
mod samples;

use market::ledger::LedgerError;
use market::money::{Money, MoneyError};

/// Why something could not be priced.
#[derive(Debug, thiserror::Error)]
pub enum PriceError {
    /// A price per zero seconds.
    #[error("a price per 0 seconds has no rate; give the seconds that it is for")]
    ZeroInterval,
    /// A price of zero or less is unknown, never free.
    #[error("the price {0} is not above zero, so it is unknown and cannot be quoted")]
    UnknownPrice(Money),
    /// A quote without lines, or a line without nodes.
    #[error("there is nothing to quote; take at least one node of one offer")]
    NothingToQuote,
    /// A slice of a GPU cannot be quoted: it is metered in whole GPUs.
    #[error("the offer {0} is a slice of a GPU; only whole GPUs are quoted")]
    Slice(market::ids::OfferId),
    /// The rate exceeds the tenant's ceiling.
    #[error("{actual} USD per GPU-hour exceeds the ceiling of {ceiling}; raise it or take another")]
    RateAboveCeiling {
        /// The ceiling of the demand.
        ceiling: market::money::Rate,
        /// The actual rate.
        actual: market::money::Rate,
    },
    /// The sum of all lines exceeds the tenant's ceiling.
    #[error("{actual} USD per hour exceeds the ceiling of {ceiling}; raise it or take another")]
    CostAboveCeiling {
        /// The ceiling of the demand.
        ceiling: Money,
        /// The actual sum.
        actual: Money,
    },
    /// An interval or a life that ends before it starts.
    #[error("the times are out of order: {0}")]
    TimesOutOfOrder(&'static str),
    /// A running total that does not match the cost of its quantity.
    #[error("{gpu_seconds} GPU-seconds cost {expected}, but {found} is booked; check the ledger")]
    RunningTotalOff {
        /// GPU-seconds booked so far.
        gpu_seconds: i64,
        /// Their cost at the rate.
        expected: Money,
        /// The booked amount.
        found: Money,
    },
    /// A word that is no dimension of the cost report.
    #[error(
        "`{0}` is no dimension; group by project, provider, gpu, workload, day, reservation or tag:KEY"
    )]
    UnknownDimension(String),
    /// An amount that does not fit, or two currencies in one sum.
    #[error(transparent)]
    Money(#[from] MoneyError),
    /// Postings that do not balance.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The report could not be written as CSV.
    #[error("the report could not be written as CSV")]
    Csv(#[from] csv::Error),
}
