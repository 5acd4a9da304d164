//! Commands that arrive at a node over SSH with the key that carries the mark of its order. The order's own
//! start-up script runs in the same way.

use std::ffi::OsStr;
use std::process::Stdio;
use std::sync::{Arc, Weak};

use tokio::io::{AsyncRead, AsyncWrite, WriteHalf, copy, split};
use tokio::time::timeout;

use super::process::{Process, keep_tail};
use super::{Busy, Key, OUTPUT_GRACE, Shared};

/// The most commands at once, on all nodes together.
pub(super) const MOST_COMMANDS: usize = 64;
/// Runs a command with its errors on descriptor 3 too: a part that runs on in silence writes there when it
/// waits for nodes of other machines.
const HEARD: &str = r#"exec 3>&2; exec /bin/sh -c "$1""#;
/// The exit status of a command that was not run, or did not end by itself.
const NOT_RUN: u32 = 126;

/// Runs commands on a node.
#[derive(Clone)]
pub(crate) struct Shell {
    shared: Weak<Shared>,
    key: Key,
}

impl Shell {
    pub(super) fn of(shared: &Arc<Shared>, key: Key) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            key,
        }
    }

    /// Runs a command until it ends, its deadline or its machine's end, with a connection as its input and
    /// output; returns its exit status. The caller may hang up before it ends.
    ///
    /// With the status it returns the end of the connection that was written to: dropping it hangs up.
    pub(crate) async fn run<C>(&self, command: &str, over: C) -> (u32, Option<WriteHalf<C>>)
    where
        C: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (mut heard, mut said) = split(over);
        let Some(shared) = self.shared.upgrade() else {
            return (NOT_RUN, Some(said));
        };
        let Ok(_place) = Arc::clone(&shared.commands).try_acquire_owned() else {
            return (NOT_RUN, Some(said));
        };
        let busy = Arc::new(Busy::count(&shared));
        let hearing = Arc::clone(&busy);
        let words = ["/bin/sh", "-c", HEARD, "sh", command].map(OsStr::new);
        let started = Process::start(&shared, &self.key, &words, Stdio::piped());
        let Ok(Some(mut process)) = started else {
            return (NOT_RUN, Some(said));
        };
        let (_, kept) = shared.kept_output(&self.key);
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
        let stderr = process.stderr.take();
        let listening = tokio::spawn(async move {
            if let Some(mut stdin) = stdin {
                // It ends when the caller has sent everything, or the command reads no more.
                let _ = copy(&mut heard, &mut stdin).await;
            }
        });
        let speaking = tokio::spawn(async move {
            let speak = async {
                if let Some(mut stdout) = stdout {
                    // The caller may be gone.
                    let _ = copy(&mut stdout, &mut said).await;
                }
            };
            let hear = keep_tail(stderr, &kept, |written| hearing.hears(written));
            tokio::join!(speak, hear);
            said
        });
        let ended = process.ended(&shared, &self.key).await;
        listening.abort();
        let stop_speaking = speaking.abort_handle();
        let said = timeout(OUTPUT_GRACE, speaking).await;
        stop_speaking.abort();
        let status = ended.status.and_then(Result::ok);
        let code = status.and_then(|status| status.code());
        let code = code.and_then(|code| u32::try_from(code).ok());
        (code.unwrap_or(NOT_RUN), said.ok().and_then(Result::ok))
    }
}
