//! Offers in cool-down, because they failed several times recently: a tenant does not get an offer that
//! failed it until the cool-down ends, and nobody gets one that failed several tenants.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use market::cooling::rests_until;
use market::ids::{OfferId, TenantId};
use matcher::Cooling;
use store::StoreError;

use crate::platform::app::Broker;

/// An offer in cool-down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "offer {offer} failed several times recently and is in cool-down until {}; plan again",
    until.to_rfc3339_opts(SecondsFormat::Secs, true)
)]
pub struct CoolingDown {
    /// Which.
    pub offer: OfferId,
    /// When it can be ordered again.
    pub until: DateTime<Utc>,
}

/// The offers in cool-down for a tenant now, and until when ([`rests_until`]).
///
/// Failures are counted by reservation, so a reservation that asks for more than there is puts no offer in
/// cool-down by itself. They count only until the hand-off, so no tenant puts an offer in cool-down by what
/// it does to its own machines.
/// Errors: the database's.
pub(crate) async fn cooling_offers(
    broker: &Broker,
    tenant: TenantId,
) -> Result<Cooling, StoreError> {
    let (now, sales) = (broker.now(), &broker.config().sales);
    let cooldown = TimeDelta::seconds(sales.cooldown_seconds.into());
    let failures = (broker.store().attempts())
        .early_failures_since(now - cooldown)
        .await?;
    let rests = failures.into_iter().filter_map(|(offer, failures)| {
        let until = rests_until(&failures, tenant, cooldown)?;
        (now < until).then_some((offer, until))
    });
    Ok(rests.collect())
}

/// The first of these offers that is in cool-down for a tenant now.
///
/// Errors: the database's.
pub(crate) async fn first_resting(
    broker: &Broker,
    tenant: TenantId,
    offers: impl Iterator<Item = OfferId> + Send,
) -> Result<Option<CoolingDown>, StoreError> {
    let cooling = cooling_offers(broker, tenant).await?;
    let mut resting = offers.filter_map(|offer| {
        let until = *cooling.get(&offer)?;
        Some(CoolingDown { offer, until })
    });
    Ok(resting.next())
}
