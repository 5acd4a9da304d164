//! A replica: the real binary in a process of its own, which is killed and started again; and the
//! load balancer before all of them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use rand::seq::SliceRandom as _;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What a replica is started with: its environment, and where its log goes.
pub(super) struct Setting {
    pub(super) environment: Vec<(String, String)>,
    pub(super) folder: PathBuf,
}

/// Where a replica listens; `None` while it is down.
type Address = Arc<Mutex<Option<SocketAddr>>>;

/// A running replica. It does not outlive its test.
pub(super) struct Replica {
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
    pub(super) fn start(setting: &Arc<Setting>, name: &str) -> Self {
        let log = setting.folder.join(format!("{name}.log"));
        let address = Address::default();
        Self {
            child: spawn(setting, &log, &address),
            setting: Arc::clone(setting),
            log,
            address,
        }
    }

    /// Kills it with SIGKILL and starts it again at once.
    pub(super) fn kill_and_start(&mut self) {
        self.kill();
        self.address = Address::default();
        self.child = spawn(&self.setting, &self.log, &self.address);
    }

    /// Whether it serves, or will: it has not ended by itself.
    pub(super) fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Whether it takes calls.
    pub(super) fn serves(&self) -> bool {
        self.address.lock().expect("sound").is_some()
    }

    pub(super) fn address(&self) -> Address {
        Arc::clone(&self.address)
    }

    fn kill(&mut self) {
        *self.address.lock().expect("sound") = None;
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
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

/// A load balancer that knows only connections: each goes to one of the replicas that serve, and
/// stays there until one side closes it.
pub(super) struct Balancer {
    pub(super) url: String,
    behind: Arc<Mutex<Vec<Address>>>,
    server: JoinHandle<()>,
}

impl Balancer {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let behind = Arc::<Mutex<Vec<Address>>>::default();
        let shared = Arc::clone(&behind);
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(pass_on(stream, Arc::clone(&shared)));
            }
        });
        Self {
            url,
            behind,
            server,
        }
    }

    /// Says who is behind it from now on.
    pub(super) fn stand_before(&self, replicas: &[Replica]) {
        let addresses = replicas.iter().map(Replica::address).collect();
        *self.behind.lock().expect("sound") = addresses;
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn pass_on(mut caller: TcpStream, behind: Arc<Mutex<Vec<Address>>>) {
    let mut up: Vec<SocketAddr> = {
        let behind = behind.lock().expect("sound");
        let address = |one: &Address| *one.lock().expect("sound");
        behind.iter().filter_map(address).collect()
    };
    up.shuffle(&mut rand::rng());
    for address in up {
        if let Ok(mut replica) = TcpStream::connect(address).await {
            // Whoever closes, or is killed, ends both.
            let _ = copy_bidirectional(&mut caller, &mut replica).await;
            return;
        }
    }
}
