//! A replica: the real binary in a process of its own, which is killed and started again.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// The start of a replica: its environment, and the place of its log.
pub(crate) struct Setting {
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) folder: PathBuf,
}

/// Where a replica listens; `None` while it is down.
pub(crate) type Address = Arc<Mutex<Option<SocketAddr>>>;

/// A running replica. It does not outlive its test.
pub(crate) struct Replica {
    setting: Arc<Setting>,
    log: PathBuf,
    child: Child,
    address: Address,
}

/// The real binary with nothing of this process's environment but the search path.
pub(super) fn broker(setting: &Setting) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_broker"));
    command
        .current_dir(&setting.folder)
        .env_clear()
        .envs(setting.environment.iter().cloned())
        .stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

impl Replica {
    pub(crate) fn start(setting: &Arc<Setting>, name: &str) -> Self {
        let log = setting.folder.join(format!("{name}.log"));
        let address = Address::default();
        Self {
            child: spawn(setting, &log, &address),
            setting: Arc::clone(setting),
            log,
            address,
        }
    }

    /// Kills it with SIGKILL.
    pub(super) fn kill(&mut self) {
        *self.address.lock().expect("sound") = None;
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again.
    pub(super) fn start_again(&mut self) {
        self.address = Address::default();
        self.child = spawn(&self.setting, &self.log, &self.address);
    }

    /// Whether it serves, or will: it has not ended by itself.
    pub(crate) fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Whether it takes calls.
    pub(super) fn serves(&self) -> bool {
        self.address.lock().expect("sound").is_some()
    }

    pub(crate) fn address(&self) -> Address {
        Arc::clone(&self.address)
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(setting: &Setting, log: &Path, address: &Address) -> Child {
    let mut command = broker(setting);
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
    let mut options = std::fs::OpenOptions::new();
    let mut kept = options
        .create(true)
        .append(true)
        .open(log)
        .expect("the log");
    let address = Arc::clone(address);
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if let Some((_, rest)) = line.split_once("Serving at http://") {
                let at = rest.split_whitespace().next().unwrap_or_default();
                *address.lock().expect("sound") = at.parse().ok();
            }
            let _ = writeln!(kept, "{line}");
        }
    });
    child
}
