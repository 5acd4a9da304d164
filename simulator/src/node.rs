//! Pretend nodes: each runs the start-up script of its order as a child process, with a clean
//! environment, in a directory of its own, in a process group of its own, under a deadline.
//!
//! Only process groups that this module started are ever signalled, and only while their leader
//! has not been waited for, so that its number cannot have passed to anyone else. What a script
//! leaves behind in its group ends with it: a script waits for what it starts.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot, watch};
use tracing::warn;

use crate::SimulatorError;
use crate::hardware::Hardware;
use crate::machine::Record;
use crate::ssh::{Port, SshServer};

/// How much of each stream of a node is kept: its end.
const KEPT_OUTPUT_BYTES: usize = 16 * 1024;
/// How long the last output may take to arrive after the whole process group is dead.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);
/// How long a simulator that is dropped waits for the processes it has just killed.
const DROP_GRACE: Duration = Duration::from_secs(5);

/// How a node's script ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeEnd {
    /// By itself, with this status.
    Exited(i32),
    /// By a signal that did not come from here.
    Signalled(i32),
    /// Killed: it ran past its deadline.
    DeadlinePassed,
    /// Killed or never started: its machine was ended, or the simulator was stopped.
    Stopped,
    /// It could not be started, for this reason.
    NotStarted(String),
}

/// What a node's script said and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOutput {
    /// The end of its standard output.
    pub stdout: String,
    /// The end of its standard error.
    pub stderr: String,
    /// How it ended; absent while it waits or runs.
    pub end: Option<NodeEnd>,
}

type Key = (String, usize);

#[derive(Default)]
struct Node {
    /// The leader of the node's process group, from its start until it is waited for.
    leader: Option<Pid>,
    stopped: bool,
    overran: bool,
    stdout: Arc<Mutex<Vec<u8>>>,
    stderr: Arc<Mutex<Vec<u8>>>,
    end: Option<NodeEnd>,
    /// Listens from the start of the node to its end.
    ssh: Option<SshServer>,
}

impl Node {
    /// The leader has not been waited for while `leader` is set, so the group is still ours.
    fn kill(&self) {
        if let Some(leader) = self.leader {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }

    /// Ends what runs on it and lets nothing more start.
    fn stop(&mut self) {
        self.stopped = true;
        self.ssh = None;
        self.kill();
    }
}

struct Pool {
    nodes: HashMap<Key, Node>,
    /// Where the directories of the nodes are; absent once the simulator has stopped.
    workspace: Option<TempDir>,
}

struct Shared {
    pool: Mutex<Pool>,
    reaped: Condvar,
    unfinished: watch::Sender<usize>,
    slots: Arc<Semaphore>,
    at_once: u32,
    deadline: Duration,
}

impl Shared {
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All nodes that run or ran.
pub(crate) struct Nodes {
    shared: Arc<Shared>,
    runtime: Handle,
    ssh_port: Port,
}

impl Nodes {
    /// Must be called within a Tokio runtime, on which the nodes are then looked after.
    pub(crate) fn try_new(deadline: Duration, at_once: u32) -> Result<Self, SimulatorError> {
        let workspace = tempfile::Builder::new()
            .prefix("simulator-")
            .tempdir()
            .map_err(SimulatorError::Workspace)?;
        let shared = Shared {
            pool: Mutex::new(Pool {
                nodes: HashMap::new(),
                workspace: Some(workspace),
            }),
            reaped: Condvar::new(),
            unfinished: watch::Sender::new(0),
            slots: Arc::new(Semaphore::new(at_once.max(1) as usize)),
            at_once: at_once.max(1),
            deadline,
        };
        Ok(Self {
            shared: Arc::new(shared),
            runtime: Handle::current(),
            ssh_port: Port::take()?,
        })
    }

    /// The port at which nodes answer SSH.
    pub(crate) const fn ssh_port(&self) -> u16 {
        self.ssh_port.number()
    }

    /// Starts the scripts of a machine's nodes, or queues them when enough nodes are running.
    ///
    /// They start together, for they may wait for each other: of a machine with more nodes than
    /// run at once, all run, and nothing else does.
    pub(crate) fn start(&self, record: &Record) {
        let Some(script) = record.script() else {
            return;
        };
        let mut due = Vec::new();
        for (index, hardware) in record.hardware().into_iter().enumerate() {
            let key = (record.id.clone(), index);
            let ssh = self.open_ssh(record, index, &hardware);
            let hardware = match &ssh {
                Some(server) => hardware.with_host_key(server.public_key()),
                None => hardware,
            };
            let node = Node {
                ssh,
                ..Node::default()
            };
            self.shared.pool().nodes.insert(key.clone(), node);
            due.push((key, hardware, Unfinished::count(&self.shared)));
        }
        let slots = record.nodes().clamp(1, self.shared.at_once);
        let shared = Arc::clone(&self.shared);
        self.runtime.spawn(async move {
            // The semaphore is never closed.
            let Ok(slots) = Arc::clone(&shared.slots).acquire_many_owned(slots).await else {
                return;
            };
            let slots = Arc::new(slots);
            for (key, hardware, unfinished) in due {
                let node = on_its_own(Arc::clone(&shared), key, script.clone(), hardware);
                let slots = Arc::clone(&slots);
                tokio::spawn(async move {
                    node.await;
                    drop((slots, unfinished));
                });
            }
        });
    }

    /// Starts the SSH server of a node; without one it runs all the same.
    fn open_ssh(&self, record: &Record, index: usize, hardware: &Hardware) -> Option<SshServer> {
        let host = &record.hosts.get(index)?.public_ip;
        let address = (host.as_str(), self.ssh_port());
        let (user, keys) = (record.ssh_user(), &record.order.authorized_keys);
        match SshServer::listen(address, user, keys, hardware, &self.runtime) {
            Ok(server) => Some(server),
            Err(error) => {
                warn!(machine.id = %record.id, %error, "A pretend node has no SSH server");
                None
            }
        }
    }

    /// Does something to the SSH servers of a machine's nodes; says whether it has any.
    pub(crate) fn on_ssh(&self, id: &str, act: impl FnMut(&mut SshServer)) -> bool {
        let mut pool = self.shared.pool();
        let nodes = pool.nodes.iter_mut();
        let of_machine = nodes.filter(|((machine, _), _)| machine == id);
        let servers = of_machine.filter_map(|(_, node)| node.ssh.as_mut());
        servers.map(act).count() > 0
    }

    /// Kills what a machine's nodes run and keeps its queued nodes from starting.
    pub(crate) fn stop_machine(&self, id: &str) {
        let mut pool = self.shared.pool();
        for (_, node) in pool
            .nodes
            .iter_mut()
            .filter(|((machine, _), _)| machine == id)
        {
            node.stop();
        }
    }

    pub(crate) fn output(&self, id: &str, index: usize) -> Option<NodeOutput> {
        let pool = self.shared.pool();
        let node = pool.nodes.get(&(id.to_owned(), index))?;
        let text = |bytes: &Mutex<Vec<u8>>| {
            String::from_utf8_lossy(&bytes.lock().unwrap_or_else(PoisonError::into_inner))
                .into_owned()
        };
        Some(NodeOutput {
            stdout: text(&node.stdout),
            stderr: text(&node.stderr),
            end: node.end.clone(),
        })
    }

    /// Waits until no node is queued or running.
    pub(crate) async fn idle(&self) {
        let mut unfinished = self.shared.unfinished.subscribe();
        // The sender lives in `shared`, so waiting cannot fail.
        let _ = unfinished.wait_for(|&count| count == 0).await;
    }

    /// Kills every process, starts no more, and removes the directories.
    pub(crate) fn close(&self) {
        let mut pool = self.shared.pool();
        let workspace = pool.workspace.take();
        for node in pool.nodes.values_mut() {
            node.stop();
        }
        let alive = |pool: &mut Pool| pool.nodes.values().any(|node| node.leader.is_some());
        let waited = self
            .shared
            .reaped
            .wait_timeout_while(pool, DROP_GRACE, alive);
        drop(waited);
        drop(workspace);
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.close();
    }
}

/// Counts one node as unfinished for as long as it lives.
struct Unfinished(Arc<Shared>);

impl Unfinished {
    fn count(shared: &Arc<Shared>) -> Self {
        shared.unfinished.send_modify(|count| *count += 1);
        Self(Arc::clone(shared))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.0.unfinished.send_modify(|count| *count -= 1);
    }
}

/// Runs one node and keeps how it ended.
async fn on_its_own(shared: Arc<Shared>, key: Key, script: String, hardware: Hardware) {
    let end = match serde_json::to_string_pretty(&hardware) {
        Ok(hardware) => run(&shared, &key, &script, &hardware).await,
        Err(error) => NodeEnd::NotStarted(error.to_string()),
    };
    if let NodeEnd::NotStarted(why) = &end {
        warn!(machine.id = %key.0, "A pretend node's script could not be started: {why}");
    }
    if let Some(node) = shared.pool().nodes.get_mut(&key) {
        node.end = Some(end);
    }
}

/// Runs one node's script to its end, its deadline or its machine's end.
async fn run(shared: &Arc<Shared>, key: &Key, script: &str, hardware: &str) -> NodeEnd {
    let mut child = match launch(shared, key, script, hardware) {
        Ok(Some(child)) => child,
        Ok(None) => return NodeEnd::Stopped,
        Err(error) => return NodeEnd::NotStarted(error.to_string()),
    };
    let (stdout, stderr) = {
        let pool = shared.pool();
        let node = &pool.nodes[key];
        (Arc::clone(&node.stdout), Arc::clone(&node.stderr))
    };
    let streams = (
        child
            .stdout
            .take()
            .and_then(|stream| ChildStdout::from_std(stream).ok()),
        child
            .stderr
            .take()
            .and_then(|stream| ChildStderr::from_std(stream).ok()),
    );
    let reading = tokio::spawn(async move {
        tokio::join!(keep_tail(streams.0, &stdout), keep_tail(streams.1, &stderr));
    });
    let mut exit = wait_in_thread(shared, key, child);
    let status = tokio::select! {
        status = &mut exit => status,
        () = tokio::time::sleep(shared.deadline) => {
            if let Some(node) = shared.pool().nodes.get_mut(key).filter(|node| node.leader.is_some()) {
                node.overran = true;
                node.kill();
            }
            exit.await
        }
    };
    let stop_reading = reading.abort_handle();
    if tokio::time::timeout(OUTPUT_GRACE, reading).await.is_err() {
        stop_reading.abort();
    }
    let pool = shared.pool();
    let node = &pool.nodes[key];
    match status {
        _ if node.stopped => NodeEnd::Stopped,
        _ if node.overran => NodeEnd::DeadlinePassed,
        Ok(Ok(status)) => match (status.code(), status.signal()) {
            (Some(code), _) => NodeEnd::Exited(code),
            (None, signal) => NodeEnd::Signalled(signal.unwrap_or_default()),
        },
        Ok(Err(error)) => NodeEnd::NotStarted(error.to_string()),
        Err(_) => NodeEnd::Stopped,
    }
}

/// Starts the process and notes its leader under one lock, so that whoever stops the machine
/// sees either no process or one it can kill. None when the machine has been stopped meanwhile.
fn launch(shared: &Shared, key: &Key, script: &str, hardware: &str) -> io::Result<Option<Child>> {
    let mut pool = shared.pool();
    let Pool { nodes, workspace } = &mut *pool;
    let (Some(node), Some(workspace)) = (nodes.get_mut(key), workspace) else {
        return Ok(None);
    };
    if node.stopped {
        return Ok(None);
    }
    let home = workspace.path().join(format!("{}-{}", key.0, key.1));
    let (script_path, hardware_path) = write_files(&home, script, hardware)?;
    let mut command = Command::new("/bin/sh");
    command.arg(script_path).env_clear().current_dir(&home);
    command
        .env("HOME", &home)
        .env("SIMULATED_NODE", hardware_path);
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let child = command.spawn()?;
    node.leader = Some(Pid::from_child(&child));
    Ok(Some(child))
}

fn write_files(home: &Path, script: &str, hardware: &str) -> io::Result<(PathBuf, PathBuf)> {
    fs::create_dir(home)?;
    let script_path = home.join("start-up-script");
    fs::write(&script_path, script)?;
    let hardware_path = home.join("simulated-node.json");
    fs::write(&hardware_path, hardware)?;
    Ok((script_path, hardware_path))
}

/// Waits for the leader in a thread of its own: first until it has exited, then, before anyone
/// has taken its number back, kills what it left in its group, and only then waits for it.
fn wait_in_thread(
    shared: &Arc<Shared>,
    key: &Key,
    mut child: Child,
) -> oneshot::Receiver<io::Result<ExitStatus>> {
    let (sender, receiver) = oneshot::channel();
    let (shared, key) = (Arc::clone(shared), key.clone());
    std::thread::spawn(move || {
        let leader = WaitId::Pid(Pid::from_child(&child));
        let exited = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(leader.clone(), exited), Err(error) if error == rustix::io::Errno::INTR)
        {
        }
        let mut pool = shared.pool();
        let status = if let Some(node) = pool.nodes.get_mut(&key) {
            node.kill();
            node.leader = None;
            child.wait()
        } else {
            child.wait()
        };
        drop(pool);
        shared.reaped.notify_all();
        // The receiver is gone when the runtime is.
        let _ = sender.send(status);
    });
    receiver
}

/// Reads a stream to its end and keeps the last of it.
async fn keep_tail(stream: Option<impl AsyncRead + Unpin>, kept: &Mutex<Vec<u8>>) {
    let Some(mut stream) = stream else { return };
    let mut chunk = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&chunk[..read]);
        let excess = kept.len().saturating_sub(KEPT_OUTPUT_BYTES);
        kept.drain(..excess);
    }
}
