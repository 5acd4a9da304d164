//! How deeply nodes prove themselves, and how long they have for it.

use std::collections::BTreeMap;

use market::acceptance::{AcceptanceRecord, Reliability};
use market::demand::Demand;
use market::ids::ProviderId;
use market::offer::{MachineOperator, Offer};
use market::verification::Level;
use store::StoreError;
use verifier::deadlines::whole;

use crate::flow::providers::counted_lately;
use crate::platform::app::Broker;

/// A demand asks for more than may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a verification of level `{}` is not done here (`verifier.most_level`); ask for `{}` at most",
    wanted.as_str(),
    most.as_str()
)]
pub struct TooDeep {
    wanted: Level,
    most: Level,
}

/// The verification level of a demand's nodes: the one that it names, and never less than the least for all.
///
/// Errors: [`TooDeep`].
pub(crate) fn level_of(broker: &Broker, demand: &Demand) -> Result<Level, TooDeep> {
    let config = &broker.config().verifier;
    let most = config.most_level;
    match demand.shared().verification {
        Some(wanted) if wanted > most => Err(TooDeep { wanted, most }),
        wanted => Ok(wanted.unwrap_or(config.level).max(config.least_level)),
    }
}

/// How deeply the nodes of these offers prove themselves where so much is wanted of them: no less than is
/// demanded of sellers without a good record, should one of theirs have none.
///
/// Errors: the database's.
pub(crate) async fn level_at(
    broker: &Broker,
    wanted: Level,
    offers: impl Iterator<Item = &Offer>,
) -> Result<Level, StoreError> {
    let Some(least) = broker.config().verifier.unproven_level else {
        return Ok(wanted);
    };
    let records = counted_lately(broker).await?;
    let sold = offers.map(|offer| (&offer.provider, &offer.particulars.operator));
    Ok(match all_are_good(&records, sold) {
        true => wanted,
        false => wanted.max(least),
    })
}

/// Whether every seller of these machines, each a provider with an operator, has a good record. A
/// marketplace's record does not count for the people whose machines it sells.
fn all_are_good<'a>(
    records: &BTreeMap<ProviderId, AcceptanceRecord>,
    mut sold: impl Iterator<Item = (&'a ProviderId, &'a MachineOperator)>,
) -> bool {
    sold.all(|(provider, operator)| {
        let record = records.get(provider);
        let is_good = record.is_some_and(|record| record.reliability() == Reliability::Good);
        is_good && *operator == MachineOperator::Seller
    })
}

/// How long nodes may take to prove themselves alone. Units: seconds.
pub(crate) fn verify_seconds(broker: &Broker, level: Level) -> u32 {
    let longer = steps_seconds(level).saturating_sub(steps_seconds(Level::Standard));
    let standard = broker.config().verifier.verify_seconds;
    standard.saturating_add(longer)
}

/// How long the steps of a level may take together. Units: seconds.
fn steps_seconds(level: Level) -> u32 {
    u32::try_from(whole(level).as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seller_is_good_by_its_record_and_neither_without_one_nor_by_that_of_its_marketplace() {
        let seller = |name: &str| ProviderId::parse(name).expect("a provider");
        let passed = |passed| AcceptanceRecord {
            passed,
            ..AcceptanceRecord::default()
        };
        let records = BTreeMap::from([
            (seller("lambda"), passed(20)),
            (seller("vast"), passed(19)),
            (seller("runpod"), passed(20)),
        ]);
        let good = |sold: &[(&str, MachineOperator)]| {
            let sold = sold.iter().map(|(name, operator)| (seller(name), operator));
            let sold: Vec<(ProviderId, &MachineOperator)> = sold.collect();
            all_are_good(&records, sold.iter().map(|(id, operator)| (id, *operator)))
        };
        let own = |name| (name, MachineOperator::Seller);
        assert!(good(&[own("lambda"), own("runpod")]));
        let theirs = ("runpod", MachineOperator::Peer(None));
        let resold = ("lambda", MachineOperator::cloud("unheard-of"));
        for other in [own("vast"), own("vultr"), theirs, resold] {
            assert!(!good(std::slice::from_ref(&other)), "{other:?}");
            assert!(!good(&[own("lambda"), other.clone()]), "{other:?}");
        }
    }

    #[test]
    fn a_deep_verification_takes_longer_than_the_others() {
        let [quick, standard, deep] =
            [Level::Quick, Level::Standard, Level::Deep].map(steps_seconds);
        assert_eq!((quick, standard, deep), (60, 90, 6_000));
    }
}
