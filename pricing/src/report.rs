//! The cost report: charges summed up by the dimensions that finance asks for.
//!
//! Amounts are only ever added or split by running totals, so the rows sum to the total exactly.
//! The CSV text is in [`csv_text`].

mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use market::money::{Currency, Money, MoneyError, divide_half_even};
use market::usage::Charge;
use serde::{Deserialize, Serialize};

use crate::PriceError;

pub use text::csv_text;

/// What charges can be grouped by.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dimension {
    /// The project that used it.
    Project,
    /// The provider it ran at.
    Provider,
    /// The GPU that ran.
    Gpu,
    /// The kind of the demand.
    Workload,
    /// The day (UTC); usage over midnight is split.
    Day,
    /// The reservation.
    Reservation,
    /// The value of this tag; charges without it are a line of their own.
    Tag(String),
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Project => f.write_str("project"),
            Self::Provider => f.write_str("provider"),
            Self::Gpu => f.write_str("gpu"),
            Self::Workload => f.write_str("workload"),
            Self::Day => f.write_str("day"),
            Self::Reservation => f.write_str("reservation"),
            Self::Tag(key) => write!(f, "tag:{key}"),
        }
    }
}

impl FromStr for Dimension {
    type Err = PriceError;

    /// Reads `project`, `provider`, `gpu`, `workload`, `day`, `reservation` or `tag:KEY`.
    fn from_str(word: &str) -> Result<Self, PriceError> {
        match word {
            "project" => Ok(Self::Project),
            "provider" => Ok(Self::Provider),
            "gpu" => Ok(Self::Gpu),
            "workload" | "kind" => Ok(Self::Workload),
            "day" => Ok(Self::Day),
            "reservation" => Ok(Self::Reservation),
            _ => match word.strip_prefix("tag:") {
                Some(key) if !key.is_empty() => Ok(Self::Tag(key.to_owned())),
                _ => Err(PriceError::UnknownDimension(
                    word.chars().take(80).collect(),
                )),
            },
        }
    }
}

/// One dimension of a row and its value.
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
pub struct GroupValue {
    /// The dimension, as it was asked for.
    pub dimension: String,
    /// The value; `null` where the charges carry no such tag.
    pub value: Option<String>,
}

/// One row of the cost report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CostRow {
    /// What its charges have in common, in the order asked for.
    pub group: Vec<GroupValue>,
    /// GPUs times seconds in tenants' hands.
    pub gpu_seconds: i64,
    /// US dollars charged.
    pub amount_usd: Money,
}

/// Charges summed up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CostReport {
    /// The rows, sorted by their groups.
    pub rows: Vec<CostRow>,
    /// GPUs times seconds of all rows.
    pub total_gpu_seconds: i64,
    /// US dollars of all rows: exactly their sum.
    pub total_usd: Money,
}

/// Sums charges up by `dimensions`; none of them gives one row, if there is any charge.
///
/// Errors: [`PriceError::Money`] when a sum passes 64 bits or currencies are mixed.
pub fn cost_report<'a>(
    charges: impl IntoIterator<Item = &'a Charge>,
    dimensions: &[Dimension],
) -> Result<CostReport, PriceError> {
    let by_day = dimensions.contains(&Dimension::Day);
    let mut sums: BTreeMap<Vec<Option<String>>, Sum> = BTreeMap::new();
    let mut total = Sum::default();
    for charge in charges {
        let parts = if by_day {
            split_by_day(charge)
        } else {
            vec![whole(charge)]
        };
        for part in parts {
            let group = dimensions
                .iter()
                .map(|d| value(d, charge, part.day))
                .collect();
            sums.entry(group).or_default().add(&part)?;
            total.add(&part)?;
        }
    }
    let rows = sums.into_iter().map(|(values, sum)| CostRow {
        group: dimensions
            .iter()
            .zip(values)
            .map(|(dimension, value)| GroupValue {
                dimension: dimension.to_string(),
                value,
            })
            .collect(),
        gpu_seconds: sum.gpu_seconds,
        amount_usd: sum.amount,
    });
    Ok(CostReport {
        rows: rows.collect(),
        total_gpu_seconds: total.gpu_seconds,
        total_usd: total.amount,
    })
}

struct Sum {
    gpu_seconds: i64,
    amount: Money,
}

impl Default for Sum {
    fn default() -> Self {
        Self {
            gpu_seconds: 0,
            amount: Money::zero(Currency::Usd),
        }
    }
}

impl Sum {
    fn add(&mut self, part: &Part) -> Result<(), MoneyError> {
        self.gpu_seconds = self
            .gpu_seconds
            .checked_add(part.gpu_seconds)
            .ok_or(MoneyError::Overflow)?;
        self.amount = self.amount.checked_add(part.amount)?;
        Ok(())
    }
}

/// The part of a charge that falls on one day.
struct Part {
    day: NaiveDate,
    gpu_seconds: i64,
    amount: Money,
}

fn whole(charge: &Charge) -> Part {
    Part {
        day: charge.usage.from.date_naive(),
        gpu_seconds: charge.usage.gpu_seconds(),
        amount: charge.amount,
    }
}

/// Splits a charge at each midnight (UTC) in proportion to its seconds.
///
/// Each part is the difference of two rounded running totals of the amount, so the parts sum to
/// the charge.
fn split_by_day(charge: &Charge) -> Vec<Part> {
    let usage = &charge.usage;
    let seconds = (usage.to - usage.from).num_seconds();
    if seconds <= 0 {
        return vec![whole(charge)];
    }
    let mut parts = Vec::new();
    let mut day = usage.from.date_naive();
    let mut done_seconds = 0;
    let mut done_units = 0;
    while done_seconds < seconds {
        let until = next_midnight(day).min(usage.to);
        let upto_seconds = (until - usage.from).num_seconds().min(seconds);
        let product = i128::from(charge.amount.units()) * i128::from(upto_seconds);
        // No larger than the amount itself, so it fits back into 64 bits.
        let upto_units = divide_half_even(product, i128::from(seconds)) as i64;
        parts.push(Part {
            day,
            gpu_seconds: i64::from(usage.gpus) * (upto_seconds - done_seconds),
            amount: Money::from_units(upto_units - done_units, charge.amount.currency()),
        });
        (done_seconds, done_units) = (upto_seconds, upto_units);
        day = day.succ_opt().unwrap_or(NaiveDate::MAX);
    }
    parts
}

fn next_midnight(day: NaiveDate) -> DateTime<Utc> {
    day.and_time(chrono::NaiveTime::MIN)
        .and_utc()
        .checked_add_signed(TimeDelta::days(1))
        .unwrap_or(DateTime::<Utc>::MAX_UTC)
}

fn value(dimension: &Dimension, charge: &Charge, day: NaiveDate) -> Option<String> {
    match dimension {
        Dimension::Project => Some(charge.project_id.to_string()),
        Dimension::Provider => Some(charge.provider.to_string()),
        Dimension::Gpu => Some(charge.gpu.clone()),
        Dimension::Workload => Some(charge.workload.as_str().to_owned()),
        Dimension::Day => Some(day.to_string()),
        Dimension::Reservation => Some(charge.usage.reservation_id.to_string()),
        Dimension::Tag(key) => charge.tags.get(key).cloned(),
    }
}

#[cfg(test)]
mod tests;
