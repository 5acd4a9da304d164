//! The quote: a candidate's price, frozen until it lapses. The next stage is [`crate::flow::reserve`].

use chrono::{DateTime, TimeDelta, Utc};
use market::capacity::{Covered, OwnCapacity};
use market::identity::{Projects, TenantScope};
use market::ids::{OfferId, PlanId, QuoteId};
use market::quote::Quote;
use matcher::price_for;
use pricing::PriceError;
use store::idempotency::Completion;
use store::quotes::KeptQuote;
use store::{Conflict, StoreError};

use crate::flow::cooldown::{self, CoolingDown};
use crate::flow::plan::PlanMemory;
use crate::flow::plan::{self, PlanError};
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
        /// The demand.
        rank: usize,
        /// How many there are.
        candidates: usize,
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

/// Freezes the price of the candidate of this rank (from 1).
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
    let candidates = record.plan.candidates.len();
    let candidate = record
        .plan
        .candidates
        .into_iter()
        .find(|candidate| candidate.rank == rank)
        .ok_or(QuoteError::NoSuchCandidate { rank, candidates })?;
    let (snapshot, now) = (broker.snapshot(), broker.now());
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
    let quote = Quote {
        id: QuoteId::from_uuid(broker.new_uuid()),
        plan_id,
        lines,
        created_at: now,
        expires_at: now + lifetime,
    };
    let kept = broker
        .store()
        .quotes()
        .of(whose.tenant)
        .insert(&quote, completion)
        .await?;
    Ok(kept.quote)
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
    let row = broker.store().quotes().of(whose.tenant).find(id).await?;
    let quote = row.ok_or(QuoteError::Unknown(id))?.quote;
    if whose.projects != Projects::All {
        let plans = broker.store().plans().of(whose.tenant);
        let plan = plans.find(quote.plan_id).await?;
        plan.filter(|plan| whose.projects.covers(&plan.projects))
            .ok_or(QuoteError::Unknown(id))?;
    }
    Ok(quote)
}
