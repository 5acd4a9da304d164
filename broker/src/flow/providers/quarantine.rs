//! Validates a provider's suspension (its [`Quarantine`]).

use chrono::{DateTime, TimeDelta, Utc};
use store::providers::{Provider, Quarantine};

/// The longest reason. Units: characters.
const REASON_CHARS: usize = 200;
/// The longest suspension.
const LONGEST: TimeDelta = TimeDelta::days(365);

/// Why a provider was not suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuarantineRefused {
    /// The reason is empty, or too long.
    #[error("`reason` must be 1 to {REASON_CHARS} printable characters")]
    Reason,
    /// The end is over, or too far away.
    #[error(
        "`until` must lie in the future and within a year; disable the provider to close it for good"
    )]
    Until,
}

/// The provider's new suspension; an existing one keeps its start.
///
/// Errors: [`QuarantineRefused`].
pub fn quarantine(
    provider: &Provider,
    reason: &str,
    until: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<Quarantine, QuarantineRefused> {
    let is_plain = !reason.trim().is_empty() && !reason.chars().any(char::is_control);
    if !is_plain || reason.chars().count() > REASON_CHARS {
        return Err(QuarantineRefused::Reason);
    }
    if until <= now || until - now > LONGEST {
        return Err(QuarantineRefused::Until);
    }
    Ok(Quarantine {
        reason: reason.to_owned(),
        since: provider.quarantine_at(now).map_or(now, |held| held.since),
        until,
    })
}
