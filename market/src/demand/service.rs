//! How well a fleet must serve, and whom.

use serde::{Deserialize, Serialize};

use crate::place::Country;

/// A latency objective.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LatencyObjective {
    /// Time to the first token. Units: milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3_600_000)]
    pub first_token_ms: Option<f64>,
    /// Time per further token. Units: milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.1, maximum = 3_600_000)]
    pub per_token_ms: Option<f64>,
    /// The share of requests that must meet it, such as 95.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 99.999)]
    pub percentile: Option<f64>,
}

/// The failures that a fleet must survive and still meet its objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Survive {
    /// The loss of any one zone.
    Zone,
    /// The loss of any one provider.
    Provider,
}

/// A share of the users in one country.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserShare {
    /// The country.
    pub country: Country,
    /// Its share of all users, 0 to 1.
    #[schema(minimum = 0, maximum = 1)]
    pub share: f64,
}
