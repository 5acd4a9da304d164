//! The states of a reservation: the tenant's claim, from hold to closed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::lease::UnknownState;

/// Why a reservation ends or ended.
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
pub enum CloseReason {
    /// The hold was not confirmed in time.
    Expired,
    /// The tenant cancelled before the hand-off.
    Cancelled,
    /// No candidate under the ceiling could be obtained.
    NoCapacity,
    /// The tenant released what it had.
    Released,
    /// The window ended.
    WindowEnded,
    /// A gang lost a node and could not be made whole.
    RepairImpossible,
}

impl CloseReason {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::Expired,
        Self::Cancelled,
        Self::NoCapacity,
        Self::Released,
        Self::WindowEnded,
        Self::RepairImpossible,
    ];

    /// The word on the wire and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::NoCapacity => "no_capacity",
            Self::Released => "released",
            Self::WindowEnded => "window_ended",
            Self::RepairImpossible => "repair_impossible",
        }
    }
}

/// The state of a reservation. Only [`ReservationState::next`] makes a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReservationState {
    /// Capacity is set aside, or a later start is offered; costs nothing; lapses.
    Held,
    /// Confirmed for a later start; nothing is set aside or ordered yet.
    Scheduled,
    /// Confirmed; the leases are about to be requested.
    Confirmed,
    /// Leases are requested, booting or verifying.
    Provisioning,
    /// A lease failed before the hand-off; the next candidate is being taken.
    Replacing,
    /// Every lease passed; access is being delivered.
    HandingOff,
    /// The tenant has it.
    Active,
    /// A lease failed after the hand-off; it is being replaced.
    Repairing,
    /// Its leases are being ended.
    Releasing(CloseReason),
    /// Every provider confirmed that its machines are gone.
    Closed(CloseReason),
}

/// An event of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReservationEvent {
    /// The tenant confirmed the hold.
    Confirm,
    /// The tenant confirmed the hold of a later start.
    ConfirmLater,
    /// The start is near enough to order, and what is ordered is set aside.
    StartDue,
    /// Nothing could be ordered by the latest start.
    StartMissed,
    /// The hold expired.
    HoldLapsed,
    /// The tenant cancelled.
    Cancel,
    /// The lease rows are saved in `Requested`.
    LeasesRequested,
    /// No candidate is left under the ceiling.
    CandidatesExhausted,
    /// Every lease passed verification.
    AllPassed,
    /// A lease failed.
    LeaseFell,
    /// The window ended.
    WindowEnded,
    /// The next candidate was taken for every failed lease.
    NextTaken,
    /// Access to every lease was delivered.
    HandedOff,
    /// The tenant asked for the end.
    ReleaseRequested,
    /// The end of the window was moved to a later time.
    Extended,
    /// Every failed lease is replaced.
    Repaired,
    /// A fleet continues with fewer nodes.
    RepairGivenUp,
    /// A gang cannot be restored.
    RepairImpossible,
    /// Every provider confirmed that its machines are gone.
    AllLeasesGone,
}

impl ReservationEvent {
    /// The event as an attempt, in words that continue "cannot".
    #[must_use]
    pub const fn as_attempt(self) -> &'static str {
        match self {
            Self::Confirm | Self::ConfirmLater => "be confirmed",
            Self::StartDue => "be started",
            Self::StartMissed => "miss its start",
            Self::HoldLapsed => "lapse",
            Self::Cancel => "be cancelled",
            Self::LeasesRequested => "have its leases requested",
            Self::CandidatesExhausted => "run out of candidates",
            Self::AllPassed => "have all leases passed",
            Self::LeaseFell => "lose a lease",
            Self::WindowEnded => "see its window end",
            Self::NextTaken => "take the next candidate",
            Self::HandedOff => "be handed off",
            Self::ReleaseRequested => "be released",
            Self::Extended => "be extended",
            Self::Repaired => "be repaired",
            Self::RepairGivenUp => "go on smaller",
            Self::RepairImpossible => "be given up",
            Self::AllLeasesGone => "lose all leases",
        }
    }
}

/// An event that is illegal in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a reservation that is {state} cannot {}", event.as_attempt())]
pub struct IllegalReservationTransition {
    /// The state it was in.
    pub state: ReservationState,
    /// The event.
    pub event: ReservationEvent,
}

impl ReservationState {
    /// Every state, in the order of life; those with a reason once for each.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let plain = [
            Self::Held,
            Self::Scheduled,
            Self::Confirmed,
            Self::Provisioning,
            Self::Replacing,
            Self::HandingOff,
            Self::Active,
            Self::Repairing,
        ];
        plain
            .into_iter()
            .chain(CloseReason::ALL.map(Self::Releasing))
            .chain(CloseReason::ALL.map(Self::Closed))
            .collect()
    }

    /// The state after `event`.
    ///
    /// Errors: [`IllegalReservationTransition`] for every pair that has no arrow.
    pub fn next(self, event: ReservationEvent) -> Result<Self, IllegalReservationTransition> {
        use CloseReason as Why;
        use ReservationEvent as E;
        use ReservationState as S;
        match (self, event) {
            (S::Held, E::Confirm) => Ok(S::Confirmed),
            (S::Held, E::ConfirmLater) => Ok(S::Scheduled),
            (S::Scheduled, E::StartDue) => Ok(S::Confirmed),
            (S::Scheduled, E::StartMissed) => Ok(S::Closed(Why::NoCapacity)),
            (S::Held, E::HoldLapsed) => Ok(S::Closed(Why::Expired)),
            (S::Held | S::Scheduled | S::Confirmed, E::Cancel) => Ok(S::Closed(Why::Cancelled)),
            (S::Confirmed, E::LeasesRequested) => Ok(S::Provisioning),
            (S::Confirmed, E::CandidatesExhausted | E::WindowEnded) => {
                Ok(S::Closed(Why::NoCapacity))
            }
            (S::Provisioning, E::AllPassed) => Ok(S::HandingOff),
            (S::Provisioning | S::HandingOff, E::LeaseFell) => Ok(S::Replacing),
            (S::Replacing, E::LeaseFell) => Ok(S::Replacing),
            (S::Replacing, E::NextTaken) => Ok(S::Provisioning),
            (S::Replacing, E::CandidatesExhausted) => Ok(S::Releasing(Why::NoCapacity)),
            (S::Provisioning | S::Replacing | S::HandingOff, E::Cancel) => {
                Ok(S::Releasing(Why::Cancelled))
            }
            (
                S::Provisioning | S::Replacing | S::HandingOff | S::Active | S::Repairing,
                E::WindowEnded,
            ) => Ok(S::Releasing(Why::WindowEnded)),
            (S::HandingOff, E::HandedOff) => Ok(S::Active),
            (S::Active | S::Repairing, E::ReleaseRequested) => Ok(S::Releasing(Why::Released)),
            (S::Active, E::LeaseFell) => Ok(S::Repairing),
            (S::Active, E::Extended) => Ok(S::Active),
            (S::Repairing, E::LeaseFell | E::Extended) => Ok(S::Repairing),
            (S::Repairing, E::Repaired | E::RepairGivenUp) => Ok(S::Active),
            (S::Repairing, E::RepairImpossible) => Ok(S::Releasing(Why::RepairImpossible)),
            (S::Releasing(why), E::LeaseFell) => Ok(S::Releasing(why)),
            (S::Releasing(why), E::AllLeasesGone) => Ok(S::Closed(why)),
            (state, event) => Err(IllegalReservationTransition { state, event }),
        }
    }

    /// The word on the wire and in the database; the reason stands beside it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Scheduled => "scheduled",
            Self::Confirmed => "confirmed",
            Self::Provisioning => "provisioning",
            Self::Replacing => "replacing",
            Self::HandingOff => "handing_off",
            Self::Active => "active",
            Self::Repairing => "repairing",
            Self::Releasing(_) => "releasing",
            Self::Closed(_) => "closed",
        }
    }

    /// Why it ends or ended, once it does.
    #[must_use]
    pub const fn reason(self) -> Option<CloseReason> {
        match self {
            Self::Releasing(why) | Self::Closed(why) => Some(why),
            _ => None,
        }
    }

    /// Whether machines may be ordered for it, or were: neither held, scheduled nor closed.
    #[must_use]
    pub const fn is_ordered(self) -> bool {
        !matches!(self, Self::Held | Self::Scheduled | Self::Closed(_))
    }

    /// Whether it is over.
    #[must_use]
    pub const fn is_closed(self) -> bool {
        matches!(self, Self::Closed(_))
    }

    /// Reads a state from its two words.
    ///
    /// Errors: [`UnknownState`] for a word that names none, or a reason missing or out of place.
    pub fn parse(state: &str, reason: Option<&str>) -> Result<Self, UnknownState> {
        Self::all()
            .into_iter()
            .find(|known| {
                known.as_str() == state && known.reason().map(CloseReason::as_str) == reason
            })
            .ok_or_else(|| UnknownState(format!("{state} {}", reason.unwrap_or_default())))
    }
}

impl ReservationEvent {
    /// Every event.
    pub const ALL: [Self; 19] = [
        Self::Confirm,
        Self::ConfirmLater,
        Self::StartDue,
        Self::StartMissed,
        Self::HoldLapsed,
        Self::Cancel,
        Self::LeasesRequested,
        Self::CandidatesExhausted,
        Self::AllPassed,
        Self::LeaseFell,
        Self::WindowEnded,
        Self::NextTaken,
        Self::HandedOff,
        Self::ReleaseRequested,
        Self::Extended,
        Self::Repaired,
        Self::RepairGivenUp,
        Self::RepairImpossible,
        Self::AllLeasesGone,
    ];
}

impl fmt::Display for ReservationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        match self.reason() {
            Some(why) => write!(f, " ({})", why.as_str()),
            None => Ok(()),
        }
    }
}
