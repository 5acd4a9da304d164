//! The actions of a tenant on a reservation: confirm, cancel, release, extend.
//!
//! A command that meets a worker's change is decided again on what the worker wrote.

use chrono::{DateTime, Utc};
use market::identity::TenantScope;
use market::ids::{BudgetId, ReservationId, TenantId};
use market::quote::is_bounded;
use market::reservation::{ReservationEvent, ReservationState};
use store::commands::Command;
use store::idempotency::Completion;
use store::reservations::{RequestedAction, Reservation};
use store::{Conflict, StoreError};

use super::{ReserveError, announce, find, is_early, on_record};
use crate::platform::app::Broker;

/// How often a command is decided again before the broker gives up.
const TRIES: usize = 5;

/// Confirms a hold: from here on it costs money once it is handed off. A later start is scheduled by it.
///
/// Errors: [`ReserveError::HoldLapsed`], [`ReserveError::Illegal`] for a second confirm;
/// [`StoreError::BudgetExceeded`] when a budget would no longer let it be held.
pub async fn confirm(
    broker: &Broker,
    tenant: TenantId,
    id: ReservationId,
    completion: Option<Completion<'_, Reservation>>,
) -> Result<Reservation, ReserveError> {
    decide(broker, tenant, id, completion, confirmed).await
}

/// Confirms several holds, such as those of a run and its fleet: all of them or none.
///
/// Errors: as [`confirm`], of the first that is refused.
pub async fn confirm_all(
    broker: &Broker,
    tenant: TenantId,
    ids: &[ReservationId],
    completion: Option<Completion<'_, Vec<Reservation>>>,
) -> Result<Vec<Reservation>, ReserveError> {
    let mut tries = 0;
    loop {
        let now = broker.now();
        let mut commands = Vec::new();
        for id in ids {
            let reservation = find(broker, &TenantScope::whole(tenant), *id).await?;
            let command = confirmed(&reservation, now);
            let command = command.map_err(|error| ReserveError::of_one(*id, error))?;
            commands.push((*id, reservation.version, command));
        }
        let mine = broker.store().reservations().of(tenant);
        let done = mine.command_all(&commands, now, completion).await;
        tries += 1;
        match done {
            Err(StoreError::Stale) if tries < TRIES => {}
            // One that lapsed since it was read.
            Err(StoreError::Conflict(Conflict::HoldLapsed)) => {
                return Err(ReserveError::HoldLapsed(now));
            }
            Err(error) => return Err(error.into()),
            Ok(done) => {
                announce(broker, tenant).await;
                return Ok(done);
            }
        }
    }
}

fn confirmed(reservation: &Reservation, now: DateTime<Utc>) -> Result<Command, ReserveError> {
    let next = reservation
        .state
        .next(match is_bounded(&reservation.lines) {
            true => ReservationEvent::ConfirmLater,
            false => ReservationEvent::Confirm,
        })?;
    if now >= reservation.hold_expires_at {
        return Err(ReserveError::HoldLapsed(reservation.hold_expires_at));
    }
    if let Some(end) = reservation.window_end.filter(|end| *end <= now) {
        return Err(ReserveError::WindowOver(end));
    }
    Ok(Command::Move(next))
}

/// Cancels before the hand-off; holds and machines are ended at the broker's cost.
///
/// Errors: [`ReserveError::Illegal`] once it is active: then it is released.
pub async fn cancel(
    broker: &Broker,
    tenant: TenantId,
    id: ReservationId,
    completion: Option<Completion<'_, Reservation>>,
) -> Result<Reservation, ReserveError> {
    decide(broker, tenant, id, completion, |reservation, _| {
        let next = reservation.state.next(ReservationEvent::Cancel)?;
        Ok(if is_early(reservation.state) {
            Command::Move(next)
        } else {
            Command::RequestedAction(RequestedAction::Cancel)
        })
    })
    .await
}

/// Ends the tenant's use. Use is charged up to this moment and no further.
///
/// Errors: [`ReserveError::Illegal`] before the hand-off: then it is cancelled.
pub async fn release(
    broker: &Broker,
    tenant: TenantId,
    id: ReservationId,
    completion: Option<Completion<'_, Reservation>>,
) -> Result<Reservation, ReserveError> {
    decide(broker, tenant, id, completion, |reservation, _| {
        reservation.state.next(ReservationEvent::ReleaseRequested)?;
        Ok(Command::RequestedAction(RequestedAction::Release))
    })
    .await
}

/// Ends a reservation because a budget is spent, the way its tenant would: leases not handed off are
/// cancelled, the rest released.
///
/// Errors: [`ReserveError::Illegal`] when it is ending already.
pub async fn stop(
    broker: &Broker,
    tenant: TenantId,
    id: ReservationId,
    budget: BudgetId,
) -> Result<Reservation, ReserveError> {
    let choose = |reservation: &Reservation, _| {
        let state = reservation.state;
        if let Ok(next) = state.next(ReservationEvent::ReleaseRequested) {
            debug_assert!(!next.is_closed(), "what runs is not closed at once");
            return Ok(Command::RequestedAction(RequestedAction::Release));
        }
        let next = state.next(ReservationEvent::Cancel)?;
        Ok(if is_early(state) {
            Command::Move(next)
        } else {
            Command::RequestedAction(RequestedAction::Cancel)
        })
    };
    decide_for(broker, tenant, id, Asker::Budget(budget), choose).await
}

/// Moves the end of the window out, as far as the policy of the demand allows for the running machines.
///
/// Errors: [`ReserveError::OpenEnd`], [`ReserveError::EndTooEarly`], [`ReserveError::Illegal`],
/// [`ReserveError::OutsidePolicy`].
pub async fn extend(
    broker: &Broker,
    tenant: TenantId,
    id: ReservationId,
    end: DateTime<Utc>,
    completion: Option<Completion<'_, Reservation>>,
) -> Result<Reservation, ReserveError> {
    decide(broker, tenant, id, completion, |reservation, now| {
        let next = reservation.state.next(ReservationEvent::Extended)?;
        debug_assert_eq!(next, reservation.state, "an extension leaves the state");
        let old = reservation.window_end.ok_or(ReserveError::OpenEnd)?;
        if old <= now {
            return Err(ReserveError::WindowOver(old));
        }
        if end <= old.max(now) {
            return Err(ReserveError::EndTooEarly(old.max(now)));
        }
        Ok(Command::Extend(end))
    })
    .await
}

async fn decide(
    broker: &Broker,
    tenant: TenantId,
    id: ReservationId,
    completion: Option<Completion<'_, Reservation>>,
    choose: impl Fn(&Reservation, DateTime<Utc>) -> Result<Command, ReserveError>,
) -> Result<Reservation, ReserveError> {
    decide_for(broker, tenant, id, Asker::Tenant(completion), choose).await
}

/// On whose account something is done to a reservation.
#[derive(Clone, Copy)]
enum Asker<'a> {
    /// The tenant asked for it.
    Tenant(Option<Completion<'a, Reservation>>),
    /// A budget is spent.
    Budget(BudgetId),
}

async fn decide_for(
    broker: &Broker,
    tenant: TenantId,
    id: ReservationId,
    asker: Asker<'_>,
    choose: impl Fn(&Reservation, DateTime<Utc>) -> Result<Command, ReserveError>,
) -> Result<Reservation, ReserveError> {
    let mut tries = 0;
    loop {
        let now = broker.now();
        let reservation = find(broker, &TenantScope::whole(tenant), id).await?;
        let command = choose(&reservation, now)?;
        if let Command::Extend(end) = command {
            check_sellers(broker, tenant, &reservation, end).await?;
        }
        let (mine, version) = (
            broker.store().reservations().of(tenant),
            reservation.version,
        );
        let done = match asker {
            Asker::Tenant(completion) => mine.command(id, version, command, now, completion).await,
            Asker::Budget(budget) => mine.stop(id, version, command, budget, now).await,
        };
        tries += 1;
        match done {
            Err(StoreError::Stale) if tries < TRIES => {}
            Err(StoreError::Conflict(Conflict::HoldLapsed)) => {
                return Err(ReserveError::HoldLapsed(reservation.hold_expires_at));
            }
            Err(error) => return Err(error.into()),
            Ok(done) => {
                announce(broker, tenant).await;
                return Ok(done);
            }
        }
    }
}

/// Makes sure that the sellers of the reservation's machines meet its policy until `end`.
///
/// Errors: [`ReserveError::OutsidePolicy`].
async fn check_sellers(
    broker: &Broker,
    tenant: TenantId,
    reservation: &Reservation,
    end: DateTime<Utc>,
) -> Result<(), ReserveError> {
    let leases = broker.store().leases().of(tenant);
    let mut leases = leases.of_reservation(reservation.id).await?;
    leases.retain(|lease| lease.state.is_standing());
    let sellers = leases.iter().map(|lease| &lease.offer);
    on_record::check(broker, &reservation.demand, sellers, end)
}

/// The meaning of a requested action in the state that a worker finds.
///
/// The state may have changed since the request was written: a cancel after the hand-off ends the tenant's
/// use, and so does a release after a failure.
#[must_use]
pub fn event_of_wish(state: ReservationState, wish: RequestedAction) -> Option<ReservationEvent> {
    use ReservationState as S;
    match (state, wish) {
        (_, RequestedAction::None) | (S::Held | S::Releasing(_) | S::Closed(_), _) => None,
        (S::Scheduled | S::Confirmed | S::Provisioning | S::Replacing | S::HandingOff, _) => {
            Some(ReservationEvent::Cancel)
        }
        (S::Active | S::Repairing, _) => Some(ReservationEvent::ReleaseRequested),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_leads_to_an_event_that_its_state_knows() {
        for state in ReservationState::all() {
            for wish in [
                RequestedAction::None,
                RequestedAction::Cancel,
                RequestedAction::Release,
            ] {
                if let Some(event) = event_of_wish(state, wish) {
                    assert!(state.next(event).is_ok(), "{state} {wish:?}");
                }
            }
        }
    }
}
