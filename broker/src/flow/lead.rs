//! How long before its start a later reservation is ordered: as long as such machines took from the order until
//! they had passed.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use market::quote::QuoteLine;
use market::verification::Level;
use store::StoreError;

use crate::flow::verify;
use crate::platform::app::Broker;

/// The longest lead.
const LONGEST: TimeDelta = TimeDelta::hours(1);
/// The last orders of a provider's SKU that count.
const ORDERS: usize = 50;
/// With fewer orders than this, boot and verification are taken as configured.
const FEWEST: usize = 10;
/// So many of them were no slower. Units: percent.
const PERCENT: usize = 90;

/// The longest lead: the time of machines that wait for the start is the broker's cost.
pub(crate) fn capped(time: TimeDelta) -> TimeDelta {
    time.min(LONGEST)
}

/// The lead for these lines at a verification level.
///
/// Errors: the database's.
pub(crate) async fn of_lines(
    broker: &Broker,
    lines: &[QuoteLine],
    level: Level,
) -> Result<TimeDelta, StoreError> {
    time_to_pass(broker, lines, level).await.map(capped)
}

/// The time from the order until nodes of these lines have passed at a verification level: that of the slowest.
///
/// Errors: the database's.
pub(crate) async fn time_to_pass(
    broker: &Broker,
    lines: &[QuoteLine],
    level: Level,
) -> Result<TimeDelta, StoreError> {
    let sold = lines
        .iter()
        .map(|line| (&line.offer.provider, &line.offer.sku));
    let mut longest = TimeDelta::zero();
    for (provider, sku) in sold.collect::<BTreeSet<_>>() {
        let attempts = broker.store().attempts();
        let known = attempts.times_to_pass(provider, sku, ORDERS).await?;
        let time = of_times(known).unwrap_or_else(|| as_configured(broker, level));
        longest = longest.max(time);
    }
    Ok(longest)
}

fn as_configured(broker: &Broker, level: Level) -> TimeDelta {
    let boot = broker.config().verifier.boot_seconds;
    let verify = verify::verify_seconds(broker, level);
    TimeDelta::seconds(i64::from(boot) + i64::from(verify))
}

/// The time that nine of ten orders took; `None` of too few.
fn of_times(mut times: Vec<TimeDelta>) -> Option<TimeDelta> {
    if times.len() < FEWEST {
        return None;
    }
    times.sort_unstable();
    let rank = (times.len() * PERCENT).div_ceil(100);
    times.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_of_ten_orders_were_no_slower_and_few_orders_say_nothing() {
        let times = |most: i64| (1..=most).rev().map(TimeDelta::minutes).collect();
        for (orders, lead) in [
            (0, None),
            (9, None),
            (10, Some(9)),
            (11, Some(10)),
            (20, Some(18)),
            (50, Some(45)),
        ] {
            assert_eq!(
                of_times(times(orders)),
                lead.map(TimeDelta::minutes),
                "{orders}"
            );
        }
    }
}
