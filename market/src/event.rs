//! Events: what happened to a tenant's things, in order.
//!
//! An event is written in the transaction of the change that it reports, so there is never one without the
//! other. The same JSON goes into lists, streams and webhooks.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};

use crate::ids::{EventId, ReservationId};
use crate::lease::{LeaseEvent, LeaseState};
use crate::reservation::ReservationState;

/// A word that names no event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no event; there are {known}", known = words())]
pub struct UnknownEventType(pub String);

fn words() -> String {
    EventType::ALL.map(EventType::as_str).join(", ")
}

macro_rules! event_types {
    ($($(#[$doc:meta])+ $variant:ident = $word:literal,)+) => {
        /// The type of an event: a closed set of words, dotted from the general to the particular.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum EventType {
            $($(#[$doc])+ $variant,)+
        }

        impl EventType {
            /// Every kind.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// The word on the wire and in the database: at most 40 characters.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}

event_types! {
    /// Capacity was set aside.
    ReservationHeld = "reservation.held",
    /// The tenant confirmed a later start; it is ordered in time.
    ReservationScheduled = "reservation.scheduled",
    /// The tenant confirmed the hold, or a scheduled start is being ordered.
    ReservationConfirmed = "reservation.confirmed",
    /// Machines are being ordered and verified.
    ReservationProvisioning = "reservation.provisioning",
    /// A lease failed before the hand-off; the next candidate is being taken.
    ReservationReplacing = "reservation.replacing",
    /// Every lease passed; access is being delivered.
    ReservationHandingOff = "reservation.handing_off",
    /// The tenant has it.
    ReservationActive = "reservation.active",
    /// A lease failed after the hand-off; it is being replaced.
    ReservationRepairing = "reservation.repairing",
    /// Its leases are being ended.
    ReservationReleasing = "reservation.releasing",
    /// It is closed, and every machine is proved gone.
    ReservationClosed = "reservation.closed",
    /// The end of the window was moved to a later time.
    ReservationExtended = "reservation.extended",
    /// A scheduled start was moved, because the run before it ends at another time.
    ReservationStartMoved = "reservation.start_moved",
    /// A scheduled start is due and cannot be ordered yet; `held_back_by` is `budget`, `limit` or `no_capacity`.
    /// The broker tries again until `window_end`.
    ReservationStartHeldBack = "reservation.start_held_back",
    /// The run that a fleet follows failed or was cancelled. The fleet starts at its date, in an hour at the
    /// earliest where that is allowed; cancelling it is free.
    ReservationRunFailed = "reservation.run_failed",
    /// It starts within an hour, and again within ten minutes; `minutes_left` says when.
    ReservationStartsSoon = "reservation.starts_soon",
    /// It ends within an hour, and again within ten minutes; `minutes_left` says when.
    ReservationEndsSoon = "reservation.ends_soon",
    /// The tenant asked for the end before the hand-off.
    ReservationCancelRequested = "reservation.cancel_requested",
    /// The tenant asked for the end.
    ReservationReleaseRequested = "reservation.release_requested",
    /// A lease is saved and its order about to be sent.
    LeaseRequested = "lease.requested",
    /// A lease is no longer wanted while the provider's answer is open.
    LeaseWithdrawn = "lease.withdrawn",
    /// The provider accepted the order; the nodes are coming up.
    LeaseBooting = "lease.booting",
    /// The nodes are up and being verified.
    LeaseVerifying = "lease.verifying",
    /// Every node passed verification.
    LeasePassed = "lease.passed",
    /// The tenant has access.
    LeaseHandedOff = "lease.handed_off",
    /// The broker is asking the provider to end it.
    LeaseReleasing = "lease.releasing",
    /// The provider reports that it is gone.
    LeaseGone = "lease.gone",
    /// The provider refused the order, or accepted it and then had no machine for it.
    LeaseRefused = "lease.refused",
    /// The provider created something other than what was ordered.
    LeaseMismatched = "lease.mismatched",
    /// It was accepted and did not come up.
    LeaseBootFailed = "lease.boot_failed",
    /// It vanished or was taken back.
    LeaseLost = "lease.lost",
    /// The provider does not list it. That is not yet proof that it is gone: until then it is charged by what
    /// is seen of it, and not replaced.
    LeaseMissing = "lease.missing",
    /// The provider lists it again.
    LeaseShown = "lease.shown",
    /// A node failed verification.
    LeaseFailedVerification = "lease.failed_verification",
    /// Verification had no result: a node did not finish it in time, or its evidence was inconclusive.
    LeaseVerificationTimedOut = "lease.verification_timed_out",
    /// A threshold of a budget's cap is spent.
    BudgetThresholdReached = "budget.threshold_reached",
    /// A cap is spent: running leases end when the grace period is over.
    BudgetStopAnnounced = "budget.stop_announced",
    /// A cap is spent and the grace period over: running leases are being ended.
    BudgetStopped = "budget.stopped",
    /// A node in the tenant's hands has not answered for as long as is allowed.
    NodeUnreachable = "node.unreachable",
    /// A node that did not answer answers again.
    NodeReachable = "node.reachable",
    /// The server at a node's address shows an SSH host key that is not the node's.
    NodeHostKeyChanged = "node.host_key_changed",
    /// The tenant reported a node that it has in use.
    NodeReported = "node.reported",
    /// A node that the tenant has in use was re-checked.
    NodeRechecked = "node.rechecked",
    /// A message to try a webhook endpoint with.
    WebhookTest = "webhook.test",
    /// A webhook endpoint was disabled, because it answered 410 or only ever failed.
    WebhookDisabled = "webhook.disabled",
}

impl EventType {
    /// The event when a reservation enters `state`.
    #[must_use]
    pub const fn of_reservation(state: ReservationState) -> Self {
        use ReservationState as S;
        match state {
            S::Held => Self::ReservationHeld,
            S::Scheduled => Self::ReservationScheduled,
            S::Confirmed => Self::ReservationConfirmed,
            S::Provisioning => Self::ReservationProvisioning,
            S::Replacing => Self::ReservationReplacing,
            S::HandingOff => Self::ReservationHandingOff,
            S::Active => Self::ReservationActive,
            S::Repairing => Self::ReservationRepairing,
            S::Releasing(_) => Self::ReservationReleasing,
            S::Closed(_) => Self::ReservationClosed,
        }
    }

    /// The event when a lease enters `state`; `fall` is the failure that ended it, if one did just now.
    #[must_use]
    pub const fn of_lease(state: LeaseState, fall: Option<LeaseEvent>) -> Self {
        use LeaseEvent as E;
        use LeaseState as S;
        match fall {
            Some(E::Refused | E::NotFound | E::NoCapacity) => return Self::LeaseRefused,
            Some(E::Mismatched) => return Self::LeaseMismatched,
            Some(E::BootFailed) => return Self::LeaseBootFailed,
            Some(E::Lost | E::Vanished | E::Preempted) => return Self::LeaseLost,
            Some(E::Failed) => return Self::LeaseFailedVerification,
            Some(E::TimedOut) => return Self::LeaseVerificationTimedOut,
            _ => {}
        }
        match state {
            S::Requested => Self::LeaseRequested,
            S::Withdrawn => Self::LeaseWithdrawn,
            S::Booting => Self::LeaseBooting,
            S::Verifying => Self::LeaseVerifying,
            S::Passed => Self::LeasePassed,
            S::HandedOff => Self::LeaseHandedOff,
            S::Releasing => Self::LeaseReleasing,
            S::Gone => Self::LeaseGone,
        }
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EventType {
    type Err = UnknownEventType;

    fn from_str(word: &str) -> Result<Self, UnknownEventType> {
        Self::ALL
            .into_iter()
            .find(|known| known.as_str() == word)
            .ok_or_else(|| UnknownEventType(word.chars().take(80).collect()))
    }
}

impl Serialize for EventType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for EventType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        word.parse().map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for EventType {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("The type of the event"))
            .enum_values(Some(Self::ALL.map(Self::as_str)))
            .into()
    }
}

impl utoipa::ToSchema for EventType {}

/// Something that happened to a tenant's things.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Event {
    /// Its id: the same in lists, streams and webhooks, however often it is sent.
    pub id: EventId,
    /// Its number among the tenant's events: from 1 on, without gaps, in the order in which the changes took
    /// effect.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub sequence: u64,
    /// The type of the event.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// When.
    pub timestamp: DateTime<Utc>,
    /// The reservation that it is about; `null` when it is about none.
    pub reservation_id: Option<ReservationId>,
    /// The details, by kind: ids, states, reasons, nodes. No secrets, no addresses.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    pub data: serde_json::Value,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_is_one_dotted_word_that_reads_back_and_fits_its_column() {
        let words: BTreeSet<_> = EventType::ALL.map(EventType::as_str).into();
        assert_eq!(words.len(), EventType::ALL.len());
        for kind in EventType::ALL {
            let word = kind.as_str();
            assert_eq!(word.parse(), Ok(kind));
            assert!(word.len() <= 40 && word.contains('.'), "{word}");
            let plain = |c: char| c.is_ascii_lowercase() || matches!(c, '.' | '_');
            assert!(word.chars().all(plain), "{word}");
        }
        let refusal = "reservation".parse::<EventType>().expect_err("no kind");
        assert!(
            refusal.to_string().contains("reservation.held"),
            "{refusal}"
        );
    }

    #[test]
    fn every_state_has_a_word_of_its_own_and_a_fall_tells_how() {
        let kinds: BTreeSet<_> = ReservationState::all()
            .into_iter()
            .map(|state| (EventType::of_reservation(state), state.as_str()))
            .collect();
        assert_eq!(kinds.len(), 10);
        for (kind, state) in kinds {
            assert_eq!(kind.as_str(), format!("reservation.{state}"));
        }
        for state in LeaseState::ALL {
            let kind = EventType::of_lease(state, None);
            assert_eq!(kind.as_str(), format!("lease.{state}"));
        }
        assert_eq!(
            EventType::of_lease(LeaseState::Releasing, Some(LeaseEvent::Failed)),
            EventType::LeaseFailedVerification
        );
        assert_eq!(
            EventType::of_lease(LeaseState::Releasing, Some(LeaseEvent::Unwanted)),
            EventType::LeaseReleasing
        );
    }
}
