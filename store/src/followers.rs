//! Fleets that start when a run ends: they move with the end of the run, in the transaction that changes it.
//!
//! A fleet starts when its run has really ended, plus the time that the weights take. While the end of the run
//! is open, the fleet keeps its planned date, and is not ordered before the run ends. A run that fails or is
//! cancelled leaves the fleet at its date, and the tenant gets `reservation.run_failed`.

use chrono::{DateTime, TimeDelta, Utc};
use market::demand::Window;
use market::event::EventType;
use market::ids::{ReservationId, TenantId};
use market::reservation::{CloseReason, ReservationState};
use sea_orm::{
    ColumnTrait, DatabaseTransaction, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder,
    QuerySelect,
};
use serde_json::json;

use crate::entity::column::{Moment, Text};
use crate::entity::reservations::{Column, Entity, Model};
use crate::events::NewEvent;
use crate::reservations::{AllReservations, RequestedAction, TenantReservations};
use crate::{Conflict, StoreError, commands, events};

/// How soon a fleet whose run failed is ordered at the earliest: its tenant may cancel it before.
const AFTER_FAILED_RUN: TimeDelta = TimeDelta::hours(1);

/// Fleets that may wait for one run: each moves with it in one transaction.
const MOST_FOLLOWERS: u64 = 16;

/// The end of a run, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// It is not handed off yet, or in use with an open end.
    Open,
    /// It ends, or ended, then.
    At(DateTime<Utc>),
    /// It failed or was cancelled, or never began.
    Failed,
}

/// Lets a fleet that is about to be placed wait for its run. Where the end of the run is known, the fleet starts
/// after it; where not, it is waited for until the latest start that its demand gives.
///
/// Errors: [`StoreError::NotFound`] for a run that is not the tenant's, [`Conflict::RunOver`].
pub(crate) async fn join(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    fleet: &mut Model,
) -> Result<(), StoreError> {
    let Some(Text(run)) = fleet.follows.clone() else {
        return Ok(());
    };
    let row = Entity::find_by_id(Text(run))
        .filter(Column::TenantId.eq(Text(tenant)))
        .lock_shared()
        .one(tx)
        .await?
        .ok_or(StoreError::NotFound {
            what: "reservation to follow",
        })?;
    let state = row.state()?;
    let is_ending = matches!(
        state,
        ReservationState::Releasing(_) | ReservationState::Closed(_)
    );
    if is_ending || row.wish.0 != RequestedAction::None {
        return Err(Conflict::RunOver { run }.into());
    }
    let others = Entity::find()
        .filter(Column::Follows.eq(Text(run)))
        .filter(Column::State.ne("closed"));
    if others.count(tx).await? >= MOST_FOLLOWERS {
        let most = MOST_FOLLOWERS;
        return Err(Conflict::TooManyFollowers { run, most }.into());
    }
    let window = window_of(fleet);
    fleet.window_end = match end_of(&row)? {
        RunEnd::At(end) => {
            let starts_at = start_after(fleet, end);
            let latest = window.given_up_after(starts_at);
            if starts_at >= latest {
                return Err(Conflict::RunTooLate { run, latest }.into());
            }
            fleet.starts_at = Some(starts_at.into());
            Some(latest.into())
        }
        RunEnd::Open | RunEnd::Failed => window.latest_given().map(Moment::from),
    };
    Ok(())
}

impl TenantReservations<'_> {
    /// The open reservations that follow this one, in the order of their ids.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn followers_of(&self, run: ReservationId) -> Result<Vec<ReservationId>, StoreError> {
        let open = Entity::find()
            .select_only()
            .column(Column::Id)
            .filter(Column::TenantId.eq(Text(self.tenant)))
            .filter(Column::Follows.eq(Text(run)))
            .filter(Column::State.ne("closed"))
            .order_by_asc(Column::Id);
        let ids: Vec<Text<ReservationId>> = open.into_tuple().all(&self.store.read).await?;
        Ok(ids.into_iter().map(|id| id.0).collect())
    }
}

impl AllReservations<'_> {
    /// How far the end of a run is known; [`RunEnd::Failed`] where there is none.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn end_of_run(&self, run: ReservationId) -> Result<RunEnd, StoreError> {
        let row = Entity::find_by_id(Text(run)).one(&self.store.read).await?;
        row.as_ref().map_or(Ok(RunEnd::Failed), end_of)
    }
}

/// The end of the run of this row.
pub(crate) fn end_of(run: &Model) -> Result<RunEnd, StoreError> {
    use CloseReason as Why;
    use ReservationState as S;
    let asked_at = run.wish_at.map(Moment::at);
    let ended_at = asked_at
        .into_iter()
        .chain(run.window_end.map(Moment::at))
        .min();
    let at = |end: Option<DateTime<Utc>>| end.map_or(RunEnd::Open, RunEnd::At);
    Ok(match run.state()? {
        S::Releasing(Why::Released | Why::WindowEnded)
        | S::Closed(Why::Released | Why::WindowEnded)
            if run.active_at.is_some() =>
        {
            at(ended_at)
        }
        S::Releasing(_) | S::Closed(_) => RunEnd::Failed,
        _ if run.active_at.is_none() => RunEnd::Open,
        _ => at(ended_at),
    })
}

/// When a fleet starts after a run that ends at `end`: never before the start that its demand gives.
fn start_after(fleet: &Model, end: DateTime<Utc>) -> DateTime<Utc> {
    let staging = TimeDelta::seconds(fleet.staging_seconds.unwrap_or(0));
    let ready = end.checked_add_signed(staging).unwrap_or(end);
    let wanted = window_of(fleet).start_earliest;
    wanted.map_or(ready, |wanted| wanted.max(ready))
}

fn window_of(fleet: &Model) -> Window {
    fleet.demand.0.shared().window.cloned().unwrap_or_default()
}

/// The fleets that wait for a run, locked, in the order of their ids.
async fn waiting_for(tx: &DatabaseTransaction, run: &Model) -> Result<Vec<Model>, StoreError> {
    let rows = Entity::find()
        .filter(Column::Follows.eq(run.id.clone()))
        .filter(Column::State.is_not_in(["releasing", "closed"]))
        .filter(Column::ActiveAt.is_null())
        .order_by_asc(Column::Id)
        .lock_exclusive();
    Ok(rows.all(tx).await?)
}

/// Refuses an extension of a run that a fleet behind it cannot wait for: past the latest start that its demand
/// gives, and past its start once its machines are ordered.
///
/// Errors: [`Conflict::FleetFollows`].
pub(crate) async fn check_extension(
    tx: &DatabaseTransaction,
    run: &Model,
    end: DateTime<Utc>,
) -> Result<(), StoreError> {
    for fleet in waiting_for(tx, run).await? {
        let state = fleet.state()?;
        let latest = match state {
            // Its confirm is refused once it is too late.
            ReservationState::Held => continue,
            ReservationState::Scheduled => window_of(&fleet).latest_given(),
            _ => fleet.starts_at.map(Moment::at),
        };
        let starts_at = start_after(&fleet, end);
        let ordered = state.is_ordered();
        let is_late = |latest: &DateTime<Utc>| match ordered {
            true => starts_at > *latest,
            false => starts_at >= *latest,
        };
        let Some(latest) = latest.filter(is_late) else {
            continue;
        };
        let staging = TimeDelta::seconds(fleet.staging_seconds.unwrap_or(0));
        // It is given up at its latest start, so it starts before that.
        let least = TimeDelta::seconds(i64::from(!ordered));
        return Err(Conflict::FleetFollows {
            fleet: fleet.id.0,
            latest,
            most: latest - staging - least,
            ordered,
        }
        .into());
    }
    Ok(())
}

/// Moves the fleets behind a run whose row was just written, where its end is another one than `end_before`;
/// returns their events.
pub(crate) async fn move_with(
    tx: &DatabaseTransaction,
    run: &Model,
    end_before: RunEnd,
    now: DateTime<Utc>,
) -> Result<Vec<NewEvent>, StoreError> {
    let mut told = Vec::new();
    let end = end_of(run)?;
    if end == end_before || end == RunEnd::Open {
        return Ok(told);
    }
    for mut fleet in waiting_for(tx, run).await? {
        let (state, window) = (fleet.state()?, window_of(&fleet));
        let Some(before) = fleet.starts_at.map(Moment::at) else {
            continue;
        };
        let wanted = match end {
            RunEnd::At(end) => start_after(&fleet, end),
            RunEnd::Failed | RunEnd::Open => {
                let in_time = |start: &DateTime<Utc>| {
                    window.latest_given().is_none_or(|latest| *start < latest)
                };
                let later = before.max(now + AFTER_FAILED_RUN);
                Some(later).filter(in_time).unwrap_or(before)
            }
        };
        // Machines that are ordered never wait for longer than planned.
        let starts_at = match state.is_ordered() {
            true => wanted.min(before),
            false => wanted,
        };
        let window_end = match state.is_ordered() {
            true => fleet.window_end,
            false => Some(window.given_up_after(starts_at).into()),
        };
        if end == RunEnd::Failed && state != ReservationState::Held {
            let mut event = events::reservation_said(&fleet, EventType::ReservationRunFailed);
            event.data["run"] = json!(run.id.0);
            event.data["starts_at"] = json!(starts_at);
            told.push(event);
        }
        if starts_at != before {
            let mut event = events::reservation_said(&fleet, EventType::ReservationStartMoved);
            event.data["starts_at"] = json!(starts_at);
            event.data["previous_start"] = json!(before);
            told.push(event);
        }
        fleet.starts_at = Some(starts_at.into());
        fleet.window_end = window_end;
        fleet.version += 1;
        // A hold is looked at when it lapses.
        if state != ReservationState::Held {
            fleet.nudge(now);
        }
        commands::write(tx, fleet).await?;
    }
    Ok(told)
}
