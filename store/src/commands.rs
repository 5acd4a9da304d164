//! A tenant's commands to a reservation, outside of a worker's claim: confirm, cancel, release.
//!
//! While nothing is running at a provider (`Held`, `Scheduled`, `Confirmed`) a command changes the state
//! itself. A worker
//! that was busy with the old state finds its result stale; it has called no provider yet, because lease rows
//! are saved before the first call. Later a command only writes a [`RequestedAction`], because a worker may be in the
//! middle of a call whose result must not be lost.
//!
//! Both are guarded by the version that the caller read, and ask for a look at once.

use chrono::{DateTime, Utc};
use market::event::EventType;
use market::ids::{BudgetId, ReservationId, TenantId};
use market::reservation::ReservationState;
use sea_orm::ActiveValue::{Set, Unchanged};
use sea_orm::{DatabaseTransaction, EntityTrait};

use crate::entity::column::{Moment, Text, Word};
use crate::entity::reservations;
use crate::events::NewEvent;
use crate::idempotency::{self, Completion};
use crate::reservations::{RequestedAction, Reservation, TenantReservations, lock_of_tenant};
use crate::tx::transaction;
use crate::{Conflict, Store, StoreError};
use crate::{coverage, events, followers, hold, leases, spending};

/// A command to a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Move to this state, the result of `ReservationState::next` for the state that was read.
    Move(ReservationState),
    /// Leave the state and move the end of the window.
    Extend(DateTime<Utc>),
    /// Leave the state and leave a wish for the worker. An existing wish stays, with its time.
    RequestedAction(RequestedAction),
}

impl TenantReservations<'_> {
    /// Applies `command` to a reservation that is still at `version`.
    ///
    /// Errors: [`StoreError::NotFound`]; [`StoreError::Stale`] when it is no longer at `version` (read it
    /// again and decide again), or when `completion` was taken over; [`StoreError::BudgetExceeded`] for a
    /// confirmation or an extension; [`Conflict::FleetFollows`] for an extension;
    /// [`Conflict::LiveLeases`] when it cannot be closed yet.
    pub async fn command(
        &self,
        id: ReservationId,
        version: i64,
        command: Command,
        now: DateTime<Utc>,
        completion: Option<Completion<'_, Reservation>>,
    ) -> Result<Reservation, StoreError> {
        let command = (command, None);
        self.carry_out(id, version, command, now, completion).await
    }

    /// Applies `command` to a reservation that is still at `version`, because `budget` is spent. The
    /// reservation and the event record that reason.
    ///
    /// Errors: as [`TenantReservations::command`].
    pub async fn stop(
        &self,
        id: ReservationId,
        version: i64,
        command: Command,
        budget: BudgetId,
        now: DateTime<Utc>,
    ) -> Result<Reservation, StoreError> {
        let command = (command, Some(budget));
        self.carry_out(id, version, command, now, None).await
    }

    async fn carry_out(
        &self,
        id: ReservationId,
        version: i64,
        (command, budget): (Command, Option<BudgetId>),
        now: DateTime<Utc>,
        completion: Option<Completion<'_, Reservation>>,
    ) -> Result<Reservation, StoreError> {
        let (store, tenant) = (self.store, self.tenant);
        transaction!(store, |tx| {
            let whose = (tenant, id, version);
            let (reservation, told) = carry_out(tx, store, whose, command, budget, now).await?;
            idempotency::complete(tx, tenant, completion.as_ref(), &reservation).await?;
            events::append(tx, tenant, &told, now).await?;
            Ok(reservation)
        })
    }

    /// Applies commands to several reservations, each still at its version: all of them or none.
    ///
    /// Errors: as [`TenantReservations::command`].
    pub async fn command_all(
        &self,
        commands: &[(ReservationId, i64, Command)],
        now: DateTime<Utc>,
        completion: Option<Completion<'_, Vec<Reservation>>>,
    ) -> Result<Vec<Reservation>, StoreError> {
        let (store, tenant) = (self.store, self.tenant);
        transaction!(store, |tx| {
            let (mut done, mut told) = (Vec::new(), Vec::new());
            for (id, version, command) in commands {
                let whose = (tenant, *id, *version);
                let (reservation, more) = carry_out(tx, store, whose, *command, None, now).await?;
                done.push(reservation);
                told.extend(more);
            }
            idempotency::complete(tx, tenant, completion.as_ref(), &done).await?;
            events::append(tx, tenant, &told, now).await?;
            Ok(done)
        })
    }
}

/// Applies a command within a transaction; returns the reservation with its events.
async fn carry_out(
    tx: &DatabaseTransaction,
    store: &Store,
    (tenant, id, version): (TenantId, ReservationId, i64),
    command: Command,
    budget: Option<BudgetId>,
    now: DateTime<Utc>,
) -> Result<(Reservation, Vec<NewEvent>), StoreError> {
    let mut row = lock_of_tenant(tx, tenant, id).await?;
    if row.version != version {
        return Err(StoreError::Stale);
    }
    let end_before = followers::end_of(&row)?;
    if row.wish.0 == RequestedAction::None {
        row.stopped_by = row.stopped_by.or(budget.map(Text));
    }
    let mut told = Vec::from_iter(match command {
        Command::Move(to) => {
            let from = row.state()?;
            if matches!(
                to,
                ReservationState::Confirmed | ReservationState::Scheduled
            ) {
                spending::check_confirm(tx, store.limits, &row, now).await?;
            }
            move_to(tx, &mut row, to, now).await?;
            Some(events::reservation_moved(tx, &row, Some(from)).await?)
        }
        Command::Extend(end) => {
            let before = row.clone();
            row.window_end = Some(end.into());
            followers::check_extension(tx, &row, end).await?;
            spending::check_extension(tx, &before, &row, now).await?;
            row.nudge(now);
            let kind = EventType::ReservationExtended;
            Some(events::reservation_said(&row, kind))
        }
        Command::RequestedAction(wish) => {
            note_wish(&mut row, wish, now).map(|kind| events::reservation_said(&row, kind))
        }
    });
    row.version += 1;
    write(tx, row.clone()).await?;
    told.extend(followers::move_with(tx, &row, end_before, now).await?);
    Ok((Reservation::try_from(row)?, told))
}

/// Records a wish unless there is one already; returns its event.
fn note_wish(
    row: &mut reservations::Model,
    wish: RequestedAction,
    now: DateTime<Utc>,
) -> Option<EventType> {
    let told = match wish {
        RequestedAction::None => return None,
        RequestedAction::Cancel => EventType::ReservationCancelRequested,
        RequestedAction::Release => EventType::ReservationReleaseRequested,
    };
    if row.wish.0 != RequestedAction::None {
        return None;
    }
    row.wish = Word(wish);
    row.wish_at = Some(now.into());
    row.nudge(now);
    Some(told)
}

/// Moves a reservation, with everything that the new state requires.
pub(crate) async fn move_to(
    tx: &DatabaseTransaction,
    row: &mut reservations::Model,
    to: ReservationState,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    row.set_state(to);
    row.nudge(now);
    match to {
        ReservationState::Confirmed | ReservationState::Scheduled => {
            row.confirmed_at = row.confirmed_at.or(Some(now.into()));
        }
        ReservationState::Active => row.active_at = row.active_at.or(Some(now.into())),
        ReservationState::Closed(_) => {
            if leases::any_live(tx, row.id.0).await? {
                return Err(Conflict::LiveLeases.into());
            }
            hold::release(tx, row.id.0).await?;
            coverage::give_back(tx, row, now).await?;
            row.closed_at = Some(now.into());
            row.due_at = None;
            row.claim_token = None;
            row.claim_expires_at = None;
        }
        _ => {}
    }
    Ok(())
}

/// Writes the mutable columns of a locked row. The sold lines never change; the part of them in use may.
pub(crate) async fn write(
    tx: &DatabaseTransaction,
    row: reservations::Model,
) -> Result<(), StoreError> {
    let ends_at = row.latest_end().map(Moment::from);
    let changed = reservations::ActiveModel {
        id: Unchanged(row.id),
        state: Set(row.state),
        reason: Set(row.reason),
        version: Set(row.version),
        starts_at: Set(row.starts_at),
        window_end: Set(row.window_end),
        ends_at: Set(ends_at),
        notices: Set(row.notices),
        gpus: Set(row.gpus),
        units_per_hour: Set(row.units_per_hour),
        confirmed_at: Set(row.confirmed_at),
        active_at: Set(row.active_at),
        closed_at: Set(row.closed_at),
        wish: Set(row.wish),
        wish_at: Set(row.wish_at),
        due_at: Set(row.due_at),
        nudges: Set(row.nudges),
        claim_token: Set(row.claim_token),
        claim_expires_at: Set(row.claim_expires_at),
        last_error: Set(row.last_error),
        stopped_by: Set(row.stopped_by),
        ..reservations::ActiveModel::default()
    };
    reservations::Entity::update(changed)
        .exec_without_returning(tx)
        .await?;
    Ok(())
}
