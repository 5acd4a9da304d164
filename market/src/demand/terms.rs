//! The terms that every kind of demand may set: time, price, place and rules.

use std::num::NonZeroU32;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use crate::certification::CertificationName;
use crate::ids::ProviderId;
use crate::money::{Money, Rate};
use crate::place::Country;

/// How long we wait for capacity that is wanted later or for a duration, when no latest start is given.
const LONGEST_WAIT: TimeDelta = TimeDelta::hours(24);

/// When the capacity is wanted. By default from now on, with an open end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Not before this, at most a year ahead: it is ordered in time to be ready then, and used and charged
    /// from then on. Without `start_latest` we wait a day from then on for the hand-off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_earliest: Option<DateTime<Utc>>,
    /// Not after this: capacity that is not handed off by then is given up and costs nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_latest: Option<DateTime<Utc>>,
    /// For this many hours from the hand-off: the time to boot and to verify does not count. Without
    /// `start_latest` we wait a day for the hand-off. Not together with `end`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 87_600)]
    pub duration_hours: Option<NonZeroU32>,
    /// Until this, whenever it is handed off; not together with `duration_hours`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<DateTime<Utc>>,
}

impl Window {
    /// The start where it is later than `now`; `None`: from now on.
    #[must_use]
    pub fn starts_after(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.start_earliest.filter(|earliest| *earliest > now)
    }

    /// Until when we wait for capacity set aside at `held_at`; `None`: as long as any is sold.
    ///
    /// That is the latest start, else a day where the start is later or a duration counts from the hand-off,
    /// and never after the end.
    #[must_use]
    pub fn given_up_at(&self, held_at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self.starts_after(held_at) {
            Some(starts_at) => Some(self.given_up_after(starts_at)),
            None if self.duration_hours.is_some() => Some(self.given_up_after(held_at)),
            None => self.latest_given(),
        }
    }

    /// The latest hand-off that the tenant gave: the latest start, and never after the end.
    #[must_use]
    pub fn latest_given(&self) -> Option<DateTime<Utc>> {
        self.start_latest.into_iter().chain(self.end).min()
    }

    /// Until when we wait for capacity that is wanted from `starts_at` on: the latest start, else a day, and
    /// never after the end.
    #[must_use]
    pub fn given_up_after(&self, starts_at: DateTime<Utc>) -> DateTime<Utc> {
        let a_day_later = starts_at.checked_add_signed(LONGEST_WAIT);
        let waited_for = self.start_latest.or(a_day_later);
        let times = waited_for.into_iter().chain(self.end);
        times.min().unwrap_or(DateTime::<Utc>::MAX_UTC)
    }

    /// The latest that capacity set aside at `held_at` is handed off; at once, where nothing limits the wait.
    #[must_use]
    pub fn handed_off_by(&self, held_at: DateTime<Utc>) -> DateTime<Utc> {
        let handed_off_at = self.given_up_at(held_at).unwrap_or(held_at);
        let starts_at = self.start_earliest.unwrap_or(held_at);
        handed_off_at.max(starts_at)
    }

    /// The latest that capacity set aside at `held_at` can end; `None`: the end is open.
    #[must_use]
    pub fn ends_by(&self, held_at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.end_from(self.handed_off_by(held_at))
    }

    /// When capacity that is handed off at `handed_off_at` is to end; `None`: the end is open.
    ///
    /// The duration counts from there, and never past the end, nor past the last moment there is.
    #[must_use]
    pub fn end_from(&self, handed_off_at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let hours = self.duration_hours.map(|hours| i64::from(hours.get()));
        let by_duration = hours.map(|hours| {
            let ends_at = handed_off_at.checked_add_signed(TimeDelta::hours(hours));
            ends_at.unwrap_or(DateTime::<Utc>::MAX_UTC)
        });
        [by_duration, self.end].into_iter().flatten().min()
    }
}

/// The highest price to accept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Ceiling {
    /// US dollars per GPU-hour. It also limits replacements of machines that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_gpu_hour: Option<Rate>,
    /// US dollars per hour for everything, also after machines that failed are replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_hour: Option<Money>,
}

/// Where capacity may stand. By default anywhere, unknown places included.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Places {
    /// Only in these countries (ISO 3166 alpha-2).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 250)]
    pub countries: Vec<Country>,
    /// Only in these regions, as their sellers write them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 250)]
    pub regions: Vec<String>,
}

/// Rules that apply at any price.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Never from these providers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 250)]
    pub deny_providers: Vec<ProviderId>,
    /// Only from these providers, when any are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 250)]
    pub allow_providers: Vec<ProviderId>,
    /// Only from providers whose operator is known to be under the law of one of these countries
    /// (ISO 3166 alpha-2), when any are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 250)]
    pub operator_countries: Vec<Country>,
    /// Only from providers with evidence on record of all of these, valid until the capacity may end. That is
    /// the end of the window, else the deadline, else when the work is predicted to be done. Where none of
    /// these is known, it is when the capacity is set aside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 250)]
    pub certifications: Vec<CertificationName>,
    /// Whether plain Ethernet may connect several nodes: the older word for `fabric`. `true` is `any`,
    /// `false` is `rdma`. By default nodes that train need RDMA and others do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_ethernet: Option<bool>,
    /// What to do with a machine in use that cannot be reached for too long; by default what the service
    /// does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_unreachable: Option<OnUnreachable>,
}

/// What to do with a machine in use that cannot be reached for too long. An event reports it either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnUnreachable {
    /// Nothing else.
    Event,
    /// It counts as lost: a fleet gets a replacement, a gang ends.
    Repair,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hour: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::hours(hour)
    }

    fn window(latest: Option<i64>, hours: Option<u32>, end: Option<i64>) -> Window {
        Window {
            start_earliest: None,
            start_latest: latest.map(at),
            duration_hours: hours.and_then(NonZeroU32::new),
            end: end.map(at),
        }
    }

    #[test]
    fn a_duration_counts_from_the_hand_off_and_never_past_the_end() {
        assert_eq!(window(None, Some(24), None).end_from(at(3)), Some(at(27)));
        assert_eq!(
            window(None, Some(24), Some(20)).end_from(at(3)),
            Some(at(20))
        );
        assert_eq!(window(None, None, Some(20)).end_from(at(3)), Some(at(20)));
        assert_eq!(window(Some(9), None, None).end_from(at(3)), None);
        assert_eq!(
            window(None, Some(24), None).end_from(DateTime::<Utc>::MAX_UTC),
            Some(DateTime::<Utc>::MAX_UTC)
        );
    }

    #[test]
    fn the_latest_end_counts_from_the_latest_hand_off() {
        for (window, ends) in [
            (window(None, Some(10), None), Some(34)),
            (window(Some(3), Some(10), None), Some(13)),
            (window(None, Some(10), Some(20)), Some(20)),
            (window(Some(3), None, Some(20)), Some(20)),
            (window(Some(3), None, None), None),
            (window(None, None, None), None),
        ] {
            assert_eq!(window.ends_by(at(0)), ends.map(at), "{window:?}");
        }
        let later = Window {
            start_earliest: Some(at(100)),
            ..window(None, Some(10), None)
        };
        assert_eq!(later.ends_by(at(0)), Some(at(134)));
    }

    #[test]
    fn a_hand_off_is_waited_for_until_the_latest_start_or_a_day_and_never_past_the_end() {
        for (window, given_up) in [
            (window(None, Some(1), None), Some(24)),
            (window(None, Some(500), None), Some(24)),
            (window(Some(2), Some(500), None), Some(2)),
            (window(Some(72), Some(1), None), Some(72)),
            (window(Some(72), None, Some(50)), Some(50)),
            (window(None, None, Some(50)), Some(50)),
            (window(Some(2), None, None), Some(2)),
            (window(None, None, None), None),
        ] {
            assert_eq!(window.given_up_at(at(0)), given_up.map(at), "{window:?}");
        }
    }

    #[test]
    fn a_later_start_is_waited_for_a_day_from_then_on() {
        for (window, given_up) in [
            (window(None, None, None), 124),
            (window(None, Some(500), None), 124),
            (window(Some(101), Some(500), None), 101),
            (window(Some(172), None, Some(150)), 150),
            (window(None, None, Some(110)), 110),
        ] {
            let window = Window {
                start_earliest: Some(at(100)),
                ..window
            };
            assert_eq!(window.given_up_at(at(0)), Some(at(given_up)), "{window:?}");
            assert_eq!(window.given_up_after(at(100)), at(given_up), "{window:?}");
            // Once it has come, it is as if it were wanted at once.
            let now = Window {
                start_earliest: None,
                ..window.clone()
            };
            assert_eq!(window.given_up_at(at(100)), now.given_up_at(at(100)));
        }
    }
}
