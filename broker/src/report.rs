//! The cost report: charges of a time, summed up by what finance asks for.

use chrono::{DateTime, Utc};
use market::ids::TenantId;
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
}

/// Sums up the charges of a tenant; of all tenants, when none is given.
///
/// A charge belongs to the time in which its use began.
/// Errors: [`ReportError`].
pub async fn costs(
    broker: &Broker,
    tenant: Option<TenantId>,
    query: &CostQuery,
) -> Result<CostReport, ReportError> {
    let from = query.from.unwrap_or(DateTime::UNIX_EPOCH);
    let to = query.to.unwrap_or_else(|| broker.now());
    if to <= from {
        return Err(ReportError::EmptyTime);
    }
    let charges = broker.store().charges();
    let charges = match tenant {
        Some(tenant) => charges.of(tenant).between(from, to).await?,
        None => charges.across_tenants().between(from, to).await?,
    };
    Ok(cost_report(&charges, &query.group_by)?)
}

/// The report as CSV, one column a dimension.
///
/// Errors: [`PriceError::Csv`].
pub fn as_csv(report: &CostReport, query: &CostQuery) -> Result<String, PriceError> {
    csv_text(report, &query.group_by)
}
