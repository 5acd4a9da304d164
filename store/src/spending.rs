//! A tenant's spending: charged (`charged.rs`), committed, in use; and its check before more is sold
//! (`check.rs`).
//!
//! The amount in use is stored with each reservation and summed by the database. The rest is computed from
//! the open reservations themselves, for a hold only where a budget may refuse it.

mod charged;
mod check;

use std::collections::HashMap;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use market::ids::{ProjectId, ReservationId, TenantId};
use market::lease::LeaseState;
use market::money::Rate;
use market::quote::QuoteLine;
use market::reservation::ReservationState;
use market::spending::{BudgetPeriod, InUse, OpenLine, RunningGpus, Span};
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DatabaseTransaction, EntityTrait, QueryFilter,
    QuerySelect, QueryTrait,
};

use crate::StoreError;
use crate::entity::column::{Moment, Text};
use crate::entity::{holds, leases, reservations, spent_days, spent_rates};
use crate::reservations::RequestedAction;
use crate::scope::tenant_scoped;

pub(crate) use charged::{add_charges, charged_within};
pub(crate) use check::{check_confirm, check_extension, check_hold, lock};

/// A tenant's open reservations, and its charges of this month.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Spending {
    open: Vec<OpenReservation>,
    days: Vec<SpentDay>,
}

/// A reservation that is not closed.
#[derive(Debug, Clone, PartialEq)]
struct OpenReservation {
    project: ProjectId,
    lines: Vec<OpenLine>,
    in_use: InUse,
    burns: i128,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct SpentDay {
    project: ProjectId,
    day: NaiveDate,
    units: i64,
}

tenant_scoped!(SpendingOf, spending, TenantSpending, "current spending");

impl TenantSpending<'_> {
    /// The tenant's open reservations and its charges of this month, as of one moment.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn read(&self, now: DateTime<Utc>) -> Result<Spending, StoreError> {
        let tx = self.store.snapshot().await?;
        read(&tx, self.tenant, now).await
    }

    /// How much the tenant or one project of it has in use, summed by the database.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn in_use(
        &self,
        project: Option<ProjectId>,
        now: DateTime<Utc>,
    ) -> Result<InUse, StoreError> {
        let tx = self.store.snapshot().await?;
        in_use(&tx, self.tenant, project, now).await
    }
}

impl Spending {
    /// The sum charged for use that began within `span`, which is in this month or later, where nothing is
    /// charged yet; of one project or of all. Units: USD 1e-8.
    #[must_use]
    pub fn charged(&self, project: Option<ProjectId>, span: Span) -> i128 {
        let days = span.start.date_naive()..span.end.date_naive();
        self.days
            .iter()
            .filter(|spent| project.is_none_or(|own| own == spent.project))
            .filter(|spent| days.contains(&spent.day))
            .map(|spent| i128::from(spent.units))
            .sum()
    }

    /// What open reservations may still cost within `span`. Units: USD 1e-8.
    #[must_use]
    pub fn open_within(&self, project: Option<ProjectId>, span: Span) -> i128 {
        self.of(project)
            .flat_map(|open| &open.lines)
            .map(|line| line.rest_within(span))
            .sum()
    }

    /// How much is in use.
    #[must_use]
    pub fn in_use(&self, project: Option<ProjectId>) -> InUse {
        let mut sum = InUse::default();
        for open in self.of(project) {
            sum += open.in_use;
        }
        sum
    }

    /// The present rate of charges. Units: USD 1e-8 per hour.
    #[must_use]
    pub fn burn_units_per_hour(&self, project: Option<ProjectId>) -> i128 {
        self.of(project).map(|open| open.burns).sum()
    }

    fn of(&self, project: Option<ProjectId>) -> impl Iterator<Item = &OpenReservation> {
        self.open
            .iter()
            .filter(move |open| project.is_none_or(|own| own == open.project))
    }
}

/// Reads the parts in an order that never counts too little.
async fn read<C: ConnectionTrait>(
    db: &C,
    tenant: TenantId,
    now: DateTime<Utc>,
) -> Result<Spending, StoreError> {
    let rows = reservations::Entity::find()
        .filter(reservations::Column::TenantId.eq(Text(tenant)))
        .filter(reservations::Column::State.ne("closed"))
        .all(db)
        .await?;
    let ids = || rows.iter().map(|row| row.id.clone());
    let mut by_reservation: HashMap<ReservationId, Vec<leases::Model>> = HashMap::new();
    for lease in leases::Entity::find()
        .filter(leases::Column::ReservationId.is_in(ids()))
        .all(db)
        .await?
    {
        by_reservation
            .entry(lease.reservation_id.0)
            .or_default()
            .push(lease);
    }
    let mut charged: HashMap<_, i64> = HashMap::new();
    for row in spent_rates::Entity::find()
        .filter(spent_rates::Column::ReservationId.is_in(ids()))
        .all(db)
        .await?
    {
        *charged.entry((row.reservation_id.0, row.line)).or_default() += row.gpu_seconds;
    }
    let open = rows
        .iter()
        .map(|row| {
            let leases = by_reservation.remove(&row.id.0).unwrap_or_default();
            open_reservation(row, &leases, &charged, now)
        })
        .collect::<Result<_, _>>()?;
    let month = BudgetPeriod::Month.around(now);
    let days = spent_days::Entity::find()
        .filter(spent_days::Column::TenantId.eq(Text(tenant)))
        .filter(spent_days::Column::Day.gte(Text(month.start.date_naive())))
        .filter(spent_days::Column::Day.lt(Text(month.end.date_naive())))
        .all(db)
        .await?
        .into_iter()
        .map(|row| SpentDay {
            project: row.project_id.0,
            day: row.day.0,
            units: row.amount_units,
        })
        .collect();
    Ok(Spending { open, days })
}

/// How much is in use, summed by the database. Where rows lack these columns, it reads their lines and
/// leases.
async fn in_use<C: ConnectionTrait>(
    db: &C,
    tenant: TenantId,
    project: Option<ProjectId>,
    now: DateTime<Utc>,
) -> Result<InUse, StoreError> {
    use reservations::Column;
    // The sum of 64-bit integers has a wider type on PostgreSQL.
    let sum = |what: &str| Expr::cust(format!("CAST(COALESCE(SUM({what}), 0) AS BIGINT)"));
    let stands = Condition::any()
        .add(Column::State.ne("held"))
        .add(Column::HoldExpiresAt.gt(Moment::from(now)));
    let sums: Option<(i64, i64, i64, i64, i64)> = reservations::Entity::find()
        .select_only()
        .column_as(Column::Id.count(), "reservations")
        .column_as(Column::Gpus.count(), "counted")
        .column_as(
            sum("CASE WHEN state = 'held' THEN 1 ELSE 0 END"),
            "open_holds",
        )
        .column_as(sum("gpus"), "gpus")
        .column_as(sum("units_per_hour"), "units_per_hour")
        .filter(Column::TenantId.eq(Text(tenant)))
        .filter(Column::State.ne("closed"))
        .filter(stands)
        .apply_if(project, |query, project| {
            query.filter(Column::ProjectId.eq(Text(project)))
        })
        .into_tuple()
        .one(db)
        .await?;
    let (all, counted, open_holds, gpus, units_per_hour) = sums.unwrap_or_default();
    if counted < all {
        return Ok(read(db, tenant, now).await?.in_use(project));
    }
    let whole = |sum: i64| u64::try_from(sum).map_err(StoreError::corrupt);
    Ok(InUse {
        gpus: whole(gpus)?,
        units_per_hour: i128::from(units_per_hour),
        open_holds: whole(open_holds)?,
        held_nodes: held_nodes(db, tenant, project, now).await?,
        reservations: whole(all)?,
    })
}

/// Nodes of holds that are not confirmed and have not lapsed.
async fn held_nodes<C: ConnectionTrait>(
    db: &C,
    tenant: TenantId,
    project: Option<ProjectId>,
    now: DateTime<Utc>,
) -> Result<u64, StoreError> {
    use reservations::Column;
    let waiting = reservations::Entity::find()
        .select_only()
        .column(Column::Id)
        .filter(Column::TenantId.eq(Text(tenant)))
        .filter(Column::State.eq(ReservationState::Held.as_str()))
        .filter(Column::HoldExpiresAt.gt(Moment::from(now)))
        .apply_if(project, |query, project| {
            query.filter(Column::ProjectId.eq(Text(project)))
        });
    let sum: Option<Option<i64>> = holds::Entity::find()
        .select_only()
        .column_as(holds::Column::Nodes.sum(), "nodes")
        .filter(holds::Column::Live.eq(true))
        .filter(holds::Column::ReservationId.in_subquery(waiting.into_query()))
        .into_tuple()
        .one(db)
        .await?;
    u64::try_from(sum.flatten().unwrap_or(0)).map_err(StoreError::corrupt)
}

/// GPUs of these lines, without those given up, and their cost (units: USD 1e-8 per hour); `None` where no
/// column can store that.
pub(crate) fn of_lines(lines: &[QuoteLine], leases: &[leases::Model]) -> Option<(i64, i64)> {
    let (mut gpus, mut units_per_hour) = (0_i64, 0_i64);
    for line in lines {
        let of_line = |lease: &&leases::Model| u32::try_from(lease.line) == Ok(line.line);
        let given_up = leases.iter().filter(of_line).filter(|lease| lease.given_up);
        let left = i64::from(line.gpus().saturating_sub(given_up.map(gpus_of).sum()));
        let rate = line.rate.money_per_gpu_hour().units();
        gpus += left;
        units_per_hour = units_per_hour.checked_add(rate.checked_mul(left)?)?;
    }
    Some((gpus, units_per_hour))
}

/// Recounts what a reservation has in use, once leases of it were given up.
pub(crate) async fn count_anew(
    tx: &DatabaseTransaction,
    row: &mut reservations::Model,
) -> Result<(), StoreError> {
    let leases = leases::Entity::find()
        .filter(leases::Column::ReservationId.eq(row.id.clone()))
        .all(tx)
        .await?;
    let in_use = of_lines(&row.lines.0, &leases);
    row.gpus = in_use.map(|(gpus, _)| gpus);
    row.units_per_hour = in_use.map(|(_, units)| units);
    Ok(())
}

/// A reservation's use and the cost that it may still cause.
fn open_reservation(
    row: &reservations::Model,
    leases: &[leases::Model],
    charged: &HashMap<(ReservationId, i32), i64>,
    now: DateTime<Utc>,
) -> Result<OpenReservation, StoreError> {
    let state = row.state()?;
    let lapsed = state == ReservationState::Held && row.hold_expires_at.at() <= now;
    if lapsed || state.is_closed() {
        return Ok(OpenReservation {
            project: row.project_id.0,
            lines: Vec::new(),
            in_use: InUse::default(),
            burns: 0,
        });
    }
    let (mut gpus, mut units_per_hour, mut burns) = (0_u64, 0_i128, 0_i128);
    let mut lines = Vec::new();
    for line in &row.lines.0 {
        let number = i32::try_from(line.line).map_err(StoreError::corrupt)?;
        let of_line = || leases.iter().filter(move |lease| lease.line == number);
        let given_up: u32 = of_line().filter(|lease| lease.given_up).map(gpus_of).sum();
        let all = line.gpus().saturating_sub(given_up);
        let running: Vec<_> = of_line().filter_map(running_gpus).collect();
        let delivered: u32 = running.iter().map(|part| part.gpus).sum();
        let units = |rate: Rate| i128::from(rate.money_per_gpu_hour().units());
        gpus += u64::from(all);
        units_per_hour += units(line.rate) * i128::from(all);
        burns += units(line.rate_at(now)) * i128::from(delivered);
        let waiting = RunningGpus {
            gpus: all.saturating_sub(delivered),
            from: now,
        };
        let rest = running.into_iter().chain([waiting]).collect();
        let charged = charged.get(&(row.id.0, number)).copied().unwrap_or(0);
        lines.push(open_line(row, line, state, rest, charged, now));
    }
    Ok(OpenReservation {
        project: row.project_id.0,
        lines,
        in_use: InUse {
            gpus,
            units_per_hour,
            open_holds: u64::from(state == ReservationState::Held),
            held_nodes: match state {
                ReservationState::Held => {
                    row.lines.0.iter().map(|line| u64::from(line.nodes)).sum()
                }
                _ => 0,
            },
            reservations: 1,
        },
        burns,
    })
}

fn gpus_of(lease: &leases::Model) -> u32 {
    let nodes = u32::try_from(lease.nodes).unwrap_or(0);
    nodes.saturating_mul(lease.offer.0.gpus.as_whole().unwrap_or(1))
}

/// The GPUs of a lease in the tenant's hands.
fn running_gpus(lease: &leases::Model) -> Option<RunningGpus> {
    let from = lease.metered_to.or(lease.handed_off_at)?;
    (lease.state.0 == LeaseState::HandedOff).then(|| RunningGpus {
        gpus: gpus_of(lease),
        from: from.at(),
    })
}

fn open_line(
    row: &reservations::Model,
    line: &QuoteLine,
    state: ReservationState,
    running: Vec<RunningGpus>,
    charged_gpu_seconds: i64,
    now: DateTime<Utc>,
) -> OpenLine {
    // Before the hand-off the row has the time that we wait for it, and the demand the length of use after
    // it.
    let (until, longest) = if row.active_at.is_some() {
        (row.window_end.map(Moment::at), None)
    } else {
        let window = row.demand.0.shared().window.cloned().unwrap_or_default();
        let hours = window.duration_hours;
        let longest = hours.map(|hours| TimeDelta::hours(i64::from(hours.get())));
        let given_up_at = row.window_end.map(Moment::at);
        let over_by = given_up_at
            .zip(longest)
            .and_then(|(given_up_at, longest)| given_up_at.checked_add_signed(longest));
        ([window.end, over_by].into_iter().flatten().min(), longest)
    };
    // Use after the tenant asked for the end is not charged.
    let asked = (row.wish.0 != RequestedAction::None)
        .then_some(row.wish_at)
        .flatten();
    let ending = matches!(state, ReservationState::Releasing(_)).then_some(now);
    OpenLine {
        rate: line.rate,
        covered: line.covered,
        charged_gpu_seconds,
        running,
        until: [until, asked.map(Moment::at), ending]
            .into_iter()
            .flatten()
            .min(),
        longest,
    }
}
