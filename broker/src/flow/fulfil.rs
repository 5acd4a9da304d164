//! A confirmed reservation is fulfilled: leases ordered, machines watched, verified, handed off, replaced
//! when they fail, metered while in use, and released.
//!
//! Claim, work, apply: a worker claims a reservation, calls the providers with no transaction open, and saves
//! each answer before it does anything else. Where to read: `round` does one claim, `order` and `watch` look
//! at a lease, `settle` decides the reservation's next step, `follow` does it, `replace` finds the next
//! candidate; `start` orders what was scheduled, `reminders`
//! announces starts and ends, and `ends` works on what is past its end alone.

mod compare;
mod ends;
mod error;
mod follow;
mod learned;
mod order;
mod reminders;
mod replace;
mod reported;
mod round;
mod settle;
mod start;
pub(crate) mod stated;
mod unreachable;
mod watch;
mod worker;

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::future::join_all;
use store::StoreError;
use store::change::Change;
use store::work::{Claim, ClaimToken, Claimed};
use tracing::{error, warn};

pub use ends::{EndsReport, work_on_ends};
pub use error::FulfilError;
pub use worker::{keep_working, work_on_fresh_supply};

use crate::platform::app::Broker;

/// How long a worker has a reservation to itself: far longer than all time-outs of one round.
pub const CLAIM_SECONDS: u32 = 600;
/// Reservations that one claim takes on.
const BATCH: u64 = 16;
/// When to try again after something on our side went wrong.
const AFTER_OUR_FAULT: TimeDelta = TimeDelta::minutes(1);

/// Takes on everything that is due now, once; returns how many reservations that were.
///
/// They are worked on side by side, so that a provider that hangs holds up only its own.
/// Errors: the database's. An error of one reservation is logged and holds up no other.
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

/// Works until nothing is due.
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

/// Claims the due work; returns with it a time before it was read.
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
    let (id, claim) = (claimed.reservation.id, claimed.claim);
    match round::work_on(broker, claimed, read_at).await {
        Ok(()) => {}
        Err(FulfilError::Store(StoreError::Stale)) => {
            warn!(reservation.id = %id, "Another worker went on with {id}; the result is dropped");
        }
        Err(failure) => {
            let why = crate::chain(&failure);
            error!(reservation.id = %id, error = %why, "A round on {id} failed");
            give_back(broker, &claim, AFTER_OUR_FAULT, why).await;
        }
    }
}

/// Gives back a claim whose round failed: the reservation is due again after a while, and `why` is kept in
/// its row. If that fails too, the claim runs out.
async fn give_back(broker: &Broker, claim: &Claim, due_in: TimeDelta, why: String) {
    let now = broker.now();
    let change = Change {
        due_at: Some(now + due_in),
        last_error: Some(why),
        ..Change::default()
    };
    match broker.store().work().apply(claim, &change, now).await {
        // Stale: the round ended after all, or another worker went on.
        Ok(()) | Err(StoreError::Stale) => {}
        Err(failure) => {
            let id = claim.reservation_id();
            warn!(
                reservation.id = %id, error = %crate::chain(&failure),
                "{id} could not be given back; the claim on it runs out"
            );
        }
    }
}
