//! Coordination state on Redis, for any number of replicas.
//!
//! Every call has a time-out. The first that fails opens the circuit: from then on calls fall back at once,
//! as [`HotState`] documents for each, until the server answers again. Keys begin with the id of the
//! deployment, so that several may share one server.

mod wire;

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use ::redis::{AsyncCommands as _, Script, SetExpiry, SetOptions};
use async_trait::async_trait;
use secrecy::SecretString;
use tokio::sync::broadcast;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{HotState, InProcess, Quota, RateCheck, Topic, WakeUps, bell, gcra};
use wire::Wire;

/// How long a call may take before the server counts as lost.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// A call that a request waits for.
    pub of_requests: Duration,
    /// A call that only background work waits for.
    pub of_work: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            of_requests: Duration::from_millis(200),
            of_work: Duration::from_secs(1),
        }
    }
}

/// Wake-ups that wait to be sent; one more would add nothing.
const UNSENT: usize = 64;

static ACQUIRE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("redis/acquire.lua")));
static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("redis/renew.lua")));
static RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("redis/release.lua")));
static CHECK_RATE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("redis/check_rate.lua")));

/// The address of Redis cannot be used. It is not in the words: it may hold a password.
#[derive(Debug, thiserror::Error)]
#[error(
    "redis.url is not the address of a Redis; give redis://HOST:PORT, rediss://HOST:PORT or unix:///PATH"
)]
pub struct RedisRefused;

/// Coordination state on Redis.
pub struct Redis {
    wire: Wire,
    /// Replaces the server while it is lost.
    fallback: InProcess,
    bell: broadcast::Sender<Topic>,
    unsent: mpsc::Sender<Topic>,
    /// The leases that holders here had when they last asked.
    held: Mutex<HashSet<(String, String)>>,
    /// Sends, listens, and checks whether a lost server is back; ends with this.
    _tasks: JoinSet<()>,
}

impl Redis {
    /// Coordination state of a deployment on the server at `url`, which need not answer yet. Runs within a
    /// Tokio runtime.
    ///
    /// Errors: [`RedisRefused`].
    pub fn open(url: &SecretString, deployment: &str) -> Result<Self, RedisRefused> {
        Self::open_with(url, deployment, Patience::default())
    }

    /// As [`Redis::open`], with another patience.
    ///
    /// Errors: [`RedisRefused`].
    pub fn open_with(
        url: &SecretString,
        deployment: &str,
        patience: Patience,
    ) -> Result<Self, RedisRefused> {
        let wire = Wire::to(url, deployment, patience)?;
        let bell = bell();
        let (unsent, to_send) = mpsc::channel(UNSENT);
        let mut tasks = JoinSet::new();
        tasks.spawn(wire.clone().keep_sending(to_send));
        tasks.spawn(wire.clone().keep_listening(bell.clone()));
        tasks.spawn(wire.clone().keep_probing());
        Ok(Self {
            wire,
            fallback: InProcess::ringing(bell.clone()),
            bell,
            unsent,
            held: Mutex::default(),
            _tasks: tasks,
        })
    }

    /// Asks for a lease by a script, and remembers the answer for a time without one.
    async fn ask_for_lease(
        &self,
        script: &Script,
        work: &str,
        holder: &str,
        ttl: Duration,
    ) -> bool {
        let key = self.wire.key("lease", work);
        let mut call = script.key(key);
        call.arg(holder).arg(milliseconds(ttl));
        let answer: Option<bool> = self
            .wire
            .ask(self.wire.patience.of_work, async |mut redis| {
                call.invoke_async(&mut redis).await
            })
            .await;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let lease = (work.to_owned(), holder.to_owned());
        let is_ours = match answer {
            Some(is_ours) => is_ours,
            None => held.contains(&lease) || self.wire.lost_for().is_some_and(|lost| lost >= ttl),
        };
        if is_ours {
            held.insert(lease);
        } else {
            held.remove(&lease);
        }
        is_ours
    }
}

#[async_trait]
impl HotState for Redis {
    async fn cached(&self, key: &str) -> Option<Vec<u8>> {
        let key = self.wire.key("cache", key);
        self.wire
            .ask(self.wire.patience.of_requests, async |mut redis| {
                redis.get(key).await
            })
            .await
            .flatten()
    }

    async fn cache(&self, key: &str, value: &[u8], ttl: Duration) {
        let key = self.wire.key("cache", key);
        let expiry = SetOptions::default().with_expiration(SetExpiry::PX(milliseconds(ttl)));
        self.wire
            .ask(self.wire.patience.of_requests, async |mut redis| {
                redis.set_options::<_, _, ()>(key, value, expiry).await
            })
            .await;
    }

    async fn acquire(&self, work: &str, holder: &str, ttl: Duration) -> bool {
        self.ask_for_lease(&ACQUIRE, work, holder, ttl).await
    }

    async fn renew(&self, work: &str, holder: &str, ttl: Duration) -> bool {
        self.ask_for_lease(&RENEW, work, holder, ttl).await
    }

    async fn release(&self, work: &str, holder: &str) {
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&(work.to_owned(), holder.to_owned()));
        let mut call = RELEASE.key(self.wire.key("lease", work));
        call.arg(holder);
        self.wire
            .ask(self.wire.patience.of_work, async |mut redis| {
                call.invoke_async::<i64>(&mut redis).await
            })
            .await;
    }

    fn publish(&self, topic: Topic) {
        // There are no listeners here to wake.
        let _ = self.bell.send(topic);
        // Full: the unsent wake-ups wake them as well.
        let _ = self.unsent.try_send(topic);
    }

    fn subscribe(&self, topic: Topic) -> WakeUps {
        self.fallback.subscribe(topic)
    }

    async fn check_rate(&self, key: &str, quota: Quota) -> RateCheck {
        let mut call = CHECK_RATE.key(self.wire.key("rate", key));
        call.arg(gcra::interval_us(quota)).arg(quota.burst.get());
        let counted: Option<(bool, u32, u64, u64)> = self
            .wire
            .ask(self.wire.patience.of_requests, async |mut redis| {
                call.invoke_async(&mut redis).await
            })
            .await;
        match counted {
            Some((allowed, remaining, reset_us, retry_us)) => RateCheck {
                allowed,
                limit: quota.burst.get(),
                remaining,
                reset_after: Duration::from_micros(reset_us),
                retry_after: Duration::from_micros(retry_us),
            },
            None => self.fallback.check_rate(key, quota).await,
        }
    }

    fn is_lost(&self) -> bool {
        self.wire.lost_for().is_some()
    }
}

/// A duration as Redis takes it: whole milliseconds, at least one.
fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1)
}
