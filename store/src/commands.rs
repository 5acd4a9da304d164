//! What a tenant does to a reservation outside of a worker's claim: confirm, cancel, release.
//!
//! While nothing runs at a provider (`Held`, `Confirmed`) a command moves the state itself: a
//! worker that was busy with the old state finds its result stale, and it has called nobody yet,
//! since lease rows are saved before the first call. Later a command only writes a [`Wish`]: a
//! worker may be in the middle of a call whose result must not be lost.
//!
//! Both are guarded by the version that the caller read, and ask for a look at once.

use chrono::{DateTime, Utc};
use market::ids::ReservationId;
use market::reservation::ReservationState;
use sea_orm::ActiveValue::{Set, Unchanged};
use sea_orm::{DatabaseTransaction, EntityTrait};

use crate::entity::column::Word;
use crate::entity::reservations;
use crate::idempotency::{self, Completion};
use crate::reservations::{Reservation, TenantReservations, Wish, lock_of_tenant};
use crate::tx::transaction;
use crate::{Conflict, StoreError, hold, leases};

/// What is to be done to a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// To this state, which `ReservationState::next` gave for the state that was read.
    Move(ReservationState),
    /// Leave the state and move the end of the window.
    Extend(DateTime<Utc>),
    /// Leave the state and tell the worker. A wish that stands already stays, with its time.
    Wish(Wish),
}

impl TenantReservations<'_> {
    /// Does `command` to a reservation that still is at `version`.
    ///
    /// Errors: [`StoreError::NotFound`]; [`StoreError::Stale`] when it is no longer at `version`
    /// (read it again and decide anew), or when `completion` was taken over;
    /// [`Conflict::LiveLeases`] when it cannot be closed yet.
    pub async fn command(
        &self,
        id: ReservationId,
        version: i64,
        command: Command,
        now: DateTime<Utc>,
        completion: Option<Completion<'_, Reservation>>,
    ) -> Result<Reservation, StoreError> {
        let (store, tenant) = (self.store, self.tenant);
        transaction!(store, |tx| {
            let mut row = lock_of_tenant(tx, tenant, id).await?;
            if row.version != version {
                return Err(StoreError::Stale);
            }
            match command {
                Command::Move(to) => move_to(tx, &mut row, to, now).await?,
                Command::Extend(end) => {
                    row.window_end = Some(end.into());
                    row.nudge(now);
                }
                Command::Wish(wish) => note_wish(&mut row, wish, now),
            }
            row.version += 1;
            write(tx, row.clone()).await?;
            let reservation = Reservation::try_from(row)?;
            idempotency::complete(tx, tenant, completion.as_ref(), &reservation).await?;
            Ok(reservation)
        })
    }
}

fn note_wish(row: &mut reservations::Model, wish: Wish, now: DateTime<Utc>) {
    if row.wish.0 == Wish::None && wish != Wish::None {
        row.wish = Word(wish);
        row.wish_at = Some(now.into());
        row.nudge(now);
    }
}

/// Moves a reservation, with what every way into the new state brings along.
pub(crate) async fn move_to(
    tx: &DatabaseTransaction,
    row: &mut reservations::Model,
    to: ReservationState,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    row.set_state(to);
    row.nudge(now);
    match to {
        ReservationState::Confirmed => row.confirmed_at = Some(now.into()),
        ReservationState::Active => row.active_at = row.active_at.or(Some(now.into())),
        ReservationState::Closed(_) => {
            if leases::any_live(tx, row.id.0).await? {
                return Err(Conflict::LiveLeases.into());
            }
            hold::release(tx, row.id.0).await?;
            row.closed_at = Some(now.into());
            row.due_at = None;
            row.claim_token = None;
            row.claim_expires_at = None;
        }
        _ => {}
    }
    Ok(())
}

/// Writes back what can change of a locked row. What was sold never does.
pub(crate) async fn write(
    tx: &DatabaseTransaction,
    row: reservations::Model,
) -> Result<(), StoreError> {
    let changed = reservations::ActiveModel {
        id: Unchanged(row.id),
        state: Set(row.state),
        reason: Set(row.reason),
        version: Set(row.version),
        window_end: Set(row.window_end),
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
        ..reservations::ActiveModel::default()
    };
    reservations::Entity::update(changed)
        .exec_without_returning(tx)
        .await?;
    Ok(())
}
