//! Incoming connections of a listening node: each that has greeted waits here until its round is measured.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use market::verification::Digest;

use super::links::left;

/// The most connections that wait for their round, and that greet at once.
const MOST_WAITING: usize = 1_024;
/// The most of them from one address: as many as a node opens at once, and as many again.
const MOST_OF_ADDRESS: usize = 64;
/// How long a new connection may take to greet.
const GREETING: Duration = Duration::from_secs(5);
/// One connection of a rail, by its numbers.
#[derive(Clone, Copy)]
pub(super) struct RailConnection {
    pub(super) rail: usize,
    pub(super) connection: u32,
}

/// The first bytes of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Greeting(pub(super) [u8; 48]);

impl Greeting {
    pub(super) fn new(secret: &Digest, round: u32, node: u32, strand: RailConnection) -> Self {
        let mut bytes = [0; 48];
        bytes[..32].copy_from_slice(&secret.0);
        bytes[32..36].copy_from_slice(&round.to_le_bytes());
        bytes[36..40].copy_from_slice(&node.to_le_bytes());
        // A node has at most 16 rails.
        bytes[40..44].copy_from_slice(&(strand.rail as u32).to_le_bytes());
        bytes[44..].copy_from_slice(&strand.connection.to_le_bytes());
        Self(bytes)
    }
}

/// A connection that has greeted.
struct Waiting {
    greeting: Greeting,
    from: IpAddr,
    stream: TcpStream,
}

/// Connections that have greeted, and the number of those still expected to.
#[derive(Default)]
pub(super) struct Rendezvous {
    waiting: Mutex<VecDeque<Waiting>>,
    came: Condvar,
    greeting: AtomicUsize,
}

impl Rendezvous {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts connections, each in a thread of its own; one that does not greet is dropped.
    pub(super) fn hear(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming().flatten() {
            if self.greeting.fetch_add(1, Ordering::Relaxed) < MOST_WAITING {
                let lobby = Arc::clone(self);
                std::thread::spawn(move || {
                    let admitted = lobby.admit(stream);
                    lobby.greeting.fetch_sub(1, Ordering::Relaxed);
                    admitted
                });
            } else {
                self.greeting.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn admit(&self, mut stream: TcpStream) -> io::Result<()> {
        let from = stream.peer_addr()?.ip();
        stream.set_read_timeout(Some(GREETING))?;
        let mut greeting = Greeting([0; 48]);
        stream.read_exact(&mut greeting.0)?;
        let mut waiting = self.waiting();
        // An address that fills the list displaces its own connections before those of others.
        let own = waiting.iter().filter(|one| one.from == from).count();
        let oldest = match own >= MOST_OF_ADDRESS {
            true => waiting.iter().position(|one| one.from == from),
            false => (waiting.len() >= MOST_WAITING).then_some(0),
        };
        if let Some(oldest) = oldest {
            waiting.remove(oldest);
        }
        waiting.push_back(Waiting {
            greeting,
            from,
            stream,
        });
        self.came.notify_all();
        Ok(())
    }

    pub(super) fn take(&self, greeting: Greeting, deadline: Instant) -> io::Result<TcpStream> {
        let mut waiting = self.waiting();
        loop {
            let at = waiting.iter().position(|one| one.greeting == greeting);
            if let Some(came) = at.and_then(|at| waiting.remove(at)) {
                return Ok(came.stream);
            }
            let left = left(deadline)?;
            let woken = self.came.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
