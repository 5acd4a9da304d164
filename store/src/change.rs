//! The result of a worker's round. [`Work::apply`](crate::work::Work::apply) writes all of it, or nothing.

use chrono::{DateTime, Utc};
use market::event::EventType;
use market::ids::{LeaseId, VerificationId};
use market::lease::{LeaseEvent, LeaseState};
use market::ledger::Transaction;
use market::money::Money;
use market::offer::Offer;
use market::order::{ProviderLeaseId, ProviderNode};
use market::reservation::ReservationState;
use market::usage::Charge;

use crate::leases::Missing;
use crate::reservations::Notices;
use crate::verifications::{NewVerification, VerificationState};

/// The result of a worker's round. The default changes nothing and releases the claim.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    /// The reservation's own step, if it makes one.
    pub reservation: Option<ReservationMove>,
    /// The change of the window's end.
    pub window_end: WindowEnd,
    /// Further events of the reservation.
    pub events: Vec<ReservationNotice>,
    /// The notices of it that its tenant got by now; `None` leaves them.
    pub notices: Option<Notices>,
    /// The error of this round; `None` when there was none.
    pub last_error: Option<String>,
    /// When a worker should look next; `None` waits for a nudge. If someone nudged meanwhile, it is at once.
    pub due_at: Option<DateTime<Utc>>,
    /// Keep the claim, to continue with this reservation at once.
    pub keep_claim: bool,
    /// Updates of existing leases.
    pub lease_updates: Vec<LeaseUpdate>,
    /// Leases to save before their orders are sent. The stock is checked for the nodes that they take beyond
    /// the holds that are released with them.
    pub new_leases: Vec<NewLease>,
    /// The holds are released: leases replaced them, or nobody needs them.
    pub holds_released: bool,
    /// Verifications to open.
    pub verifications: Vec<NewVerification>,
    /// Verifications that are over, and how they ended.
    pub closed_verifications: Vec<(VerificationId, VerificationState)>,
    /// Results of orders.
    pub attempts: Vec<NewAttempt>,
    /// Charges for usage.
    pub charges: Vec<Charge>,
    /// Transactions to post to the ledger.
    pub transactions: Vec<Transaction>,
}

/// An event of a reservation beside those of its steps.
#[derive(Debug, Clone, PartialEq)]
pub struct ReservationNotice {
    /// The kind of event.
    pub kind: EventType,
    /// Its details, by their names.
    pub details: Vec<(&'static str, serde_json::Value)>,
}

/// A change of a reservation's window end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WindowEnd {
    /// It stays.
    #[default]
    AsIs,
    /// It ends at this time.
    At(DateTime<Utc>),
    /// It ends when the tenant ends it.
    Open,
}

/// A reservation's step from one state to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservationMove {
    /// The state that it was computed from.
    pub from: ReservationState,
    /// The result of `ReservationState::next`.
    pub to: ReservationState,
}

/// A lease's step, with new facts about it.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseUpdate {
    /// The lease.
    pub id: LeaseId,
    /// The state that it was computed from.
    pub from: LeaseState,
    /// The result of `LeaseState::next`; the same as `from` to record facts alone.
    pub to: LeaseState,
    /// The new facts.
    pub facts: LeaseFacts,
}

/// New facts about a lease; `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LeaseFacts {
    /// The provider's own id.
    pub provider_lease_id: Option<ProviderLeaseId>,
    /// Its nodes as the provider reports them.
    pub provider_nodes: Option<Vec<ProviderNode>>,
    /// The provider's reported price for one node and hour.
    pub price_per_node_hour: Option<Money>,
    /// How often the order was sent, in all.
    pub attempts: Option<u32>,
    /// When the provider accepted the order.
    pub accepted_at: Option<DateTime<Utc>>,
    /// When the provider began to bill.
    pub started_at: Option<DateTime<Utc>>,
    /// When all its nodes ran.
    pub up_at: Option<DateTime<Utc>>,
    /// The deadline of its nodes' verification.
    pub verify_deadline: Option<DateTime<Utc>>,
    /// When the tenant got access.
    pub handed_off_at: Option<DateTime<Utc>>,
    /// Up to when its use is charged.
    pub metered_to: Option<DateTime<Utc>>,
    /// When the provider accepted the release.
    pub release_accepted_at: Option<DateTime<Utc>>,
    /// When the provider reported that it is gone.
    pub gone_at: Option<DateTime<Utc>>,
    /// The event by which it failed.
    pub fall_reason: Option<LeaseEvent>,
    /// The failure in words.
    pub fall_note: Option<String>,
    /// Whether its fleet continues without it from now on.
    pub given_up: bool,
    /// How the provider's lists show a lease that is missing; `Some(None)` when it is listed.
    pub missing: Option<Option<Missing>>,
    /// The mark of the credential that last listed it.
    pub seen_credential: Option<String>,
}

/// A lease to save in `Requested`, before its order is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct NewLease {
    /// Its id, from which the mark on the machine is derived.
    pub id: LeaseId,
    /// The line of the quote that prices it.
    pub line: u32,
    /// The offer to order.
    pub offer: Offer,
    /// How many nodes.
    pub nodes: u32,
    /// The number of its first node within the reservation.
    pub node_base: u32,
    /// The failed lease that it replaces; that one's `replaced_by` is set to this.
    pub replaces: Option<LeaseId>,
}

/// The result of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAttempt {
    /// The lease that was ordered.
    pub lease_id: LeaseId,
    /// The outcome.
    pub outcome: LeaseEvent,
    /// The outcome in words.
    pub note: Option<String>,
    /// When.
    pub at: DateTime<Utc>,
}
