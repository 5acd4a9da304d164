//! The cost report: charges of a time, summed up by finance's groupings. The database sums up each day, and
//! few reports are made at once: a year of a fleet is millions of charges.

use chrono::{DateTime, TimeDelta, Utc};
use market::identity::TenantScope;
use market::ids::TenantId;
use market::money::{Currency, Money};
use pricing::PriceError;
use pricing::report::{CostReport, CostSums, Dimension, csv_text};
use store::StoreError;

use crate::platform::app::Broker;
use crate::platform::fair_queue::FairQueue;
use crate::platform::fair_queue::TooMany;

/// Charges that are read at once.
const PAGE: u64 = 2_000;
/// The time of which days are read at once.
const AT_ONCE: TimeDelta = TimeDelta::days(31);

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The query asks for a value that no report has, or the sums cannot be taken.
    #[error(transparent)]
    Price(#[from] PriceError),
    /// The time ends before it begins.
    #[error("`to` must lie after `from`")]
    EmptyTime,
    /// As many reports are made as may be, and some more wait.
    #[error("too many reports are being made; try again in a moment")]
    Busy(#[from] TooMany),
    /// The database did not answer.
    #[error("the charges could not be read")]
    Store(#[from] StoreError),
}

/// Which charges, and how they are summed up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CostQuery {
    /// The groupings, in order.
    pub group_by: Vec<Dimension>,
    /// Start of the report; the beginning by default.
    pub from: Option<DateTime<Utc>>,
    /// End of the report; now by default.
    pub to: Option<DateTime<Utc>>,
}

impl CostQuery {
    /// Reads the words of `group_by`, separated by commas.
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

/// Cost reports that are made at once.
const REPORTS: usize = 2;
/// Cost reports that wait for that.
const REPORTS_WAITING: usize = 30;

/// The fair queue for reports.
struct ReportQueue(FairQueue);

impl Default for ReportQueue {
    fn default() -> Self {
        Self(FairQueue::of(REPORTS, REPORTS_WAITING))
    }
}

/// Sums up the charges within reach; those of all tenants, when no reach is given.
///
/// A charge belongs to the time in which its use began.
/// Errors: [`ReportError`].
pub async fn costs(
    broker: &Broker,
    whose: Option<&TenantScope>,
    query: &CostQuery,
) -> Result<CostReport, ReportError> {
    let (from, to) = query.time(broker.now())?;
    let tenant = whose.map(|whose| whose.tenant);
    let _turn = broker.memory::<ReportQueue>().0.take(tenant).await?;
    let charges = broker.store().charges();
    let within = |project| whose.is_none_or(|whose| whose.projects.has(project));
    let mut sums = CostSums::by(&query.group_by);
    let used = match tenant {
        Some(tenant) => charges.of(tenant).time_of_use().await?,
        None => charges.across_tenants().time_of_use().await?,
    };
    let Some((first, last)) = used else {
        return Ok(sums.report());
    };
    let time = (from.max(first), to.min(last + TimeDelta::microseconds(1)));
    let mut done = time.0;
    while done < time.1 {
        let part = (done, time.1.min(done + AT_ONCE));
        let days = match tenant {
            Some(tenant) => charges.of(tenant).by_day(part).await?,
            None => charges.across_tenants().by_day(part).await?,
        };
        for day in days.iter().filter(|day| within(day.project_id)) {
            sums.add_day(day)?;
        }
        done = part.1;
    }
    let mut last = None;
    loop {
        let after = last.as_ref();
        let page = match tenant {
            Some(tenant) => charges.of(tenant).over_midnight(time, after, PAGE).await?,
            None => {
                charges
                    .across_tenants()
                    .over_midnight(time, after, PAGE)
                    .await?
            }
        };
        for charge in page.iter().filter(|charge| within(charge.project_id)) {
            sums.add(charge)?;
        }
        if (page.len() as u64) < PAGE {
            return Ok(sums.report());
        }
        last = page.into_iter().next_back();
    }
}

/// The tenant's credits in the time of the query; those of all tenants, when none is given.
///
/// A credit belongs to the time in which it was given, and to no group of the report: it is not
/// for the use of anything. Units: US dollars.
/// Errors: [`ReportError`].
pub async fn credited(
    broker: &Broker,
    tenant: Option<TenantId>,
    query: &CostQuery,
) -> Result<Money, ReportError> {
    // A credit given at this very moment counts.
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
