//! Compares the records of operators with a demand's policy, where capacity is reserved and where a
//! reservation is extended: a certificate may have ended since the plan was made.

use chrono::{DateTime, Utc};
use market::demand::Demand;
use market::offer::Offer;

use super::ReserveError;
use crate::platform::app::Broker;

/// Makes sure that the operators of these offers meet the policy until a time.
///
/// Errors: [`ReserveError::OutsidePolicy`], of the first that is not.
pub(super) fn check<'a>(
    broker: &Broker,
    demand: &Demand,
    offers: impl IntoIterator<Item = &'a Offer>,
    until: DateTime<Utc>,
) -> Result<(), ReserveError> {
    let Some(policy) = demand.shared().policy else {
        return Ok(());
    };
    for offer in offers {
        let facts = broker.config().facts_of_operator(offer);
        let checked = policy.check_facts(facts.as_ref(), until);
        checked.map_err(|lack| ReserveError::OutsidePolicy {
            provider: offer.provider.clone(),
            lack: lack.to_string(),
        })?;
    }
    Ok(())
}
