//! A fair queue for long work: some tasks run at once, some more wait, and further callers are refused and
//! try again later.
//!
//! No tenant has all places to run, and waiting callers are served round-robin over the tenants: a tenant
//! that asks without end waits for itself. The last quarter of the places to wait is for tenants that have
//! few.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

use market::ids::TenantId;
use tokio::sync::oneshot;

/// Those who wait for each core.
const WAITING_PER_CORE: usize = 16;
/// All places to run and to wait are taken.
const SHARE: usize = 4;

/// All places to run and to wait are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("all places to run and to wait are taken")]
pub struct TooMany;

/// The queue of one process.
#[derive(Debug)]
pub(crate) struct FairQueue(Arc<Places>);

#[derive(Debug)]
struct Places {
    /// How many work at once, and how many of those for one tenant.
    running: usize,
    running_for_one: usize,
    /// How many work or wait.
    all: usize,
    state: Mutex<State>,
}

/// The running and waiting callers. `None` stands for the service as a whole.
#[derive(Debug, Default)]
struct State {
    running: usize,
    of: HashMap<Option<TenantId>, Own>,
    /// The tenants with waiting callers; the next to be served is at the front.
    circle: VecDeque<Option<TenantId>>,
}

/// The running and waiting callers of one tenant.
#[derive(Debug, Default)]
struct Own {
    running: usize,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// A place to run; dropping it lets the next caller run.
#[derive(Debug)]
pub(crate) struct Turn {
    places: Arc<Places>,
    tenant: Option<TenantId>,
}

impl FairQueue {
    /// As many at once as there are cores, and for one tenant all but one of them.
    pub(crate) fn by_core() -> Self {
        let cores = available_parallelism().map_or(1, NonZeroUsize::get);
        Self::of(cores, cores * WAITING_PER_CORE)
    }

    /// So many at once, and so many that wait.
    pub(crate) fn of(running: usize, waiting: usize) -> Self {
        Self(Arc::new(Places {
            running,
            running_for_one: running.saturating_sub(1).max(1),
            all: running + waiting,
            state: Mutex::default(),
        }))
    }

    /// Waits for a place to run. `None` is the service as a whole.
    ///
    /// Errors: [`TooMany`] at once where too many wait.
    pub(crate) async fn take(&self, tenant: Option<TenantId>) -> Result<Turn, TooMany> {
        let comes = {
            let mut state = self.0.state();
            state.forget_gone();
            if !self.0.has_place(&state, tenant) {
                return Err(TooMany);
            }
            let (sender, comes) = oneshot::channel();
            let own = state.of.entry(tenant).or_default();
            own.waiting.push_back(sender);
            if own.waiting.len() == 1 {
                state.circle.push_back(tenant);
            }
            comes
        };
        self.0.serve();
        // No waiting caller is ever dropped unserved.
        comes.await.map_err(|_| TooMany)
    }
}

impl State {
    /// Callers that no longer wait give up their places.
    fn forget_gone(&mut self) {
        for own in self.of.values_mut() {
            own.waiting.retain(|sender| !sender.is_closed());
        }
        self.of
            .retain(|_, own| own.running > 0 || !own.waiting.is_empty());
        let of = &self.of;
        let waits = |tenant: &Option<TenantId>| {
            let own = of.get(tenant);
            own.is_some_and(|own| !own.waiting.is_empty())
        };
        self.circle.retain(waits);
    }
}

impl Places {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tenant that already has its share leaves as many places to the others.
    fn has_place(&self, state: &State, tenant: Option<TenantId>) -> bool {
        let places = |own: &Own| own.running + own.waiting.len();
        let all: usize = state.of.values().map(places).sum();
        let own = state.of.get(&tenant).map_or(0, places);
        let share = self.all / SHARE;
        let kept = if own > 0 && own >= share { share } else { 0 };
        all + kept < self.all
    }

    /// Gives the free places to run to the waiting callers.
    fn serve(self: &Arc<Self>) {
        while let Some((sender, turn)) = self.next() {
            // A caller that no longer waits gives its place back here.
            let _ = sender.send(turn);
        }
    }

    /// The next one of the first tenant in the circle that may have one more.
    fn next(self: &Arc<Self>) -> Option<(oneshot::Sender<Turn>, Turn)> {
        let mut state = self.state();
        if state.running >= self.running {
            return None;
        }
        let may = |tenant: &Option<TenantId>| {
            let own = state.of.get(tenant);
            own.is_some_and(|own| own.running < self.running_for_one)
        };
        let place = state.circle.iter().position(may)?;
        let tenant = state.circle.remove(place)?;
        let own = state.of.get_mut(&tenant)?;
        let sender = own.waiting.pop_front()?;
        own.running += 1;
        let others_wait = !own.waiting.is_empty();
        state.running += 1;
        if others_wait {
            state.circle.push_back(tenant);
        }
        let places = Arc::clone(self);
        Some((sender, Turn { places, tenant }))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.places.state();
        state.running -= 1;
        if let Some(own) = state.of.get_mut(&self.tenant) {
            own.running -= 1;
            if own.running == 0 && own.waiting.is_empty() {
                state.of.remove(&self.tenant);
            }
        }
        drop(state);
        self.places.serve();
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
        let turns = FairQueue::of(1, 1);
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
        let turns = FairQueue::of(1, 1);
        let _first = turns.take(tenant(1)).await.expect("a turn");
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            let mut gone = Box::pin(turns.take(tenant(2)));
            assert!(gone.as_mut().poll(&mut context).is_pending());
        }
    }

    #[tokio::test]
    async fn those_who_wait_are_served_tenant_by_tenant_and_none_works_in_all_places() {
        let turns = FairQueue::of(2, 30);
        let mut context = Context::from_waker(Waker::noop());
        let mut asked: Vec<_> = [1, 1, 1, 1, 2, 2, 3]
            .into_iter()
            .map(|number| (number, Box::pin(turns.take(tenant(number)))))
            .collect();
        let mut served = Vec::new();
        let mut working: VecDeque<Turn> = VecDeque::new();
        loop {
            // Each waiting caller asks for it once.
            asked.retain_mut(|(number, comes)| match comes.as_mut().poll(&mut context) {
                Poll::Ready(turn) => {
                    working.push_back(turn.expect("a turn"));
                    served.push(*number);
                    false
                }
                Poll::Pending => true,
            });
            let mut whose: Vec<_> = working.iter().map(|turn| turn.tenant).collect();
            whose.dedup();
            assert_eq!(whose.len(), working.len(), "one works in all places");
            // The first to come is the first to end.
            if working.pop_front().is_none() {
                break;
            }
        }
        assert_eq!(served, [1, 2, 1, 2, 3, 1, 1]);
        assert!(asked.is_empty());
    }

    #[tokio::test]
    async fn a_tenant_that_asks_without_end_leaves_places_to_the_others() {
        let turns = FairQueue::of(8, 0);
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
        assert!(turns.0.state().of.is_empty());
    }
}
