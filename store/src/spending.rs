//! A tenant's spending: charged (`charged.rs`), committed, in use; and its check before more is sold
//! (`check.rs`).
//!
//! The amount in use is stored with each reservation and summed by the database. The rest is computed from
//! the open reservations themselves, for a hold only where a budget may refuse it.

mod charged;
mod check;
mod in_use;

use std::collections::HashMap;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use market::demand::Ceiling;
use market::ids::{ProjectId, ReservationId, TenantId};
use market::lease::LeaseState;
use market::money::{Money, Rate};
use market::quote::{QuoteLine, is_bounded, most_per_hour};
use market::reservation::ReservationState;
use market::spending::{BudgetPeriod, InUse, OpenLine, RunningGpus, Span};
use sea_orm::{ColumnTrait, ConnectionTrait, DatabaseTransaction, EntityTrait, QueryFilter};

use crate::StoreError;
use crate::entity::column::{Moment, Text};
use crate::entity::{leases, reservations, spent_days, spent_rates};
use crate::reservations::RequestedAction;
use crate::scope::tenant_scoped;

pub(crate) use charged::{add_charges, charged_within};
pub(crate) use check::{check_confirm, check_extension, check_hold, check_start, lock};
use in_use::{UsePeriod, in_use};

/// A tenant's open reservations, and its charges of this month.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Spending {
    open: Vec<OpenReservation>,
    days: Vec<SpentDay>,
}

/// A reservation that is not closed.
#[derive(Debug, Clone, PartialEq)]
struct OpenReservation {
    id: ReservationId,
    project: ProjectId,
    /// When it starts and ends, as far as both are known.
    starts_at: Option<DateTime<Utc>>,
    ends_at: Option<DateTime<Utc>>,
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

    /// How much the tenant or one project of it has in use now, summed by the database. The GPUs and dollars
    /// of a later start do not count before it.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn in_use(
        &self,
        project: Option<ProjectId>,
        now: DateTime<Utc>,
    ) -> Result<InUse, StoreError> {
        let tx = self.store.snapshot().await?;
        in_use(&tx, self.tenant, project, UsePeriod::at(now), None).await
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

    /// How much is in use at a time, the time of the reading or a later one.
    #[must_use]
    pub fn in_use(&self, project: Option<ProjectId>, now: DateTime<Utc>) -> InUse {
        self.in_use_within(project, UsePeriod::at(now))
    }

    fn in_use_within(&self, project: Option<ProjectId>, time: UsePeriod) -> InUse {
        let mut sum = InUse::default();
        for open in self.of(project) {
            let mut in_use = open.in_use;
            if !time.overlaps(open) {
                (in_use.gpus, in_use.units_per_hour) = (0, 0);
            }
            sum += in_use;
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

/// Counts the GPUs of a reservation's lines, without those given up, and their cost, of a later start the
/// bound. The columns stay empty where they cannot store that.
pub(crate) fn set_in_use(row: &mut reservations::Model, leases: &[leases::Model]) {
    let in_use = of_lines(
        &row.lines.0,
        row.ceiling.as_ref().map(|limit| &limit.0),
        leases,
    );
    row.gpus = in_use.map(|(gpus, _)| gpus);
    row.units_per_hour = in_use.map(|(_, units)| units);
}

/// GPUs, and their cost (units: USD 1e-8 per hour); `None` where no column can store that.
fn of_lines(
    lines: &[QuoteLine],
    ceiling: Option<&Ceiling>,
    leases: &[leases::Model],
) -> Option<(i64, i64)> {
    let (mut gpus, mut units_per_hour) = (0_i64, 0_i64);
    for line in lines {
        let of_line = |lease: &&leases::Model| u32::try_from(lease.line) == Ok(line.line);
        let given_up = leases.iter().filter(of_line).filter(|lease| lease.given_up);
        let left = i64::from(line.gpus().saturating_sub(given_up.map(gpus_of).sum()));
        let rate = line.rate.money_per_gpu_hour().units();
        gpus += left;
        units_per_hour = units_per_hour.checked_add(rate.checked_mul(left)?)?;
    }
    if is_bounded(lines) {
        units_per_hour = most_per_hour(lines, ceiling).ok()?.units();
    }
    Some((gpus, units_per_hour))
}

/// Recounts what a reservation has in use, once leases of it were given up.
pub(crate) async fn recount(
    tx: &DatabaseTransaction,
    row: &mut reservations::Model,
) -> Result<(), StoreError> {
    let leases = leases::Entity::find()
        .filter(leases::Column::ReservationId.eq(row.id.clone()))
        .all(tx)
        .await?;
    set_in_use(row, &leases);
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
    let mut open = OpenReservation {
        id: row.id.0,
        project: row.project_id.0,
        // Its machines may be there before its start.
        starts_at: row
            .starts_at
            .map(Moment::at)
            .filter(|_| !state.is_ordered()),
        ends_at: row.latest_end(),
        lines: Vec::new(),
        in_use: InUse::default(),
        burns: 0,
    };
    let lapsed = state == ReservationState::Held && row.hold_expires_at.at() <= now;
    if lapsed || state.is_closed() {
        return Ok(open);
    }
    let from = row.starts_at.map_or(now, |start| start.at().max(now));
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
            from,
        };
        let rest = running.into_iter().chain([waiting]).collect();
        let charged = charged.get(&(row.id.0, number)).copied().unwrap_or(0);
        lines.push(open_line(row, line, state, rest, charged, now));
    }
    let is_later = is_bounded(&row.lines.0);
    if is_later {
        let ceiling = row.ceiling.as_ref().map(|limit| &limit.0);
        let most = most_per_hour(&row.lines.0, ceiling).map_err(StoreError::corrupt)?;
        units_per_hour = most.units().into();
        lines = bounded_line(row, most, from).into_iter().collect();
    }
    open.lines = lines;
    open.burns = burns;
    open.in_use = InUse {
        gpus,
        units_per_hour,
        open_holds: u64::from(state == ReservationState::Held),
        held_nodes: match state {
            ReservationState::Held if !is_later => {
                row.lines.0.iter().map(|line| u64::from(line.nodes)).sum()
            }
            _ => 0,
        },
        reservations: 1,
    };
    Ok(open)
}

/// All lines of a later start as one line of one GPU, whose rate is the bound of them all.
fn bounded_line(
    row: &reservations::Model,
    most_per_hour: Money,
    from: DateTime<Utc>,
) -> Option<OpenLine> {
    let first = row.lines.0.first()?;
    let as_one = QuoteLine {
        rate: Rate::per_gpu_hour(most_per_hour),
        covered: None,
        ..first.clone()
    };
    let running = vec![RunningGpus { gpus: 1, from }];
    Some(open_line(
        row,
        &as_one,
        ReservationState::Held,
        running,
        0,
        from,
    ))
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
    let until = row.latest_end();
    let longest = match row.active_at {
        Some(_) => None,
        None => {
            let window = row.demand.0.shared().window;
            let hours = window.and_then(|window| window.duration_hours);
            hours.map(|hours| TimeDelta::hours(i64::from(hours.get())))
        }
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
