//! Whose turn it is to do what takes long: so many work at once, some more wait, and whoever comes
//! beyond is told to come again. The last quarter of the places is for tenants that have few, so that one
//! that asks without end keeps nobody else out.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;

use market::ids::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Those who wait for each core.
const WAITING_PER_CORE: usize = 16;
/// Which part of all places a tenant may have and still take one of the last.
const SHARE: usize = 4;

/// As many work or wait as may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("as many work or wait as may")]
pub struct TooMany;

/// The turns of one process.
#[derive(Debug)]
pub(crate) struct Turns {
    places: Arc<Places>,
    /// Those who work.
    running: Arc<Semaphore>,
}

/// Who works or waits.
#[derive(Debug)]
struct Places {
    all: usize,
    share: usize,
    /// `None` stands for the service as a whole.
    taken: Mutex<HashMap<Option<TenantId>, usize>>,
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
struct Place {
    places: Arc<Places>,
    tenant: Option<TenantId>,
}

/// A turn; the next one comes when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _place: Place,
    _running: OwnedSemaphorePermit,
}

impl Turns {
    /// As many at once as there are cores.
    pub(crate) fn by_core() -> Self {
        let cores = available_parallelism().map_or(1, NonZeroUsize::get);
        Self::of(cores, cores * WAITING_PER_CORE)
    }

    /// So many at once, and so many that wait.
    pub(crate) fn of(running: usize, waiting: usize) -> Self {
        let all = running + waiting;
        let places = Places {
            all,
            share: all / SHARE,
            taken: Mutex::default(),
        };
        Self {
            places: Arc::new(places),
            running: Arc::new(Semaphore::new(running)),
        }
    }

    /// Waits for a turn, in the order of coming. `None` is the service as a whole.
    ///
    /// Errors: [`TooMany`] at once where too many wait.
    pub(crate) async fn take(&self, tenant: Option<TenantId>) -> Result<Turn, TooMany> {
        let place = Places::take(&self.places, tenant).ok_or(TooMany)?;
        let running = Arc::clone(&self.running).acquire_owned().await;
        Ok(Turn {
            _place: place,
            // Turns are never closed.
            _running: running.map_err(|_| TooMany)?,
        })
    }
}

impl Places {
    fn take(places: &Arc<Self>, tenant: Option<TenantId>) -> Option<Place> {
        let mut taken = places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = taken.values().sum();
        let own = taken.get(&tenant).copied().unwrap_or_default();
        // Whoever has its share already leaves as many to the others.
        let kept = if own > 0 && own >= places.share {
            places.share
        } else {
            0
        };
        if all + kept >= places.all {
            return None;
        }
        taken.insert(tenant, own + 1);
        Some(Place {
            places: Arc::clone(places),
            tenant,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let taken = self.places.taken.lock();
        let mut taken = taken.unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.tenant) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use uuid::Uuid;

    use super::*;

    fn tenant(number: u128) -> Option<TenantId> {
        Some(TenantId::from_uuid(Uuid::from_u128(number)))
    }

    #[tokio::test]
    async fn one_runs_one_waits_and_the_next_is_told_to_come_again() {
        let turns = Turns::of(1, 1);
        let first = turns.take(tenant(1)).await.expect("a turn");
        let mut second = pin!(turns.take(tenant(2)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(second.as_mut().poll(&mut context).is_pending());
        assert_eq!(turns.take(tenant(3)).await.err(), Some(TooMany));
        drop(first);
        let Poll::Ready(Ok(second)) = second.as_mut().poll(&mut context) else {
            panic!("its turn has come")
        };
        // Room for one more in the queue again.
        let mut third = pin!(turns.take(tenant(3)));
        assert!(third.as_mut().poll(&mut context).is_pending());
        drop(second);
        assert!(third.await.is_ok());
    }

    #[tokio::test]
    async fn who_no_longer_waits_keeps_nobody_from_waiting() {
        let turns = Turns::of(1, 1);
        let _first = turns.take(tenant(1)).await.expect("a turn");
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            let mut gone = Box::pin(turns.take(tenant(2)));
            assert!(gone.as_mut().poll(&mut context).is_pending());
        }
    }

    #[tokio::test]
    async fn a_tenant_that_asks_without_end_leaves_places_to_the_others() {
        let turns = Turns::of(8, 0);
        let mut own = Vec::new();
        while let Ok(turn) = turns.take(tenant(1)).await {
            own.push(turn);
        }
        assert_eq!(own.len(), 6, "all but a quarter");
        let others = [turns.take(tenant(2)).await, turns.take(None).await];
        assert!(others.iter().all(Result::is_ok));
        assert_eq!(
            turns.take(tenant(3)).await.err(),
            Some(TooMany),
            "none is left"
        );
        drop(own.pop());
        assert_eq!(
            turns.take(tenant(1)).await.err(),
            Some(TooMany),
            "it has its share"
        );
        assert!(turns.take(tenant(3)).await.is_ok());
        drop((own, others));
        assert!(turns.places.taken.lock().expect("sound").is_empty());
    }
}
