//! Events as they happen: Server-Sent Events (WHATWG HTML, "Server-sent events").
//!
//! A stream reads the database: on a wake-up of this process, and each second for events that other replicas
//! wrote. The last event sent is the cursor; a client that reconnects with it loses nothing and gets nothing
//! twice.

use std::time::Duration;

use actix_web::http::header::{CONTENT_ENCODING, HeaderName};
use actix_web::web::Bytes;
use actix_web::{FromRequest as _, HttpRequest, HttpResponse};
use chrono::{DateTime, TimeDelta, Utc};
use futures_util::stream;
use market::event::Event;
use market::ids::TenantId;
use store::StoreError;
use store::events::EventFilter;
use tokio::time::Instant;
use tracing::warn;

use super::MOST;
use crate::http::access::ReadEvents;
use crate::http::auth::{self, InProjects, May};
use crate::http::error::ApiError;
use crate::platform::app::Broker;
use crate::tenant::event_streams::{Listener, Place, STREAMS_PER_TENANT};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How often the database is read when nobody rings.
const READ_EVERY: Duration = Duration::from_secs(1);
/// How long a stream is silent before it sends a comment as a sign that it is open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often the credential is checked again.
const CHECK_EVERY: TimeDelta = TimeDelta::seconds(15);
/// Events that are read at once.
const BATCH: u64 = 100;

/// The start of every stream: the headers reach the client at once, and it waits two seconds before it
/// reconnects.
const HELLO: &[u8] = b": events\nretry: 2000\n\n";

/// Opens a stream.
///
/// Errors: `too_many_streams`.
pub(super) fn open(
    broker: &Broker,
    tenant: TenantId,
    request: &HttpRequest,
    filter: EventFilter,
) -> Result<HttpResponse, ApiError> {
    let place = Place::take(broker, tenant).ok_or_else(|| {
        ApiError::too_many_streams(format!(
            "this tenant has {STREAMS_PER_TENANT} streams open; close one, or read the list"
        ))
        .retry_after_seconds(5)
    })?;
    let follower = Follower {
        broker: broker.clone(),
        tenant,
        request: request.clone(),
        filter,
        listener: broker.listen_for_events(),
        checked_at: broker.now(),
        silent_since: Instant::now(),
        greeted: false,
        place,
    };
    let parts = stream::unfold(follower, |mut follower| async move {
        let part = follower.next().await?;
        follower.silent_since = Instant::now();
        Some((Ok::<_, actix_web::Error>(part), follower))
    });
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream")
        // Compressed, events would wait until a block is full.
        .insert_header((CONTENT_ENCODING, "identity"))
        .streaming(Box::pin(parts)))
}

/// The number after which a stream is taken up again.
///
/// Errors: `invalid_parameter` for a `Last-Event-ID` that is no number.
pub(super) fn last_event_id(request: &HttpRequest) -> Result<Option<u64>, ApiError> {
    let Some(value) = request.headers().get(LAST_EVENT_ID) else {
        return Ok(None);
    };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    match number.filter(|number| *number <= MOST) {
        Some(number) => Ok(Some(number)),
        None => Err(ApiError::invalid_parameter(
            "`Last-Event-ID` must be the `id` of an event of this stream",
        )),
    }
}

/// A stream as far as it is sent.
struct Follower {
    broker: Broker,
    tenant: TenantId,
    request: HttpRequest,
    filter: EventFilter,
    listener: Listener,
    checked_at: DateTime<Utc>,
    silent_since: Instant,
    greeted: bool,
    place: Place,
}

impl Follower {
    /// The next part of the stream; `None` when it ends.
    async fn next(&mut self) -> Option<Bytes> {
        if !self.greeted {
            self.greeted = true;
            return Some(Bytes::from_static(HELLO));
        }
        loop {
            let stands = self.place.goes_on() && !self.listener.is_closed();
            if !stands || !self.may_still_read().await {
                return None;
            }
            match self.read().await {
                Ok(events) if events.is_empty() => {}
                Ok(events) => return Some(events.iter().map(render).collect::<String>().into()),
                // The client connects again with the last id that it saw.
                Err(error) => {
                    warn!(error = %crate::chain(&error), "A stream of events could not continue");
                    return None;
                }
            }
            tokio::select! {
                () = self.listener.hear() => {}
                () = tokio::time::sleep(READ_EVERY) => {}
                () = tokio::time::sleep_until(self.silent_since + KEEP_ALIVE) => {
                    return Some(Bytes::from_static(b": still here\n\n"));
                }
            }
        }
    }

    /// Whether the credential still stands, which is asked again every so often.
    async fn may_still_read(&mut self) -> bool {
        let now = self.broker.now();
        if now - self.checked_at < CHECK_EVERY {
            return true;
        }
        self.checked_at = now;
        // The caller is kept with the request and would be trusted for good.
        auth::forget_caller(&self.request);
        // With the breadth of the handlers: a key of some projects streams the events that it may list.
        May::<ReadEvents, InProjects>::extract(&self.request)
            .await
            .is_ok()
    }

    /// Reads the events since.
    async fn read(&mut self) -> Result<Vec<Event>, StoreError> {
        let events = self.broker.store().events().of(self.tenant);
        let last = events.last_sequence().await?;
        if last <= self.filter.after {
            return Ok(Vec::new());
        }
        self.filter.up_to = Some(last);
        let found = events.list(&self.filter, BATCH).await?;
        self.filter.after = match found.last() {
            Some(event) if found.len() as u64 == BATCH => event.sequence,
            // Events that the filter leaves out are skipped for good.
            _ => last,
        };
        Ok(found)
    }
}

/// An event on the wire.
fn render(event: &Event) -> String {
    // A plain struct with text keys always serialises, and JSON holds no line breaks of its own.
    let data = serde_json::to_string(event).unwrap_or_default();
    format!(
        "id: {}\nevent: {}\ndata: {data}\n\n",
        event.sequence, event.kind
    )
}
