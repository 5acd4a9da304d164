//! A run and the fleet that follows it, reserved as one.

use market::identity::TenantScope;
use market::ids::{QuoteId, ReservationId};
use market::quote::{Follows, Quote};
use store::idempotency::Completion;
use store::reservations::Reservation;

use super::{Particulars, ReserveError, draft, find, outcome, placed};
use crate::flow::quote;
use crate::platform::app::Broker;
use crate::platform::metrics;

/// Takes the quotes of a run and of its fleet, in any order: both or neither. Returns the run first.
///
/// Errors: [`ReserveError`]; nothing is written then.
pub async fn hold_pair(
    broker: &Broker,
    whose: &TenantScope,
    quotes: [QuoteId; 2],
    particulars: Particulars,
    completion: Option<Completion<'_, [Reservation; 2]>>,
) -> Result<[Reservation; 2], ReserveError> {
    let ended = take_pair(broker, whose, quotes, particulars, completion).await;
    metrics::hold_ended(outcome(&ended));
    ended
}

async fn take_pair(
    broker: &Broker,
    whose: &TenantScope,
    [one, other]: [QuoteId; 2],
    particulars: Particulars,
    completion: Option<Completion<'_, [Reservation; 2]>>,
) -> Result<[Reservation; 2], ReserveError> {
    let now = broker.now();
    let mut quotes = Vec::new();
    for id in [one, other] {
        let kept = quote::find_kept(broker, whose, id).await?;
        if kept.taken_by.is_some() {
            return Err(ReserveError::QuoteTaken(id));
        }
        quotes.push(kept.quote);
    }
    let [one, other] =
        <[Quote; 2]>::try_from(quotes).map_err(|_| ReserveError::NotAPair([one, other]))?;
    let is_behind =
        |fleet: &Quote, run: &Quote| fleet.follows.is_some_and(|follows| follows.run == run.id);
    let (run, fleet) = match (is_behind(&other, &one), is_behind(&one, &other)) {
        (true, false) => (one, other),
        (false, true) => (other, one),
        _ => return Err(ReserveError::NotAPair([one.id, other.id])),
    };
    let (quote_id, follows) = (run.id, fleet.follows);
    let run = draft(broker, whose, run, particulars.clone(), now).await?;
    let mut fleet = draft(broker, whose, fleet, particulars, now).await?;
    fleet.follows = follows.map(|follows| Follows {
        run: run.id,
        staging_seconds: follows.staging_seconds,
    });
    let mine = broker.store().reservations().of(whose.tenant);
    let held = mine.place_pair([run, fleet], now, completion).await;
    placed(broker, whose.tenant, held, quote_id).await
}

/// The reservation of the run that a quote's fleet follows: the one that took the run's quote, or the one that
/// the tenant names.
pub(super) async fn run_of(
    broker: &Broker,
    whose: &TenantScope,
    quote: &Quote,
    named: Option<ReservationId>,
) -> Result<Option<Follows<ReservationId>>, ReserveError> {
    let staging_seconds = quote.follows.map_or(0, |follows| follows.staging_seconds);
    let run = match (named, quote.follows) {
        (Some(_), _) if quote.starts_at.is_none() => return Err(ReserveError::StartsAtOnce),
        (Some(named), _) => match find(broker, whose, named).await {
            Err(ReserveError::Unknown(id)) => return Err(ReserveError::UnknownRun(id)),
            found => found?.id,
        },
        (None, Some(follows)) => {
            let of_run = quote::find_kept(broker, whose, follows.run).await?;
            let run = of_run.taken_by.ok_or(ReserveError::RunFirst(follows.run))?;
            find(broker, whose, run).await?.id
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(Follows {
        run,
        staging_seconds,
    }))
}
