//! Webhooks: events brought to the endpoints of tenants, signed, until they are taken.
//!
//! Pending messages are in the database (`store::webhooks`). Each endpoint is worked off by itself, so that
//! one that hangs holds up no other. A message is sent at least once and bears the id of its event, by which
//! a receiver recognises a repeat.

mod post;
mod sign;

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::future::join_all;
use market::event::Event;
use market::ids::{TenantId, WebhookEndpointId};
use rand::Rng as _;
use serde::Serialize;
use store::StoreError;
use store::settings::DatabaseMode;
use store::webhooks::{ClaimedDelivery, NewAttempt, Outcome, SEALED_FOR, WebhookEndpoint};
use store::work::ClaimToken;
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::platform::app::Broker;
use crate::platform::metrics;
use crate::platform::secrets::CannotOpen;
use crate::platform::stop::Stop;

pub use post::{Message, WebhookSender};
pub use sign::WebhookSecret;

/// How long the secret before signs along after a rotation.
pub const OVERLAP: TimeDelta = TimeDelta::hours(24);
/// How long an endpoint may only fail before it is disabled.
const PATIENCE: TimeDelta = TimeDelta::days(5);
/// How long after each attempt the next one comes; up to a fifth longer, so that many do not come
/// at once. Units: seconds.
const RETRY_SECONDS: [i64; 9] = [
    5,
    5 * 60,
    30 * 60,
    2 * 3_600,
    5 * 3_600,
    10 * 3_600,
    14 * 3_600,
    20 * 3_600,
    24 * 3_600,
];
/// How long a delivery is claimed: far longer than an attempt may take.
const CLAIM_SECONDS: u32 = 120;
/// Messages that one endpoint gets at once.
const AT_ONCE: u64 = 8;
/// Endpoints that one process works on side by side.
const ENDPOINTS_AT_ONCE: usize = 64;
/// Of these, those of one tenant: receivers that hang hold up no other tenant's.
const ENDPOINTS_OF_ONE_TENANT: usize = 8;
/// How many due endpoints are read to fill these places.
const LOOKED_AT: u64 = 1_024;
/// How often due deliveries are searched for without a wake-up.
const TICK: Duration = Duration::from_secs(1);
/// A task that has not searched for so long has stopped working.
const SILENCE: Duration = Duration::from_secs(60);

/// The body of a message.
#[derive(Serialize)]
struct Body<'a> {
    #[serde(flatten)]
    event: &'a Event,
    /// Nothing simulated may pass as real.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    simulated: bool,
}

/// Endpoints that are worked on, and whose they are.
#[derive(Default)]
struct Busy(HashMap<WebhookEndpointId, TenantId>);

impl Busy {
    /// Gives an endpoint a place, where it has none yet and there is one for it.
    fn takes(&mut self, tenant: TenantId, id: WebhookEndpointId) -> bool {
        let of_tenant = self.0.values().filter(|whose| **whose == tenant).count();
        let has_room = self.0.len() < ENDPOINTS_AT_ONCE && of_tenant < ENDPOINTS_OF_ONE_TENANT;
        if !has_room || self.0.contains_key(&id) {
            return false;
        }
        self.0.insert(id, tenant);
        true
    }
}

/// Delivers until stopped: on a ring of the feed, on a timer, and whenever an endpoint is done.
pub async fn keep_delivering(broker: Broker, stop: Stop) {
    let mut listener = broker.listen_for_events();
    let mut under_way = JoinSet::new();
    let mut busy = Busy::default();
    while !stop.is_cancelled() && !listener.is_closed() {
        broker.pulses().beat("webhooks", SILENCE);
        let due = broker.store().deliveries();
        match due.due_endpoints(broker.now(), LOOKED_AT).await {
            Ok(due) => {
                for (tenant, id) in due {
                    if !busy.takes(tenant, id) {
                        continue;
                    }
                    let broker = broker.clone();
                    under_way.spawn(async move {
                        let done = deliver_to(&broker, id).await;
                        (id, done)
                    });
                }
            }
            Err(failure) => {
                error!(error = %crate::chain(&failure), "Due webhooks could not be read");
            }
        }
        tokio::select! {
            Some(ended) = under_way.join_next() => match ended {
                Ok((id, done)) => {
                    busy.0.remove(&id);
                    if let Err(failure) = done {
                        error!(error = %crate::chain(&failure), "Webhooks could not be delivered");
                    }
                }
                // Which one it was is not known; each is claimed again in time.
                Err(lost) => {
                    error!(error = %lost, "A delivery of webhooks was lost");
                    under_way.abort_all();
                    while under_way.join_next().await.is_some() {}
                    busy.0.clear();
                }
            },
            () = listener.hear() => {}
            () = tokio::time::sleep(TICK) => {}
            () = stop.cancelled() => {}
        }
    }
    // An attempt lasts seconds; one that is cut off is made again by another replica.
    while under_way.join_next().await.is_some() {}
}

/// Delivers everything due now, until nothing more is; returns how many attempts were made.
///
/// Errors: the database's.
pub async fn deliver_due(broker: &Broker) -> Result<usize, StoreError> {
    let mut attempts = 0;
    loop {
        let due = broker.store().deliveries();
        let due = due.due_endpoints(broker.now(), ENDPOINTS_AT_ONCE as u64);
        let due = due.await?.into_iter();
        let work = due.map(|(_, id)| deliver_to(broker, id));
        let mut made = 0;
        for done in join_all(work).await {
            made += done?;
        }
        if made == 0 {
            return Ok(attempts);
        }
        attempts += made;
    }
}

/// Makes one attempt at each of a few deliveries that are due to an endpoint.
async fn deliver_to(broker: &Broker, endpoint: WebhookEndpointId) -> Result<usize, StoreError> {
    let token = ClaimToken(broker.new_uuid());
    let claimed = broker
        .store()
        .deliveries()
        .claim(endpoint, token, broker.now(), CLAIM_SECONDS, AT_ONCE)
        .await?;
    let attempts = claimed.iter().map(|one| deliver(broker, one));
    for done in join_all(attempts).await {
        done?;
    }
    Ok(claimed.len())
}

async fn deliver(broker: &Broker, claimed: &ClaimedDelivery) -> Result<(), StoreError> {
    let attempt = attempt(broker, claimed).await;
    let now = broker.now();
    let outcome = outcome(&attempt, claimed.tries, now);
    metrics::webhook_attempted(outcome);
    let recorded = broker
        .store()
        .deliveries()
        .record(claimed, &attempt, outcome, PATIENCE, now)
        .await;
    let id = claimed.endpoint.id;
    match recorded {
        Ok(disabled) => {
            if disabled {
                info!(webhook.endpoint = %id, "Disabled the webhook endpoint {id}");
                broker.ring_events();
            }
            Ok(())
        }
        // Claimed by another, or put on its way again, while we were at it.
        Err(StoreError::Stale) => {
            warn!(webhook.endpoint = %id, "Dropped how a late delivery to {id} went");
            Ok(())
        }
        Err(failure) => Err(failure),
    }
}

/// The next state after an attempt; `tries` were made before it.
fn outcome(attempt: &NewAttempt, tries: u32, now: DateTime<Utc>) -> Outcome {
    match attempt.status {
        Some(200..300) => Outcome::Delivered,
        Some(410) => Outcome::Gone,
        _ => match usize::try_from(tries)
            .ok()
            .and_then(|n| RETRY_SECONDS.get(n))
        {
            Some(seconds) => {
                let jitter = rand::rng().random_range(0..=seconds * 1_000 / 5);
                Outcome::Again(now + TimeDelta::milliseconds(seconds * 1_000 + jitter))
            }
            None => Outcome::GivenUp,
        },
    }
}

async fn attempt(broker: &Broker, claimed: &ClaimedDelivery) -> NewAttempt {
    let (endpoint, now) = (&claimed.endpoint, broker.now());
    let body = Body {
        event: &claimed.event,
        simulated: broker.mode() == DatabaseMode::Simulation,
    };
    // A plain struct with text keys, which always serialises.
    let body = serde_json::to_vec(&body).unwrap_or_default();
    let (id, timestamp) = (claimed.event.id.to_string(), now.timestamp());
    let signatures = match secrets(broker, endpoint, now) {
        Ok(secrets) => secrets
            .iter()
            .map(|secret| secret.sign(&id, timestamp, &body))
            .collect::<Vec<_>>()
            .join(" "),
        Err(failure) => {
            error!(
                webhook.endpoint = %endpoint.id, error = %failure,
                "The secret of {} cannot be opened", endpoint.id
            );
            return NewAttempt {
                at: now,
                error: Some("the secret cannot be opened here; rotate it".to_owned()),
                ..NewAttempt::default()
            };
        }
    };
    let message = Message {
        url: &endpoint.url,
        id,
        timestamp,
        signatures,
        body,
    };
    broker
        .memory_or(|| WebhookSender::new(broker.mode() == DatabaseMode::Simulation))
        .send(&message, now)
        .await
}

/// The secrets that sign: the one in place, and the one before while it signs along.
fn secrets(
    broker: &Broker,
    endpoint: &WebhookEndpoint,
    now: DateTime<Utc>,
) -> Result<Vec<WebhookSecret>, CannotOpen> {
    let previous = endpoint.sealed_previous.as_ref();
    let previous = previous.filter(|(_, until)| now < *until);
    [&endpoint.sealed_secret]
        .into_iter()
        .chain(previous.map(|(sealed, _)| sealed))
        .map(|sealed| open(broker, sealed))
        .collect()
}

fn open(broker: &Broker, sealed: &[u8]) -> Result<WebhookSecret, CannotOpen> {
    let bytes = broker.keys().sealing().open(SEALED_FOR, sealed)?;
    Ok(WebhookSecret::from_bytes(bytes))
}

/// Seals a new secret.
pub(crate) fn seal(broker: &Broker, secret: &WebhookSecret) -> Vec<u8> {
    broker.keys().sealing().seal(SEALED_FOR, secret.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tenant_takes_the_places_of_all() {
        let ids = |count: u128| (1..=count).map(uuid::Uuid::from_u128);
        let mut busy = Busy::default();
        let mut taken = Vec::new();
        for tenant in ids(10).map(TenantId::from_uuid) {
            let base = tenant.uuid().as_u128() * 100;
            let endpoints = (1..=20).map(|n| uuid::Uuid::from_u128(base + n));
            let endpoints = endpoints.map(WebhookEndpointId::from_uuid);
            let places = endpoints.filter(|id| busy.takes(tenant, *id)).count();
            taken.push(places);
        }
        assert_eq!(taken, [8, 8, 8, 8, 8, 8, 8, 8, 0, 0]);
        let (id, tenant) = busy
            .0
            .iter()
            .next()
            .map(|(id, of)| (*id, *of))
            .expect("one");
        assert!(!busy.takes(tenant, id), "it has its place already");
        busy.0.remove(&id);
        assert!(busy.takes(tenant, id));
    }

    fn answered(status: Option<u16>) -> NewAttempt {
        NewAttempt {
            status,
            ..NewAttempt::default()
        }
    }

    #[test]
    fn a_taken_message_is_done_a_gone_endpoint_is_over_and_all_else_is_tried_again() {
        let now = DateTime::from_timestamp(1_790_000_000, 0).expect("a time");
        for status in [200, 201, 204, 299] {
            let taken = outcome(&answered(Some(status)), 0, now);
            assert_eq!(taken, Outcome::Delivered, "{status}");
        }
        assert_eq!(outcome(&answered(Some(410)), 0, now), Outcome::Gone);
        for status in [None, Some(302), Some(400), Some(404), Some(429), Some(503)] {
            let again = outcome(&answered(status), 0, now);
            assert!(matches!(again, Outcome::Again(_)), "{status:?}");
        }
    }

    #[test]
    fn each_try_waits_longer_and_after_three_days_nothing_is_tried_any_more() {
        let now = DateTime::from_timestamp(1_790_000_000, 0).expect("a time");
        let mut whole = TimeDelta::zero();
        for (tries, seconds) in (0..).zip(RETRY_SECONDS) {
            let Outcome::Again(at) = outcome(&answered(None), tries, now) else {
                panic!("{tries} tries are not all")
            };
            let wait = at - now;
            assert!(wait >= TimeDelta::seconds(seconds));
            assert!(wait <= TimeDelta::milliseconds(seconds * 1_200));
            whole += TimeDelta::seconds(seconds);
        }
        assert_eq!(outcome(&answered(None), 9, now), Outcome::GivenUp);
        assert_eq!(whole.num_hours(), 75);
        assert!(whole < PATIENCE, "one message alone disables no endpoint");
    }
}
