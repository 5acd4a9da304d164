//! Spending: caps and limits, and what reservations may still cost.
//!
//! The committed sum of a period is what was charged in it, plus what open reservations will cost until the
//! period ends, or until their own end if that is earlier. Metering moves seconds from the second part to the
//! first and changes no sum. So a cap that held when a reservation was placed holds to the end of its period,
//! and of the [`PERIODS_AHEAD`] after it. Sums are taken in `i128`; the store keeps them.

use chrono::{DateTime, Months, NaiveDate, NaiveTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use crate::capacity::Covered;
use crate::ids::{BudgetId, ProjectId, TenantId};
use crate::money::{Money, Rate, divide_half_even};

const SECONDS_PER_HOUR: i128 = 3_600;

/// The highest amount of a cap or a limit. Units: USD 1e-8; a billion dollars.
const MOST_UNITS: i64 = 100_000_000_000_000_000;
/// How many periods after the present one a cap is checked for: reservations that run on into them cost
/// something there, too.
pub const PERIODS_AHEAD: usize = 31;
/// How many thresholds a budget may have.
pub const MAX_THRESHOLDS: usize = 10;
/// The highest threshold. Units: percent of the cap.
pub const MAX_THRESHOLD_PERCENT: u16 = 1_000;
/// The longest grace. Units: seconds; a week.
pub const MAX_GRACE_SECONDS: u32 = 604_800;

/// How long a cap runs before it starts again: a calendar day or month, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetPeriod {
    /// From midnight to midnight.
    Day,
    /// From the first of a month to the first of the next.
    Month,
}

/// A stretch of time: from `start` on, up to and without `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// When it begins.
    pub start: DateTime<Utc>,
    /// When it is over.
    pub end: DateTime<Utc>,
}

impl BudgetPeriod {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// The day or month that contains `at`.
    #[must_use]
    pub fn around(self, at: DateTime<Utc>) -> Span {
        let day = at.date_naive();
        let (first, next) = match self {
            Self::Day => (day, day.succ_opt()),
            Self::Month => {
                let first = first_of_month(day);
                (first, first.checked_add_months(Months::new(1)))
            }
        };
        let midnight = |day: NaiveDate| day.and_time(NaiveTime::MIN).and_utc();
        Span {
            start: midnight(first),
            end: next.map_or(DateTime::<Utc>::MAX_UTC, midnight),
        }
    }

    /// The day or month that contains `at`, and those after it up to `end`, at most [`PERIODS_AHEAD`].
    pub fn reached(
        self,
        at: DateTime<Utc>,
        end: Option<DateTime<Utc>>,
    ) -> impl Iterator<Item = Span> {
        let first = self.around(at);
        let next = move |span: &Span| {
            let later = span.end < end.unwrap_or(DateTime::<Utc>::MAX_UTC);
            later.then(|| self.around(span.end))
        };
        std::iter::successors(Some(first), next).take(1 + PERIODS_AHEAD)
    }
}

fn first_of_month(day: NaiveDate) -> NaiveDate {
    use chrono::Datelike as _;
    // Every month has a first.
    day.with_day(1).unwrap_or(day)
}

/// The action when a cap is reached. Each includes the one before.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum BudgetMode {
    /// Events report it at the thresholds, and nothing else happens.
    Notify,
    /// A hold or an extension that could exceed the cap is refused.
    BlockNew,
    /// Once the cap is spent and the grace period over, running leases are ended.
    StopRunning,
}

impl BudgetMode {
    /// Whether it refuses new reservations beyond the cap.
    #[must_use]
    pub const fn blocks(self) -> bool {
        matches!(self, Self::BlockNew | Self::StopRunning)
    }

    /// Whether it ends running leases once the cap is spent.
    #[must_use]
    pub const fn stops(self) -> bool {
        matches!(self, Self::StopRunning)
    }
}

/// The terms of a budget. They come from outside, so check them with [`BudgetTerms::check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetTerms {
    /// How long the cap runs.
    pub period: BudgetPeriod,
    /// The most that may be spent in one period.
    pub cap: Money,
    /// The action when it is reached.
    pub mode: BudgetMode,
    /// The shares of the cap at which an event is sent. Units: percent; ascending.
    pub thresholds_percent: Vec<u16>,
    /// How long leases keep running once the cap is spent. Units: seconds.
    pub grace_seconds: u32,
}

/// Why a budget or a limit was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpendingRefusal {
    /// A cap that is not positive, or too high.
    #[error("a cap is above 0 and at most 1000000000 USD, not {0}")]
    Cap(Money),
    /// Thresholds that are equal or cannot be reached.
    #[error(
        "thresholds are at most {MAX_THRESHOLDS} different numbers from 1 to {MAX_THRESHOLD_PERCENT}, in percent of the cap"
    )]
    Thresholds,
    /// A grace period that is too long.
    #[error("a grace is at most {MAX_GRACE_SECONDS} seconds (a week)")]
    Grace,
    /// A limit that is negative, or too high.
    #[error("a limit on spending is 0 or more and at most 1000000000 USD per hour, not {0}")]
    Rate(Money),
}

impl BudgetTerms {
    /// Sorts the thresholds and checks that this can be a budget.
    ///
    /// Errors: [`SpendingRefusal`].
    pub fn check(mut self) -> Result<Self, SpendingRefusal> {
        if !self.cap.is_positive() || self.cap.units() > MOST_UNITS {
            return Err(SpendingRefusal::Cap(self.cap));
        }
        self.thresholds_percent.sort_unstable();
        let in_range = |percent: &u16| (1..=MAX_THRESHOLD_PERCENT).contains(percent);
        let apart = self
            .thresholds_percent
            .windows(2)
            .all(|two| two[0] != two[1]);
        let few = self.thresholds_percent.len() <= MAX_THRESHOLDS;
        if !few || !apart || !self.thresholds_percent.iter().all(in_range) {
            return Err(SpendingRefusal::Thresholds);
        }
        if self.grace_seconds > MAX_GRACE_SECONDS {
            return Err(SpendingRefusal::Grace);
        }
        Ok(self)
    }
}

/// A cap on what a tenant, or one project of it, spends in a period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// Its id.
    pub id: BudgetId,
    /// The tenant.
    pub tenant_id: TenantId,
    /// The project that it is for; `None`: all of the tenant's projects together.
    pub project_id: Option<ProjectId>,
    /// Its terms.
    pub terms: BudgetTerms,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

impl Budget {
    /// Whether spending in `project` counts against it.
    #[must_use]
    pub fn covers(&self, project: ProjectId) -> bool {
        self.project_id.is_none_or(|own| own == project)
    }

    /// Whether `spent` units are `percent` of the cap or more.
    #[must_use]
    pub fn has_reached(&self, percent: u16, spent: i128) -> bool {
        spent * 100 >= i128::from(self.terms.cap.units()) * i128::from(percent)
    }

    /// Allows `asked` more units to be committed beside `committed` in the period that began at `began`, or
    /// refuses them.
    ///
    /// Errors: [`BudgetExceeded`] for a budget that blocks.
    pub fn admit(
        &self,
        began: DateTime<Utc>,
        charged: i128,
        committed: i128,
        asked: i128,
    ) -> Result<(), Box<BudgetExceeded>> {
        let cap = self.terms.cap;
        if !self.terms.mode.blocks() || asked <= 0 || committed + asked <= i128::from(cap.units()) {
            return Ok(());
        }
        Err(Box::new(BudgetExceeded {
            budget: self.id,
            project: self.project_id,
            period: self.terms.period,
            began: began.date_naive(),
            cap,
            charged: money(charged),
            open: money(committed - charged),
            asked: money(asked),
        }))
    }
}

/// This many units of US dollars, or the largest amount if it is more.
#[must_use]
pub fn money(units: i128) -> Money {
    Money::usd_units(i64::try_from(units).unwrap_or(i64::MAX))
}

fn scope(project: Option<&ProjectId>) -> String {
    project.map_or("the tenant".to_owned(), |id| format!("project {id}"))
}

/// A blocking cap would be exceeded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "budget {budget} lets {scope} spend {cap} USD in a {period}: in the one from {began} on {charged} are charged and {open} committed to what is open, and this could cost {asked} more until that {period} ends; take less or a shorter window, end something, or have the budget raised",
    scope = scope(.project.as_ref()),
    period = .period.as_str()
)]
pub struct BudgetExceeded {
    /// Which budget.
    pub budget: BudgetId,
    /// The project it is for.
    pub project: Option<ProjectId>,
    /// Its period.
    pub period: BudgetPeriod,
    /// The first day of the period that would cost too much: the present one, or a later one.
    pub began: NaiveDate,
    /// Its cap.
    pub cap: Money,
    /// The sum charged so far in this period.
    pub charged: Money,
    /// What open reservations may still cost in it.
    pub open: Money,
    /// What the request would cost in it.
    pub asked: Money,
}

/// How much of everything may be in use at once; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpendingLimits {
    /// GPUs that are held or leased.
    pub gpus: Option<u32>,
    /// The cost of everything held or leased. Units: US dollars per hour.
    pub usd_per_hour: Option<Money>,
    /// Holds that are not confirmed.
    pub open_holds: Option<u32>,
    /// Nodes of holds that are not confirmed.
    pub held_nodes: Option<u32>,
    /// Reservations that are not closed.
    pub reservations: Option<u32>,
    /// Orders that may be cancelled before their hand-off within 24 hours; beyond it nothing more is
    /// confirmed. It applies to the tenant as a whole.
    pub cancelled_orders: Option<u32>,
}

/// How much of everything is in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InUse {
    /// GPUs that are held or leased.
    pub gpus: u64,
    /// Their cost. Units: USD 1e-8 per hour.
    pub units_per_hour: i128,
    /// Holds that are not confirmed.
    pub open_holds: u64,
    /// Their nodes.
    pub held_nodes: u64,
    /// Reservations that are not closed.
    pub reservations: u64,
}

impl std::ops::AddAssign for InUse {
    fn add_assign(&mut self, more: Self) {
        self.gpus += more.gpus;
        self.units_per_hour += more.units_per_hour;
        self.open_holds += more.open_holds;
        self.held_nodes += more.held_nodes;
        self.reservations += more.reservations;
    }
}

/// A limit would be exceeded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the limit `{limit}` of {scope} is {most}: {used} are in use and {asked} more were asked for; take less, end something, or have the limit raised",
    scope = scope(.project.as_ref())
)]
pub struct LimitExceeded {
    /// Which limit, by its word on the wire.
    pub limit: &'static str,
    /// The project it is for; `None`: the tenant.
    pub project: Option<ProjectId>,
    /// How much it allows.
    pub most: String,
    /// How much is in use.
    pub used: String,
    /// How much more was requested.
    pub asked: String,
}

impl SpendingLimits {
    /// Checks that these can be limits.
    ///
    /// Errors: [`SpendingRefusal::Rate`].
    pub fn check(self) -> Result<Self, SpendingRefusal> {
        match self.usd_per_hour {
            Some(rate) if !(0..=MOST_UNITS).contains(&rate.units()) => {
                Err(SpendingRefusal::Rate(rate))
            }
            _ => Ok(self),
        }
    }

    /// Allows `asked` to be in use beside `used`, or refuses it.
    ///
    /// Errors: [`LimitExceeded`], naming the first limit that would be exceeded.
    pub fn admit(
        &self,
        project: Option<ProjectId>,
        used: InUse,
        asked: InUse,
    ) -> Result<(), Box<LimitExceeded>> {
        let counts = [
            ("gpus", self.gpus, used.gpus, asked.gpus),
            (
                "open_holds",
                self.open_holds,
                used.open_holds,
                asked.open_holds,
            ),
            (
                "held_nodes",
                self.held_nodes,
                used.held_nodes,
                asked.held_nodes,
            ),
            (
                "reservations",
                self.reservations,
                used.reservations,
                asked.reservations,
            ),
        ];
        for (limit, most, used, asked) in counts {
            let passes = |most: &u32| asked > 0 && used + asked > u64::from(*most);
            if let Some(most) = most.filter(passes) {
                return Err(Box::new(LimitExceeded {
                    limit,
                    project,
                    most: most.to_string(),
                    used: used.to_string(),
                    asked: asked.to_string(),
                }));
            }
        }
        let together = used.units_per_hour + asked.units_per_hour;
        match self.usd_per_hour {
            Some(most) if together > i128::from(most.units()) => Err(Box::new(LimitExceeded {
                limit: "usd_per_hour",
                project,
                most: most.to_string(),
                used: money(used.units_per_hour).to_string(),
                asked: money(asked.units_per_hour).to_string(),
            })),
            _ => Ok(()),
        }
    }
}

/// GPUs that are, or may be, charged from some time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningGpus {
    /// How many.
    pub gpus: u32,
    /// Up to when their use is already charged, or the earliest time from which it can be.
    pub from: DateTime<Utc>,
}

/// A line of an open reservation, as far as it may still cost something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenLine {
    /// The frozen rate.
    pub rate: Rate,
    /// The part of it that a commitment pays for, at that rate until that end. Leases that are not handed off
    /// yet are counted as if they were now.
    pub covered: Option<Covered>,
    /// The use charged so far. Units: GPU-seconds.
    pub charged_gpu_seconds: i64,
    /// Its GPUs.
    pub running: Vec<RunningGpus>,
    /// When its use ends; `None` while that is open.
    pub until: Option<DateTime<Utc>>,
    /// The longest that it is used, from a hand-off that has not happened yet.
    pub longest: Option<TimeDelta>,
}

impl OpenLine {
    /// What the line may still cost within `span`, rounded as the meter rounds. Units: USD 1e-8.
    #[must_use]
    pub fn rest_within(&self, span: Span) -> i128 {
        let end = self.until.map_or(span.end, |until| until.min(span.end));
        let (mut paid, mut rest) = (0, 0);
        for part in &self.running {
            let begin = part.from.max(span.start);
            let left = end - begin;
            let left = self.longest.map_or(left, |longest| left.min(longest));
            let left = left.num_seconds().max(0);
            let covered = self.covered.map_or(0, |covered| {
                (covered.until - begin).num_seconds().clamp(0, left)
            });
            paid += i128::from(part.gpus) * i128::from(covered);
            rest += i128::from(part.gpus) * i128::from(left - covered);
        }
        let charged = i128::from(self.charged_gpu_seconds);
        let paid_at = self
            .covered
            .map_or(self.rate, |covered| covered.rate_usd_gpu_hour);
        cost_of(paid_at, paid) + cost_of(self.rate, charged + rest) - cost_of(self.rate, charged)
    }
}

/// The cost of this many GPU-seconds at a rate. Units: USD 1e-8.
fn cost_of(rate: Rate, gpu_seconds: i128) -> i128 {
    let units = i128::from(rate.money_per_gpu_hour().units());
    divide_half_even(units * gpu_seconds, SECONDS_PER_HOUR)
}

/// How long `left` units last at `units_per_hour`. Units: hundredths of an hour, rounded down.
///
/// `None` when nothing is spent.
#[must_use]
pub fn hundredths_of_hours_left(left: i128, units_per_hour: i128) -> Option<u32> {
    let hundredths = (left.max(0) * 100).checked_div(units_per_hour)?;
    (units_per_hour > 0).then(|| u32::try_from(hundredths).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
