//! The cost report: charges summed by the dimensions that finance chooses.
//!
//! Amounts are only ever added or split by running totals, so the rows sum to the total exactly.
//! The CSV text is in [`csv_text`].

mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use market::demand::DemandKind;
use market::ids::{ProjectId, ProviderId, ReservationId};
use market::money::{Currency, Money, MoneyError, divide_half_even};
use market::tags::Tags;
use market::usage::{Charge, DayCharges};
use serde::{Deserialize, Serialize};

use crate::PriceError;

pub use text::csv_text;

/// A dimension that charges can be grouped by.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dimension {
    /// The project that used it.
    Project,
    /// The provider where it ran.
    Provider,
    /// The GPU that ran.
    Gpu,
    /// The kind of the demand.
    Workload,
    /// The day (UTC); usage over midnight is split.
    Day,
    /// The reservation.
    Reservation,
    /// The value of this tag; charges without it form a line of their own.
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
    /// The values that its charges share, in the order asked for.
    pub group: Vec<GroupValue>,
    /// GPUs times seconds in tenants' hands.
    pub gpu_seconds: i64,
    /// US dollars charged.
    pub amount_usd: Money,
}

/// Summed charges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CostReport {
    /// The rows, sorted by their groups.
    pub rows: Vec<CostRow>,
    /// GPUs times seconds of all rows.
    pub total_gpu_seconds: i64,
    /// US dollars of all rows: exactly their sum.
    pub total_usd: Money,
}

/// Sums of charges by dimensions, added one charge at a time: only the sums are kept.
pub struct CostSums {
    dimensions: Vec<Dimension>,
    sums: BTreeMap<Vec<Option<String>>, Sum>,
    total: Sum,
}

impl CostSums {
    /// No charges yet; without a dimension there is one row, if there is any charge.
    #[must_use]
    pub fn by(dimensions: &[Dimension]) -> Self {
        Self {
            dimensions: dimensions.to_vec(),
            sums: BTreeMap::new(),
            total: Sum::default(),
        }
    }

    /// Adds a charge.
    ///
    /// Errors: [`PriceError::Money`] when a sum exceeds 64 bits or currencies are mixed.
    pub fn add(&mut self, charge: &Charge) -> Result<(), PriceError> {
        let facts = Facts {
            project: &charge.project_id,
            provider: &charge.provider,
            gpu: &charge.gpu,
            workload: charge.workload,
            reservation: &charge.usage.reservation_id,
            tags: &charge.tags,
        };
        let parts = if self.dimensions.contains(&Dimension::Day) {
            split_by_day(charge)
        } else {
            vec![whole(charge)]
        };
        parts.iter().try_for_each(|part| self.add_part(facts, part))
    }

    /// Adds the charges of a day.
    ///
    /// Errors: as [`CostSums::add`].
    pub fn add_day(&mut self, charges: &DayCharges) -> Result<(), PriceError> {
        let facts = Facts {
            project: &charges.project_id,
            provider: &charges.provider,
            gpu: &charges.gpu,
            workload: charges.workload,
            reservation: &charges.reservation_id,
            tags: &charges.tags,
        };
        let part = Part {
            day: charges.day,
            gpu_seconds: charges.gpu_seconds,
            amount: charges.amount,
        };
        self.add_part(facts, &part)
    }

    fn add_part(&mut self, facts: Facts<'_>, part: &Part) -> Result<(), PriceError> {
        let group = self.dimensions.iter();
        let group = group.map(|d| facts.value(d, part.day)).collect();
        self.sums.entry(group).or_default().add(part)?;
        Ok(self.total.add(part)?)
    }

    /// The report of the charges that were added.
    #[must_use]
    pub fn report(self) -> CostReport {
        let dimensions = self.dimensions;
        let rows = self.sums.into_iter().map(|(values, sum)| CostRow {
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
        CostReport {
            rows: rows.collect(),
            total_gpu_seconds: self.total.gpu_seconds,
            total_usd: self.total.amount,
        }
    }
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

/// The part of a charge within one day.
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

/// The values that charges are grouped by, beside the day.
#[derive(Clone, Copy)]
struct Facts<'a> {
    project: &'a ProjectId,
    provider: &'a ProviderId,
    gpu: &'a str,
    workload: DemandKind,
    reservation: &'a ReservationId,
    tags: &'a Tags,
}

impl Facts<'_> {
    fn value(self, dimension: &Dimension, day: NaiveDate) -> Option<String> {
        match dimension {
            Dimension::Project => Some(self.project.to_string()),
            Dimension::Provider => Some(self.provider.to_string()),
            Dimension::Gpu => Some(self.gpu.to_owned()),
            Dimension::Workload => Some(self.workload.as_str().to_owned()),
            Dimension::Day => Some(day.to_string()),
            Dimension::Reservation => Some(self.reservation.to_string()),
            Dimension::Tag(key) => self.tags.get(key).cloned(),
        }
    }
}

#[cfg(test)]
mod tests;
