//! The processes of nodes: each the leader of a group of its own, with a clean environment, in the
//! home of its node.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::oneshot;

use super::home::HARDWARE;
use super::{Key, Pool, Shared};

/// How much of each stream's end is kept for a node.
const KEPT_OUTPUT_BYTES: usize = 16 * 1024;

/// A process of a node, from its start.
pub(super) struct Process {
    leader: Pid,
    pub(super) stdin: Option<ChildStdin>,
    pub(super) stdout: Option<ChildStdout>,
    pub(super) stderr: Option<ChildStderr>,
    exit: oneshot::Receiver<io::Result<ExitStatus>>,
}

/// How a process ended.
pub(super) struct Ended {
    /// Its exit status; absent when nobody waited for it any more.
    pub(super) status: Option<io::Result<ExitStatus>>,
    /// Whether it was killed at its deadline.
    pub(super) overran: bool,
}

impl Process {
    /// Starts a process and notes its leader under one lock, so that a stop of the machine sees either no
    /// process or one that it can kill. None when the machine has been stopped meanwhile.
    pub(super) fn start(
        shared: &Arc<Shared>,
        key: &Key,
        words: &[&OsStr],
        stdin: Stdio,
    ) -> io::Result<Option<Self>> {
        let [program, arguments @ ..] = words else {
            return Ok(None);
        };
        let mut pool = shared.pool();
        let Pool { nodes, workspace } = &mut *pool;
        let (Some(node), Some(workspace)) = (nodes.get_mut(key), workspace) else {
            return Ok(None);
        };
        let Some(home) = node.home.as_ref().filter(|_| !node.stopped) else {
            return Ok(None);
        };
        let mut command = Command::new(program);
        command.args(arguments).env_clear().current_dir(home);
        command
            .env("HOME", home)
            .env("SIMULATED_NODE", home.join(HARDWARE))
            .env("PATH", &workspace.search_path);
        command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn()?;
        let leader = Pid::from_child(&child);
        node.leaders.push(leader);
        drop(pool);
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stderr = child.stderr.take();
        Ok(Some(Self {
            leader,
            stdin: stdin.and_then(|stream| ChildStdin::from_std(stream).ok()),
            stdout: stdout.and_then(|stream| ChildStdout::from_std(stream).ok()),
            stderr: stderr.and_then(|stream| ChildStderr::from_std(stream).ok()),
            exit: wait_in_thread(shared, key, child),
        }))
    }

    /// Waits until the process has ended, and ends it at the deadline.
    pub(super) async fn ended(self, shared: &Shared, key: &Key) -> Ended {
        let mut exit = self.exit;
        let mut overran = false;
        let status = tokio::select! {
            status = &mut exit => status,
            () = tokio::time::sleep(shared.deadline) => {
                overran = shared.kill_running(key, self.leader);
                exit.await
            }
        };
        Ended {
            status: status.ok(),
            overran,
        }
    }
}

/// Kills a group whose leader has not been waited for, so that it is still ours.
pub(super) fn kill(leader: Pid) {
    let _ = kill_process_group(leader, Signal::KILL);
}

/// Waits for the leader in a thread of its own. It waits until the leader has exited and kills the rest of
/// its group before the leader's number can be reused. Only then it reaps the leader.
fn wait_in_thread(
    shared: &Arc<Shared>,
    key: &Key,
    mut child: Child,
) -> oneshot::Receiver<io::Result<ExitStatus>> {
    let (sender, receiver) = oneshot::channel();
    let (shared, key) = (Arc::clone(shared), key.clone());
    std::thread::spawn(move || {
        let leader = Pid::from_child(&child);
        let exited = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(leader), exited), Err(error) if error == rustix::io::Errno::INTR)
        {
        }
        let mut pool = shared.pool();
        kill(leader);
        if let Some(node) = pool.nodes.get_mut(&key) {
            node.leaders.retain(|one| *one != leader);
        }
        let status = child.wait();
        drop(pool);
        shared.reaped.notify_all();
        // The receiver is gone when the runtime is.
        let _ = sender.send(status);
    });
    receiver
}

/// Reads a stream to its end and keeps its tail; calls `hears` each time that more arrives.
pub(super) async fn keep_tail(
    stream: Option<impl AsyncRead + Unpin>,
    kept: &Mutex<Vec<u8>>,
    hears: impl Fn(&[u8]),
) {
    let Some(mut stream) = stream else { return };
    let mut chunk = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&chunk[..read]);
        let excess = kept.len().saturating_sub(KEPT_OUTPUT_BYTES);
        kept.drain(..excess);
        hears(&kept);
    }
}
