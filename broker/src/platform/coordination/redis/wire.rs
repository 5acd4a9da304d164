//! The connection to Redis: calls within a time, wake-ups both ways, and the look for a lost server.

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::{ConnectionManager, ConnectionManagerConfig};
use ::redis::{AsyncCommands as _, Client, Cmd, RedisResult};
use futures_util::StreamExt as _;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::{broadcast, mpsc};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::debug;

use super::{Patience, RedisRefused};
use crate::platform::coordination::Topic;
use crate::platform::coordination::circuit::Circuit;

/// How often a lost server is tried again.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// How long a subscription may be silent before it counts as dead and is made again.
const SILENCE: Duration = Duration::from_secs(60);

/// The connection to the server. A handle: clones share it.
#[derive(Clone)]
pub(super) struct Wire {
    client: Client,
    pub(super) patience: Patience,
    connection: ConnectionManager,
    circuit: Arc<Circuit>,
    deployment: Arc<str>,
    /// Distinguishes our own wake-ups from those of others.
    me: Arc<str>,
}

impl Wire {
    /// A connection that is made on first use.
    ///
    /// Errors: [`RedisRefused`].
    pub(super) fn to(
        url: &SecretString,
        deployment: &str,
        patience: Patience,
    ) -> Result<Self, RedisRefused> {
        let client = Client::open(url.expose_secret()).map_err(|_| RedisRefused)?;
        // We ask again by ourselves, and wait no longer than the caller does.
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(patience.of_work))
            .set_response_timeout(Some(patience.of_work));
        let connection = ConnectionManager::new_lazy_with_config(client.clone(), config)
            .map_err(|_| RedisRefused)?;
        Ok(Self {
            client,
            connection,
            patience,
            circuit: Arc::default(),
            deployment: deployment.into(),
            me: uuid::Uuid::now_v7().simple().to_string().into(),
        })
    }

    /// The key of a thing of this kind in this deployment.
    pub(super) fn key(&self, kind: &str, name: &str) -> String {
        format!("{}:{kind}:{name}", self.deployment)
    }

    /// For how long the server has been lost; `None` while it answers.
    pub(super) fn lost_for(&self) -> Option<Duration> {
        self.circuit.lost_for()
    }

    /// Makes a call; `None` when the server is lost or does not answer within the time.
    pub(super) async fn ask<T>(
        &self,
        patience: Duration,
        call: impl AsyncFnOnce(ConnectionManager) -> RedisResult<T>,
    ) -> Option<T> {
        if self.circuit.lost_for().is_some() {
            return None;
        }
        self.try_call(patience, call).await
    }

    async fn try_call<T>(
        &self,
        patience: Duration,
        call: impl AsyncFnOnce(ConnectionManager) -> RedisResult<T>,
    ) -> Option<T> {
        match timeout(patience, call(self.connection.clone())).await {
            Ok(Ok(answer)) => {
                self.circuit.find();
                Some(answer)
            }
            Ok(Err(failure)) => {
                self.circuit.lose(&failure.to_string());
                None
            }
            Err(_) => {
                let waited = patience.as_millis();
                self.circuit.lose(&format!("no answer within {waited} ms"));
                None
            }
        }
    }

    /// Looks whether a lost server is back. It writes, for one that only lets read is of no use.
    pub(super) async fn keep_probing(self) {
        let mut ticks = interval(PROBE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.circuit.lost_for().is_some() {
                let key = self.key("probe", &self.me);
                let write = Cmd::pset_ex(key, 1, 1000);
                self.try_call(self.patience.of_requests, async |mut redis| {
                    write.exec_async(&mut redis).await
                })
                .await;
            }
        }
    }

    /// Sends wake-ups to the other processes. A wake-up that cannot be sent is dropped: they have timers.
    pub(super) async fn keep_sending(self, mut unsent: mpsc::Receiver<Topic>) {
        let mut wave = Vec::new();
        while unsent.recv_many(&mut wave, usize::MAX).await > 0 {
            for topic in Topic::ALL.into_iter().filter(|topic| wave.contains(topic)) {
                let message = format!("{} {}", topic.as_str(), self.me);
                let channel = self.key("wake", "all");
                self.ask(self.patience.of_work, async |mut redis| {
                    redis.publish::<_, _, ()>(channel, message).await
                })
                .await;
            }
            wave.clear();
        }
    }

    /// Rings the bell of this process for wake-ups of others, and for all topics whenever some may
    /// have been missed.
    pub(super) async fn keep_listening(self, bell: broadcast::Sender<Topic>) {
        loop {
            if let Err(failure) = self.listen(&bell).await {
                debug!(error = %failure, "The subscription to wake-ups ended");
                sleep(PROBE_EVERY).await;
            }
        }
    }

    async fn listen(&self, bell: &broadcast::Sender<Topic>) -> RedisResult<()> {
        let subscribe = async {
            let mut subscription = self.client.get_async_pubsub().await?;
            subscription.subscribe(self.key("wake", "all")).await?;
            RedisResult::Ok(subscription)
        };
        let Ok(subscription) = timeout(self.patience.of_work, subscribe).await else {
            return Err((::redis::ErrorKind::Io, "no answer in time").into());
        };
        let mut messages = subscription?.into_on_message();
        for topic in Topic::ALL {
            let _ = bell.send(topic);
        }
        while let Ok(message) = timeout(SILENCE, messages.next()).await {
            let Some(message) = message else {
                return Err((::redis::ErrorKind::Io, "the server went away").into());
            };
            let text: String = message.get_payload()?;
            let (word, sender) = text.split_once(' ').unwrap_or((&text, ""));
            if let Some(topic) = Topic::of(word).filter(|_| sender != &*self.me) {
                let _ = bell.send(topic);
            }
        }
        Ok(())
    }
}
