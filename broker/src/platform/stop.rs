//! How a task in the background learns that it has to end.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// How a task learns that it has to end.
///
/// [`CancellationToken::run_until_cancelled`] drops its future, where that may be dropped; a task that must
/// finish something waits for [`CancellationToken::cancelled`] beside it.
pub type Stop = CancellationToken;

/// Waits before a task continues; false when it has to end meanwhile.
pub(crate) async fn pause(stop: &Stop, pause: Duration) -> bool {
    stop.run_until_cancelled(tokio::time::sleep(pause))
        .await
        .is_some()
}
