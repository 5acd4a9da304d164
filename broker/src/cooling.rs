//! Offers that failed several times of late: nobody is given any of them until they have rested.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use market::ids::OfferId;
use matcher::Cooling;
use store::StoreError;

use crate::app::Broker;

/// For how many reservations an offer must fail within the cool-down to rest for everyone.
const FAILURES_FOR_EVERYONE: usize = 3;

/// An offer that rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "offer {offer} failed several times of late and rests until {}; plan again",
    until.to_rfc3339_opts(SecondsFormat::Secs, true)
)]
pub struct CoolingDown {
    /// Which.
    pub offer: OfferId,
    /// When it may be had again.
    pub until: DateTime<Utc>,
}

/// What rests just now, and until when: until so few of its failures are left within the cool-down that
/// it may be tried again.
///
/// Failures are counted in reservations, so that one that asks for more than there is rests nothing by
/// itself, and until the hand-off, so that no tenant rests an offer by what it does to its own machines.
/// Errors: the database's.
pub(crate) async fn cooling_offers(broker: &Broker) -> Result<Cooling, StoreError> {
    let (now, sales) = (broker.now(), &broker.config().sales);
    let cooldown = TimeDelta::seconds(sales.cooldown_seconds.into());
    let failures = (broker.store().attempts())
        .early_failures_since(now - cooldown)
        .await?;
    let rests = failures.into_iter().filter_map(|(offer, mut failed_at)| {
        failed_at.sort_unstable_by(|a, b| b.cmp(a));
        let until = *failed_at.get(FAILURES_FOR_EVERYONE - 1)? + cooldown;
        (now < until).then_some((offer, until))
    });
    Ok(rests.collect())
}

/// The first of these offers that rests just now.
///
/// Errors: the database's.
pub(crate) async fn first_resting(
    broker: &Broker,
    offers: impl Iterator<Item = OfferId> + Send,
) -> Result<Option<CoolingDown>, StoreError> {
    let cooling = cooling_offers(broker).await?;
    let mut resting = offers.filter_map(|offer| {
        let until = *cooling.get(&offer)?;
        Some(CoolingDown { offer, until })
    });
    Ok(resting.next())
}
