//! Spans that leave the process, by OpenTelemetry: behind the cargo feature `otel`. Without it the
//! same functions do nothing, and none of its libraries is in the tree. How to use it is in
//! `docs/operating.md`.

#[cfg(not(feature = "otel"))]
mod off;
#[cfg(feature = "otel")]
mod otlp;

#[cfg(not(feature = "otel"))]
pub(crate) use off::{SERVER, Spans, continue_trace, request_name, traceparent};
#[cfg(feature = "otel")]
pub(crate) use otlp::{SERVER, Spans, continue_trace, request_name, traceparent};
#[cfg(all(test, feature = "otel"))]
pub(crate) use otlp::{exported, provider};
