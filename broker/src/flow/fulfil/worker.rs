//! The worker of a replica: claims due work and runs the rounds in parallel, until stopped.

use std::collections::HashMap;
use std::time::Duration;

use chrono::TimeDelta;
use store::work::Claim;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{Instrument as _, debug_span, error, warn};

use super::{AFTER_OUR_FAULT, BATCH, claim, give_back, round};
use crate::flow::ingest;
use crate::platform::app::Broker;
use crate::platform::stop::Stop;

/// Reservations that one process works on side by side.
const AT_ONCE: usize = 64;
/// How often the worker looks for due reservations when nobody nudges.
const TICK: Duration = Duration::from_secs(1);
/// A worker that has not looked for so long has stopped working.
const SILENCE: Duration = Duration::from_secs(60);
/// How long work waits at startup for a reading of every provider.
const SUPPLY_PATIENCE: Duration = Duration::from_secs(20);

/// Reads every provider that no other replica reads, then works until stopped. Data from before a pause is
/// stale, so the worker decides nothing on it.
pub async fn work_on_fresh_supply(broker: Broker, stop: Stop) {
    let reading = timeout(SUPPLY_PATIENCE, ingest::read_own(&broker));
    match stop.run_until_cancelled(reading).await {
        Some(Ok(failures)) => {
            for failure in failures {
                warn!(error = %crate::chain(&failure), "A provider could not be read");
            }
        }
        // One that hangs keeps the others from no work; its own offers are past their freshness.
        Some(Err(_)) => warn!("Not every provider answered yet; the work begins without them"),
        None => {}
    }
    keep_working(broker, stop).await;
}

/// Works until stopped: on a nudge, on a timer, and whenever a round ends.
///
/// Once stopped, it claims nothing more and gives the rounds under way the configured drain time to end.
/// After that it gives back the work that others can continue.
pub async fn keep_working(broker: Broker, stop: Stop) {
    let mut rounds = Rounds::default();
    while !stop.is_cancelled() {
        broker.pulses().beat("fulfil", SILENCE);
        rounds.claim_due(&broker).await;
        let ended = tokio::select! {
            Some(ended) = rounds.tasks.join_next_with_id() => Some(ended),
            // A nudge that is missed is made up for by the timer.
            () = broker.nudged() => None,
            () = tokio::time::sleep(TICK) => None,
            () = stop.cancelled() => None,
        };
        if let Some(ended) = ended {
            rounds.settle(&broker, ended).await;
        }
    }
    rounds.drain(&broker, broker.config().server.drain()).await;
}

/// The rounds under way, each in its own task: a round that waits, for a provider or for the database, must
/// never hold up claiming.
#[derive(Default)]
struct Rounds {
    tasks: JoinSet<()>,
    claims: HashMap<Id, Claim>,
}

impl Rounds {
    async fn claim_due(&mut self, broker: &Broker) {
        let room = AT_ONCE.saturating_sub(self.tasks.len()) as u64;
        match claim(broker, room.min(BATCH)).await {
            Ok((read_at, due)) => {
                for claimed in due {
                    let (broker, claim) = (broker.clone(), claimed.claim);
                    let span = debug_span!("fulfil", reservation.id = %claim.reservation_id());
                    let round = async move { round(&broker, claimed, read_at).await };
                    let task = self.tasks.spawn(round.instrument(span));
                    self.claims.insert(task.id(), claim);
                }
            }
            Err(error) => {
                warn!(error = %crate::chain(&error), "Due reservations could not be claimed");
            }
        }
    }

    /// Forgets a round that ended; the claim of one that panicked is given back.
    async fn settle(&mut self, broker: &Broker, ended: Result<(Id, ()), JoinError>) {
        match ended {
            Ok((task, ())) => {
                self.claims.remove(&task);
            }
            Err(panic) => {
                error!(%panic, "A round ended in a panic");
                if let Some(claim) = self.claims.remove(&panic.id()) {
                    give_back(broker, &claim, AFTER_OUR_FAULT, panic.to_string()).await;
                }
            }
        }
    }

    /// Gives the rounds so long to end, then drops the others and gives back their claims.
    async fn drain(mut self, broker: &Broker, within: Duration) {
        let deadline = Instant::now() + within;
        while let Ok(ended) = timeout_at(deadline, self.tasks.join_next_with_id()).await {
            match ended {
                Some(ended) => self.settle(broker, ended).await,
                None => return,
            }
        }
        // Awaited: nobody works any more on claims that are given back.
        self.tasks.shutdown().await;
        warn!(
            reservations = self.claims.len(),
            "Stopped before {} rounds ended; their work is given back",
            self.claims.len()
        );
        for claim in self.claims.values() {
            let why = "the service stopped in the middle of a round".to_owned();
            give_back(broker, claim, TimeDelta::zero(), why).await;
        }
    }
}
