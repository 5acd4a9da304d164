//! Coordination state of one process: the embedded default, and the substitute for a lost Redis.

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use moka::Expiry;
use moka::ops::compute::Op;
use moka::sync::Cache;
use tokio::sync::broadcast;

use super::{HotState, Quota, RateCheck, Topic, WakeUps, bell, gcra};

/// Values that are cached at once.
const MOST_VALUES: u64 = 10_000;
/// Callers whose rates are remembered at once; beyond that, those who call least are forgotten.
const MOST_RATES: u64 = 100_000;

/// Coordination state of one process.
pub struct InProcess {
    values: Cache<String, Timed<Vec<u8>>>,
    leases: Cache<String, Timed<String>>,
    full_at: Cache<String, Timed<u64>>,
    bell: broadcast::Sender<Topic>,
    started: Instant,
}

/// A value and how long it lives from the moment at which it is written.
#[derive(Clone)]
struct Timed<T> {
    value: T,
    ttl: Duration,
}

struct ByEntry<T>(PhantomData<fn(T)>);

impl<T> Expiry<String, Timed<T>> for ByEntry<T> {
    fn expire_after_create(&self, _: &String, entry: &Timed<T>, _: Instant) -> Option<Duration> {
        Some(entry.ttl)
    }

    fn expire_after_update(
        &self,
        _: &String,
        entry: &Timed<T>,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(entry.ttl)
    }
}

fn timed_cache<T: Clone + Send + Sync + 'static>(most: Option<u64>) -> Cache<String, Timed<T>> {
    let cache = Cache::builder().expire_after(ByEntry(PhantomData));
    match most {
        Some(most) => cache.max_capacity(most).build(),
        None => cache.build(),
    }
}

impl Default for InProcess {
    fn default() -> Self {
        Self::ringing(bell())
    }
}

impl InProcess {
    /// Empty coordination state behind this bell.
    pub(super) fn ringing(bell: broadcast::Sender<Topic>) -> Self {
        Self {
            values: timed_cache(Some(MOST_VALUES)),
            leases: timed_cache(None),
            full_at: timed_cache(Some(MOST_RATES)),
            bell,
            started: Instant::now(),
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Writes the lease for the holder where `may` allows it given the present holder.
    fn take(
        &self,
        work: &str,
        holder: &str,
        ttl: Duration,
        may: impl FnOnce(Option<&str>) -> bool,
    ) -> bool {
        let mut taken = false;
        self.leases.entry_by_ref(work).and_compute_with(|entry| {
            let has = entry.map(|entry| entry.into_value().value);
            taken = may(has.as_deref());
            match taken {
                true => Op::Put(Timed {
                    value: holder.to_owned(),
                    ttl,
                }),
                false => Op::Nop,
            }
        });
        taken
    }
}

#[async_trait]
impl HotState for InProcess {
    async fn cached(&self, key: &str) -> Option<Vec<u8>> {
        self.values.get(key).map(|entry| entry.value)
    }

    async fn cache(&self, key: &str, value: &[u8], ttl: Duration) {
        let value = value.to_vec();
        self.values.insert(key.to_owned(), Timed { value, ttl });
    }

    async fn acquire(&self, work: &str, holder: &str, ttl: Duration) -> bool {
        self.take(work, holder, ttl, |has| has.is_none_or(|has| has == holder))
    }

    async fn renew(&self, work: &str, holder: &str, ttl: Duration) -> bool {
        self.take(work, holder, ttl, |has| has == Some(holder))
    }

    async fn release(&self, work: &str, holder: &str) {
        self.leases
            .entry_by_ref(work)
            .and_compute_with(|entry| match entry {
                Some(entry) if entry.value().value == holder => Op::Remove,
                _ => Op::Nop,
            });
    }

    fn publish(&self, topic: Topic) {
        // There are no listeners to wake.
        let _ = self.bell.send(topic);
    }

    fn subscribe(&self, topic: Topic) -> WakeUps {
        let heard = self.bell.subscribe();
        WakeUps { topic, heard }
    }

    async fn check_rate(&self, key: &str, quota: Quota) -> RateCheck {
        let mut outcome = None;
        self.full_at.entry_by_ref(key).and_compute_with(|entry| {
            let full_at = entry.map(|entry| entry.into_value().value);
            let (value, check) = gcra::check(full_at, self.now_us(), quota);
            outcome = Some(check);
            let ttl = check.reset_after;
            Op::Put(Timed { value, ttl })
        });
        // The closure runs exactly once.
        outcome.unwrap_or_else(|| gcra::check(None, 0, quota).1)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    /// Far longer than a wake-up takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_listener_that_lags_is_woken_once_and_listens_on() {
        let state = InProcess::default();
        let mut wake_ups = state.subscribe(Topic::Supply);
        for _ in 0..1000 {
            state.publish(Topic::Work);
        }
        let heard = timeout(PATIENCE, wake_ups.hear()).await;
        heard.expect("a wake-up");
        let none = timeout(Duration::from_millis(20), wake_ups.hear()).await;
        assert!(none.is_err(), "a thousand missed wake-ups are one");
        state.publish(Topic::Supply);
        let heard = timeout(PATIENCE, wake_ups.hear()).await;
        heard.expect("another wake-up");
    }
}
