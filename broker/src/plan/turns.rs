//! Whose turn it is to search for a plan: as many search at once as there are cores, some more wait,
//! and whoever comes beyond is told to come again.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::PlanError;

/// Searches that wait for each core.
const WAITING_PER_CORE: usize = 16;

/// The turns of one process.
pub(crate) struct Turns {
    /// Searches that run or wait.
    admitted: Arc<Semaphore>,
    /// Searches that run.
    running: Arc<Semaphore>,
}

/// A turn; the next one comes when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _admitted: OwnedSemaphorePermit,
    _running: OwnedSemaphorePermit,
}

impl Default for Turns {
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, NonZeroUsize::get);
        Self::of(cores, cores * WAITING_PER_CORE)
    }
}

impl Turns {
    fn of(running: usize, waiting: usize) -> Self {
        Self {
            admitted: Arc::new(Semaphore::new(running + waiting)),
            running: Arc::new(Semaphore::new(running)),
        }
    }

    /// Waits for a turn, in the order of coming.
    ///
    /// Errors: [`PlanError::Busy`] at once where too many wait.
    pub(crate) async fn take(&self) -> Result<Turn, PlanError> {
        let admitted = Arc::clone(&self.admitted).try_acquire_owned();
        let admitted = admitted.map_err(|_| PlanError::Busy)?;
        let running = Arc::clone(&self.running).acquire_owned().await;
        Ok(Turn {
            _admitted: admitted,
            // Turns are never closed.
            _running: running.map_err(|_| PlanError::Busy)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[tokio::test]
    async fn one_runs_one_waits_and_the_next_is_told_to_come_again() {
        let turns = Turns::of(1, 1);
        let first = turns.take().await.expect("a turn");
        let mut second = pin!(turns.take());
        let mut context = Context::from_waker(Waker::noop());
        assert!(second.as_mut().poll(&mut context).is_pending());
        assert!(matches!(turns.take().await, Err(PlanError::Busy)));
        drop(first);
        let Poll::Ready(Ok(second)) = second.as_mut().poll(&mut context) else {
            panic!("its turn has come")
        };
        // Room for one more in the queue again.
        let mut third = pin!(turns.take());
        assert!(third.as_mut().poll(&mut context).is_pending());
        drop(second);
        assert!(third.await.is_ok());
    }

    #[tokio::test]
    async fn who_no_longer_waits_keeps_nobody_from_waiting() {
        let turns = Turns::of(1, 1);
        let _first = turns.take().await.expect("a turn");
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            let mut gone = Box::pin(turns.take());
            assert!(gone.as_mut().poll(&mut context).is_pending());
        }
    }
}
