//! A build that exports nothing.

use actix_web::dev::ServiceRequest;
use tracing::Span;

use crate::platform::logging;

/// The kind of a request's span: no field of it in this build.
pub(crate) const SERVER: Option<&str> = None;

/// The export of spans.
pub(crate) struct Spans;

impl Spans {
    /// Logs to stderr from now on.
    pub(crate) fn log_and_export() -> Self {
        logging::to_stderr();
        Self
    }

    /// Nothing is left to hand over.
    pub(crate) async fn end(self) {}
}

/// The name of a request's span: no field of it in this build.
pub(crate) fn request_name(_: &ServiceRequest) -> Option<String> {
    None
}

/// Leaves the span as it is.
pub(crate) fn continue_trace(_: &Span, _: &ServiceRequest) {}

/// The trace header for a call to a provider: none.
pub(crate) fn traceparent() -> Option<String> {
    None
}
