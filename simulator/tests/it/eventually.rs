//! Waits for effects in real time, of the simulator's own threads and of other processes. Every wait has a
//! bound.

use std::time::Duration;

use tokio::time::{sleep, timeout};

/// How long a test waits before it fails: far longer than anything takes on a busy machine, so that a test
/// fails by it only when the effect never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Checks in real time until it is so.
pub async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let asked = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(what, asked).await;
}

/// Waits for an effect that comes by itself.
pub async fn in_time<T>(what: &str, comes: impl Future<Output = T>) -> T {
    let seconds = PATIENCE.as_secs();
    let came = timeout(PATIENCE, comes).await;
    came.unwrap_or_else(|_| {
        panic!("{what} does not come about within {seconds} s: never, or not on so slow a machine")
    })
}
