//! How deeply nodes prove themselves, and how long they have for it.

use market::demand::Demand;
use market::verification::Level;
use verifier::deadlines::whole;

use crate::app::Broker;

/// How deeply the nodes of a demand prove themselves: as it says, and never less than is demanded of all.
pub(crate) fn level_of(broker: &Broker, demand: &Demand) -> Level {
    let config = &broker.config().verifier;
    let wanted = demand.shared().verification.unwrap_or(config.level);
    wanted.max(config.least_level)
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
    fn a_deep_verification_takes_longer_than_the_others() {
        let [quick, standard, deep] =
            [Level::Quick, Level::Standard, Level::Deep].map(steps_seconds);
        assert_eq!((quick, standard, deep), (60, 90, 6_000));
    }
}
