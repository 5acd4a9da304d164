//! The generic cell rate algorithm: a quota as one moment for each key. Pure.
//!
//! The moment is when the whole burst will be there again. `check_rate.lua` is the same arithmetic
//! on Redis.

use std::time::Duration;

use super::{Quota, RateCheck};

/// Microseconds between two calls at the quota's long-run rate.
pub(super) fn interval_us(quota: Quota) -> u64 {
    (1_000_000 / u64::from(quota.per_second.get())).max(1)
}

/// Counts a call at `now` against a quota; `full_at` is the state after the last one.
///
/// Units: microseconds on one clock. The first part of the result replaces `full_at`.
pub(super) fn check(full_at: Option<u64>, now: u64, quota: Quota) -> (u64, RateCheck) {
    let (interval, limit) = (interval_us(quota), quota.burst.get());
    let tolerance = interval * u64::from(limit);
    let full_at = full_at.unwrap_or(now).max(now);
    let then_full_at = full_at + interval;
    let spent = then_full_at - now;
    if spent > tolerance {
        let retry_after = Duration::from_micros(spent - tolerance);
        let reset_after = Duration::from_micros(full_at - now);
        return (full_at, refused(limit, reset_after, retry_after));
    }
    let left = (tolerance - spent) / interval;
    let check = RateCheck {
        allowed: true,
        limit,
        // At most the burst, which is a u32.
        remaining: u32::try_from(left).unwrap_or(limit),
        reset_after: Duration::from_micros(spent),
        retry_after: Duration::ZERO,
    };
    (then_full_at, check)
}

fn refused(limit: u32, reset_after: Duration, retry_after: Duration) -> RateCheck {
    RateCheck {
        allowed: false,
        limit,
        remaining: 0,
        reset_after,
        retry_after,
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;

    fn quota(per_second: u32, burst: u32) -> Quota {
        Quota {
            per_second: NonZeroU32::new(per_second).expect("not zero"),
            burst: NonZeroU32::new(burst).expect("not zero"),
        }
    }

    #[test]
    fn a_burst_passes_and_the_next_call_waits_for_its_turn() {
        let quota = quota(10, 3);
        let mut full_at = None;
        for remaining in [2, 1, 0] {
            let (next, check) = check(full_at, 5_000_000, quota);
            assert!(check.allowed);
            assert_eq!((check.limit, check.remaining), (3, remaining));
            full_at = Some(next);
        }
        let (kept, refused) = check(full_at, 5_000_000, quota);
        assert!(!refused.allowed);
        assert_eq!(refused.retry_after, Duration::from_millis(100));
        assert_eq!(refused.reset_after, Duration::from_millis(300));
        assert_eq!(Some(kept), full_at, "a refused call costs nothing");
        assert!(check(Some(kept), 5_100_000, quota).1.allowed);
    }

    proptest! {
        #[test]
        fn no_more_pass_than_the_burst_and_what_the_rate_adds(
            per_second in 1_u32..1000, burst in 1_u32..100,
            steps in prop::collection::vec(0_u64..100_000, 1..400),
        ) {
            let quota = quota(per_second, burst);
            let (mut now, mut full_at, mut passed) = (0, None, 0_u64);
            for step in steps {
                now += step;
                let (next, check) = check(full_at, now, quota);
                full_at = Some(next);
                passed += u64::from(check.allowed);
                prop_assert!(check.remaining < burst);
                prop_assert_eq!(check.allowed, check.retry_after.is_zero());
            }
            prop_assert!(passed <= u64::from(burst) + now / interval_us(quota));
        }

        #[test]
        fn a_call_passes_exactly_when_it_was_told_to_come_again(
            per_second in 1_u32..1000, burst in 1_u32..50,
        ) {
            let quota = quota(per_second, burst);
            let mut full_at = None;
            for _ in 0..burst {
                full_at = Some(check(full_at, 0, quota).0);
            }
            let refused = check(full_at, 0, quota).1;
            prop_assert!(!refused.allowed);
            let again = u64::try_from(refused.retry_after.as_micros()).expect("short");
            prop_assert!(!check(full_at, again - 1, quota).1.allowed);
            prop_assert!(check(full_at, again, quota).1.allowed);
        }
    }
}
