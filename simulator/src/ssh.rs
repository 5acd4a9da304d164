//! The SSH servers of pretend nodes: each has a host key of its own, accepts only the public keys in the home
//! of its node, and answers a handful of commands.
//!
//! One key gets a shell: the one with the mark of the node's order as its comment. The client that placed the
//! order already had its start-up script run here in the same way. A tenant's key never gets one: it is
//! listed beside that mark without knowing it, and a shell of a pretend node is a shell of this machine.
//!
//! Each node has a loopback address of its own, and all of a simulator share one port: real nodes use port
//! 22, which a simulator cannot open. That port is bound on `127.0.0.1` for as long as the simulator lives,
//! so that two simulators never share it.

mod session;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use russh::MethodKind;
use russh::MethodSet;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::{PrivateKey, PublicKey};
use russh::server::{Config, run_stream};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tracing::debug;

use self::session::Session;
use crate::SimulatorError;
use crate::hardware::Hardware;
use crate::node::Shell;

/// How long a connection may be idle, in real time.
const IDLE: Duration = Duration::from_secs(60);

/// The port of all nodes of a simulator.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _kept: TcpListener,
}

impl Port {
    pub(crate) fn take() -> Result<Self, SimulatorError> {
        let take = || {
            let kept = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let number = kept.local_addr()?.port();
            Ok(Self {
                number,
                _kept: kept,
            })
        };
        take().map_err(SimulatorError::Listen)
    }

    pub(crate) const fn number(&self) -> u16 {
        self.number
    }
}

/// The keys with access to a node, and the one with a shell.
pub(crate) struct SshListener {
    /// The user name.
    pub(crate) user: String,
    /// The file of the public keys with access.
    pub(crate) keys: PathBuf,
    /// The comment of the key that gets a shell.
    pub(crate) mark: String,
    /// Runs its commands.
    pub(crate) shell: Shell,
}

/// The answers to clients without a shell.
#[derive(Debug)]
struct Manner {
    host_name: String,
    gpu_list: String,
}

/// Whether clients get as far as the host key, and that key.
#[derive(Debug, Clone)]
struct Threshold {
    is_open: bool,
    config: Arc<Config>,
}

impl Threshold {
    fn with_new_key() -> (Self, PublicKey) {
        // Independent of the simulator's seed: everybody could derive a key from the seed.
        let seed: [u8; 32] = rand::rng().random();
        let host_key = PrivateKey::from(Ed25519Keypair::from_seed(&seed));
        let public_key = host_key.public_key().clone();
        let config = Config {
            methods: MethodSet::from([MethodKind::PublicKey].as_slice()),
            auth_rejection_time: Duration::ZERO,
            inactivity_timeout: Some(IDLE),
            keys: vec![host_key],
            nodelay: true,
            ..Config::default()
        };
        let threshold = Self {
            is_open: true,
            config: Arc::new(config),
        };
        (threshold, public_key)
    }
}

/// The SSH server of one node. It stops listening when it is dropped.
#[derive(Debug)]
pub(crate) struct SshServer {
    public_key: PublicKey,
    threshold: watch::Sender<Threshold>,
    serving: JoinHandle<()>,
}

impl SshServer {
    /// Listens at this address for a node. Unreadable keys give nobody access.
    ///
    /// Errors: an address that is not loopback, or is not available.
    pub(crate) fn listen(
        (host, port): (&str, u16),
        door: SshListener,
        hardware: &Hardware,
        runtime: &Handle,
    ) -> io::Result<Self> {
        let host: IpAddr = host.parse().map_err(io::Error::other)?;
        if !host.is_loopback() {
            return Err(io::Error::other("a pretend node is on loopback alone"));
        }
        let manner = Manner {
            host_name: hardware.host_name(),
            gpu_list: hardware.gpu_list(),
        };
        let listener = TcpListener::bind((host, port))?;
        listener.set_nonblocking(true)?;
        let _entered = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (threshold, public_key) = Threshold::with_new_key();
        let (threshold, watched) = watch::channel(threshold);
        let house = Arc::new((door, manner));
        Ok(Self {
            public_key,
            threshold,
            serving: runtime.spawn(accept(listener, watched, house)),
        })
    }

    /// The host key, as a kind and its key.
    pub(crate) fn public_key(&self) -> String {
        // A key that was just made can be written.
        let line = self.public_key.to_openssh().unwrap_or_default();
        line.split(' ').take(2).collect::<Vec<_>>().join(" ")
    }

    /// Hangs up on present and new clients, or accepts them again.
    pub(crate) fn set_open(&mut self, is_open: bool) {
        self.threshold
            .send_modify(|threshold| threshold.is_open = is_open);
    }

    /// Replaces the host key, as a reinstalled machine does.
    pub(crate) fn change_host_key(&mut self) {
        let (threshold, public_key) = Threshold::with_new_key();
        self.public_key = public_key;
        self.threshold.send_replace(threshold);
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Serves until it is dropped, and every connection with it.
async fn accept(
    listener: tokio::net::TcpListener,
    mut threshold: watch::Receiver<Threshold>,
    house: Arc<(SshListener, Manner)>,
) {
    let mut sessions = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // The sender lives as long as this task.
            _ = threshold.changed() => {
                sessions.abort_all();
                continue;
            }
        };
        let (is_open, config) = {
            let threshold = threshold.borrow();
            (threshold.is_open, Arc::clone(&threshold.config))
        };
        match accepted {
            Ok((stream, _)) if is_open => {
                sessions.spawn(serve(stream, config, Arc::clone(&house)));
            }
            Ok((stream, _)) => drop(stream),
            // Out of file handles: the next connection may find one.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
        while sessions.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, config: Arc<Config>, house: Arc<(SshListener, Manner)>) {
    let ended = async {
        let (stream, _cut) = cut_on_drop(stream)?;
        run_stream(config, stream, Session::of(house)).await?.await
    };
    // A client that only reads the host key hangs up in the middle.
    if let Err(error) = ended.await {
        debug!(%error, "An SSH connection to a pretend node ended early");
    }
}

/// A connection, and a guard that cuts it when dropped: the library continues a session by itself.
fn cut_on_drop(stream: TcpStream) -> io::Result<(TcpStream, Cut)> {
    let stream = stream.into_std()?;
    let cut = Cut(stream.try_clone()?);
    Ok((TcpStream::from_std(stream)?, cut))
}

struct Cut(std::net::TcpStream);

impl Drop for Cut {
    fn drop(&mut self) {
        // It may have been closed already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}
