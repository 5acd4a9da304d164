//! A scheduled reservation comes due: its quoted lines are ordered if they cost no more, else its demand is
//! planned again under its ceiling. Until then nothing is set aside for it.

use chrono::{DateTime, TimeDelta, Utc};
use market::demand::{Ceiling, Demand, Window};
use market::event::EventType;
use market::identity::{Projects, TenantScope};
use market::ids::QuoteId;
use market::quote::{Quote, QuoteLine, is_bounded, most_per_hour};
use matcher::price_for;
use serde_json::json;
use store::change::{Change, ReservationNotice};
use store::followers::RunEnd;
use store::reservations::HoldBackReason;
use store::start::NewStart;
use store::{Conflict, StoreError};
use tracing::info;

use super::FulfilError;
use super::round::Round;
use crate::flow::plan::PlanError;
use crate::flow::quote::{self, QuoteError};
use crate::flow::reserve::{self, ReserveError};
use crate::flow::{lead, plan, verify};

/// A start that is far ahead is looked at again so long before it is ordered.
const LOOK_BEFORE: TimeDelta = TimeDelta::days(1);
/// When to look again for a start that is due and cannot be ordered: so soon at first, and so seldom later.
const SOON: TimeDelta = TimeDelta::minutes(1);
const SELDOM: TimeDelta = TimeDelta::minutes(15);

/// Orders a scheduled reservation if it is due; returns whether it was ordered.
pub(super) async fn start(round: &mut Round<'_>) -> Result<bool, FulfilError> {
    let (broker, now) = (round.broker, round.now());
    if round.waits_for_its_run().await? {
        // The end of the run moves the start and makes it due.
        round.look_in(LOOK_BEFORE);
        return Ok(false);
    }
    let reservation = &round.reservation;
    let starts_at = reservation.starts_at.unwrap_or(now);
    let (lines, level) = (&reservation.lines, reservation.verification);
    let time_to_pass = lead::time_to_pass(broker, lines, level).await?;
    let due_at = starts_at - lead::capped(time_to_pass);
    if now < due_at {
        let wait = due_at - now;
        round.look_in(match wait > LOOK_BEFORE {
            true => wait - LOOK_BEFORE,
            false => wait,
        });
        return Ok(false);
    }
    let ordered = match reservation.window_end {
        // It would be ended again before its hand-off, at our cost.
        Some(latest) if now.max(starts_at) >= latest || now + time_to_pass > latest => {
            Err(OrderRefusal::of_this(
                "machines that are ordered now cannot be expected to pass by the latest start",
            ))
        }
        _ => match order(round).await {
            // The start was moved meanwhile: it is decided again, if the claim is still ours.
            Err(FulfilError::Store(StoreError::Stale)) => {
                round.read_again().await?;
                round.look_in(TimeDelta::zero());
                return Ok(false);
            }
            ordered => ordered?,
        },
    };
    match ordered {
        Ok(()) => {
            round.read_again().await?;
            info!(
                reservation.id = %round.reservation.id,
                "The start of {} is ordered", round.reservation.id
            );
            Ok(true)
        }
        Err(refusal) => {
            hold_back(round, refusal, now - due_at).await?;
            Ok(false)
        }
    }
}

impl Round<'_> {
    /// Whether it follows a run whose end is not known yet.
    pub(super) async fn waits_for_its_run(&self) -> Result<bool, FulfilError> {
        let Some(follows) = self.reservation.follows else {
            return Ok(false);
        };
        let runs = self.broker.store().reservations().across_tenants();
        Ok(runs.end_of_run(follows.run).await? == RunEnd::Open)
    }
}

/// Why something was not ordered.
#[derive(Debug)]
struct OrderRefusal {
    reason: HoldBackReason,
    words: String,
    /// Whether something else may be ordered instead.
    may_replan: bool,
}

impl OrderRefusal {
    /// These machines cannot be ordered.
    fn of_this(words: impl ToString) -> Self {
        Self {
            reason: HoldBackReason::NoCapacity,
            words: words.to_string(),
            may_replan: true,
        }
    }

    /// No machines can be.
    fn of_all(reason: HoldBackReason, words: impl ToString) -> Self {
        Self {
            reason,
            words: words.to_string(),
            may_replan: false,
        }
    }
}

/// Keeps a due start that cannot be ordered, and sends its tenant each kind of reason once. It is tried again
/// soon at first, and less often the longer it has been due.
async fn hold_back(
    round: &mut Round<'_>,
    refusal: OrderRefusal,
    due_for: TimeDelta,
) -> Result<(), FulfilError> {
    let OrderRefusal { reason, words, .. } = refusal;
    let mut notices = round.reservation.notices.clone();
    round.set_trouble(words.clone());
    if notices.held_back.insert(reason) {
        let details = vec![("held_back_by", json!(reason)), ("why", json!(words))];
        let kind = EventType::ReservationStartHeldBack;
        let change = Change {
            events: vec![ReservationNotice { kind, details }],
            notices: Some(notices),
            ..Change::default()
        };
        round.save(change).await?;
    }
    round.look_in((due_for / 10).clamp(SOON, SELDOM));
    Ok(())
}

/// Orders the quoted lines, or what else satisfies the demand under its bound.
async fn order(round: &Round<'_>) -> Result<Result<(), OrderRefusal>, FulfilError> {
    let mut refusal = OrderRefusal::of_this(
        "no offer that can be ordered satisfies the demand at its bound; the broker tries again until the latest \
         start. To pay more, cancel it and reserve again with a higher ceiling",
    );
    if let Some(quote) = quoted(round).await? {
        match take(round, quote).await? {
            Err(refused) if refused.may_replan => refusal = refused,
            done => return Ok(done),
        }
    }
    let whose = TenantScope {
        tenant: round.reservation.tenant_id,
        projects: Projects::Only([round.reservation.project_id].into()),
    };
    let record = match plan::make_plan(round.broker, &whose, demand_now(round)?).await {
        Ok(record) => record,
        Err(PlanError::Store(error)) => return Err(error.into()),
        Err(error) => return Ok(Err(OrderRefusal::of_this(error))),
    };
    for candidate in &record.plan.candidates {
        let rank = candidate.rank;
        let quote = match quote::make_quote(round.broker, &whose, record.id, rank, None).await {
            Ok(quote) => quote,
            Err(error) if quote::gives_way(&error) => {
                refusal = OrderRefusal::of_this(error);
                continue;
            }
            Err(QuoteError::Store(error)) => return Err(error.into()),
            Err(error) => return Ok(Err(OrderRefusal::of_this(error))),
        };
        match take(round, quote).await? {
            Err(refused) if refused.may_replan => refusal = refused,
            done => return Ok(done),
        }
    }
    Ok(Err(refusal))
}

/// Orders what a quote freezes.
async fn take(round: &Round<'_>, quote: Quote) -> Result<Result<(), OrderRefusal>, FulfilError> {
    let (broker, now, reservation) = (round.broker, round.now(), &round.reservation);
    let demand = &reservation.demand;
    let priced = (&quote.lines[..], reservation.ceiling.as_ref());
    let sellable = match reserve::check_leases(broker, &quote.lines) {
        Ok(()) => reserve::may_sell(broker, reservation.tenant_id, demand, priced, now).await,
        refused => refused,
    };
    match sellable {
        Ok(()) => {}
        Err(ReserveError::Store(error)) => return Err(error.into()),
        Err(refused) => return Ok(Err(OrderRefusal::of_this(refused))),
    }
    let wanted = verify::level_of(broker, demand).unwrap_or(reservation.verification);
    let offers = quote.lines.iter().map(|line| &line.offer);
    let start = NewStart {
        starts_at: reservation.starts_at,
        verification: verify::level_at(broker, wanted, offers).await?,
        gang: reserve::falls_as_one(demand, &quote.lines),
        ssh_public_keys: present_keys(round).await?,
        quote,
    };
    let started = broker
        .store()
        .work()
        .start(round.claim(), &start, now)
        .await;
    Ok(match started {
        Ok(()) => {
            reserve::announce(broker, reservation.tenant_id).await;
            Ok(())
        }
        Err(blocked @ StoreError::BudgetExceeded(_)) => {
            Err(OrderRefusal::of_all(HoldBackReason::Budget, blocked))
        }
        Err(blocked @ StoreError::LimitExceeded(_)) => {
            Err(OrderRefusal::of_all(HoldBackReason::Limit, blocked))
        }
        Err(
            gone @ (StoreError::OutOfStock { .. }
            | StoreError::Conflict(
                Conflict::ProviderDisabled { .. }
                | Conflict::ProviderQuarantined { .. }
                | Conflict::CommitmentUsed { .. },
            )),
        ) => Err(OrderRefusal::of_this(gone)),
        Err(error) => return Err(error.into()),
    })
}

/// The keys of the hold that its tenant still has; where none is left, all of the tenant's keys of today.
async fn present_keys(round: &Round<'_>) -> Result<Vec<String>, FulfilError> {
    let reservation = &round.reservation;
    let known = round.broker.store().ssh_keys().of(reservation.tenant_id);
    let known = known.list().await?.into_iter().map(|key| key.public_key);
    let known: Vec<String> = known.collect();
    let mut kept = reservation.ssh_public_keys.clone();
    kept.retain(|key| known.contains(key));
    Ok(if kept.is_empty() { known } else { kept })
}

/// The quoted lines at today's prices, where each is still on sale and costs no more than quoted. The
/// reservation's own quote stays where every rate is the same.
async fn quoted(round: &Round<'_>) -> Result<Option<Quote>, FulfilError> {
    let (broker, now, reservation) = (round.broker, round.now(), &round.reservation);
    let snapshot = broker.snapshot();
    let own = plan::own_capacity(broker, reservation.tenant_id, now).await?;
    let mut offers = Vec::new();
    for line in &reservation.lines {
        let Some(known) = snapshot.offer(&line.offer.offer_id) else {
            return Ok(None);
        };
        let provider = &line.offer.provider;
        // The demand was matched with these; others are planned for.
        let mut offer = known.to_offer();
        let is_same = (offer.internode, offer.tenancy, offer.gpus, &offer.gpu)
            == (
                line.offer.internode,
                line.offer.tenancy,
                line.offer.gpus,
                &line.offer.gpu,
            );
        if !is_same
            || known.is_stale(now)
            || !known.orderable()
            || broker.provider(provider).is_none()
        {
            return Ok(None);
        }
        offer.price_per_node_hour = price_for(&own, known, now);
        offers.push((offer, line.nodes));
    }
    let placement = offers.iter().map(|(offer, nodes)| (offer, *nodes));
    let Ok(mut lines) = pricing::quote::quote_lines(placement) else {
        return Ok(None);
    };
    for (line, quoted) in lines.iter_mut().zip(&reservation.lines) {
        line.half = quoted.half;
        line.covered = quoted.covered.filter(|covered| covered.until > now);
        let bound = quoted
            .rate_at_most
            .map_or(quoted.rate, |most| most.min(quoted.rate));
        if line.rate > bound {
            return Ok(None);
        }
    }
    let same_rates = || {
        let mut both = lines.iter().zip(&reservation.lines);
        both.all(|(line, quoted)| line.rate == quoted.rate)
    };
    let own_id = reservation.quote_id;
    let id = match same_rates() {
        true => own_id,
        false => QuoteId::from_uuid(broker.new_uuid()),
    };
    let quote = frozen(round, id, lines, now);
    if id != own_id {
        let quotes = broker.store().quotes().of(reservation.tenant_id);
        quotes.insert(&quote, None).await?;
    }
    Ok(Some(quote))
}

fn frozen(round: &Round<'_>, id: QuoteId, lines: Vec<QuoteLine>, now: DateTime<Utc>) -> Quote {
    let lifetime = TimeDelta::seconds(round.broker.config().sales.quote_seconds.into());
    Quote {
        id,
        plan_id: round.reservation.plan_id,
        lines,
        starts_at: None,
        follows: None,
        created_at: now,
        expires_at: now + lifetime,
    }
}

/// The demand from now on, under the bounds: what is ordered instead costs no more than they allow.
fn demand_now(round: &Round<'_>) -> Result<Demand, FulfilError> {
    let reservation = &round.reservation;
    debug_assert!(
        is_bounded(&reservation.lines),
        "a scheduled price is a bound"
    );
    let given = reservation.ceiling.clone().unwrap_or_default();
    let most = most_per_hour(&reservation.lines, reservation.ceiling.as_ref());
    let mut demand = reservation.demand.clone();
    *demand.ceiling_mut() = Some(Ceiling {
        usd_per_gpu_hour: given.usd_per_gpu_hour,
        usd_per_hour: Some(most.map_err(pricing::PriceError::from)?),
    });
    let window = demand.shared().window.cloned().unwrap_or_default();
    *demand.window_mut() = Some(Window {
        start_earliest: None,
        start_latest: reservation.window_end,
        ..window
    });
    Ok(demand)
}
