//! The background work of a replica: one list of named tasks. Each is restarted when it panics; one token
//! stops them all, and a shutdown awaits them.
//!
//! [`crate::service::tasks`] lists the tasks. The work of a task lives with its stage.

use std::any::Any;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tracing::{error, warn};

use crate::platform::app::Broker;
use crate::platform::heartbeat::Heartbeats;
use crate::platform::metrics;
use crate::platform::stop::{Stop, pause};

/// The first delay before a task that ended early is restarted; it doubles each time after.
const FIRST_REST: Duration = Duration::from_secs(1);
/// The longest delay; a task that ran this long starts with the first delay again.
const LONGEST_REST: Duration = Duration::from_secs(60);
/// How long tasks have to end beyond the drain time, which those that drain may use up.
const AFTER_DRAIN: Duration = Duration::from_secs(5);

/// Tasks that run until stopped. Those still running when this is dropped end at their next await.
pub struct Background {
    broker: Broker,
    stop: Stop,
    tasks: JoinSet<()>,
    names: Vec<(String, AbortHandle)>,
    first_rest: Duration,
}

impl Background {
    /// No task yet, for this broker.
    #[must_use]
    pub fn of(broker: &Broker) -> Self {
        Self {
            broker: broker.clone(),
            stop: Stop::new(),
            tasks: JoinSet::new(),
            names: Vec::new(),
            first_rest: FIRST_REST,
        }
    }

    /// The broker of the tasks.
    pub(crate) fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Starts a task that runs until stopped.
    ///
    /// `task` makes it: once now, and again after a delay each time that it panics or returns before it was
    /// stopped. It starts from the database; nothing is handed from one life to the next.
    pub fn add<T, F>(&mut self, name: impl Display, mut task: T)
    where
        T: FnMut(Broker, Stop) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let name = name.to_string();
        let (broker, stop) = (self.broker.clone(), self.stop.clone());
        let pulses = Arc::clone(broker.pulses());
        let supervised = supervise(name.clone(), pulses, self.first_rest, stop, move |stop| {
            task(broker.clone(), stop)
        });
        self.names.push((name, self.tasks.spawn(supervised)));
    }

    /// Stops every task and waits until all have ended: for the configured drain time and a little more.
    /// Tasks that run longer are dropped.
    pub async fn stop(mut self) {
        self.stop.cancel();
        self.broker.pulses().stop();
        let patience = self.broker.config().server.drain() + AFTER_DRAIN;
        let all_ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, all_ended).await.is_err() {
            for (name, _) in self.names.iter().filter(|(_, task)| !task.is_finished()) {
                warn!(task = %name, "The task {name} did not end in time and is dropped");
            }
            self.tasks.shutdown().await;
        }
    }
}

/// Keeps a task running until stopped, however its earlier runs end.
async fn supervise<F>(
    name: String,
    pulses: Arc<Heartbeats>,
    first_rest: Duration,
    stop: Stop,
    mut task: impl FnMut(Stop) -> F,
) where
    F: Future<Output = ()>,
{
    let mut rest = first_rest;
    loop {
        let began = Instant::now();
        pulses.begin(&name);
        // State that a task shares with others lies behind locks that survive a panic, or in the database;
        // state of its own is dropped here.
        let ended = AssertUnwindSafe(async { task(stop.clone()).await })
            .catch_unwind()
            .await;
        if ended.is_ok() && stop.is_cancelled() {
            return;
        }
        pulses.fall(&name);
        metrics::task_fell(&name);
        if began.elapsed() >= LONGEST_REST {
            rest = first_rest;
        }
        let how = match ended {
            Ok(()) => "returned before it was stopped".to_owned(),
            Err(panic) => format!("panicked: {}", words_of(&*panic)),
        };
        error!(
            task = %name, rest_ms = rest.as_millis(),
            "The task {name} {how}; it is restarted after a delay"
        );
        if !pause(&stop, rest).await {
            return;
        }
        rest = (rest * 2).min(LONGEST_REST);
    }
}

/// The message of a panic.
fn words_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::platform::heartbeat::Life;

    /// Runs a task that ends badly in its first lives; returns how many lives it had when it was stopped,
    /// which its last life waits for.
    async fn lives_of(bad_end: fn(usize)) -> usize {
        let lives = Arc::new(AtomicUsize::new(0));
        let stop = Stop::new();
        let (counted, token) = (Arc::clone(&lives), stop.clone());
        let pulses = Arc::default();
        supervise("t".into(), pulses, Duration::ZERO, stop, move |stop| {
            let life = counted.fetch_add(1, Ordering::Relaxed);
            let token = token.clone();
            async move {
                if life < 3 {
                    return bad_end(life);
                }
                token.cancel();
                stop.cancelled().await;
            }
        })
        .await;
        lives.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn a_task_that_panics_is_started_again() {
        assert_eq!(lives_of(|life| panic!("in life {life}")).await, 4);
    }

    #[tokio::test]
    async fn a_task_that_returns_untold_is_started_again() {
        assert_eq!(lives_of(|_| ()).await, 4);
    }

    #[tokio::test]
    async fn a_task_that_panics_before_its_first_await_is_started_again_too() {
        let stop = Stop::new();
        let token = stop.clone();
        let mut lives = 0;
        let pulses = Arc::default();
        supervise("t".into(), pulses, Duration::ZERO, stop, |_| {
            lives += 1;
            assert!(lives > 1, "in its first life");
            token.cancel();
            std::future::ready(())
        })
        .await;
        assert_eq!(lives, 2);
    }

    #[tokio::test]
    async fn a_rest_ends_when_the_task_is_told_to_stop() {
        let stop = Stop::new();
        let token = stop.clone();
        let pulses: Arc<Heartbeats> = Arc::default();
        let (shared, rest) = (Arc::clone(&pulses), Duration::from_secs(3_600));
        let supervised = supervise("t".into(), shared, rest, stop, |_| {
            let token = token.clone();
            async move {
                token.cancel();
                panic!("while it is being stopped");
            }
        });
        let ended = tokio::time::timeout(Duration::from_secs(60), supervised).await;
        ended.expect("its rest ends long before it is over");
        assert_eq!(pulses.lives(), [("t".to_owned(), Life::Fallen)]);
    }
}
