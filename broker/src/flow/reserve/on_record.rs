//! Compares the records of providers with a demand's policy, where capacity is reserved and where a
//! reservation is extended: a certificate may have ended since the plan was made.

use chrono::{DateTime, Utc};
use market::demand::Demand;
use market::ids::ProviderId;

use super::ReserveError;
use crate::platform::app::Broker;

/// Makes sure that each provider meets the policy until a time.
///
/// Errors: [`ReserveError::OutsidePolicy`], of the first that is not.
pub(super) fn check<'a>(
    broker: &Broker,
    demand: &Demand,
    providers: impl IntoIterator<Item = &'a ProviderId>,
    until: DateTime<Utc>,
) -> Result<(), ReserveError> {
    let Some(policy) = demand.shared().policy else {
        return Ok(());
    };
    for provider in providers {
        let facts = broker.config().facts_of(provider);
        let checked = policy.check_facts(Some(&facts), until);
        checked.map_err(|lack| ReserveError::OutsidePolicy {
            provider: provider.clone(),
            lack: lack.to_string(),
        })?;
    }
    Ok(())
}
