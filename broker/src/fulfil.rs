//! A confirmed reservation is fulfilled: leases ordered, machines watched, verified, handed off,
//! replaced when they fall, metered while in use, and released.
//!
//! Claim, work, apply: a worker claims a reservation, calls the providers with no transaction
//! open, and saves each answer before it does anything else. Reading it: `round` is what one
//! claim does, `order` and `watch` are the looks at a lease, `settle` decides what follows for the
//! reservation, `follow` does it, `replace` finds the next candidate.

mod compare;
mod follow;
mod learned;
mod order;
mod replace;
mod round;
mod settle;
mod watch;

use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::future::join_all;
use market::ids::ReservationId;
use pricing::PriceError;
use store::StoreError;
use store::work::{ClaimToken, Claimed};
use tokio::task::JoinSet;
use tracing::{error, warn};

use crate::app::Broker;

/// How long a worker has a reservation to itself: far longer than all time-outs of one round.
pub const CLAIM_SECONDS: u32 = 600;
/// Reservations that one claim takes on.
const BATCH: u64 = 16;
/// Reservations that one process works on side by side.
const AT_ONCE: u64 = 64;
/// How often workers look for due reservations when nobody nudges.
const TICK: Duration = Duration::from_secs(1);

/// Why a round ended early. What was learnt before is saved; the next claim goes on.
#[derive(Debug, thiserror::Error)]
pub enum FulfilError {
    /// The database did not answer, or another worker went on.
    #[error("the round could not be saved")]
    Store(#[from] StoreError),
    /// A charge or a cost could not be worked out.
    #[error("the round could not be booked")]
    Price(#[from] PriceError),
    /// A state was asked for an arrow that it does not have: a fault of ours.
    #[error(transparent)]
    Lease(#[from] market::lease::IllegalLeaseTransition),
    /// A state was asked for an arrow that it does not have: a fault of ours.
    #[error(transparent)]
    Reservation(#[from] market::reservation::IllegalReservationTransition),
}

/// Takes on everything that is due now, once; says how many reservations that were.
///
/// They are worked on side by side, so that a provider that hangs holds up only its own.
/// Errors: the database's. What goes wrong with one reservation is logged and keeps no other back.
pub async fn work_once(broker: &Broker) -> Result<usize, StoreError> {
    let (read_at, due) = claim(broker, BATCH).await?;
    let count = due.len();
    join_all(
        due.into_iter()
            .map(|claimed| round(broker, claimed, read_at)),
    )
    .await;
    Ok(count)
}

/// Takes on what is due until nothing is.
///
/// Errors: the database's.
pub async fn work_until_idle(broker: &Broker) -> Result<usize, StoreError> {
    let mut total = 0;
    loop {
        let count = work_once(broker).await?;
        total += count;
        if count == 0 {
            return Ok(total);
        }
    }
}

/// Works until the task is dropped: on a nudge, on a timer, and whenever a round ends.
///
/// Each round is a task of its own: one that waits, be it for a provider or for its turn at the
/// database, must never keep the claiming from going on.
pub async fn work_forever(broker: Broker) {
    let mut rounds = JoinSet::new();
    loop {
        let room = AT_ONCE.saturating_sub(rounds.len() as u64);
        match claim(&broker, room.min(BATCH)).await {
            Ok((read_at, due)) => {
                for claimed in due {
                    let broker = broker.clone();
                    rounds.spawn(async move { round(&broker, claimed, read_at).await });
                }
            }
            Err(error) => {
                warn!(error = %crate::chain(&error), "Due reservations could not be claimed");
            }
        }
        tokio::select! {
            Some(ended) = rounds.join_next() => {
                if let Err(panic) = ended {
                    error!(%panic, "A round ended in a panic; its claim runs out");
                }
            }
            // A nudge that is missed is made up for by the timer.
            () = broker.nudged() => {}
            () = tokio::time::sleep(TICK) => {}
        }
    }
}

/// Claims what is due; with it a time before it was read.
async fn claim(broker: &Broker, limit: u64) -> Result<(DateTime<Utc>, Vec<Claimed>), StoreError> {
    let now = broker.now();
    if limit == 0 {
        return Ok((now, Vec::new()));
    }
    let token = ClaimToken(broker.new_uuid());
    Ok((
        now,
        broker
            .store()
            .work()
            .claim_due(token, now, CLAIM_SECONDS, limit)
            .await?,
    ))
}

async fn round(broker: &Broker, claimed: Claimed, read_at: DateTime<Utc>) {
    let id = claimed.reservation.id;
    log_failure(id, round::work_on(broker, claimed, read_at).await);
}

fn log_failure(id: ReservationId, outcome: Result<(), FulfilError>) {
    match outcome {
        Ok(()) => {}
        Err(FulfilError::Store(StoreError::Stale)) => {
            warn!(reservation.id = %id, "Another worker went on with {id}; the result is dropped");
        }
        Err(failure) => {
            error!(reservation.id = %id, error = %crate::chain(&failure), "A round on {id} failed");
        }
    }
}
