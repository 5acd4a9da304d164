//! How recent orders at a provider ended: was the listed capacity available, and did it work.

use serde::{Deserialize, Serialize};

use crate::lease::LeaseEvent;

/// With fewer orders than this a provider has no rating.
const FEW: u64 = 20;

/// How a provider's orders ended over a period. Each outcome counts once per reservation and offer, however
/// many leases ended that way, so one large reservation does not make a record. Orders that we never sent
/// (the provider was disabled, or our own side failed) do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AcceptanceRecord {
    /// Every node passed its verification.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    pub passed: u64,
    /// The provider refused the order.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    pub refused: u64,
    /// We sent the order, and the provider created nothing.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    pub not_found: u64,
    /// The provider created something other than what was ordered.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    pub mismatched: u64,
    /// It was accepted and did not come up.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    pub boot_failed: u64,
    /// A node failed its verification.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    pub failed: u64,
    /// The verification had no result in time.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    pub timed_out: u64,
    /// It vanished or was taken back before it was handed over.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    pub lost: u64,
    /// A lease that had passed, then vanished, was taken back or failed a check while a tenant had it. The
    /// tenant may have caused that, so it does not predict the next order.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    pub fell_in_use: u64,
}

/// The rating of a provider from its recent orders; better ones sort first.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Reliability {
    /// Of twenty orders or more at least 95 % ended well.
    Good,
    /// Too few orders to rate, or a rate between the two.
    #[default]
    Unproven,
    /// Of twenty orders or more fewer than 80 % ended well.
    Poor,
}

impl AcceptanceRecord {
    /// Counts orders with this outcome, some of them after their machines were handed over. Events that do
    /// not end an order are not counted.
    pub const fn count(&mut self, outcome: LeaseEvent, handed_over: bool, orders: u64) {
        use LeaseEvent as E;
        let of = match outcome {
            // A spot machine may be taken back at any time: that is what was bought.
            E::Preempted => return,
            _ if handed_over && outcome.is_fall() => &mut self.fell_in_use,
            E::Passed => &mut self.passed,
            // No capacity after all is a refusal that came late.
            E::Refused | E::NoCapacity => &mut self.refused,
            E::NotFound => &mut self.not_found,
            E::Mismatched => &mut self.mismatched,
            E::BootFailed => &mut self.boot_failed,
            E::Failed => &mut self.failed,
            E::TimedOut => &mut self.timed_out,
            E::Lost | E::Vanished => &mut self.lost,
            E::Accepted
            | E::Unwanted
            | E::Unknown
            | E::NodesUp
            | E::HandedOff
            | E::ReleaseRequested
            | E::ProviderSaysGone => return,
        };
        *of = of.saturating_add(orders);
    }

    /// Orders with any outcome, each counted once.
    #[must_use]
    pub const fn outcomes(&self) -> u64 {
        let Self {
            passed,
            refused,
            not_found,
            mismatched,
            boot_failed,
            failed,
            timed_out,
            lost,
            fell_in_use: _,
        } = *self;
        passed
            .saturating_add(refused)
            .saturating_add(not_found)
            .saturating_add(mismatched)
            .saturating_add(boot_failed)
            .saturating_add(failed)
            .saturating_add(timed_out)
            .saturating_add(lost)
    }

    /// The rating for the next order.
    #[must_use]
    pub const fn reliability(&self) -> Reliability {
        let (all, passed) = (self.outcomes() as u128, self.passed as u128);
        if all < FEW as u128 {
            Reliability::Unproven
        } else if passed * 100 >= all * 95 {
            Reliability::Good
        } else if passed * 100 < all * 80 {
            Reliability::Poor
        } else {
            Reliability::Unproven
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_of_an_order_is_counted_once_and_nothing_else() {
        let mut record = AcceptanceRecord::default();
        for event in LeaseEvent::ALL {
            let before = record.outcomes();
            record.count(event, false, 3);
            // A spot machine that is taken back is nobody's failure.
            let is_failure = event.is_fall() && event != LeaseEvent::Preempted;
            let ends = event == LeaseEvent::Passed || is_failure;
            let of_orders = if ends { 3 } else { 0 };
            assert_eq!(record.outcomes() - before, of_orders, "{event:?}");
            // A lease lost in use has passed before, and is one order.
            let (before, fell) = (record.outcomes(), record.fell_in_use);
            record.count(event, true, 3);
            let passed = u64::from(event == LeaseEvent::Passed) * 3;
            let falls = u64::from(is_failure) * 3;
            assert_eq!(record.outcomes() - before, passed, "{event:?}");
            assert_eq!(record.fell_in_use - fell, falls, "{event:?}");
        }
    }

    #[test]
    fn few_orders_say_nothing_and_many_say_what_share_ended_well() {
        let of = |passed, lost| AcceptanceRecord {
            passed,
            lost,
            ..AcceptanceRecord::default()
        };
        assert_eq!(of(19, 0).reliability(), Reliability::Unproven);
        assert_eq!(of(0, 19).reliability(), Reliability::Unproven);
        assert_eq!(of(19, 1).reliability(), Reliability::Good);
        assert_eq!(of(94, 6).reliability(), Reliability::Unproven);
        assert_eq!(of(80, 20).reliability(), Reliability::Unproven);
        assert_eq!(of(79, 21).reliability(), Reliability::Poor);
        assert_eq!(of(u64::MAX / 2, 0).reliability(), Reliability::Good);
        assert_eq!(of(u64::MAX, u64::MAX).outcomes(), u64::MAX);
    }
}
