//! The decision of a plan of the service: what is kept with the plan, and the offers of its generation
//! out of the history, which nothing later changes.

use market::ids::PlanId;
use matcher::Plan;
use store::{Store, StoreError};

use super::{DecisionRecord, ReplayError, Sources};

/// Why there is no record of a plan.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// There is no such plan.
    #[error("there is no plan {0}; plans of which no quote was taken are kept for two days")]
    Unknown(PlanId),
    /// A release before this one kept the answer alone.
    #[error("plan {0} was made by a release that did not keep what it was decided from")]
    Unrecorded(PlanId),
    /// What is kept of it is not what a program of ours wrote.
    #[error("what is kept of plan {id} cannot be read")]
    Corrupt {
        /// The plan.
        id: PlanId,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
    /// The record cannot be written.
    #[error(transparent)]
    Record(#[from] ReplayError),
    /// The database did not answer.
    #[error("the plan could not be read")]
    Store(#[from] StoreError),
}

/// Puts the record of a plan's decision together, whosever plan it is.
///
/// Errors: [`StoredError`].
pub async fn of_stored_plan(store: &Store, id: PlanId) -> Result<DecisionRecord, StoredError> {
    let row = store.plans().across_tenants().find(id).await?;
    let row = row.ok_or(StoredError::Unknown(id))?;
    let sources = row.decided_from.ok_or(StoredError::Unrecorded(id))?;
    let corrupt = |source| StoredError::Corrupt { id, source };
    let sources: Sources = serde_json::from_value(sources).map_err(corrupt)?;
    let plan: Plan = serde_json::from_value(row.candidates).map_err(corrupt)?;
    let sellers = sources.sellers().cloned().collect();
    let offers = store.catalog().offers_at(row.generation, &sellers).await?;
    let listed = sources.snapshot(offers);
    let priced = matcher::at_own_prices(&listed, sources.own(), sources.decided_at());
    let offers = priced.as_ref().unwrap_or(&listed).offers();
    let offers = offers.map(|offer| offer.to_offer()).collect();
    Ok(DecisionRecord::put_together(
        sources, row.demand, offers, &plan,
    )?)
}
