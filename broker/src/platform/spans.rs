//! Spans that leave the process, by OpenTelemetry: behind the cargo feature `otel`. Without it the
//! same functions do nothing, and none of its libraries is in the tree. How to use it is in
//! `docs/operating.md`.

// Compiled in every build: the lints, which have the feature, look at it too.
#[cfg_attr(feature = "otel", expect(dead_code, reason = "the other build's"))]
mod off;
#[cfg(feature = "otel")]
mod otlp;

#[cfg(not(feature = "otel"))]
pub(crate) use off::{SERVER, Spans, continue_trace, request_name, traceparent};
#[cfg(feature = "otel")]
pub(crate) use otlp::{SERVER, Spans, continue_trace, request_name, traceparent};
#[cfg(all(test, feature = "otel"))]
pub(crate) use otlp::{exported, provider};
