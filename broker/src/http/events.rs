//! `/v1/events`: events, as a list or as a stream.

mod stream;

use actix_web::http::header::ACCEPT;
use actix_web::{HttpRequest, HttpResponse, get, web};
use market::event::{Event, EventType};
use market::ids::ReservationId;
use serde::{Deserialize, Serialize};
use store::events::EventFilter;

use super::access::ReadEvents;
use super::auth::{InProjects, May, Principal};
use super::error::ApiError;
use super::page::{Cursors, Page, limit};
use super::query::Query;
use crate::flow::reserve;
use crate::platform::app::Broker;

/// The largest number that every JSON reader keeps exact.
const MOST: u64 = (1 << 53) - 1;

/// Which events.
#[derive(Debug, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListEvents {
    /// Only events after the one with this `sequence`; by default from the first one that is kept on. If the
    /// events after it are no longer kept, the answer is 410 `events_pruned`, which names the first one that
    /// is.
    #[serde(skip_serializing_if = "crate::http::page::left_out")]
    #[param(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    since: Option<u64>,
    /// Only these kinds, separated by commas.
    #[param(example = "reservation.active,reservation.closed")]
    types: Option<String>,
    /// The cursor of the page before; it beats `since`.
    #[serde(skip_serializing_if = "crate::http::page::left_out")]
    cursor: Option<String>,
    /// Items of a page.
    #[serde(skip_serializing_if = "crate::http::page::left_out")]
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
}

/// Where a stream continues, as the document shows it.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(
    dead_code,
    reason = "it is read by `last_event_id`; the struct is its description"
)]
pub(crate) struct LastEventId {
    /// For a stream: the `id` of the last event that was seen; it beats `since`.
    #[serde(rename = "Last-Event-ID")]
    #[param(value_type = String, required = false, pattern = "^[0-9]{1,16}$")]
    last_event_id: Option<String>,
}

/// Lists the tenant's events, the oldest first, or streams them with `Accept: text/event-stream`.
///
/// A stream sends each event as `id` (its `sequence`), `event` (its type) and `data` (the event as
/// in the list), a comment while nothing happens, and ends with the life of the credential.
#[utoipa::path(
    tag = "events",
    params(ListEvents, LastEventId),
    responses((
        status = 200, description = "A page of events, or a live stream",
        content((Page<Event> = "application/json"), (String = "text/event-stream")),
    ))
)]
#[get("/v1/events")]
pub(crate) async fn list_events(
    broker: web::Data<Broker>,
    who: May<ReadEvents, InProjects>,
    request: HttpRequest,
    query: Query<ListEvents>,
) -> Result<HttpResponse, ApiError> {
    answer(&broker, &who, &request, &query, None).await
}

/// Lists or streams the events of a reservation, as `GET /v1/events` does.
#[utoipa::path(
    tag = "events",
    params(
        ("id" = ReservationId, Path, description = "The reservation"),
        ListEvents, LastEventId,
    ),
    responses((
        status = 200, description = "A page of events, or a live stream",
        content((Page<Event> = "application/json"), (String = "text/event-stream")),
    ))
)]
#[get("/v1/reservations/{id}/events")]
pub(crate) async fn reservation_events(
    broker: web::Data<Broker>,
    who: May<ReadEvents, InProjects>,
    request: HttpRequest,
    id: web::Path<ReservationId>,
    query: Query<ListEvents>,
) -> Result<HttpResponse, ApiError> {
    reserve::find(&broker, &who.reach(), *id).await?;
    answer(&broker, &who, &request, &query, Some(*id)).await
}

async fn answer(
    broker: &Broker,
    who: &Principal,
    request: &HttpRequest,
    query: &ListEvents,
    reservation: Option<ReservationId>,
) -> Result<HttpResponse, ApiError> {
    let limit = limit(query.limit)?;
    let kinds = kinds(query.types.as_deref())?;
    let cursors = Cursors::of(broker.keys(), "events", &(who.tenant, reservation, query));
    let mut since = query.since;
    if let Some(cursor) = &query.cursor {
        since = Some(cursors.open(cursor)?);
    }
    let after = since.unwrap_or(0);
    if after > MOST {
        let said = format!("`since` must be at most {MOST}");
        return Err(ApiError::invalid_parameter(said));
    }
    // Read for a list too: a bad value is refused on every path.
    let resumed = stream::last_event_id(request)?;
    let mut filter = EventFilter {
        after,
        up_to: None,
        reservation,
        kinds,
        within: who.grant.projects.clone(),
    };
    let streams = wants_stream(request);
    if streams {
        since = resumed.or(since);
        filter.after = since.unwrap_or(0);
    }
    let events = broker.store().events().of(who.tenant);
    if let Some(since) = since {
        check_kept(since, events.horizon().await?)?;
    }
    if streams {
        return stream::open(broker, who.tenant, request, filter);
    }
    let found = events.list(&filter, limit as u64 + 1).await?;
    Ok(HttpResponse::Ok().json(cursors.page(found, limit, |event| event.sequence)))
}

/// Refuses to continue after an event whose next ones are no longer kept: the gap would go unnoticed.
///
/// Errors: `events_pruned`.
fn check_kept(since: u64, horizon: u64) -> Result<(), ApiError> {
    if since >= horizon {
        return Ok(());
    }
    Err(ApiError::events_pruned(format!(
        "events up to number {horizon} are no longer kept; read the affected resources again, then continue with `since={horizon}`"
    )))
}

/// Reads the filter by kinds.
fn kinds(words: Option<&str>) -> Result<Vec<EventType>, ApiError> {
    let words = words.into_iter().flat_map(|words| words.split(','));
    words
        .map(|word| word.parse::<EventType>())
        .collect::<Result<_, _>>()
        .map_err(|error| ApiError::invalid_parameter(format!("`types`: {error}")))
}

/// Whether the caller asks for a stream by name: one that accepts anything gets the list.
fn wants_stream(request: &HttpRequest) -> bool {
    let accepted = request.headers().get_all(ACCEPT);
    accepted
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|range| range.split(';').next())
        .any(|range| range.trim().eq_ignore_ascii_case("text/event-stream"))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn a_stream_is_only_for_those_who_ask_for_it_by_name() {
        let asks = |accept: &str| {
            let request = TestRequest::get().insert_header((ACCEPT, accept));
            wants_stream(&request.to_http_request())
        };
        assert!(asks("text/event-stream"));
        assert!(asks("application/json, Text/Event-Stream;q=0.9"));
        for other in ["*/*", "text/*", "application/json", ""] {
            assert!(!asks(other), "{other}");
        }
    }

    #[test]
    fn whoever_missed_what_is_no_longer_kept_is_told_where_to_go_on() {
        assert!(check_kept(0, 0).is_ok() && check_kept(7, 7).is_ok());
        let refusal = check_kept(6, 7).expect_err("number 7 is gone");
        assert_eq!(refusal.code(), "events_pruned");
        assert!(refusal.to_string().contains("since=7"), "{refusal}");
    }

    #[test]
    fn an_unknown_kind_is_named_beside_those_there_are() {
        assert_eq!(kinds(None).expect("all"), []);
        let refusal = kinds(Some("lease.gone,lease.bored")).expect_err("no kind");
        assert_eq!(refusal.code(), "invalid_parameter");
        let said = refusal.to_string();
        assert!(said.contains("lease.bored") && said.contains("reservation.held"));
    }
}
