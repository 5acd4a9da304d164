//! Rules that keep holds, which cost nothing, from locking out other tenants.
//!
//! A hold usually lasts as long as the configuration sets. A hold on much of an offer lasts
//! [`SHORT_SECONDS`], and so does each hold of a tenant that left many unused within the last hour. After
//! still more unused holds the tenant must wait. None of these rules apply to a reservation that is confirmed
//! in the same call.

use chrono::{DateTime, TimeDelta, Utc};

/// How long a hold lasts that other tenants must not wait for. Units: seconds.
pub const SHORT_SECONDS: i64 = 120;
/// After this many unused holds within an hour each further one is short.
pub const SHORT_AFTER: usize = 10;
/// After this many unused holds within an hour no further one is placed.
pub const REFUSED_AFTER: usize = 20;
/// How long an unused hold counts. Units: seconds.
pub const REMEMBERED_SECONDS: i64 = 3_600;

/// How long the next hold of a tenant may last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldLength {
    /// As long as the configuration sets.
    Usual,
    /// [`SHORT_SECONDS`] at most.
    Short,
    /// None is placed before this moment.
    RefusedUntil(DateTime<Utc>),
}

/// How long the next hold may last, given the tenant's earlier ones: `unused` are the times, in any order, at
/// which holds lapsed or were cancelled unconfirmed.
#[must_use]
pub fn length(mut unused: Vec<DateTime<Utc>>, now: DateTime<Utc>) -> HoldLength {
    let remembered = TimeDelta::seconds(REMEMBERED_SECONDS);
    unused.retain(|at| *at + remembered > now);
    unused.sort_unstable();
    match unused.len() {
        // Once enough of them have expired that one may be placed.
        all @ REFUSED_AFTER.. => HoldLength::RefusedUntil(unused[all - REFUSED_AFTER] + remembered),
        SHORT_AFTER.. => HoldLength::Short,
        _ => HoldLength::Usual,
    }
}

/// Until when nothing more is confirmed for a tenant that cancelled orders before their hand-off; `None`
/// where it may cancel another. `cancelled` are the times of those cancellations within the period that
/// counts, the oldest first (units: `counted_hours`). `most` is how many are allowed, and 0 acts as 1.
#[must_use]
pub fn confirms_again_at(
    cancelled: &[DateTime<Utc>],
    most: u32,
    counted_hours: i64,
) -> Option<DateTime<Utc>> {
    let most = usize::try_from(most.max(1)).unwrap_or(usize::MAX);
    // Once enough of them have expired that another may be cancelled.
    let over = cancelled.len().checked_sub(most)?;
    Some(*cancelled.get(over)? + TimeDelta::hours(counted_hours))
}

/// Whole seconds until a moment, rounded up. Units: seconds.
#[must_use]
pub fn seconds_until(at: DateTime<Utc>, now: DateTime<Utc>) -> u64 {
    let milliseconds = u64::try_from((at - now).num_milliseconds()).unwrap_or(0);
    milliseconds.div_ceil(1_000)
}

/// Whether a hold takes so much of an offer that other tenants must not wait for it. That is more than half
/// of the nodes that its provider counts, or any where it does not count. `held` are the tenant's nodes on
/// hold there, including this hold's.
#[must_use]
pub fn takes_much(held: u32, counted: Option<u32>) -> bool {
    counted.is_none_or(|counted| u64::from(held) * 2 > u64::from(counted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_790_000_000 + seconds, 0).expect("a moment")
    }

    #[test]
    fn holds_grow_short_and_then_wait_by_how_many_went_unused_within_an_hour() {
        let unused = |count: i64| (0..count).map(|number| at(number * 60)).collect();
        let now = at(1_300);
        for (count, length_then) in [
            (0, HoldLength::Usual),
            (9, HoldLength::Usual),
            (10, HoldLength::Short),
            (19, HoldLength::Short),
            // The first of them expires then.
            (20, HoldLength::RefusedUntil(at(3_600))),
            (22, HoldLength::RefusedUntil(at(3_720))),
        ] {
            assert_eq!(length(unused(count), now), length_then, "{count}");
        }
        assert_eq!(length(unused(20), at(3_600)), HoldLength::Short);
        assert_eq!(length(unused(20), at(3_600 + 600)), HoldLength::Usual);
    }

    #[test]
    fn whoever_cancelled_too_much_waits_until_enough_of_it_is_forgotten() {
        let cancelled = [at(0), at(10), at(20)];
        let hour = TimeDelta::hours(1);
        for (most, again) in [
            (4, None),
            (3, Some(at(0) + hour)),
            (1, Some(at(20) + hour)),
            (0, Some(at(20) + hour)),
        ] {
            assert_eq!(confirms_again_at(&cancelled, most, 1), again, "{most}");
        }
        assert_eq!(confirms_again_at(&[], 0, 1), None);
        assert_eq!(seconds_until(at(2), at(0) + TimeDelta::milliseconds(1)), 2);
    }

    #[test]
    fn much_is_more_than_half_or_any_where_nobody_counts() {
        for (held, counted, much) in [
            (1, Some(2), false),
            (2, Some(3), true),
            (1, Some(1), true),
            (4, Some(8), false),
            (u32::MAX, Some(u32::MAX), true),
            (1, None, true),
        ] {
            assert_eq!(takes_much(held, counted), much, "{held} of {counted:?}");
        }
    }
}
