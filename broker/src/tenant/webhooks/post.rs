//! One attempt to deliver a message: a single request to a guarded address.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use store::webhooks::NewAttempt;

use crate::platform::address_guard::{Guarded, Lookup, SystemLookup, check_url};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an attempt may take as a whole.
const TIMEOUT: Duration = Duration::from_secs(15);
/// How much of an answer is read and kept. Units: bytes.
const KEPT_BYTES: usize = 1_024;

/// A message to one endpoint, signed.
#[derive(Debug)]
pub struct Message<'a> {
    /// Where it goes.
    pub url: &'a str,
    /// `webhook-id`: the same however often the message is sent.
    pub id: String,
    /// `webhook-timestamp`: seconds since 1970, of the attempt.
    pub timestamp: i64,
    /// `webhook-signature`: one or two signatures, separated by a space.
    pub signatures: String,
    /// The body.
    pub body: Vec<u8>,
}

/// Sends messages to endpoints.
pub struct WebhookSender {
    simulation: bool,
    lookup: Arc<dyn Lookup>,
    client: OnceLock<reqwest::Client>,
}

impl std::fmt::Debug for WebhookSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookSender")
            .field("simulation", &self.simulation)
            .finish_non_exhaustive()
    }
}

impl WebhookSender {
    /// A post office that may call this machine in simulation.
    #[must_use]
    pub fn new(simulation: bool) -> Self {
        Self::with_lookup(simulation, Arc::new(SystemLookup))
    }

    /// A post office that looks names up in its own way.
    #[must_use]
    pub fn with_lookup(simulation: bool, lookup: Arc<dyn Lookup>) -> Self {
        Self {
            simulation,
            lookup,
            client: OnceLock::new(),
        }
    }

    /// Sends a message once and returns the result. `now` is when the attempt begins.
    pub async fn send(&self, message: &Message<'_>, now: DateTime<Utc>) -> NewAttempt {
        let began = Instant::now();
        let went = self.try_send(message).await;
        let attempt = NewAttempt {
            at: now,
            latency_ms: u32::try_from(began.elapsed().as_millis()).unwrap_or(u32::MAX),
            ..NewAttempt::default()
        };
        match went {
            Ok((status, answer)) => NewAttempt {
                status: Some(status),
                answer: Some(answer),
                error: (300..400).contains(&status).then(|| {
                    "redirects are not followed; give the address that it leads to".to_owned()
                }),
                ..attempt
            },
            Err(error) => NewAttempt {
                error: Some(error),
                ..attempt
            },
        }
    }

    async fn try_send(&self, message: &Message<'_>) -> Result<(u16, String), String> {
        // Checked again: rules may be stricter than when the URL was given.
        let url = check_url(message.url, self.simulation).map_err(|no| no.to_string())?;
        let mut response = self
            .client()?
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", &message.id)
            .header("webhook-timestamp", message.timestamp)
            .header("webhook-signature", &message.signatures)
            .body(message.body.clone())
            .send()
            .await
            .map_err(|error| in_our_words(&error))?;
        let mut answer = Vec::new();
        // An answer that breaks off was still an answer.
        while let Ok(Some(chunk)) = response.chunk().await {
            answer.extend_from_slice(&chunk);
            if answer.len() >= KEPT_BYTES {
                answer.truncate(KEPT_BYTES);
                break;
            }
        }
        // PostgreSQL keeps no NUL in a text.
        let answer = String::from_utf8_lossy(&answer).replace('\0', "\u{fffd}");
        Ok((response.status().as_u16(), answer))
    }

    fn client(&self) -> Result<&reqwest::Client, String> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let built = self.builder().build();
        let built = match built {
            // Machines that only simulate may have no certificates of authorities.
            Err(_) if self.simulation => self.builder().tls_certs_only([]).build(),
            built => built,
        };
        let client = built.map_err(|_| "this broker cannot make connections".to_owned())?;
        Ok(self.client.get_or_init(|| client))
    }

    fn builder(&self) -> reqwest::ClientBuilder {
        // Fails when a provider of cryptography is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        reqwest::Client::builder()
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            // A proxy would look names up by itself.
            .no_proxy()
            // A connection that is kept would skip the look-up of the next attempt.
            .pool_max_idle_per_host(0)
            .dns_resolver(Arc::new(Guarded {
                lookup: Arc::clone(&self.lookup),
                simulation: self.simulation,
            }))
            .user_agent(concat!("gpu-broker/", env!("CARGO_PKG_VERSION")))
    }
}

/// The error, without the URL, which may hold a secret.
fn in_our_words(error: &reqwest::Error) -> String {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref::<crate::platform::address_guard::Refused>() {
            return refused.to_string();
        }
        cause = error.source();
    }
    let how = if error.is_timeout() {
        "no answer within 15 seconds, or no connection within 5"
    } else if error.is_connect() {
        "the connection could not be made: name, port or certificate"
    } else {
        "the connection was lost before the answer"
    };
    how.to_owned()
}
