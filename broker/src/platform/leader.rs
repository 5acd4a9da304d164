//! Work that one replica does at a time: it keeps the leader lease while the work runs.

use std::time::Duration;

use tokio::time::sleep;

use crate::platform::app::Broker;
use crate::platform::stop::{Stop, pause};

/// How long a lease outlives the last sign of its holder: the longest delay after a crash.
const TTL: Duration = Duration::from_secs(15);
/// How often a holder renews it, and the others ask for it.
const EVERY: Duration = Duration::from_secs(5);
/// A task that waits for its leader lease sends a heartbeat within this time.
const WAITING: Duration = Duration::from_secs(60);
/// The time within which a task that holds the lease sends a heartbeat. Runs are minutes apart, and each may
/// call a provider.
const TURN: Duration = Duration::from_secs(20 * 60);

/// Runs a piece of work repeatedly until stopped; while another replica has the lease, it waits. A run under
/// way is dropped when the lease passes to another, and on stop; the lease is then given back. The work's
/// task sends its heartbeats under the name of the work.
pub(crate) async fn keep_turns<F>(
    broker: &Broker,
    work: &str,
    stop: &Stop,
    mut turn: impl FnMut() -> F,
) where
    F: Future<Output = ()>,
{
    while !stop.is_cancelled() {
        broker.pulses().beat(work, WAITING);
        if !acquire(broker, work).await {
            pause(stop, EVERY).await;
            continue;
        }
        let turns = async {
            loop {
                broker.pulses().beat(work, TURN);
                turn().await;
            }
        };
        let until_lost = async {
            tokio::select! {
                () = turns => {}
                () = lost(broker, work) => {}
            }
        };
        stop.run_until_cancelled(until_lost).await;
    }
    broker.hot().release(work, broker.replica()).await;
}

/// Whether this replica may do the work now.
pub(crate) async fn acquire(broker: &Broker, work: &str) -> bool {
    broker.hot().acquire(work, broker.replica(), TTL).await
}

/// Renews a lease until another has it.
async fn lost(broker: &Broker, work: &str) {
    loop {
        sleep(EVERY).await;
        let (hot, replica) = (broker.hot(), broker.replica());
        // A lease that lapsed, or that was lost with the server's memory, is taken again.
        if !hot.renew(work, replica, TTL).await && !acquire(broker, work).await {
            return;
        }
    }
}
