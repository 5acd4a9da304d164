//! The states of a lease: one thing at one provider that we run and pay for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The state of a lease. Only [`LeaseState::next`] makes a new one.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LeaseState {
    /// The row is saved; the provider is being asked.
    Requested,
    /// No longer wanted while the order's result is still open.
    Withdrawn,
    /// The provider accepted; its nodes are coming up.
    Booting,
    /// The nodes are up and being verified.
    Verifying,
    /// Every node passed.
    Passed,
    /// The tenant has access.
    HandedOff,
    /// The broker is asking the provider to end it.
    Releasing,
    /// It is proved to be gone.
    Gone,
}

/// An event of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseEvent {
    /// The provider accepted the order.
    Accepted,
    /// The provider refused the order.
    Refused,
    /// The provider has nothing with our mark.
    NotFound,
    /// The provider created something other than what was ordered.
    Mismatched,
    /// The reservation no longer needs it.
    Unwanted,
    /// The order's result is not known yet.
    Unknown,
    /// All its nodes run.
    NodesUp,
    /// It was accepted and did not come up.
    BootFailed,
    /// It was accepted, and then the provider had no machine for it.
    NoCapacity,
    /// The provider took a spot machine back.
    Preempted,
    /// The provider reports that it ended it, or its nodes have been silent for longer than is allowed.
    Lost,
    /// The provider is proved not to have it any more, though nobody ended it.
    Vanished,
    /// Every node passed verification.
    Passed,
    /// A node failed verification.
    Failed,
    /// Verification had no result: a node did not finish it in time, or its evidence was inconclusive.
    TimedOut,
    /// Access was delivered.
    HandedOff,
    /// The tenant asked for the end, or the window ended.
    ReleaseRequested,
    /// It is proved to have ended.
    ProviderSaysGone,
}

/// An event that is illegal in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a lease that is {state} cannot take the event {event:?}")]
pub struct IllegalLeaseTransition {
    /// The state it was in.
    pub state: LeaseState,
    /// The event.
    pub event: LeaseEvent,
}

impl LeaseState {
    /// Every state, in the order of life.
    pub const ALL: [Self; 8] = [
        Self::Requested,
        Self::Withdrawn,
        Self::Booting,
        Self::Verifying,
        Self::Passed,
        Self::HandedOff,
        Self::Releasing,
        Self::Gone,
    ];

    /// The state after `event`.
    ///
    /// Errors: [`IllegalLeaseTransition`] for every pair that has no arrow.
    pub fn next(self, event: LeaseEvent) -> Result<Self, IllegalLeaseTransition> {
        use LeaseEvent as E;
        use LeaseState as S;
        match (self, event) {
            (S::Requested, E::Accepted) => Ok(S::Booting),
            (S::Requested | S::Withdrawn, E::Refused | E::NotFound) => Ok(S::Gone),
            (S::Requested, E::Mismatched) => Ok(S::Releasing),
            (S::Requested, E::Unwanted) => Ok(S::Withdrawn),
            (S::Requested | S::Withdrawn, E::Unknown) => Ok(self),
            (S::Withdrawn, E::Accepted | E::Mismatched) => Ok(S::Releasing),
            (S::Booting, E::NodesUp) => Ok(S::Verifying),
            (S::Booting, E::BootFailed | E::NoCapacity | E::Lost | E::Unwanted) => Ok(S::Releasing),
            (S::Booting | S::Verifying | S::Passed | S::HandedOff, E::Preempted) => {
                Ok(S::Releasing)
            }
            (S::Verifying, E::Passed) => Ok(S::Passed),
            (S::Verifying, E::Failed | E::TimedOut | E::Lost | E::Unwanted) => Ok(S::Releasing),
            (S::Passed, E::HandedOff) => Ok(S::HandedOff),
            (S::Passed, E::Lost | E::Unwanted) => Ok(S::Releasing),
            (S::HandedOff, E::ReleaseRequested | E::Failed | E::Lost | E::Unwanted) => {
                Ok(S::Releasing)
            }
            (S::Booting | S::Verifying | S::Passed | S::HandedOff, E::Vanished)
            | (S::Releasing, E::ProviderSaysGone) => Ok(S::Gone),
            (state, event) => Err(IllegalLeaseTransition { state, event }),
        }
    }

    /// Whether something may still be running at the provider, and billed.
    #[must_use]
    pub const fn is_live(self) -> bool {
        !matches!(self, Self::Gone)
    }

    /// Whether the provider created it and nobody wants its end: it must exist.
    #[must_use]
    pub const fn is_accepted(self) -> bool {
        self.is_standing() && !matches!(self, Self::Requested)
    }

    /// Whether the lease still counts towards its reservation: neither failed nor ending.
    #[must_use]
    pub const fn is_standing(self) -> bool {
        matches!(
            self,
            Self::Requested | Self::Booting | Self::Verifying | Self::Passed | Self::HandedOff
        )
    }

    /// The word on the wire and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Withdrawn => "withdrawn",
            Self::Booting => "booting",
            Self::Verifying => "verifying",
            Self::Passed => "passed",
            Self::HandedOff => "handed_off",
            Self::Releasing => "releasing",
            Self::Gone => "gone",
        }
    }
}

impl LeaseEvent {
    /// Every event.
    pub const ALL: [Self; 18] = [
        Self::Accepted,
        Self::Refused,
        Self::NotFound,
        Self::Mismatched,
        Self::Unwanted,
        Self::Unknown,
        Self::NodesUp,
        Self::BootFailed,
        Self::NoCapacity,
        Self::Preempted,
        Self::Lost,
        Self::Vanished,
        Self::Passed,
        Self::Failed,
        Self::TimedOut,
        Self::HandedOff,
        Self::ReleaseRequested,
        Self::ProviderSaysGone,
    ];

    /// Whether the event is a failure of the lease, rather than something that the tenant or we wanted.
    #[must_use]
    pub const fn is_fall(self) -> bool {
        matches!(
            self,
            Self::Refused
                | Self::NotFound
                | Self::Mismatched
                | Self::BootFailed
                | Self::NoCapacity
                | Self::Preempted
                | Self::Lost
                | Self::Vanished
                | Self::Failed
                | Self::TimedOut
        )
    }
}

impl fmt::Display for LeaseState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no state")]
pub struct UnknownState(pub String);

impl FromStr for LeaseState {
    type Err = UnknownState;

    fn from_str(word: &str) -> Result<Self, UnknownState> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == word)
            .ok_or_else(|| UnknownState(word.to_owned()))
    }
}
