//! The quote: a candidate's price, frozen until it lapses. For a later start it is a bound, and the price is
//! frozen when the start is ordered. The next stage is [`crate::flow::reserve`].

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use market::capacity::{Covered, OwnCapacity};
use market::demand::check::latest_start;
use market::demand::{Demand, Half, Window};
use market::identity::{Projects, TenantScope};
use market::ids::{OfferId, PlanId, QuoteId};
use market::quote::{Follows, Quote};
use market::verification::Level;
use matcher::{Candidate, price_for};
use pricing::PriceError;
use store::idempotency::Completion;
use store::quotes::KeptQuote;
use store::{Conflict, StoreError};

use crate::flow::cooldown::{self, CoolingDown};
use crate::flow::plan::{self, PlanError, PlanMemory, PlanRecord};
use crate::flow::{lead, verify};
use crate::platform::app::Broker;

/// Why no quote was made.
#[derive(Debug, thiserror::Error)]
pub enum QuoteError {
    /// The plan is not there.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan has no candidate of this rank.
    #[error("the plan has {candidates} candidates, and none of rank {rank}")]
    NoSuchCandidate {
        /// The rank.
        rank: usize,
        /// How many there are.
        candidates: usize,
    },
    /// The plan is of another kind of demand.
    #[error(
        "plan {0} is not of a hybrid demand, so it has no pairs; give `candidate` instead of `pair`"
    )]
    NotHybrid(PlanId),
    /// The fleet of a pair would start after a run of more than a year.
    #[error(
        "the fleet would start at {}, more than a year ahead; reserve the run alone and plan the fleet when it is nearer",
        .0.to_rfc3339_opts(SecondsFormat::Secs, true)
    )]
    TooFarAhead(DateTime<Utc>),
    /// The window of a run leaves its fleet no time to start.
    #[error(
        "the fleet would start at {}, after the window of its run, and must start before {}; shorten `train.window` or give `serve.window.start_latest` a later time",
        starts_at.to_rfc3339_opts(SecondsFormat::Secs, true),
        latest.to_rfc3339_opts(SecondsFormat::Secs, true)
    )]
    RunTooLong {
        /// When it would start.
        starts_at: DateTime<Utc>,
        /// The latest start that was given.
        latest: DateTime<Utc>,
    },
    /// The plan has no pair of this rank.
    #[error("the plan has {pairs} pairs, and none of rank {rank}")]
    NoSuchPair {
        /// The rank.
        rank: usize,
        /// How many there are.
        pairs: usize,
    },
    /// The offer can be compared, not ordered: it is in a price list, or no agent drives its GPU.
    #[error(
        "offer {0} cannot be ordered here: it stands in a price list, or no node with its GPU can be verified; quote a candidate with `orderable: true`"
    )]
    NotOrderable(OfferId),
    /// More nodes were planned than are sold of an offer whose provider does not count.
    #[error(
        "the provider of offer {offer} does not say how many nodes are free, so at most {most} of it are sold at once (`sales.soft_nodes_per_hold`), not {wanted}; quote a candidate with fewer nodes, or of an offer with a count"
    )]
    TooManyNodes {
        /// The offer.
        offer: OfferId,
        /// How many were planned.
        wanted: u32,
        /// How many are sold at once.
        most: u32,
    },
    /// The offer changed since the plan was made.
    #[error("offer {0} is no longer what it was when the plan was made; plan again")]
    OfferChanged(OfferId),
    /// Nothing new is sold at the provider.
    #[error("{0}; plan again")]
    ProviderClosed(Conflict),
    /// An offer failed several times recently.
    #[error(transparent)]
    CoolingDown(#[from] CoolingDown),
    /// Less of a commitment is left than was planned.
    #[error("{0}; plan again")]
    CommitmentUsed(Conflict),
    /// The candidate cannot be priced.
    #[error(transparent)]
    Price(#[from] PriceError),
    /// There is no such quote within the tenant.
    #[error("there is no quote {0}; make one with POST /v1/quotes")]
    Unknown(QuoteId),
    /// The database did not answer.
    #[error("the quote could not be kept")]
    Store(#[from] StoreError),
}

/// Freezes the price of the candidate of this rank (from 1), or bounds it for a later start.
///
/// `completion` keeps the answer under the caller's idempotency key in the same transaction.
/// Errors: [`QuoteError`]; nothing is written then.
pub async fn make_quote(
    broker: &Broker,
    whose: &TenantScope,
    plan_id: PlanId,
    rank: usize,
    completion: Option<Completion<'_, KeptQuote>>,
) -> Result<Quote, QuoteError> {
    let record = plan::find(broker, whose, plan_id).await?;
    let candidate = candidate_of(&record, rank)?;
    let demand = record.demand.clone().of_half(candidate.half);
    let now = broker.now();
    let mut quote = priced(broker, whose, plan_id, candidate, now).await?;
    start_later(broker, &demand, &mut quote).await?;
    let kept = broker
        .store()
        .quotes()
        .of(whose.tenant)
        .insert(&quote, completion)
        .await?;
    Ok(kept.quote)
}

/// Quotes a pair of a hybrid plan by its rank (from 1): the run, and the fleet that starts when the run has
/// ended and the weights have arrived.
///
/// Errors: [`QuoteError`]; nothing is written then.
pub async fn make_pair(
    broker: &Broker,
    whose: &TenantScope,
    plan_id: PlanId,
    rank: usize,
    completion: Option<Completion<'_, [Quote; 2]>>,
) -> Result<[Quote; 2], QuoteError> {
    let record = plan::find(broker, whose, plan_id).await?;
    let pairs = record.plan.hybrid.as_ref().map(|hybrid| &hybrid.pairs[..]);
    let pairs = pairs.ok_or(QuoteError::NotHybrid(plan_id))?;
    let pair = rank.checked_sub(1).and_then(|place| pairs.get(place));
    let pair = pair.ok_or(QuoteError::NoSuchPair {
        rank,
        pairs: pairs.len(),
    })?;
    let now = broker.now();
    let staging_seconds: i64 = pair.bill.staging.iter().map(|leg| leg.seconds).sum();
    let (run_demand, fleet_demand) = (
        record.demand.clone().of_half(Some(Half::Train)),
        record.demand.clone().of_half(Some(Half::Serve)),
    );
    // The run is kept for its whole window, however soon it is done.
    let run_ends_at = run_demand.shared().window.and_then(|window| {
        let from = window.starts_after(now).unwrap_or(now);
        window.end_from(from)
    });
    let behind = run_ends_at.map(|end| end + TimeDelta::seconds(staging_seconds));
    let starts_at = pair.bill.serves_from.max(now).max(behind.unwrap_or(now));
    if starts_at > latest_start(now) {
        return Err(QuoteError::TooFarAhead(starts_at));
    }
    let latest = fleet_demand.shared().window.and_then(Window::latest_given);
    if let Some(latest) = latest.filter(|latest| *latest <= starts_at) {
        return Err(QuoteError::RunTooLong { starts_at, latest });
    }
    let run = candidate_of(&record, pair.train_candidate)?;
    let mut run = priced(broker, whose, plan_id, run, now).await?;
    start_later(broker, &run_demand, &mut run).await?;
    let fleet = candidate_of(&record, pair.serve_candidate)?;
    let mut fleet = priced(broker, whose, plan_id, fleet, now).await?;
    pricing::quote::bound(&mut fleet.lines, fleet_demand.shared().ceiling)?;
    fleet.starts_at = Some(starts_at);
    fleet.follows = Some(Follows {
        run: run.id,
        staging_seconds,
    });
    let quotes = [run, fleet];
    let mine = broker.store().quotes().of(whose.tenant);
    mine.insert_pair(&quotes, completion).await?;
    Ok(quotes)
}

/// Bounds the price of a quote whose demand starts later than it is ordered: before the lead begins.
async fn start_later(
    broker: &Broker,
    demand: &Demand,
    quote: &mut Quote,
) -> Result<(), QuoteError> {
    let (shared, now) = (demand.shared(), quote.created_at);
    let Some(starts_at) = shared.window.and_then(|window| window.starts_after(now)) else {
        return Ok(());
    };
    // A level that may no longer be asked for is refused at the hold; the longest lead is safe here.
    let level = verify::level_of(broker, demand).unwrap_or(Level::Deep);
    let lead = lead::of_lines(broker, &quote.lines, level).await?;
    if starts_at - lead > now {
        pricing::quote::bound(&mut quote.lines, shared.ceiling)?;
        quote.starts_at = Some(starts_at);
    }
    Ok(())
}

fn candidate_of(record: &PlanRecord, rank: usize) -> Result<&Candidate, QuoteError> {
    let candidates = &record.plan.candidates;
    let found = candidates.iter().find(|candidate| candidate.rank == rank);
    found.ok_or(QuoteError::NoSuchCandidate {
        rank,
        candidates: candidates.len(),
    })
}

/// A candidate at the prices of now; nothing is written.
async fn priced(
    broker: &Broker,
    whose: &TenantScope,
    plan_id: PlanId,
    candidate: &Candidate,
    now: DateTime<Utc>,
) -> Result<Quote, QuoteError> {
    let snapshot = broker.snapshot();
    let own = plan::own_capacity(broker, whose.tenant, now).await?;
    let most = broker.config().sales.soft_nodes_per_hold;
    for (offer, nodes) in candidate.placement() {
        if offer.availability.nodes.is_none() && nodes > most {
            return Err(QuoteError::TooManyNodes {
                offer: offer.offer_id,
                wanted: nodes,
                most,
            });
        }
        if !offer.orderable || broker.provider(&offer.provider).is_none() {
            return Err(QuoteError::NotOrderable(offer.offer_id));
        }
        if let Some(quarantine) = snapshot.quarantine(&offer.provider, now) {
            return Err(QuoteError::ProviderClosed(Conflict::ProviderQuarantined {
                provider: offer.provider.clone(),
                reason: quarantine.reason.clone(),
                until: quarantine.until,
            }));
        }
        // The frozen price must be one that the provider still asks of this tenant, as far as we know now.
        let same = snapshot
            .offer(&offer.offer_id)
            .is_some_and(|known| price_for(&own, known, now) == offer.price_per_node_hour);
        if !same {
            return Err(QuoteError::OfferChanged(offer.offer_id));
        }
    }
    let offers = candidate.placement().map(|(offer, _)| offer.offer_id);
    if let Some(resting) = cooldown::first_resting(broker, whose.tenant, offers).await? {
        broker.memory::<PlanMemory>().met_gone(whose.tenant);
        return Err(resting.into());
    }
    let mut lines = pricing::quote::quote_lines(candidate.placement())?;
    for (line, planned) in lines.iter_mut().zip(&candidate.lines) {
        line.half = candidate.half;
        line.covered = planned.covered;
        if let Some(covered) = line.covered {
            check_covered(&own, line.nodes, covered, now)?;
        }
    }
    let lifetime = TimeDelta::seconds(broker.config().sales.quote_seconds.into());
    Ok(Quote {
        id: QuoteId::from_uuid(broker.new_uuid()),
        plan_id,
        lines,
        starts_at: None,
        follows: None,
        created_at: now,
        expires_at: now + lifetime,
    })
}

/// Whether the next candidate is tried where one cannot be quoted.
pub(crate) const fn gives_way(error: &QuoteError) -> bool {
    matches!(
        error,
        QuoteError::NotOrderable(_)
            | QuoteError::TooManyNodes { .. }
            | QuoteError::OfferChanged(_)
            | QuoteError::ProviderClosed(_)
            | QuoteError::CommitmentUsed(_)
            | QuoteError::CoolingDown(_)
            | QuoteError::TooFarAhead(_)
            | QuoteError::RunTooLong { .. }
    )
}

/// Makes sure that a commitment still pays for the planned lines.
fn check_covered(
    own: &OwnCapacity,
    nodes: u32,
    covered: Covered,
    now: DateTime<Utc>,
) -> Result<(), QuoteError> {
    let id = covered.commitment_id;
    let mut all = own.commitments.iter();
    let open = all.find(|open| open.commitment.id == id);
    let until = open.and_then(|open| open.covers(nodes, now));
    match until {
        Some(until) if until >= covered.until => Ok(()),
        _ => Err(QuoteError::CommitmentUsed(Conflict::CommitmentUsed {
            commitment: id,
        })),
    }
}

/// Finds a quote within reach: it belongs to the projects that its plan belongs to.
///
/// Errors: [`QuoteError::Unknown`], also for another tenant's quote.
pub async fn find(broker: &Broker, whose: &TenantScope, id: QuoteId) -> Result<Quote, QuoteError> {
    find_kept(broker, whose, id).await.map(|kept| kept.quote)
}

/// Finds a quote within reach, with the reservation that took it.
///
/// Errors: as [`find`].
pub(crate) async fn find_kept(
    broker: &Broker,
    whose: &TenantScope,
    id: QuoteId,
) -> Result<KeptQuote, QuoteError> {
    let row = broker.store().quotes().of(whose.tenant).find(id).await?;
    let kept = row.ok_or(QuoteError::Unknown(id))?;
    if whose.projects != Projects::All {
        let plans = broker.store().plans().of(whose.tenant);
        let plan = plans.find(kept.quote.plan_id).await?;
        plan.filter(|plan| whose.projects.covers(&plan.projects))
            .ok_or(QuoteError::Unknown(id))?;
    }
    Ok(kept)
}
