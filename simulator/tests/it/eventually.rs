//! What comes about by real time, in the simulator's own threads and in other processes. No test waits for it
//! without a bound.

use std::time::Duration;

use tokio::time::{sleep, timeout};

/// How long anything may take before a test gives it up: far longer than on a busy machine, so that a test
/// fails by it only where something never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Asks in real time until it is so.
pub async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let asked = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(what, asked).await;
}

/// Waits for what comes by itself.
pub async fn in_time<T>(what: &str, comes: impl Future<Output = T>) -> T {
    let seconds = PATIENCE.as_secs();
    let came = timeout(PATIENCE, comes).await;
    came.unwrap_or_else(|_| {
        panic!("{what} does not come about within {seconds} s: never, or not on so slow a machine")
    })
}
