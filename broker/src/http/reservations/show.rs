//! `GET /v1/reservations/{id}`: with its leases, and the history of all of it.

use actix_web::{get, web};
use chrono::{DateTime, Utc};
use market::ids::{LeaseId, ProviderId, ReservationId};
use market::lease::{LeaseEvent, LeaseState};
use market::offer::OfferView;
use serde::Serialize;
use store::leases::Lease;
use store::reservations::Reservation;

use super::ReservationView;
use crate::flow::reserve;
use crate::http::access::ReadReservations;
use crate::http::auth::{InProjects, May};
use crate::http::error::ApiError;
use crate::platform::app::Broker;

/// One thing at one provider that serves a reservation.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct LeaseView {
    /// Its id.
    id: LeaseId,
    /// The line of the quote that prices it.
    #[schema(minimum = 0, maximum = 100_000)]
    line: u32,
    /// Where it runs.
    provider: ProviderId,
    /// The offer as ordered, for all its nodes.
    offer: OfferView,
    /// Nodes ordered.
    #[schema(minimum = 1, maximum = 100_000)]
    nodes: u32,
    /// Where it stands.
    state: LeaseState,
    /// When it was saved, before the provider was asked.
    requested_at: DateTime<Utc>,
    /// When the provider accepted.
    accepted_at: Option<DateTime<Utc>>,
    /// When all its nodes ran.
    up_at: Option<DateTime<Utc>>,
    /// When the tenant got access: use is charged from here on.
    handed_off_at: Option<DateTime<Utc>>,
    /// Up to when its use is charged.
    metered_to: Option<DateTime<Utc>>,
    /// When the provider reported that it is gone.
    gone_at: Option<DateTime<Utc>>,
    /// Since when its provider does not show it, though nothing proves that it is gone: it is charged by the
    /// use that is seen, and not replaced.
    missing_since: Option<DateTime<Utc>>,
    /// The event by which it failed or ended.
    #[schema(value_type = Option<String>)]
    fall_reason: Option<LeaseEvent>,
    /// How it failed or ended, in our words.
    fall_note: Option<String>,
    /// The failed lease that it replaces.
    replaces: Option<LeaseId>,
    /// The lease that replaces it.
    replaced_by: Option<LeaseId>,
}

impl LeaseView {
    fn of(lease: Lease) -> Result<Self, ApiError> {
        Ok(Self {
            id: lease.id,
            line: lease.line,
            provider: lease.offer.provider.clone(),
            offer: lease
                .offer
                .view(lease.nodes)
                .map_err(|error| ApiError::broken(&error))?,
            nodes: lease.nodes,
            state: lease.state,
            requested_at: lease.requested_at,
            accepted_at: lease.accepted_at,
            up_at: lease.up_at,
            handed_off_at: lease.handed_off_at,
            metered_to: lease.metered_to,
            gone_at: lease.gone_at,
            missing_since: (lease.missing.map(|missing| missing.since))
                .filter(|_| lease.state.is_accepted()),
            fall_reason: lease.fall_reason,
            fall_note: lease
                .fall_reason
                .and_then(|event| fall_words(event, lease.fall_note)),
            replaces: lease.replaces,
            replaced_by: lease.replaced_by,
        })
    }
}

/// The text about a failure for the tenant. A provider's own words are for the log: they may name other
/// machines and our account there.
fn fall_words(event: LeaseEvent, note: Option<String>) -> Option<String> {
    use LeaseEvent as E;
    let ours = match event {
        E::Failed | E::TimedOut | E::Mismatched | E::Unwanted => return note,
        E::Refused => "the provider refused the order",
        E::NotFound => "the provider knows nothing of the order",
        E::BootFailed => "it did not come up at the provider",
        E::NoCapacity => "the provider accepted the order and then had no machine for it",
        E::Preempted => "the provider took the spot machine back",
        E::Lost => "the provider ended it or lost it",
        E::Vanished => "the provider has it no more",
        E::Accepted
        | E::Unknown
        | E::NodesUp
        | E::Passed
        | E::HandedOff
        | E::ReleaseRequested
        | E::ProviderSaysGone => return None,
    };
    Some(ours.to_owned())
}

/// A moment in the life of a reservation or of one of its leases.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
pub(crate) struct HistoryEntry {
    /// When.
    at: DateTime<Utc>,
    /// The event: `held`, `confirmed`, `active`, `closed` of the reservation; `requested`, `accepted`, `up`,
    /// `handed_off`, `gone` of a lease.
    what: String,
    /// Which lease; `null` for the reservation itself.
    lease_id: Option<LeaseId>,
}

/// A reservation, its leases and its history.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct ReservationDetail {
    /// The reservation.
    #[serde(flatten)]
    reservation: ReservationView,
    /// The open reservations that start when it ends.
    #[schema(max_items = 16)]
    followed_by: Vec<ReservationId>,
    /// Its leases in the order of their making, failed ones too.
    leases: Vec<LeaseView>,
    /// Its events, the earliest first.
    history: Vec<HistoryEntry>,
}

/// One reservation.
#[utoipa::path(
    tag = "reservations",
    params(("id" = ReservationId, Path, description = "The reservation")),
    responses((status = 200, description = "The reservation", body = ReservationDetail))
)]
#[get("/v1/reservations/{id}")]
pub(crate) async fn show_reservation(
    broker: web::Data<Broker>,
    who: May<ReadReservations, InProjects>,
    id: web::Path<ReservationId>,
) -> Result<web::Json<ReservationDetail>, ApiError> {
    let row = reserve::find(&broker, &who.reach(), *id).await?;
    let leases = broker
        .store()
        .leases()
        .of(who.tenant)
        .of_reservation(*id)
        .await?;
    let mine = broker.store().reservations().of(who.tenant);
    Ok(web::Json(ReservationDetail {
        reservation: ReservationView::from(&row),
        followed_by: mine.followers_of(*id).await?,
        history: history(&row, &leases),
        leases: leases
            .into_iter()
            .map(LeaseView::of)
            .collect::<Result<_, _>>()?,
    }))
}

fn history(row: &Reservation, leases: &[Lease]) -> Vec<HistoryEntry> {
    let of_reservation = [
        ("held", Some(row.created_at)),
        ("confirmed", row.confirmed_at),
        ("active", row.active_at),
        ("closed", row.closed_at),
    ]
    .map(|(what, at)| (what, at, None));
    let of_leases = leases.iter().flat_map(|lease| {
        [
            ("requested", Some(lease.requested_at)),
            ("accepted", lease.accepted_at),
            ("up", lease.up_at),
            ("handed_off", lease.handed_off_at),
            ("gone", lease.gone_at),
        ]
        .map(|(what, at)| (what, at, Some(lease.id)))
    });
    let mut entries: Vec<HistoryEntry> = of_reservation
        .into_iter()
        .chain(of_leases)
        .filter_map(|(what, at, lease_id)| {
            Some(HistoryEntry {
                at: at?,
                what: what.to_owned(),
                lease_id,
            })
        })
        .collect();
    // Stable: events of the same moment stay in the order of life.
    entries.sort_by_key(|entry| entry.at);
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_reads_our_words_about_a_fall_and_never_a_providers() {
        let told = |event| fall_words(event, Some("canary".to_owned()));
        for event in [
            LeaseEvent::Refused,
            LeaseEvent::NotFound,
            LeaseEvent::BootFailed,
            LeaseEvent::NoCapacity,
            LeaseEvent::Preempted,
            LeaseEvent::Lost,
            LeaseEvent::Vanished,
        ] {
            let words = told(event).expect("words");
            assert!(!words.contains("canary") && !words.is_empty(), "{words}");
            assert_eq!(fall_words(event, None), Some(words));
        }
        for event in [
            LeaseEvent::Failed,
            LeaseEvent::TimedOut,
            LeaseEvent::Mismatched,
            LeaseEvent::Unwanted,
        ] {
            assert_eq!(told(event).as_deref(), Some("canary"));
            assert_eq!(fall_words(event, None), None);
        }
        assert_eq!(told(LeaseEvent::ReleaseRequested), None);
    }
}
