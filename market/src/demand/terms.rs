//! What every kind of demand may say: when, for how much, where, and by which rules.

use std::num::NonZeroU32;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::ids::ProviderId;
use crate::money::{Money, Rate};
use crate::place::Country;

/// When the capacity is wanted. Nothing given: from now on, with an open end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Not before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_earliest: Option<DateTime<Utc>>,
    /// Not after this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_latest: Option<DateTime<Utc>>,
    /// For so many hours from the start; not together with `end`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 87_600)]
    pub duration_hours: Option<NonZeroU32>,
    /// Until this; not together with `duration_hours`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<DateTime<Utc>>,
}

impl Window {
    /// When capacity taken at `start` is to end; `None` while the end is open.
    #[must_use]
    pub fn end_from(&self, start: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let by_duration = self
            .duration_hours
            .map(|hours| start + chrono::TimeDelta::hours(i64::from(hours.get())));
        self.end.or(by_duration)
    }
}

/// What must not be passed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Ceiling {
    /// US dollars per GPU-hour, also for a replacement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_gpu_hour: Option<Rate>,
    /// US dollars per hour for everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_hour: Option<Money>,
}

/// Where capacity may stand. Nothing given: anywhere, unknown places included.
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

/// Rules that hold whatever the price.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Never from these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 250)]
    pub deny_providers: Vec<ProviderId>,
    /// Only from these, when any are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 250)]
    pub allow_providers: Vec<ProviderId>,
    /// Let several training nodes be joined by plain Ethernet.
    #[serde(default)]
    pub allow_ethernet: bool,
}
