//! Who follows events live: wake-ups for streams and for webhooks, and how many streams each tenant
//! has here.
//!
//! A wake-up says only that there may be something to read. One that is missed is made up for by a
//! timer.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use market::ids::TenantId;
use tokio::sync::watch;

use crate::app::Broker;
use crate::background::Stop;
use crate::hot::{Topic, WakeUps};

/// How many streams of events a tenant may have open at one replica.
pub const STREAMS_PER_TENANT: usize = 16;

/// The streams of events of this process.
#[derive(Debug, Default)]
pub struct Feed {
    closed: watch::Sender<bool>,
    open: Mutex<HashMap<TenantId, usize>>,
}

impl Feed {
    /// Ends every stream, now and from now on: the service stops.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }
}

impl Broker {
    /// Says, to all replicas, that there may be new events.
    pub fn ring_events(&self) {
        self.hot().publish(Topic::Events);
    }

    /// Listens for new events from now on.
    #[must_use]
    pub(crate) fn listen_for_events(&self) -> Listener {
        Listener {
            wake_ups: self.hot().subscribe(Topic::Events),
            closed: self.feed().closed.subscribe(),
        }
    }
}

/// Ends the streams of this process when it is told to stop.
pub async fn close_when_stopped(broker: Broker, stop: Stop) {
    stop.cancelled().await;
    broker.feed().close();
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
}

impl Place {
    /// Takes a place; `None` when the tenant has as many streams as it may.
    pub(crate) fn take(broker: &Broker, tenant: TenantId) -> Option<Self> {
        let mut open = lock(&broker.feed().open);
        let streams = open.entry(tenant).or_default();
        if *streams >= STREAMS_PER_TENANT {
            return None;
        }
        *streams += 1;
        drop(open);
        Some(Self {
            broker: broker.clone(),
            tenant,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = lock(&self.broker.feed().open);
        if let Some(streams) = open.get_mut(&self.tenant) {
            *streams -= 1;
            if *streams == 0 {
                open.remove(&self.tenant);
            }
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
