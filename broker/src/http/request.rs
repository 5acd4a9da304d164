//! The frame of every request: its id, its span in the log, the headers of every answer, and the last step of
//! problem documents.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use actix_web::body::{BodySize, BoxBody, EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Uri;
use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use actix_web::middleware::Next;
use actix_web::web::{self, Bytes};
use actix_web::{Error, HttpMessage as _, HttpRequest};
use rand::Rng as _;
use tracing::field::Empty;
use tracing::{Instrument as _, Span, debug, info_span};

use super::error::{ApiError, PROBLEM_JSON};
use super::unrouted::KnownPaths;
use super::{audit, limits, metrics};
use crate::platform::spans;

#[cfg(all(test, feature = "otel"))]
mod traced;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The longest request id that is taken from a caller.
const MAX_ID: usize = 64;

/// The facts about a request from its first line and headers.
#[derive(Debug, Clone)]
struct RequestFacts {
    /// The id under which the log knows it.
    id: Arc<str>,
    /// The template of the route that it will take; empty for none.
    route: Arc<str>,
}

/// Takes the caller's request id when it is a plain word, else makes one.
fn request_id(request: &ServiceRequest) -> Arc<str> {
    let given = request
        .headers()
        .get(REQUEST_ID)
        .and_then(|value| value.to_str().ok());
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match given {
        Some(id) if !id.is_empty() && id.len() <= MAX_ID && id.chars().all(plain) => Arc::from(id),
        _ => Arc::from(fresh_id()),
    }
}

/// An id that sorts by time. Its random part comes from this thread's generator: to ask the system
/// at each request costs more than all else about the id.
fn fresh_id() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    let id = uuid::Builder::from_unix_timestamp_millis(millis, &rand::rng().random());
    id.into_uuid().simple().to_string()
}

/// The id of the caller's trace for the request (W3C Trace Context).
fn trace_id(request: &ServiceRequest) -> Option<String> {
    let header = request.headers().get(TRACEPARENT)?.to_str().ok()?;
    let mut parts = header.split('-');
    let (version, trace, parent, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_zero = |text: &str| text.bytes().all(|b| b == b'0');
    // Later versions may have more parts; the first has these four and no more.
    let is_whole = version != "00" || parts.next().is_none();
    let is_good = hex(version, 2)
        && version != "ff"
        && hex(trace, 32)
        && hex(parent, 16)
        && hex(flags, 2)
        && !is_zero(trace)
        && !is_zero(parent);
    (is_good && is_whole).then(|| trace.to_owned())
}

/// The id under which the log knows a request.
pub(super) fn id_of(request: &HttpRequest) -> Option<String> {
    let extensions = request.extensions();
    extensions
        .get::<RequestFacts>()
        .map(|known| known.id.to_string())
}

/// The template of the route that a request takes; empty for none.
pub(super) fn route_of(request: &HttpRequest) -> Arc<str> {
    let extensions = request.extensions();
    let known = extensions.get::<RequestFacts>();
    known.map_or_else(Arc::default, |known| Arc::clone(&known.route))
}

/// The one layer around every route. It gives the request its id and its span, counts it against the caller's
/// quota, and writes the audit log. It turns every refusal into a problem document that names the request,
/// and gives every answer its headers; it counts and times the request.
///
/// All of it is one layer, for each takes its part of the time of a quick answer.
pub(super) async fn surround<B: MessageBody + 'static>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<Bytes, InSpan>>, Error> {
    let began = Instant::now();
    take_new_name(&mut request);
    let known = RequestFacts {
        id: request_id(&request),
        route: route(&request),
    };
    let method = metrics::word(request.method());
    let span = span(&request, &known);
    request.extensions_mut().insert(known.clone());
    let outcome = within_quota(request, next).instrument(span.clone()).await;
    let status = match &outcome {
        Ok(response) => response.status(),
        Err(error) => error.as_response_error().status_code(),
    };
    span.record("http.status", status.as_u16());
    debug!(parent: &span, "Answered {status}");
    metrics::answered(method, &known.route, status, began.elapsed());
    let response = outcome?;
    let problem = problem_of(&response, &known.id);
    let is_problem = problem.is_some();
    let mut response = response.map_body(|_, body| match problem {
        Some(problem) => EitherBody::left(Bytes::from(problem)),
        None => match body {
            EitherBody::Left { body } => in_span(body, span),
            EitherBody::Right { body } => in_span(body, span),
        },
    });
    let headers = response.headers_mut();
    if is_problem {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    }
    // A plain word is always a valid header.
    if let Ok(value) = HeaderValue::from_str(&known.id) {
        headers.insert(REQUEST_ID, value);
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    Ok(response)
}

/// Paths that had another name before, which is still accepted.
const RENAMED: [(&str, &str); 1] = [("/v1/limits", "/v1/spending-limits")];

/// Routes a call to an old path to the new one.
fn take_new_name(request: &mut ServiceRequest) {
    let Some((_, new)) = RENAMED.iter().find(|(old, _)| *old == request.path()) else {
        return;
    };
    let query = request.uri().query().map(|query| format!("?{query}"));
    let target = format!("{new}{}", query.unwrap_or_default());
    // A path of ours with a query that was read already is a URI.
    if let Ok(uri) = target.parse::<Uri>() {
        request.match_info_mut().get_mut().update(&uri);
        request.head_mut().uri = uri;
    }
}

/// Has the route answer a request that is within its caller's quota.
async fn within_quota<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let mut counted = limits::count(&request).await;
    let mut response = match counted.as_ref().and_then(limits::Counted::refusal) {
        Some(refusal) => request.error_response(refusal).map_into_right_body(),
        None => {
            let response = next.call(request).await?;
            audit::watch(&response).await;
            let stranger = limits::count_stranger(&response).await;
            match stranger.as_ref().and_then(limits::Counted::refusal) {
                Some(refusal) => {
                    counted = stranger;
                    response.error_response(refusal).map_into_right_body()
                }
                None => response.map_into_left_body(),
            }
        }
    };
    if let Some(counted) = counted {
        counted.tell(response.headers_mut());
    }
    Ok(response)
}

/// A body as it is, or one that is made while it is sent within the span.
fn in_span<B: MessageBody + 'static>(body: B, span: Span) -> EitherBody<Bytes, InSpan> {
    match body.try_into_bytes() {
        Ok(bytes) => EitherBody::left(bytes),
        Err(body) => {
            let body = BoxBody::new(body);
            EitherBody::right(InSpan { body, span })
        }
    }
}

/// The span of every line in a request's log.
///
/// Credentials, query strings and the caller's address stay out.
fn span(request: &ServiceRequest, known: &RequestFacts) -> Span {
    let span = info_span!(
        "request",
        request.id = %known.id,
        trace.id = trace_id(request),
        http.method = %request.method(),
        http.route = %known.route,
        http.status = Empty,
        otel.kind = spans::SERVER,
        otel.name = spans::request_name(request),
    );
    spans::continue_trace(&span, request);
    span
}

/// The template of the route that a request will take; empty for none.
fn route(request: &ServiceRequest) -> Arc<str> {
    let known = request.app_data::<web::Data<KnownPaths>>();
    let written_out = known.and_then(|known| known.written_out(request.path()));
    written_out.unwrap_or_else(|| Arc::from(request.match_pattern().unwrap_or_default()))
}

/// A body that is made while it is sent, which happens within the span of its request.
pub(super) struct InSpan {
    body: BoxBody,
    span: Span,
}

impl MessageBody for InSpan {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let Self { body, span } = self.get_mut();
        span.in_scope(|| body.as_pin_mut().poll_next(context))
    }
}

/// The problem document that a refusal leaves as; `None` for any other answer, and for one that a
/// handler wrote itself.
fn problem_of<B>(response: &ServiceResponse<B>, id: &str) -> Option<String> {
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return None;
    }
    let said = response
        .response()
        .error()
        .and_then(|error| error.as_error::<ApiError>());
    let problem = match said {
        Some(error) => error.problem(Some(id)),
        // Nothing but ours has this type.
        None if response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind == PROBLEM_JSON) =>
        {
            return None;
        }
        None if status.is_client_error() => {
            ApiError::invalid_parameter(format!("the request was refused with {status}"))
                .problem(Some(id))
        }
        None => ApiError::internal("the request could not be done; try again").problem(Some(id)),
    };
    Some(problem.to_json())
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn trace_of(header: &str) -> Option<String> {
        trace_id(
            &TestRequest::default()
                .insert_header((TRACEPARENT, header))
                .to_srv_request(),
        )
    }

    #[test]
    fn the_trace_of_a_well_formed_parent_is_taken() {
        for header in [
            format!("00-{TRACE}-00f067aa0ba902b7-01"),
            format!("cc-{TRACE}-00f067aa0ba902b7-00-what-comes-later"),
        ] {
            assert_eq!(trace_of(&header).as_deref(), Some(TRACE), "{header}");
        }
    }

    #[test]
    fn what_is_no_parent_is_none() {
        for header in [
            "".to_owned(),
            format!("00-{TRACE}-00f067aa0ba902b7"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            "00-\u{7f}-x-01".to_owned().replace('\u{7f}', "canary"),
        ] {
            assert_eq!(trace_of(&header), None, "{header}");
        }
    }

    #[test]
    fn a_request_id_is_taken_when_it_is_a_plain_word_and_made_otherwise() {
        let id_for = |given: &str| {
            let request = TestRequest::default().insert_header((REQUEST_ID, given));
            request_id(&request.to_srv_request()).to_string()
        };
        assert_eq!(id_for("checkout-42.a_b"), "checkout-42.a_b");
        for unfit in ["", "two words", "line=1;x", &"a".repeat(65)] {
            let made = id_for(unfit);
            assert!(made != unfit && made.len() == 32, "{unfit}: {made}");
        }
    }
}
