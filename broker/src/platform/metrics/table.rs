//! The table of all metrics. `docs/metrics.md` repeats it; a test holds the two together.

use ::metrics::{describe_counter, describe_gauge, describe_histogram};

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, from the start of the process on.
    Counter,
    /// It is a current value.
    Gauge,
    /// How often something took how long.
    Histogram,
}

impl Kind {
    /// The word of the exposition format.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name, with its unit.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// The labels that it carries.
    pub labels: &'static [&'static str],
    /// The help text.
    pub help: &'static str,
    /// Whether it is looked up when somebody asks, and not kept.
    pub(crate) sampled: bool,
}

/// Describes the metrics to the recorder in place.
pub(crate) fn describe<'a>(metrics: impl IntoIterator<Item = &'a Metric>) {
    for metric in metrics {
        match metric.kind {
            Kind::Counter => describe_counter!(metric.name, metric.help),
            Kind::Gauge => describe_gauge!(metric.name, metric.help),
            Kind::Histogram => describe_histogram!(metric.name, metric.help),
        }
    }
}

macro_rules! metrics {
    ($($constant:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(
            #[doc = $help]
            pub(crate) const $constant: Metric = Metric {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                help: $help,
                // Counters and histograms are kept; current values are read on request.
                sampled: matches!(Kind::$kind, Kind::Gauge),
            };
        )+

        /// Every metric, in the order of the flow.
        pub const METRICS: &[Metric] = &[$($constant),+];
    };
}

metrics! {
    // Supply.
    READINGS = Counter "broker_readings_total" ["provider", "outcome"]
        "Catalogues asked for: ok, partial (empty or doubted), failed, not_kept";
    READING_AGE = Gauge "broker_provider_reading_age_seconds" ["provider"]
        "Age of the last reading in which everything of a provider could be read";
    FRESHNESS_LIMIT = Gauge "broker_provider_freshness_limit_seconds" ["provider"]
        "Age past which a provider's offers are not matched; absent for price lists";
    LIVE_OFFERS = Gauge "broker_provider_offers" ["provider"]
        "Offers that the last reading of a provider held";
    SKIPPED = Gauge "broker_provider_skipped_records" ["provider", "reason"]
        "Records of the last reading that are no offer, by why";
    SNAPSHOT_BEHIND = Gauge "broker_snapshot_behind_readings" []
        "Readings in the database that this replica's snapshot does not hold yet";
    SNAPSHOT_LAG = Gauge "broker_snapshot_lag_seconds" []
        "For how long the first of them has been in the database; 0 when there is none";
    // From a quote to the hand-off.
    HOLDS = Counter "broker_holds_total" ["outcome"]
        "Quotes to be held: held, out_of_stock, provider_closed, cooling_down, outside_policy, quote_lapsed, quote_taken, above_ceiling, invalid, failed";
    RESERVATIONS = Gauge "broker_reservations" ["state"]
        "Reservations that are not closed, by state";
    ORDERS = Counter "broker_orders_total" ["provider", "shown", "outcome"]
        "Orders sent, by the availability last shown and by the answer: accepted, out_of_stock, over_quota, not_allowed, refused, rate_limited, unknown, not_sent";
    LEASE_FALLS = Counter "broker_lease_falls_total" ["provider", "reason"]
        "Leases that failed, by reason";
    LEASES_REPLACED = Counter "broker_leases_replaced_total" ["provider", "reason"]
        "Failed leases that were replaced, by the provider and the reason of the failure";
    VERIFICATIONS = Counter "broker_verifications_total" ["provider", "outcome"]
        "Leases whose verification ended: passed, failed, timed_out, lost, vanished";
    VERIFICATION_DURATION = Histogram "broker_verification_duration_seconds" ["outcome"]
        "Time from the nodes' being up to the end of their verification";
    GPUS_SEEN_BEFORE = Counter "broker_gpus_seen_before_total" ["provider", "outcome"]
        "Nodes with GPUs that another lease has, that failed recently or were bought before as another offer: failed, warned";
    HANDOFF_DURATION = Histogram "broker_handoff_duration_seconds" ["kind"]
        "Time from the confirmation to the hand-off, by kind of demand";
    // Work.
    WORK_WAITING = Gauge "broker_work_waiting" []
        "Reservations that a worker will look at, now or later";
    WORK_DUE = Gauge "broker_work_due" []
        "Reservations that are due and that no worker has";
    WORK_CLAIMED = Gauge "broker_work_claimed" []
        "Reservations that a worker has";
    WORK_OLDEST = Gauge "broker_work_oldest_due_seconds" []
        "For how long the longest due of them has been due; 0 when none is";
    TASK_ALIVE = Gauge "broker_background_task_alive" ["task"]
        "1 while a background task of this process gives signs of life, else 0";
    TASK_FALLS = Counter "broker_background_task_falls_total" ["task"]
        "Background tasks that panicked or returned, and were started again";
    // Webhooks.
    WEBHOOKS_WAITING = Gauge "broker_webhook_deliveries_waiting" []
        "Webhook deliveries not yet taken by their endpoint, also those of disabled ones";
    WEBHOOKS_DUE = Gauge "broker_webhook_deliveries_due" []
        "Webhook deliveries that are due and that no worker has";
    WEBHOOKS_OLDEST = Gauge "broker_webhook_oldest_due_seconds" []
        "For how long the longest due of them has been due; 0 when none is";
    WEBHOOK_ATTEMPTS = Counter "broker_webhook_attempts_total" ["outcome"]
        "Attempts to deliver: delivered, failed (tried again), given_up, gone";
    // The service.
    HTTP_REQUESTS = Counter "broker_http_requests_total" ["method", "route", "status"]
        "Requests answered, by route template";
    HTTP_REQUEST_DURATION = Histogram "broker_http_request_duration_seconds" ["method", "route"]
        "Time from a request's head to its answer's head";
    RATE_LIMITED = Counter "broker_http_rate_limited_total" ["family"]
        "Calls refused by rate limits: reads, writes, anonymous";
    CREDENTIALS_REFUSED = Counter "broker_http_refused_credentials_total" ["code"]
        "Calls refused for their credential: token_missing, invalid_token, token_expired, not_a_member";
    DATABASE_UP = Gauge "broker_database_up" []
        "1 when the database answered this reading, else 0; the metrics read from it are then absent";
    CONNECTIONS = Gauge "broker_database_connections" ["pool", "state"]
        "Open connections to the database: busy, idle";
    CONNECTIONS_MOST = Gauge "broker_database_connections_max" ["pool"]
        "Connections that a pool may open";
    HOT_STATE_LOST = Gauge "broker_hot_state_lost" []
        "1 while what replicas share cannot be reached and each goes on by itself, else 0";
    HOT_STATE_LOSSES = Counter "broker_hot_state_losses_total" []
        "How often what replicas share stopped answering";
}
