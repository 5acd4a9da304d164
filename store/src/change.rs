//! What a worker's round leads to. [`Work::apply`](crate::work::Work::apply) writes it, whole or
//! not at all.

use chrono::{DateTime, Utc};
use market::ids::{LeaseId, VerificationId};
use market::lease::{LeaseEvent, LeaseState};
use market::ledger::Transaction;
use market::money::Money;
use market::offer::Offer;
use market::order::{ProviderLeaseId, ProviderNode};
use market::reservation::ReservationState;
use market::usage::Charge;

use crate::leases::Missing;
use crate::verifications::{NewVerification, VerificationState};

/// What a worker's round leads to. The default changes nothing and gives the claim back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    /// The reservation's own step, if it makes one.
    pub reservation: Option<ReservationMove>,
    /// What becomes of the end of the window.
    pub window_end: WindowEnd,
    /// What went wrong in this round; `None` when nothing did.
    pub last_error: Option<String>,
    /// When a worker should look next; `None` waits for a nudge. If somebody nudged meanwhile, it
    /// is at once.
    pub due_at: Option<DateTime<Utc>>,
    /// Keep the claim, to go on with this reservation at once.
    pub keep_claim: bool,
    /// Leases that existed before.
    pub lease_updates: Vec<LeaseUpdate>,
    /// Leases to save before their orders are sent. The stock is checked for what they take
    /// beyond the holds that are released with them.
    pub new_leases: Vec<NewLease>,
    /// What was set aside is so no more: leases took its place, or nobody needs it.
    pub holds_released: bool,
    /// Verifications to open.
    pub verifications: Vec<NewVerification>,
    /// Verifications that are over, and how they ended.
    pub closed_verifications: Vec<(VerificationId, VerificationState)>,
    /// How orders went.
    pub attempts: Vec<NewAttempt>,
    /// Use that is charged.
    pub charges: Vec<Charge>,
    /// What is posted to the ledger.
    pub transactions: Vec<Transaction>,
}

/// What becomes of the end of a reservation's window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WindowEnd {
    /// It stays.
    #[default]
    AsIs,
    /// It ends at this time.
    At(DateTime<Utc>),
    /// It ends when the tenant says so.
    Open,
}

/// A reservation's step from one state to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservationMove {
    /// The state that it was computed from.
    pub from: ReservationState,
    /// What `ReservationState::next` gave.
    pub to: ReservationState,
}

/// A lease's step, and what became known of it.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseUpdate {
    /// The lease.
    pub id: LeaseId,
    /// The state that it was computed from.
    pub from: LeaseState,
    /// What `LeaseState::next` gave; the same as `from` to note facts alone.
    pub to: LeaseState,
    /// What became known.
    pub facts: LeaseFacts,
}

/// What became known of a lease; `None` leaves as is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LeaseFacts {
    /// The provider's own id.
    pub provider_lease_id: Option<ProviderLeaseId>,
    /// Its nodes as the provider shows them.
    pub provider_nodes: Option<Vec<ProviderNode>>,
    /// What the provider says that it bills for one node and hour.
    pub price_per_node_hour: Option<Money>,
    /// How often the order was sent, in all.
    pub attempts: Option<u32>,
    /// When the provider accepted the order.
    pub accepted_at: Option<DateTime<Utc>>,
    /// When the provider began to bill.
    pub started_at: Option<DateTime<Utc>>,
    /// When all its nodes ran.
    pub up_at: Option<DateTime<Utc>>,
    /// Until when its nodes must have proved themselves.
    pub verify_deadline: Option<DateTime<Utc>>,
    /// When the tenant got access.
    pub handed_off_at: Option<DateTime<Utc>>,
    /// Up to when its use is charged.
    pub metered_to: Option<DateTime<Utc>>,
    /// When the provider accepted the release.
    pub release_accepted_at: Option<DateTime<Utc>>,
    /// When the provider said that it is no more.
    pub gone_at: Option<DateTime<Utc>>,
    /// The event by which it fell.
    pub fall_reason: Option<LeaseEvent>,
    /// How it fell, in words.
    pub fall_note: Option<String>,
    /// Whether its fleet goes on without it from now on.
    pub given_up: bool,
    /// What the provider's lists say of one that it does not show; `Some(None)` when it shows it.
    pub missing: Option<Option<Missing>>,
    /// The credential with which it was shown, as a mark.
    pub seen_credential: Option<String>,
}

/// A lease to save in `Requested`, before its order is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct NewLease {
    /// Its id, from which the mark on the machine follows.
    pub id: LeaseId,
    /// The line of the quote that prices it.
    pub line: u32,
    /// What is ordered.
    pub offer: Offer,
    /// How many nodes.
    pub nodes: u32,
    /// The number of its first node within the reservation.
    pub node_base: u32,
    /// The fallen lease that it stands in for; that one's `replaced_by` is set to this.
    pub replaces: Option<LeaseId>,
}

/// How an order went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAttempt {
    /// The lease that was ordered.
    pub lease_id: LeaseId,
    /// What came of it.
    pub outcome: LeaseEvent,
    /// In words.
    pub note: Option<String>,
    /// When.
    pub at: DateTime<Utc>,
}
