//! Metrics: the counts and times of this process, by named functions that the stages call. The metrics read
//! on request stand beside the route, in `crate::http`.
//!
//! Every metric is in the one table [`METRICS`], which `docs/metrics.md` repeats. Labels are words of closed
//! sets, configured providers, and routes of the table of routes: never an id, never a tenant.
//! [`crate::http`] supplies the route.

pub(crate) mod table;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use ::metrics::{Counter, Histogram, counter, histogram};
use adapters::{AdapterError, Refusal};
use chrono::{DateTime, TimeDelta, Utc};
use market::ids::ProviderId;
use market::lease::{LeaseEvent, LeaseState};
use market::offer::{AvailabilityLevel, Offer};
use market::order::ProviderLease;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use store::leases::Lease;
use store::reservations::Reservation;
use store::webhooks::Outcome;

pub use table::{Kind, METRICS, Metric};

use crate::platform::stop::{Stop, pause};
use table::*;

/// How often samples of histograms are folded: nobody may ever ask for them.
const FOLD_EVERY: Duration = Duration::from_secs(10);
/// Bounds of answer times. Units: seconds.
const REQUEST_BOUNDS: [f64; 11] = [
    0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];
/// Bounds for machines: the time to boot, and to prove themselves. Units: seconds.
const MACHINE_BOUNDS: [f64; 10] = [
    15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0,
];

static RECORDED: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Starts recording; earlier counts are lost. A second call changes nothing.
///
/// The recorder is the process's: several brokers in one process, as in tests, count together.
pub(crate) fn install() -> Option<&'static PrometheusHandle> {
    let start = || {
        let recorder = builder().build_recorder();
        let handle = recorder.handle();
        // Fails if another recorder is in place already: then that one has our counts.
        ::metrics::set_global_recorder(recorder).ok()?;
        table::describe(METRICS.iter().filter(|metric| !metric.sampled));
        Some(handle)
    };
    RECORDED.get_or_init(start).as_ref()
}

fn builder() -> PrometheusBuilder {
    let timed: [(&Metric, &[f64]); 3] = [
        (&HTTP_REQUEST_DURATION, &REQUEST_BOUNDS),
        (&HANDOFF_DURATION, &MACHINE_BOUNDS),
        (&VERIFICATION_DURATION, &MACHINE_BOUNDS),
    ];
    timed
        .into_iter()
        .fold(PrometheusBuilder::new(), |builder, (metric, bounds)| {
            let named = Matcher::Full(metric.name.to_owned());
            // Refused only where there are no bounds.
            builder
                .set_buckets_for_metric(named, bounds)
                .unwrap_or_default()
        })
}

/// All counts and times so far, as Prometheus reads them (text format 0.0.4).
pub(crate) fn recorded() -> String {
    install().map(PrometheusHandle::render).unwrap_or_default()
}

/// Folds samples until stopped, so that they take no memory while nobody asks.
pub(crate) async fn keep_folding(stop: Stop) {
    while pause(&stop, FOLD_EVERY).await {
        if let Some(handle) = install() {
            handle.run_upkeep();
        }
    }
}

/// A request was answered. `route` is a template of the table of routes, or `unmatched`.
pub(crate) fn request_ended(method: &'static str, route: Arc<str>, status: u16, took: Duration) {
    REQUESTS.with_borrow_mut(|known| {
        let labels = (method, route, status);
        let (counted, timed) = known.entry(labels).or_insert_with_key(request_metrics);
        counted.increment(1);
        timed.record(took.as_secs_f64());
    });
}

/// The labels by which requests are counted: method, route and status.
type RequestLabels = (&'static str, Arc<str>, u16);

thread_local! {
    /// This thread's metrics of requests: finding a metric by its labels at each request costs more than
    /// counting.
    static REQUESTS: RefCell<HashMap<RequestLabels, (Counter, Histogram)>> = RefCell::default();
}

fn request_metrics((method, route, status): &RequestLabels) -> (Counter, Histogram) {
    let (method, route) = (*method, route.to_string());
    let counted = counter!(
        HTTP_REQUESTS.name,
        "method" => method, "route" => route.clone(), "status" => status.to_string()
    );
    let timed = histogram!(HTTP_REQUEST_DURATION.name, "method" => method, "route" => route);
    (counted, timed)
}

/// A call was refused because its caller calls too often; `family` is the kind of quota.
pub(crate) fn rate_limited(family: &'static str) {
    counter!(RATE_LIMITED.name, "family" => family).increment(1);
}

/// A catalogue was asked for.
pub(crate) fn reading_ended(provider: &ProviderId, outcome: &'static str) {
    counter!(READINGS.name, "provider" => provider.to_string(), "outcome" => outcome).increment(1);
}

/// A credential was refused; `code` is that of the answer.
pub(crate) fn credential_refused(code: &'static str) {
    counter!(CREDENTIALS_REFUSED.name, "code" => code).increment(1);
}

/// A quote was to be taken and its capacity set aside.
pub(crate) fn hold_ended(outcome: &'static str) {
    counter!(HOLDS.name, "outcome" => outcome).increment(1);
}

/// A provider answered an order, or did not.
pub(crate) fn order_ended(offer: &Offer, answer: &Result<ProviderLease, AdapterError>) {
    use AdapterError as E;
    let outcome = match answer {
        Ok(_) => "accepted",
        Err(E::Refused { refusal, .. }) => match refusal {
            Refusal::Capacity => "out_of_stock",
            Refusal::Quota => "over_quota",
            Refusal::Credential => "not_allowed",
            Refusal::Request => "refused",
        },
        Err(E::RateLimited { .. }) => "rate_limited",
        Err(E::OutcomeUnknown { .. }) => "unknown",
        Err(_) => "not_sent",
    };
    counter!(
        ORDERS.name,
        "provider" => offer.provider.to_string(),
        "shown" => shown(offer.availability.level),
        "outcome" => outcome,
    )
    .increment(1);
}

/// Counts an event of a lease; `lease` shows its state before the event.
pub(crate) fn lease_learned(lease: &Lease, event: Option<LeaseEvent>, now: DateTime<Utc>) {
    let Some(event) = event else { return };
    let (provider, word) = (lease.offer.provider.to_string(), word(event));
    if event.is_fall() {
        counter!(LEASE_FALLS.name, "provider" => provider.clone(), "reason" => word).increment(1);
    }
    let has_ended = event == LeaseEvent::Passed || event.is_fall();
    if lease.state != LeaseState::Verifying || !has_ended {
        return;
    }
    counter!(VERIFICATIONS.name, "provider" => provider, "outcome" => word).increment(1);
    if let Some(up_at) = lease.up_at {
        histogram!(VERIFICATION_DURATION.name, "outcome" => word).record(seconds(now - up_at));
    }
}

/// A node showed GPUs that were seen in another lease, which fails it or not.
pub(crate) fn gpu_seen_before(provider: &ProviderId, fails: bool) {
    let outcome = if fails { "failed" } else { "warned" };
    counter!(GPUS_SEEN_BEFORE.name, "provider" => provider.to_string(), "outcome" => outcome)
        .increment(1);
}

/// Other leases took the place of these.
pub(crate) fn leases_replaced(fallen: &[Lease]) {
    for lease in fallen {
        let reason = lease.fall_reason.map_or("unknown", word);
        let provider = lease.offer.provider.to_string();
        counter!(LEASES_REPLACED.name, "provider" => provider, "reason" => reason).increment(1);
    }
}

/// The tenant has its reservation.
pub(crate) fn handed_off(reservation: &Reservation, now: DateTime<Utc>) {
    let confirmed_at = reservation.confirmed_at.unwrap_or(reservation.created_at);
    // A later start has until then.
    let since = reservation
        .starts_at
        .map_or(confirmed_at, |start| start.max(confirmed_at));
    let kind = reservation.kind.as_str();
    histogram!(HANDOFF_DURATION.name, "kind" => kind).record(seconds(now - since));
}

/// An attempt to deliver a webhook was made.
pub(crate) fn webhook_attempted(outcome: Outcome) {
    let outcome = match outcome {
        Outcome::Delivered => "delivered",
        Outcome::Again(_) => "failed",
        Outcome::GivenUp => "given_up",
        Outcome::Gone => "gone",
    };
    counter!(WEBHOOK_ATTEMPTS.name, "outcome" => outcome).increment(1);
}

/// The coordination state that replicas share stopped answering.
pub(crate) fn hot_state_lost() {
    counter!(HOT_STATE_LOSSES.name).increment(1);
}

/// A background task panicked or returned untold.
pub(crate) fn task_fell(task: &str) {
    counter!(TASK_FALLS.name, "task" => task.to_owned()).increment(1);
}

pub(crate) fn seconds(time: TimeDelta) -> f64 {
    time.as_seconds_f64().max(0.0)
}

/// The word of how much of an offer was shown.
const fn shown(level: AvailabilityLevel) -> &'static str {
    use AvailabilityLevel as L;
    match level {
        L::None => "none",
        L::Low => "low",
        L::Medium => "medium",
        L::High => "high",
        L::Present => "present",
        L::Unknown => "unknown",
    }
}

/// The word of an event of a lease.
const fn word(event: LeaseEvent) -> &'static str {
    use LeaseEvent as E;
    match event {
        E::Accepted => "accepted",
        E::Refused => "refused",
        E::NotFound => "not_found",
        E::Mismatched => "mismatched",
        E::Unwanted => "unwanted",
        E::Unknown => "unknown",
        E::NodesUp => "nodes_up",
        E::BootFailed => "boot_failed",
        E::NoCapacity => "no_capacity",
        E::Preempted => "preempted",
        E::Lost => "lost",
        E::Vanished => "vanished",
        E::Passed => "passed",
        E::Failed => "failed",
        E::TimedOut => "timed_out",
        E::HandedOff => "handed_off",
        E::ReleaseRequested => "release_requested",
        E::ProviderSaysGone => "gone",
    }
}
