//! Coordination state: data that replicas share for speed, and may lose at any moment.
//!
//! A cache, wake-ups, leases of background work, and rate limits. The truth is only ever in the database. A
//! timer makes up for a wake-up that is lost. Work that two replicas do at once takes effect once, because
//! their writes are guarded. [`InProcess`] is the embedded default, [`Redis`] serves any number of replicas;
//! one contract test runs over both.

mod circuit;
mod gcra;
mod in_process;
mod redis;

use std::num::NonZeroU32;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

pub use in_process::InProcess;
pub use redis::{Patience, Redis, RedisRefused};

/// The state that replicas share for speed. No call fails: without the server each falls back to a behaviour
/// that keeps the service going, as its documentation states.
#[async_trait]
pub trait HotState: Send + Sync + 'static {
    /// The value cached under a key, if it has not expired.
    ///
    /// When the state is lost: nothing.
    async fn cached(&self, key: &str) -> Option<Vec<u8>>;

    /// Caches a value under a key for so long.
    ///
    /// When the state is lost: the value is dropped.
    async fn cache(&self, key: &str, value: &[u8], ttl: Duration);

    /// Takes the lease of a piece of background work for so long, unless another holder has it. The current
    /// holder renews it.
    ///
    /// When the state is lost: its last known holder continues; another gets it once the lease would have
    /// lapsed, and at once where the server was never reached. Two may then hold it: the work must tolerate
    /// that.
    async fn acquire(&self, work: &str, holder: &str, ttl: Duration) -> bool;

    /// Keeps a lease for so long from now; false when it lapsed or is another's.
    ///
    /// When the state is lost: as [`HotState::acquire`].
    async fn renew(&self, work: &str, holder: &str, ttl: Duration) -> bool;

    /// Gives a lease back; another's stays.
    ///
    /// When the state is lost: the lease lapses.
    async fn release(&self, work: &str, holder: &str);

    /// Wakes all listeners of a topic, in this process and in others. Never waits.
    ///
    /// When the state is lost: only this process hears it.
    fn publish(&self, topic: Topic);

    /// Listens for a topic from now on.
    fn subscribe(&self, topic: Topic) -> WakeUps;

    /// Counts one call against the quota of a key.
    ///
    /// When the state is lost: this process counts by itself, so that each replica gives the whole
    /// quota.
    async fn check_rate(&self, key: &str, quota: Quota) -> RateCheck;

    /// Whether the state is lost at present; one in process never is.
    fn is_lost(&self) -> bool {
        false
    }
}

/// The topic of a wake-up. It carries nothing else: a listener that hears it reads the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// A reservation is due.
    Work,
    /// The supply moved on.
    Supply,
    /// There are new events.
    Events,
    /// A lease is gone: its provider has capacity free that was in use when it was read.
    Returns,
}

impl Topic {
    /// Every topic.
    pub const ALL: [Self; 4] = [Self::Work, Self::Supply, Self::Events, Self::Returns];

    /// Its word in messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Supply => "supply",
            Self::Events => "events",
            Self::Returns => "returns",
        }
    }

    /// The topic of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.as_str() == word)
    }
}

/// A listener for one topic.
#[derive(Debug)]
pub struct WakeUps {
    topic: Topic,
    heard: broadcast::Receiver<Topic>,
}

impl WakeUps {
    /// Waits for a wake-up since the last one heard; several count as one. A listener too slow to hear each
    /// is woken as well. May be dropped and called again: nothing is lost.
    pub async fn hear(&mut self) {
        loop {
            match self.heard.recv().await {
                Ok(topic) if topic == self.topic => break,
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => break,
                // The state that publishes is gone, and with it the broker.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
        // The database look that follows sees all earlier events.
        self.heard = self.heard.resubscribe();
    }
}

/// How often something may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// How many times a second in the long run.
    pub per_second: NonZeroU32,
    /// How many times at once.
    pub burst: NonZeroU32,
}

/// The result of counting a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateCheck {
    /// Whether it is within the quota.
    pub allowed: bool,
    /// How many calls are possible at once.
    pub limit: u32,
    /// How many calls are possible right after this one.
    pub remaining: u32,
    /// After how long the whole burst is there again.
    pub reset_after: Duration,
    /// After how long a refused call would be allowed; zero for an allowed one.
    pub retry_after: Duration,
}

/// The bell of one process.
fn bell() -> broadcast::Sender<Topic> {
    // A listener slower than this lags and is woken once for all.
    broadcast::Sender::new(64)
}
