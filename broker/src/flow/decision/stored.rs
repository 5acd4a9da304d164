//! The decision of a plan of the service: the inputs kept with the plan, and the offers of its generation out
//! of the history, which nothing later changes.

use market::ids::PlanId;
use matcher::Plan;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Store, StoreError};

use super::{DecisionRecord, FORMAT, ReplayError, Sources};

/// The inputs of a decision, as kept with a plan.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredSources<T = Sources> {
    format: u32,
    sources: T,
}

impl StoredSources {
    /// In the form that this program writes.
    pub(crate) const fn new(sources: Sources) -> Self {
        Self {
            format: FORMAT,
            sources,
        }
    }
}

/// Why there is no record of a plan.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// There is no such plan.
    #[error("there is no plan {0}; plans of which no quote was taken are kept for two days")]
    Unknown(PlanId),
    /// Another release kept the answer alone, or its inputs in another form.
    #[error("plan {0} was made by another release, which kept its inputs in another form")]
    OtherRelease(PlanId),
    /// The stored part was not written by our program.
    #[error("the stored inputs of plan {id} cannot be read")]
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

/// Puts the record of a plan's decision together, of any tenant.
///
/// Errors: [`StoredError`].
pub async fn of_stored_plan(store: &Store, id: PlanId) -> Result<DecisionRecord, StoredError> {
    let row = store.plans().across_tenants().find(id).await?;
    let row = row.ok_or(StoredError::Unknown(id))?;
    let kept = row.decided_from.ok_or(StoredError::OtherRelease(id))?;
    let corrupt = |source| StoredError::Corrupt { id, source };
    let kept: StoredSources<Value> = serde_json::from_value(kept).map_err(corrupt)?;
    if kept.format != FORMAT {
        return Err(StoredError::OtherRelease(id));
    }
    let sources: Sources = serde_json::from_value(kept.sources).map_err(corrupt)?;
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
