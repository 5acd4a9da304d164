//! The findings of one look at a lease, before they are saved.

use adapters::AdapterError;
use chrono::{DateTime, TimeDelta, Utc};
use market::lease::LeaseEvent;
use market::money::Money;
use market::order::{ProviderLeaseId, ProviderNode};
use store::leases::Missing;

use crate::platform::provider_set::ProviderLink;

/// The findings of one look at a lease.
#[derive(Debug, Clone, Default)]
pub(super) struct Learned {
    /// Its event, if there was one.
    pub(super) event: Option<LeaseEvent>,
    /// The cause in words; kept with a lease that failed.
    pub(super) note: Option<String>,
    /// The provider's id of the thing, once known.
    pub(super) provider_lease_id: Option<ProviderLeaseId>,
    /// When the provider began to bill it.
    pub(super) started_at: Option<DateTime<Utc>>,
    /// The provider's stated price for one node and hour.
    pub(super) price_per_node_hour: Option<Money>,
    /// Its nodes, once they run.
    pub(super) provider_nodes: Option<Vec<ProviderNode>>,
    /// When the provider accepted the release: it bills no further.
    pub(super) release_accepted_at: Option<DateTime<Utc>>,
    /// Whether the provider was seen to run it just now: its use up to now is proven.
    pub(super) alive: bool,
    /// The end of its use according to its own node, for a lease that failed.
    pub(super) used_until: Option<DateTime<Utc>>,
    /// With which credential the provider showed it, as a mark.
    pub(super) shown_with: Option<String>,
    /// The evidence of the provider's lists about a lease that it did not show.
    pub(super) missing: Option<Missing>,
    /// Whether the order can be sent again as if it had never been.
    pub(super) not_sent: bool,
    /// Whether the provider gave no answer.
    pub(super) silent: bool,
    /// When to look again.
    pub(super) look_in: TimeDelta,
}

/// Whether an error means that no answer came.
pub(super) fn is_silence(error: &AdapterError) -> bool {
    matches!(
        error,
        AdapterError::Unreachable { .. } | AdapterError::OutcomeUnknown { .. }
    )
}

impl Learned {
    /// Nothing happened; look again after a while.
    pub(super) fn nothing(look_in: TimeDelta) -> Self {
        Self {
            look_in,
            ..Self::default()
        }
    }

    /// An event occurred; the lease is looked at again at once.
    pub(super) fn event(event: LeaseEvent) -> Self {
        Self {
            event: Some(event),
            ..Self::default()
        }
    }

    /// The provider showed it.
    pub(super) fn shown_by(self, link: &ProviderLink) -> Self {
        Self {
            shown_with: Some(link.http.credential_mark()),
            ..self
        }
    }

    /// Something happened that a person will want to read about.
    pub(super) fn because(event: LeaseEvent, note: impl Into<String>) -> Self {
        Self {
            note: Some(note.into()),
            ..Self::event(event)
        }
    }
}
