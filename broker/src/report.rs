//! The cost report: charges of a time, summed up by what finance asks for.

use chrono::{DateTime, TimeDelta, Utc};
use market::identity::Reach;
use market::ids::TenantId;
use market::money::{Currency, Money};
use pricing::PriceError;
use pricing::report::{CostReport, Dimension, cost_report, csv_text};
use store::StoreError;

use crate::app::Broker;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The query asks for what no report has, or the sums cannot be taken.
    #[error(transparent)]
    Price(#[from] PriceError),
    /// The time ends before it begins.
    #[error("`to` must lie after `from`")]
    EmptyTime,
    /// The database did not answer.
    #[error("the charges could not be read")]
    Store(#[from] StoreError),
}

/// Which charges, and how they are summed up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CostQuery {
    /// What to group by, in order.
    pub group_by: Vec<Dimension>,
    /// From when on; from the beginning, when nothing is said.
    pub from: Option<DateTime<Utc>>,
    /// Until when; until now, when nothing is said.
    pub to: Option<DateTime<Utc>>,
}

impl CostQuery {
    /// Reads the words of `group_by`, parted by commas.
    ///
    /// Errors: [`PriceError::UnknownDimension`].
    pub fn dimensions(words: &str) -> Result<Vec<Dimension>, PriceError> {
        words
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .map(str::parse)
            .collect()
    }

    /// From when on and until when.
    fn time(&self, now: DateTime<Utc>) -> Result<(DateTime<Utc>, DateTime<Utc>), ReportError> {
        let from = self.from.unwrap_or(DateTime::UNIX_EPOCH);
        let to = self.to.unwrap_or(now);
        if to <= from {
            return Err(ReportError::EmptyTime);
        }
        Ok((from, to))
    }
}

/// Sums up the charges within reach; those of all tenants, when no reach is given.
///
/// A charge belongs to the time in which its use began.
/// Errors: [`ReportError`].
pub async fn costs(
    broker: &Broker,
    whose: Option<&Reach>,
    query: &CostQuery,
) -> Result<CostReport, ReportError> {
    let (from, to) = query.time(broker.now())?;
    let charges = broker.store().charges();
    let charges = match whose {
        Some(whose) => {
            let mut charges = charges.of(whose.tenant).between(from, to).await?;
            charges.retain(|charge| whose.projects.has(charge.project_id));
            charges
        }
        None => charges.across_tenants().between(from, to).await?,
    };
    Ok(cost_report(&charges, &query.group_by)?)
}

/// What a tenant was credited in the time of the query; what all tenants were, when none is given.
///
/// A credit belongs to the time in which it was given, and to no group of the report: it is not
/// for the use of anything. Units: US dollars.
/// Errors: [`ReportError`].
pub async fn credited(
    broker: &Broker,
    tenant: Option<TenantId>,
    query: &CostQuery,
) -> Result<Money, ReportError> {
    // What is given at this very moment counts.
    let (from, to) = query.time(broker.now() + TimeDelta::microseconds(1))?;
    let credits = broker.store().credits();
    let credits = match tenant {
        Some(tenant) => credits.of(tenant).between(from, to).await?,
        None => credits.across_tenants().between(from, to).await?,
    };
    let sum = credits
        .iter()
        .try_fold(Money::zero(Currency::Usd), |sum, credit| {
            sum.checked_add(credit.amount)
        });
    Ok(sum.map_err(PriceError::from)?)
}

/// The report as CSV, one column a dimension.
///
/// Errors: [`PriceError::Csv`].
pub fn as_csv(report: &CostReport, query: &CostQuery) -> Result<String, PriceError> {
    csv_text(report, &query.group_by)
}
