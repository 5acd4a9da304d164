//! Heartbeats of the background tasks of this process: each task reports that it lives, and by when it will
//! report again. [`crate::platform::background`] records failed tasks; `GET /readyz` and the metrics show the
//! state of all.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The heartbeats of one process. Times are real: a task that hangs does so in real time.
#[derive(Debug, Default)]
pub struct Heartbeats {
    tasks: Mutex<BTreeMap<String, Pulse>>,
    stopping: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
enum Pulse {
    /// It runs and has promised nothing: it only waits for the stop, or has just begun.
    Begun,
    /// Its next heartbeat comes before this.
    Until(Instant),
    /// It failed, and waits before its restart.
    Fallen,
}

/// The state of a background task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It sends heartbeats.
    Alive,
    /// It is overdue by so much.
    Silent(Duration),
    /// It failed and is restarted after a delay.
    Fallen,
}

impl Life {
    /// Whether it sends heartbeats.
    #[must_use]
    pub const fn is_alive(self) -> bool {
        matches!(self, Self::Alive)
    }
}

impl Heartbeats {
    /// A task lives and sends its next heartbeat within this time.
    pub fn beat(&self, task: &str, within: Duration) {
        self.set(task, Pulse::Until(Instant::now() + within));
    }

    /// A task was started, for the first time or again.
    pub(crate) fn begin(&self, task: &str) {
        self.set(task, Pulse::Begun);
    }

    /// A task panicked, or returned before it was stopped.
    pub(crate) fn fall(&self, task: &str) {
        self.set(task, Pulse::Fallen);
    }

    /// This process stops: it takes on nothing more.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether this process stops.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// The state of each task, by name.
    #[must_use]
    pub fn lives(&self) -> Vec<(String, Life)> {
        self.lives_at(Instant::now())
    }

    fn lives_at(&self, now: Instant) -> Vec<(String, Life)> {
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let life = |pulse: &Pulse| match pulse {
            Pulse::Until(then) if now > *then => Life::Silent(now - *then),
            Pulse::Begun | Pulse::Until(_) => Life::Alive,
            Pulse::Fallen => Life::Fallen,
        };
        let each = tasks.iter();
        each.map(|(task, pulse)| (task.clone(), life(pulse)))
            .collect()
    }

    fn set(&self, task: &str, pulse: Pulse) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Almost always known: a name is made once.
        match tasks.get_mut(task) {
            Some(known) => *known = pulse,
            None => {
                tasks.insert(task.to_owned(), pulse);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMISE: Duration = Duration::from_secs(30);

    fn life(pulses: &Heartbeats, later: Duration) -> Life {
        pulses.lives_at(Instant::now() + later)[0].1
    }

    #[test]
    fn a_task_is_silent_once_it_broke_its_promise() {
        let pulses = Heartbeats::default();
        pulses.beat("tail", PROMISE);
        assert_eq!(life(&pulses, PROMISE / 2), Life::Alive);
        assert!(matches!(life(&pulses, PROMISE * 2), Life::Silent(by) if by > PROMISE / 2));
    }

    #[test]
    fn a_task_that_promised_nothing_is_alive_until_it_falls() {
        let pulses = Heartbeats::default();
        pulses.begin("streams");
        assert_eq!(life(&pulses, PROMISE * 100), Life::Alive);
        pulses.fall("streams");
        assert_eq!(life(&pulses, Duration::ZERO), Life::Fallen);
        pulses.begin("streams");
        assert_eq!(life(&pulses, Duration::ZERO), Life::Alive);
    }
}
