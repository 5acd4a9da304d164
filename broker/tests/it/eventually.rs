//! What comes about by real time: in other processes, and in tasks that no test can step through.

use std::time::{Duration, Instant};

use tokio::time::sleep;

/// Asks in real time until it is so.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "{what} does not come about"
        );
        sleep(Duration::from_millis(10)).await;
    }
}
