//! The live followers of events: wake-ups for streams and for webhooks, and the number of streams of each
//! tenant here.
//!
//! A wake-up means only that there may be something to read. A timer makes up for one that is missed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use market::ids::TenantId;
use tokio::sync::watch;

use crate::platform::app::Broker;
use crate::platform::coordination::{Topic, WakeUps};
use crate::platform::stop::Stop;

/// How many streams of events a tenant may have open at one replica.
pub const STREAMS_PER_TENANT: usize = 16;

/// How long a client may read nothing of a stream before its place is another's to take. One that
/// reads is sent something each quarter of a minute.
const STALLED: Duration = Duration::from_secs(60);

/// The streams of events of this process.
#[derive(Debug, Default)]
pub struct Feed {
    closed: watch::Sender<bool>,
    open: Mutex<OpenStreams>,
}

/// The streams that are open.
#[derive(Debug, Default)]
struct OpenStreams {
    of: HashMap<TenantId, Streams>,
    last: u64,
}

/// The streams of a tenant.
#[derive(Debug, Default)]
struct Streams {
    /// When each that has a place last went on.
    placed: HashMap<u64, Instant>,
    /// How many gave their place away, and stand until their clients read or go.
    stalled: usize,
}

impl OpenStreams {
    /// Takes a place at `now`, that of the stream which stands still longest where there is no other;
    /// `None` when the tenant has as many as it may.
    fn take(&mut self, tenant: TenantId, now: Instant) -> Option<u64> {
        let streams = self.of.entry(tenant).or_default();
        if streams.placed.len() >= STREAMS_PER_TENANT {
            let (number, since) = streams.placed.iter().min_by_key(|(_, since)| **since)?;
            let has_stalled = now.duration_since(*since) >= STALLED;
            if !has_stalled || streams.stalled >= STREAMS_PER_TENANT {
                return None;
            }
            let number = *number;
            streams.placed.remove(&number);
            streams.stalled += 1;
        }
        self.last += 1;
        streams.placed.insert(self.last, now);
        Some(self.last)
    }

    /// Records that a stream is still open at `now`; false when its place was taken meanwhile.
    fn goes_on(&mut self, tenant: TenantId, number: u64, now: Instant) -> bool {
        let streams = self.of.get_mut(&tenant);
        let went_on = streams.and_then(|streams| streams.placed.get_mut(&number));
        went_on.map(|went_on| *went_on = now).is_some()
    }

    fn leave(&mut self, tenant: TenantId, number: u64) {
        if let Some(streams) = self.of.get_mut(&tenant) {
            if streams.placed.remove(&number).is_none() {
                streams.stalled = streams.stalled.saturating_sub(1);
            }
            if streams.placed.is_empty() && streams.stalled == 0 {
                self.of.remove(&tenant);
            }
        }
    }
}

impl Feed {
    /// Ends every stream, now and from now on: the service stops.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }
}

impl Broker {
    /// Notifies all replicas that there may be new events.
    pub fn ring_events(&self) {
        self.hot().publish(Topic::Events);
    }

    /// Listens for new events from now on.
    #[must_use]
    pub(crate) fn listen_for_events(&self) -> Listener {
        Listener {
            wake_ups: self.hot().subscribe(Topic::Events),
            closed: self.memory::<Feed>().closed.subscribe(),
        }
    }
}

/// Ends the streams of this process on stop.
pub async fn close_when_stopped(broker: Broker, stop: Stop) {
    stop.cancelled().await;
    close(&broker);
}

/// Ends the streams of this process.
pub(crate) fn close(broker: &Broker) {
    broker.memory::<Feed>().close();
}

/// A listener for new events.
#[derive(Debug)]
pub(crate) struct Listener {
    wake_ups: WakeUps,
    closed: watch::Receiver<bool>,
}

impl Listener {
    /// Whether streams are to end.
    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Waits for a wake-up since the last one, or for the end of all streams.
    pub(crate) async fn hear(&mut self) {
        tokio::select! {
            () = self.wake_ups.hear() => {}
            _ = self.closed.wait_for(|closed| *closed) => {}
        }
    }
}

/// A place among the streams of a tenant; free again when it is dropped.
pub(crate) struct Place {
    broker: Broker,
    tenant: TenantId,
    number: u64,
}

impl Place {
    /// Takes a place; `None` when the tenant has as many streams as it may.
    pub(crate) fn take(broker: &Broker, tenant: TenantId) -> Option<Self> {
        let number = lock(&broker.memory::<Feed>().open).take(tenant, Instant::now())?;
        Some(Self {
            broker: broker.clone(),
            tenant,
            number,
        })
    }

    /// Records that the stream is still open; false when it was idle for so long that its place was given
    /// away.
    pub(crate) fn goes_on(&self) -> bool {
        lock(&self.broker.memory::<Feed>().open).goes_on(self.tenant, self.number, Instant::now())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.broker.memory::<Feed>().open).leave(self.tenant, self.number);
    }
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_stream_that_nobody_reads_gives_its_place_to_one_that_is() {
        let (mut open, begun) = (OpenStreams::default(), Instant::now());
        let [acme, other] = [1, 2].map(|number| TenantId::from_uuid(Uuid::from_u128(number)));
        let mut numbers = Vec::new();
        for _ in 0..STREAMS_PER_TENANT {
            numbers.push(open.take(acme, begun).expect("a place"));
        }
        assert_eq!(open.take(acme, begun), None);
        assert!(open.take(other, begun).is_some(), "another tenant's");
        let later = begun + STALLED;
        for (after, number) in numbers.iter().skip(1).enumerate() {
            let moment = begun + Duration::from_millis(after as u64 + 1);
            assert!(open.goes_on(acme, *number, moment));
        }
        assert!(open.take(acme, later).is_some());
        assert!(
            !open.goes_on(acme, numbers[0], later),
            "its place is another's"
        );
        assert!(
            open.goes_on(acme, numbers[2], later),
            "it was read meanwhile"
        );
        // Those that gave their places away stand yet: of them there are only so many.
        let mut late = later;
        for _ in 1..STREAMS_PER_TENANT {
            late += STALLED;
            assert!(open.take(acme, late).is_some());
        }
        assert_eq!(open.take(acme, late + STALLED), None);
        open.leave(acme, numbers[0]);
        assert!(
            open.take(acme, late + STALLED).is_some(),
            "one of them went"
        );
        for number in 0..=open.last {
            open.leave(acme, number);
        }
        assert!(!open.of.contains_key(&acme));
    }
}
