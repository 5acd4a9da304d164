//! A tenant's spending and its remaining allowance, and the watch over budgets.
//!
//! `store::spending` decides at the write whether something new is admitted. This module acts once money is
//! spent: it reports thresholds, announces the end of running reservations, and after the grace period ends
//! them as their tenant would, so that metering ends there. Each event is sent once in a period, by any
//! replica; the next run is the retry.

use std::time::Duration;

use chrono::{DateTime, Utc};
use market::ids::{BudgetId, ProjectId, ReservationId, TenantId};
use market::money::{Currency, Money};
use market::spending::{Budget, BudgetPeriod, Span, hundredths_of_hours_left, money};
use pricing::PriceError;
use store::StoreError;
use store::spending::Spending;
use store::tenants::Project;
use tokio::time::sleep;
use tracing::{error, info};

use crate::flow::reserve::{self, ReserveError};
use crate::platform::app::Broker;
use crate::platform::leader::keep_turns;
use crate::platform::stop::Stop;

/// How often budgets are checked.
const INTERVAL: Duration = Duration::from_secs(5);

/// The result of a look at all budgets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Watched {
    /// Events that were sent.
    pub told: usize,
    /// Reservations whose end was asked for.
    pub ended: usize,
    /// Budgets and reservations that could not be handled; the next run tries again.
    pub failed: usize,
}

/// Watches budgets until stopped, while no other replica does.
pub async fn keep_watching(broker: Broker, stop: Stop) {
    let turn = || async {
        if let Err(failure) = watch(&broker).await {
            error!(error = %crate::chain(&failure), "Budgets could not be read");
        }
        sleep(INTERVAL).await;
    };
    keep_turns(&broker, "spending", &stop, turn).await;
}

/// Checks every budget once; a failure with one holds up no other.
///
/// Errors: the database's, when the budgets cannot be read.
pub async fn watch(broker: &Broker) -> Result<Watched, StoreError> {
    let budgets = broker.store().budgets().across_tenants();
    let mut watched = Watched::default();
    for budget in budgets.list().await? {
        let reviewed = match budgets.review(&budget, broker.now()).await {
            Ok(reviewed) => reviewed,
            Err(failure) => {
                error!(
                    budget.id = %budget.id, error = %crate::chain(&failure),
                    "Budget {} could not be checked", budget.id
                );
                watched.failed += 1;
                continue;
            }
        };
        watched.told += reviewed.told;
        for reservation in reviewed.to_stop {
            end(broker, &budget, reservation, &mut watched).await;
        }
    }
    if watched.told > 0 {
        broker.ring_events();
    }
    Ok(watched)
}

async fn end(broker: &Broker, budget: &Budget, id: ReservationId, watched: &mut Watched) {
    match reserve::stop(broker, budget.tenant_id, id, budget.id).await {
        Ok(_) => {
            info!(
                budget.id = %budget.id, reservation.id = %id,
                "Ended reservation {id}, because budget {} is spent", budget.id
            );
            watched.ended += 1;
        }
        // It ended by itself meanwhile.
        Err(ReserveError::Illegal { .. } | ReserveError::Unknown(_)) => {}
        Err(failure) => {
            error!(
                budget.id = %budget.id, reservation.id = %id, error = %crate::chain(&failure),
                "Reservation {id} could not be ended, though budget {} is spent", budget.id
            );
            watched.failed += 1;
        }
    }
}

/// Why there is no balance.
#[derive(Debug, thiserror::Error)]
pub enum BalanceError {
    /// The credits cannot be summed up.
    #[error("the credits cannot be summed up")]
    Sum(#[source] PriceError),
    /// The database did not answer.
    #[error("the balance could not be read")]
    Store(#[from] StoreError),
}

/// The state of a tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct Balance {
    /// As of when.
    pub as_of: DateTime<Utc>,
    /// All of it.
    pub total: Standing,
    /// The tenant's credits since it began.
    pub credited: Money,
    /// Each budget, the oldest first.
    pub budgets: Vec<BudgetStanding>,
    /// Each project, by name.
    pub projects: Vec<(Project, Standing)>,
}

/// The state of a tenant or a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Charged for use that began today.
    pub charged_today: Money,
    /// Charged for use that began this month.
    pub charged_this_month: Money,
    /// The largest further cost of open reservations until the month ends.
    pub open_this_month: Money,
    /// The current charge rate. Units: per hour.
    pub burn_per_hour: Money,
    /// The cap that is reached first at this rate, and when; `None` when none is before its
    /// period ends.
    pub tightest: Option<(BudgetId, HoursLeft)>,
}

/// Hundredths of an hour, rounded down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HoursLeft(pub u32);

/// The state of a budget in its period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetStanding {
    /// The budget.
    pub budget: Budget,
    /// Its period.
    pub span: Span,
    /// Charged for use that began in it.
    pub charged: Money,
    /// The largest further cost of open reservations in it.
    pub open: Money,
    /// How long until its cap is spent at the present rate; `None` when it is not in this period.
    pub hours_left: Option<HoursLeft>,
}

/// The present spending of a tenant.
///
/// Errors: [`BalanceError`].
pub async fn balance(broker: &Broker, tenant: TenantId) -> Result<Balance, BalanceError> {
    let (store, now) = (broker.store(), broker.now());
    let spending = store.spending().of(tenant).read(now).await?;
    let budgets = store.budgets().of(tenant).list().await?;
    let budgets: Vec<_> = budgets
        .into_iter()
        .map(|budget| budget_standing(&spending, budget, now))
        .collect();
    let projects = store.tenants().projects(tenant).await?;
    let projects = projects.into_iter().map(|project| {
        let standing = standing(&spending, &budgets, Some(project.id), now);
        (project, standing)
    });
    let credits = store.credits().of(tenant).list().await?;
    let credited = credits
        .iter()
        .try_fold(Money::zero(Currency::Usd), |sum, credit| {
            sum.checked_add(credit.amount)
        })
        .map_err(|error| BalanceError::Sum(error.into()))?;
    Ok(Balance {
        as_of: now,
        total: standing(&spending, &budgets, None, now),
        credited,
        projects: projects.collect(),
        budgets,
    })
}

fn budget_standing(spending: &Spending, budget: Budget, now: DateTime<Utc>) -> BudgetStanding {
    let (span, project) = (budget.terms.period.around(now), budget.project_id);
    let charged = spending.charged(project, span);
    let left = i128::from(budget.terms.cap.units()) - charged;
    let hours = hundredths_of_hours_left(left, spending.burn_units_per_hour(project));
    // The next period begins with the whole cap.
    let until_end = i128::from((span.end - now).num_seconds()) * 100 / 3_600;
    BudgetStanding {
        span,
        charged: money(charged),
        open: money(spending.open_within(project, span)),
        hours_left: hours
            .filter(|hours| i128::from(*hours) < until_end)
            .map(HoursLeft),
        budget,
    }
}

fn standing(
    spending: &Spending,
    budgets: &[BudgetStanding],
    project: Option<ProjectId>,
    now: DateTime<Utc>,
) -> Standing {
    let (day, month) = (
        BudgetPeriod::Day.around(now),
        BudgetPeriod::Month.around(now),
    );
    // The tenant as a whole is bound by its own budgets, a project by those and its own.
    let binds = |budget: &Budget| match project {
        Some(project) => budget.covers(project),
        None => budget.project_id.is_none(),
    };
    let tightest = budgets
        .iter()
        .filter(|standing| binds(&standing.budget))
        .filter_map(|standing| Some((standing.hours_left?, standing.budget.id)))
        .min();
    Standing {
        charged_today: money(spending.charged(project, day)),
        charged_this_month: money(spending.charged(project, month)),
        open_this_month: money(spending.open_within(project, month)),
        burn_per_hour: money(spending.burn_units_per_hour(project)),
        tightest: tightest.map(|(hours, budget)| (budget, hours)),
    }
}
