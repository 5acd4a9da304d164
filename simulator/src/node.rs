//! Pretend nodes: each runs the start-up script of its order as a child process, with a clean
//! environment, in a directory of its own, in a process group of its own, under a deadline.
//!
//! A node also runs the commands of an SSH session with the key that carries the mark of its order, in the
//! same way.
//!
//! Only process groups that `process` started are ever signalled, and only before their leader has been
//! waited for, so that its number cannot have passed to another process. Processes that a script leaves
//! behind in its group end with it, so a script waits for those that it starts.

mod home;
mod process;
mod shell;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::market::verification::{GATHERS, GOES_ON};
use rustix::process::Pid;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tracing::warn;

use self::home::{Workspace, make_home, write_hardware};
use self::process::{Process, keep_tail, kill};
pub(crate) use self::shell::Shell;
use crate::SimulatorError;
use crate::hardware::Hardware;
use crate::machine::Record;
use crate::ssh::{Port, SshListener, SshServer};

/// How long the last output may take to arrive after the whole process group is dead.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);
/// How long a simulator that is dropped waits for the processes it has just killed.
const DROP_GRACE: Duration = Duration::from_secs(5);

/// How a node's script ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeEnd {
    /// By itself, with this status.
    Exited(i32),
    /// By a signal from elsewhere.
    Signalled(i32),
    /// Killed: it ran past its deadline.
    DeadlinePassed,
    /// Killed or never started: its machine was ended, or the simulator was stopped.
    Stopped,
    /// It could not be started, for this reason.
    NotStarted(String),
}

/// The output of a node's script and how it ended.
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

/// A node's output, up to a bound.
type Kept = Arc<Mutex<Vec<u8>>>;

#[derive(Default)]
struct Node {
    /// The leaders of the node's process groups, each from its start until it is waited for.
    leaders: Vec<Pid>,
    /// Absent where none could be made.
    home: Option<PathBuf>,
    stopped: bool,
    stdout: Kept,
    stderr: Kept,
    end: Option<NodeEnd>,
    /// Listens from the start of the node to its end.
    ssh: Option<SshServer>,
}

impl Node {
    /// Ends everything that runs on it and lets nothing more start.
    fn stop(&mut self) {
        self.stopped = true;
        self.ssh = None;
        self.leaders.iter().copied().for_each(kill);
    }
}

struct Pool {
    nodes: HashMap<Key, Node>,
    /// Where the directories of the nodes are; absent once the simulator has stopped.
    workspace: Option<Workspace>,
}

struct Shared {
    pool: Mutex<Pool>,
    reaped: Condvar,
    busy: watch::Sender<usize>,
    slots: Arc<Semaphore>,
    commands: Arc<Semaphore>,
    at_once: u32,
    deadline: Duration,
}

impl Shared {
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills a process of a node unless it has been waited for; returns whether it did.
    fn kill_running(&self, key: &Key, leader: Pid) -> bool {
        let pool = self.pool();
        let node = pool.nodes.get(key);
        let is_ours = node.is_some_and(|node| node.leaders.contains(&leader));
        if is_ours {
            kill(leader);
        }
        is_ours
    }

    /// The buffers for the output and the errors of a node.
    fn kept_output(&self, key: &Key) -> (Kept, Kept) {
        let pool = self.pool();
        let kept = |node: &Node| (Arc::clone(&node.stdout), Arc::clone(&node.stderr));
        pool.nodes.get(key).map(kept).unwrap_or_default()
    }
}

/// All nodes, running or ended.
pub(crate) struct Nodes {
    shared: Arc<Shared>,
    runtime: Handle,
    ssh_port: Port,
}

impl Nodes {
    /// Must be called within a Tokio runtime, which then runs the tasks of the nodes.
    pub(crate) fn try_new(deadline: Duration, at_once: u32) -> Result<Self, SimulatorError> {
        let workspace = Workspace::make().map_err(SimulatorError::Workspace)?;
        let shared = Shared {
            pool: Mutex::new(Pool {
                nodes: HashMap::new(),
                workspace: Some(workspace),
            }),
            reaped: Condvar::new(),
            busy: watch::Sender::new(0),
            slots: Arc::new(Semaphore::new(at_once.max(1) as usize)),
            commands: Arc::new(Semaphore::new(shell::MOST_COMMANDS)),
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
    /// They start together, because they may wait for each other. The nodes of a machine that exceeds the
    /// limit all run, and nothing else does.
    pub(crate) fn start(&self, record: &Record) {
        let Some(script) = record.script() else {
            return;
        };
        let mut due = Vec::new();
        for (index, hardware) in record.hardware().into_iter().enumerate() {
            let key = (record.id.clone(), index);
            let node = match self.make(record, &key, hardware) {
                Ok(node) => node,
                Err(error) => {
                    warn!(machine.id = %record.id, %error, "A pretend node has no home");
                    let end = Some(NodeEnd::NotStarted(error.to_string()));
                    Node {
                        end,
                        ..Node::default()
                    }
                }
            };
            if node.end.is_none() {
                due.push((key.clone(), Arc::new(Busy::count(&self.shared))));
            }
            self.shared.pool().nodes.insert(key, node);
        }
        let slots = record.nodes().clamp(1, self.shared.at_once);
        let shared = Arc::clone(&self.shared);
        self.runtime.spawn(async move {
            // The semaphore is never closed.
            let Ok(slots) = Arc::clone(&shared.slots).acquire_many_owned(slots).await else {
                return;
            };
            let slots = Arc::new(slots);
            for (key, busy) in due {
                let node = on_its_own(Arc::clone(&shared), key, script.clone(), Arc::clone(&busy));
                let slots = Arc::clone(&slots);
                tokio::spawn(async move {
                    node.await;
                    drop((slots, busy));
                });
            }
        });
    }

    /// Creates a node with a home, which holds the keys with access and the hardware description.
    fn make(&self, record: &Record, key: &Key, hardware: Hardware) -> io::Result<Node> {
        let folder = {
            let pool = self.shared.pool();
            let workspace = pool.workspace.as_ref();
            let gone = || io::Error::other("the simulator has stopped");
            workspace.ok_or_else(gone)?.home_of(key)
        };
        let (home, keys) = make_home(folder, &record.order.authorized_keys)?;
        let ssh = self.open_ssh(record, key, keys, &hardware);
        let hardware = match &ssh {
            Some(server) => hardware.with_host_key(server.public_key()),
            None => hardware,
        };
        write_hardware(&home, &hardware)?;
        Ok(Node {
            home: Some(home),
            ssh,
            ..Node::default()
        })
    }

    /// Starts the SSH server of a node; if that fails the node runs without one.
    fn open_ssh(
        &self,
        record: &Record,
        key: &Key,
        keys: PathBuf,
        hardware: &Hardware,
    ) -> Option<SshServer> {
        let host = &record.hosts.get(key.1)?.public_ip;
        let door = SshListener {
            user: record.ssh_user().to_owned(),
            keys,
            mark: record.order.name.clone(),
            shell: Shell::of(&self.shared, key.clone()),
        };
        match SshServer::listen((host, self.ssh_port()), door, hardware, &self.runtime) {
            Ok(server) => Some(server),
            Err(error) => {
                warn!(machine.id = %record.id, %error, "A pretend node has no SSH server");
                None
            }
        }
    }

    /// Applies `act` to the SSH servers of a machine's nodes; returns whether it has any.
    pub(crate) fn on_ssh(&self, id: &str, act: impl FnMut(&mut SshServer)) -> bool {
        let mut pool = self.shared.pool();
        let nodes = pool.nodes.iter_mut();
        let of_machine = nodes.filter(|((machine, _), _)| machine == id);
        let servers = of_machine.filter_map(|(_, node)| node.ssh.as_mut());
        servers.map(act).count() > 0
    }

    /// Kills the processes of a machine's nodes and keeps its queued nodes from starting.
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

    pub(crate) fn home(&self, id: &str, index: usize) -> Option<PathBuf> {
        let pool = self.shared.pool();
        let node = pool.nodes.get(&(id.to_owned(), index))?;
        node.home.clone()
    }

    /// Waits until no node is queued or running, except those that wait for nodes of other machines.
    pub(crate) async fn idle(&self) {
        let mut busy = self.shared.busy.subscribe();
        // The sender lives in `shared`, so waiting cannot fail.
        let _ = busy.wait_for(|&count| count == 0).await;
    }

    /// Kills every process, starts no more, and removes the directories.
    pub(crate) fn close(&self) {
        let mut pool = self.shared.pool();
        let workspace = pool.workspace.take();
        for node in pool.nodes.values_mut() {
            node.stop();
        }
        let alive = |pool: &mut Pool| pool.nodes.values().any(|node| !node.leaders.is_empty());
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

/// Counts one node as busy, from its creation to its end, except while it waits for nodes of other machines.
struct Busy {
    shared: Arc<Shared>,
    counted: Mutex<bool>,
}

impl Busy {
    fn count(shared: &Arc<Shared>) -> Self {
        shared.busy.send_modify(|count| *count += 1);
        Self {
            shared: Arc::clone(shared),
            counted: Mutex::new(true),
        }
    }

    fn set(&self, busy: bool) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        match (*counted, busy) {
            (false, true) => self.shared.busy.send_modify(|count| *count += 1),
            (true, false) => self.shared.busy.send_modify(|count| *count -= 1),
            _ => {}
        }
        *counted = busy;
    }

    /// Updates the count from the node's last line about waiting: it began, or it ended.
    fn hears(&self, written: &[u8]) {
        // The text after the last line end is no line yet.
        let lines = written.rsplit(|byte| *byte == b'\n').skip(1);
        let mut words = lines.filter_map(|line| match line {
            line if line == GATHERS.as_bytes() => Some(false),
            line if line == GOES_ON.as_bytes() => Some(true),
            _ => None,
        });
        if let Some(busy) = words.next() {
            self.set(busy);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// Runs one node and records how it ended.
async fn on_its_own(shared: Arc<Shared>, key: Key, script: String, busy: Arc<Busy>) {
    let end = run(&shared, &key, &script, busy).await;
    if let NodeEnd::NotStarted(why) = &end {
        warn!(machine.id = %key.0, "A pretend node's script could not be started: {why}");
    }
    if let Some(node) = shared.pool().nodes.get_mut(&key) {
        node.end = Some(end);
    }
}

/// Runs one node's script to its end, its deadline or its machine's end.
async fn run(shared: &Arc<Shared>, key: &Key, script: &str, busy: Arc<Busy>) -> NodeEnd {
    let started = write_script(shared, key, script).and_then(|path| {
        let Some(path) = path else { return Ok(None) };
        let words = [OsStr::new("/bin/sh"), path.as_os_str()];
        Process::start(shared, key, &words, Stdio::null())
    });
    let mut process = match started {
        Ok(Some(process)) => process,
        Ok(None) => return NodeEnd::Stopped,
        Err(error) => return NodeEnd::NotStarted(error.to_string()),
    };
    let (stdout, stderr) = shared.kept_output(key);
    let streams = (process.stdout.take(), process.stderr.take());
    let reading = tokio::spawn(async move {
        let errors = keep_tail(streams.1, &stderr, |written| busy.hears(written));
        tokio::join!(keep_tail(streams.0, &stdout, |_| {}), errors);
    });
    let ended = process.ended(shared, key).await;
    let stop_reading = reading.abort_handle();
    if tokio::time::timeout(OUTPUT_GRACE, reading).await.is_err() {
        stop_reading.abort();
    }
    let was_stopped = shared.pool().nodes.get(key).is_none_or(|node| node.stopped);
    match ended.status {
        _ if was_stopped => NodeEnd::Stopped,
        _ if ended.overran => NodeEnd::DeadlinePassed,
        Some(Ok(status)) => match (status.code(), status.signal()) {
            (Some(code), _) => NodeEnd::Exited(code),
            (None, signal) => NodeEnd::Signalled(signal.unwrap_or_default()),
        },
        Some(Err(error)) => NodeEnd::NotStarted(error.to_string()),
        None => NodeEnd::Stopped,
    }
}

/// Puts the script into its node's home; none when the machine has been stopped meanwhile.
fn write_script(shared: &Shared, key: &Key, script: &str) -> io::Result<Option<PathBuf>> {
    let pool = shared.pool();
    let Some(home) = pool.nodes.get(key).and_then(|node| node.home.as_ref()) else {
        return Ok(None);
    };
    if pool.workspace.is_none() {
        return Ok(None);
    }
    let path = home.join("start-up-script");
    fs::write(&path, script)?;
    Ok(Some(path))
}
