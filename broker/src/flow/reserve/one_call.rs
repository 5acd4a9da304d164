//! The way in one call: a demand is planned, quoted and reserved. What was taken meanwhile gives way to the next
//! candidate.

use market::demand::Demand;
use market::identity::TenantScope;
use matcher::NearestCounts;
use store::idempotency::Completion;
use store::reservations::Reservation;
use store::{Conflict, StoreError};

use super::{Particulars, ReserveError, hold, hold_pair};
use crate::flow::plan;
use crate::flow::quote::{self, QuoteError};
use crate::platform::app::Broker;

/// Plans a demand, quotes its best candidate that can be ordered, and sets it aside: the way in
/// one call. A candidate whose capacity was taken meanwhile, or whose provider was closed, gives way
/// to the next.
///
/// Errors: [`ReserveError`]; no hold is left then.
pub async fn in_one_call(
    broker: &Broker,
    whose: &TenantScope,
    demand: Demand,
    particulars: Particulars,
    completion: Option<Completion<'_, Reservation>>,
) -> Result<Reservation, ReserveError> {
    debug_assert!(
        !matches!(demand, Demand::Hybrid(_)),
        "a hybrid demand makes two reservations"
    );
    let gpus = match &demand {
        Demand::Gpus(gpus) => Some(gpus.clone()),
        _ => None,
    };
    let record = plan::make_plan(broker, whose, demand).await?;
    let mut taken_meanwhile = None;
    for candidate in &record.plan.candidates {
        let quote = match quote::make_quote(broker, whose, record.id, candidate.rank, None).await {
            Err(error) if quote::gives_way(&error) => {
                note_resting(error, &mut taken_meanwhile);
                continue;
            }
            quote => quote?,
        };
        match hold(broker, whose, quote.id, particulars.clone(), completion).await {
            Err(out) if is_taken_meanwhile(&out) => taken_meanwhile = Some(out),
            held => return held,
        }
    }
    Err(
        taken_meanwhile.unwrap_or_else(|| ReserveError::NothingMatches {
            rejected: record.plan.rejected.total,
            nearest: gpus.and_then(|gpus| NearestCounts::to(&gpus, &broker.snapshot())),
        }),
    )
}

/// Plans a hybrid demand, quotes its best pair that can be ordered, and reserves both halves: the way in one
/// call. Returns the run first.
///
/// Errors: [`ReserveError`]; no hold is left then.
pub async fn pair_in_one_call(
    broker: &Broker,
    whose: &TenantScope,
    demand: Demand,
    particulars: Particulars,
    completion: Option<Completion<'_, [Reservation; 2]>>,
) -> Result<[Reservation; 2], ReserveError> {
    let record = plan::make_plan(broker, whose, demand).await?;
    let pairs = record
        .plan
        .hybrid
        .as_ref()
        .map_or(0, |hybrid| hybrid.pairs.len());
    let mut taken_meanwhile = None;
    for rank in 1..=pairs {
        let quotes = match quote::make_pair(broker, whose, record.id, rank, None).await {
            Err(error) if quote::gives_way(&error) => {
                note_resting(error, &mut taken_meanwhile);
                continue;
            }
            quotes => quotes?.map(|quote| quote.id),
        };
        match hold_pair(broker, whose, quotes, particulars.clone(), completion).await {
            Err(out) if is_taken_meanwhile(&out) => taken_meanwhile = Some(out),
            held => return held,
        }
    }
    Err(
        taken_meanwhile.unwrap_or_else(|| ReserveError::NothingMatches {
            rejected: record.plan.rejected.total,
            nearest: None,
        }),
    )
}

/// Keeps that a candidate is in cool-down, as the reason where no other can be ordered.
fn note_resting(error: QuoteError, taken_meanwhile: &mut Option<ReserveError>) {
    if let QuoteError::CoolingDown(resting) = error {
        *taken_meanwhile = Some(resting.into());
    }
}

/// Whether the next candidate is tried where one can no longer be had.
const fn is_taken_meanwhile(error: &ReserveError) -> bool {
    matches!(
        error,
        ReserveError::OutOfStock(_)
            | ReserveError::ProviderClosed(_)
            | ReserveError::CoolingDown(_)
            | ReserveError::OutsidePolicy { .. }
            | ReserveError::Store(StoreError::Conflict(Conflict::CommitmentUsed { .. }))
    )
}
