//! A build that hands its spans to a collector, by OTLP over HTTP, where the environment names one
//! (`OTEL_EXPORTER_OTLP_ENDPOINT`). All other variables of OpenTelemetry are read by its libraries.

use std::env;

use actix_web::dev::ServiceRequest;
use actix_web::http::header::HeaderMap;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::runtime;
use opentelemetry_sdk::trace::SdkTracerProvider;
use opentelemetry_sdk::trace::span_processor_with_async_runtime::BatchSpanProcessor;
use tracing::{Level, Metadata, Span, Subscriber, warn};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::platform::logging;

/// The variables that name a collector.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
];
/// The targets whose spans are exported: those of libraries tell nothing about a reservation.
const OURS: [&str; 5] = ["broker", "adapters", "store", "verifier", "simulator"];

/// The kind of a request's span.
pub(crate) const SERVER: Option<&str> = Some("server");

/// The export of spans; `None` where no collector is named.
pub(crate) struct Spans(Option<SdkTracerProvider>);

impl Spans {
    /// Logs to stderr from now on, and hands spans to the collector that the environment names.
    ///
    /// To be called within the runtime, on which spans are sent.
    pub(crate) fn log_and_export() -> Self {
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        if !ENDPOINTS.into_iter().any(is_set) {
            logging::to_stderr();
            return Self(None);
        }
        match SpanExporter::builder().with_http().build().map(provider) {
            Ok(provider) => {
                // A second subscriber in one process changes nothing.
                let _ = registry()
                    .with(exported(&provider))
                    .with(logging::filtered_lines())
                    .try_init();
                Self(Some(provider))
            }
            Err(error) => {
                logging::to_stderr();
                refused(&error);
                Self(None)
            }
        }
    }

    /// Exports the remaining spans.
    pub(crate) async fn end(self) {
        let Some(provider) = self.0 else { return };
        // It waits for the collector, or for its time-out.
        let ended = tokio::task::spawn_blocking(move || provider.shutdown()).await;
        if let Ok(Err(error)) = ended {
            warn!(error = %error, "The last spans could not be handed over");
        }
    }
}

fn refused(error: &ExporterBuildError) {
    warn!(error = %error, "No spans are handed over: the collector's address cannot be used");
}

/// Sends spans in batches, from a task of the runtime that this is called in.
pub(crate) fn provider(exporter: SpanExporter) -> SdkTracerProvider {
    let resource = Resource::builder();
    let resource = match env::var_os("OTEL_SERVICE_NAME") {
        Some(_) => resource,
        None => resource.with_service_name("gpu-broker"),
    };
    SdkTracerProvider::builder()
        .with_resource(resource.build())
        .with_span_processor(BatchSpanProcessor::builder(exporter, runtime::Tokio).build())
        .build()
}

/// Exports our spans, and the log records of `info` and above on them.
pub(crate) fn exported<S>(provider: &SdkTracerProvider) -> impl Layer<S> + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let ours = filter_fn(is_exported).with_max_level_hint(LevelFilter::DEBUG);
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("broker"))
        .with_threads(false)
        .with_filter(ours)
}

fn is_exported(what: &Metadata<'_>) -> bool {
    let ours = what
        .target()
        .split("::")
        .next()
        .is_some_and(|name| OURS.contains(&name));
    ours && (what.is_span() || *what.level() <= Level::INFO)
}

/// The name of a request's span: its method and the pattern of its path.
pub(crate) fn request_name(request: &ServiceRequest) -> Option<String> {
    let method = request.method();
    Some(match request.match_pattern() {
        Some(pattern) => format!("{method} {pattern}"),
        None => method.to_string(),
    })
}

/// Makes the span of a request part of the trace that its caller names (W3C Trace Context).
pub(crate) fn continue_trace(span: &Span, request: &ServiceRequest) {
    let parent = TraceContextPropagator::new().extract(&Named(request.headers()));
    // A span that is not handed over has no parent to report.
    let _ = span.set_parent(parent);
}

struct Named<'a>(&'a HeaderMap);

impl Extractor for Named<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}

/// The trace header for a call to a provider, naming the trace that the call is part of.
pub(crate) fn traceparent() -> Option<String> {
    let context = Span::current().context();
    let span = context.span();
    let known = span.span_context();
    known.is_valid().then(|| {
        let (trace, span, flags) = (known.trace_id(), known.span_id(), known.trace_flags());
        format!("00-{trace}-{span}-{:02x}", flags.to_u8())
    })
}
