//! Connections between the nodes of a gang, and the measurements over them.
//!
//! A node listens on each of its rails. A connection begins with a greeting: a secret of its two ends, the
//! round, the sender, the rail, and the connection's number. Connections with any other greeting are ignored.
//! All calls end at their deadline.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use market::verification::{Digest, MOST_CONNECTIONS, Measure, Rail, Round, Shown, Sibling};

use super::copies::Copies;
use super::lobby::{Greeting, RailConnection, Rendezvous};
use super::sum::Sum;
use crate::device::shortened;
use crate::threads::on_each;

/// How long between two attempts to connect.
const RETRY: Duration = Duration::from_millis(50);

pub(super) fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::Error::new(io::ErrorKind::TimedOut, "the time was over")),
        false => Ok(left),
    }
}

/// The other node of a pair, and which of the two connects.
#[derive(Clone, Copy)]
struct Ends<'a> {
    sibling: &'a Sibling,
    connects: bool,
    connections: u32,
}

/// A node's two ends of the ring.
struct RingWays<'a> {
    next: &'a Sibling,
    to_next: &'a Digest,
    from_before: &'a Digest,
    rails: usize,
}

/// A node's listening sockets. They close with the process.
pub struct Listener {
    rails: Vec<Rail>,
    lobby: Arc<Rendezvous>,
    slow_to: Option<u32>,
}

impl Listener {
    /// Listens at these addresses, on ports that the system gives.
    ///
    /// Errors: those of listening.
    pub fn open(addresses: &[(String, IpAddr)]) -> io::Result<Self> {
        let lobby = Arc::new(Rendezvous::default());
        let mut rails = Vec::new();
        for (name, address) in addresses {
            let listener = TcpListener::bind((*address, 0))?;
            rails.push(Rail {
                name: name.clone(),
                address: listener.local_addr()?.to_string(),
            });
            let lobby = Arc::clone(&lobby);
            std::thread::spawn(move || lobby.hear(&listener));
        }
        Ok(Self {
            rails,
            lobby,
            slow_to: None,
        })
    }

    /// The same node with a bad link to the node of this number, as in a simulation.
    #[must_use]
    pub fn with_slow_link(self, to: Option<u32>) -> Self {
        Self {
            slow_to: to,
            ..self
        }
    }

    /// The addresses on which it listens.
    #[must_use]
    pub fn rails(&self) -> &[Rail] {
        &self.rails
    }

    /// Measures a round. A failure is part of its result.
    #[must_use]
    pub fn measure(&self, round: &Round) -> Shown {
        let deadline = Instant::now() + Duration::from_millis(round.within_ms);
        let shown = match &round.measure {
            Measure::Pair {
                sibling,
                connects,
                connections,
                bytes,
                repeats,
            } => {
                let copies = Copies::new(*bytes, deadline);
                let copies = match self.slow_to == Some(sibling.node) {
                    true => copies.slow(),
                    false => copies,
                };
                let ends = Ends {
                    sibling,
                    connects: *connects,
                    connections: *connections,
                };
                self.pair(round, ends, &copies, *repeats)
            }
            Measure::Ring {
                next,
                to_next,
                from_before,
                nodes,
                rails,
                bytes,
                repeats,
            } => {
                let sum = Sum {
                    node: round.node,
                    nodes: *nodes,
                    words: bytes / 8,
                    repeats: *repeats,
                };
                let ways = RingWays {
                    next,
                    to_next,
                    from_before,
                    rails: *rails as usize,
                };
                self.ring(round, &ways, sum, deadline)
            }
            Measure::NcclId | Measure::NcclSum(_) => {
                Err(io::Error::other("NCCL makes its own connections"))
            }
        };
        shown.unwrap_or_else(|error| Shown::Failed {
            why: shortened(&error.to_string()),
        })
    }

    /// One rail after the other, so that each shows its adapter's rate and not the host's limit for all of
    /// them at once.
    fn pair(
        &self,
        round: &Round,
        ends: Ends<'_>,
        copies: &Copies,
        repeats: u32,
    ) -> io::Result<Shown> {
        let rails = self.rails.len().min(ends.sibling.rails.len());
        let (mut sent_mb_per_s, mut received_mb_per_s) = (Vec::new(), Vec::new());
        for rail in 0..rails {
            let mut strands = self.strands(round, ends, rail, copies.deadline())?;
            let (mut sent, mut received) = (0, 0);
            for _ in 0..repeats {
                if ends.connects {
                    sent = sent.max(copies.send(&mut strands)?);
                    received = received.max(copies.receive(&mut strands)?);
                } else {
                    received = received.max(copies.receive(&mut strands)?);
                    sent = sent.max(copies.send(&mut strands)?);
                }
            }
            sent_mb_per_s.push(sent);
            received_mb_per_s.push(received);
        }
        Ok(Shown::Pair {
            sent_mb_per_s,
            received_mb_per_s,
        })
    }

    /// All connections of a rail.
    fn strands(
        &self,
        round: &Round,
        ends: Ends<'_>,
        rail: usize,
        deadline: Instant,
    ) -> io::Result<Vec<TcpStream>> {
        let open = |connection: u32| {
            let strand = RailConnection { rail, connection };
            let greeting = |from| Greeting::new(&round.secret, round.number, from, strand);
            match ends.connects {
                true => connect(ends.sibling, greeting(round.node), rail, deadline),
                false => self.accept(greeting(ends.sibling.node), deadline),
            }
        };
        (0..ends.connections.clamp(1, MOST_CONNECTIONS))
            .map(open)
            .collect()
    }

    fn ring(
        &self,
        round: &Round,
        ways: &RingWays<'_>,
        sum: Sum,
        deadline: Instant,
    ) -> io::Result<Shown> {
        let before = (sum.node + sum.nodes - 1) % sum.nodes;
        let on_rail = |rail: usize| {
            let strand = RailConnection {
                rail,
                connection: 0,
            };
            let to = Greeting::new(ways.to_next, round.number, round.node, strand);
            let to = connect(ways.next, to, strand.rail, deadline)?;
            let from = Greeting::new(ways.from_before, round.number, before, strand);
            let from = self.accept(from, deadline)?;
            sum.over(&round.secret, from, to, deadline)
        };
        let all = on_each(0..ways.rails, on_rail)?;
        let slowest = |repeat: usize| all.iter().filter_map(|(times, _)| times.get(repeat)).max();
        Ok(Shown::Ring {
            repeats_us: (0..sum.repeats as usize)
                .filter_map(|repeat| slowest(repeat).copied())
                .collect(),
            wrong_words: all.iter().map(|(_, wrong)| wrong).sum(),
        })
    }

    fn accept(&self, greeting: Greeting, deadline: Instant) -> io::Result<TcpStream> {
        let stream = self.lobby.take(greeting, deadline)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

fn connect(
    sibling: &Sibling,
    greeting: Greeting,
    rail: usize,
    deadline: Instant,
) -> io::Result<TcpStream> {
    let there = sibling.rails.get(rail).map(|rail| rail.address.parse());
    let Some(Ok(there)) = there else {
        return Err(io::Error::other("the other node has no such address"));
    };
    let there: SocketAddr = there;
    let mut stream = loop {
        match TcpStream::connect_timeout(&there, left(deadline)?) {
            Ok(stream) => break stream,
            // The other node listens already; a refusal comes from a firewall or a full queue.
            Err(error) if left(deadline).is_err() => return Err(error),
            Err(_) => std::thread::sleep(RETRY),
        }
    };
    stream.set_nodelay(true)?;
    stream.write_all(&greeting.0)?;
    Ok(stream)
}

pub(super) fn read(
    stream: &mut TcpStream,
    mut bytes: &mut [u8],
    deadline: Instant,
) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => bytes = &mut bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(super) fn write(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn listener() -> Listener {
        Listener::open(&[("host".to_owned(), Ipv4Addr::LOCALHOST.into())]).expect("ports")
    }

    fn sibling(node: u32, listener: &Listener) -> Sibling {
        Sibling {
            node,
            rails: listener.rails().to_vec(),
        }
    }

    fn round(node: u32, measure: Measure) -> Round {
        Round {
            number: 3,
            secret: Digest([9; 32]),
            node,
            within_ms: 20_000,
            measure,
        }
    }

    fn ring_of(listeners: &[Listener], words: u64) -> Vec<Shown> {
        let nodes = listeners.len() as u32;
        std::thread::scope(|scope| {
            let running: Vec<_> = listeners
                .iter()
                .zip(0..)
                .map(|(own, node)| {
                    let next = (node + 1) % nodes;
                    let between = |from: u32| Digest([from as u8; 32]);
                    let measure = Measure::Ring {
                        next: sibling(next, &listeners[next as usize]),
                        to_next: between(node),
                        from_before: between((node + nodes - 1) % nodes),
                        nodes,
                        rails: 1,
                        bytes: words * 8,
                        repeats: 3,
                    };
                    scope.spawn(move || own.measure(&round(node, measure)))
                })
                .collect();
            running
                .into_iter()
                .map(|node| node.join().expect("a node"))
                .collect()
        })
    }

    #[test]
    fn a_ring_of_any_size_sums_rightly() {
        for (nodes, words) in [(2, 1_000), (3, 1_000), (5, 7), (4, 100_000)] {
            let listeners: Vec<Listener> = (0..nodes).map(|_| listener()).collect();
            for shown in ring_of(&listeners, words) {
                let Shown::Ring {
                    repeats_us,
                    wrong_words,
                } = shown
                else {
                    panic!("{shown:?}");
                };
                assert_eq!((repeats_us.len(), wrong_words), (3, 0), "{nodes} nodes");
            }
        }
    }

    #[test]
    fn both_ends_of_a_pair_see_both_directions() {
        let (one, other) = (listener(), listener());
        let pair = |sibling, connects| Measure::Pair {
            sibling,
            connects,
            connections: 3,
            bytes: 300_001,
            repeats: 2,
        };
        let (first, second) = std::thread::scope(|scope| {
            let to_other = pair(sibling(1, &other), true);
            let first = scope.spawn(|| one.measure(&round(0, to_other)));
            let second = other.measure(&round(1, pair(sibling(0, &one), false)));
            (first.join().expect("a node"), second)
        });
        for shown in [first, second] {
            let Shown::Pair {
                sent_mb_per_s: sent,
                received_mb_per_s: received,
            } = shown
            else {
                panic!("{shown:?}");
            };
            assert!(sent[0] > 0 && received[0] > 0);
        }
    }

    #[test]
    fn a_stranger_is_left_alone_and_a_silent_sibling_ends_the_round_in_time() {
        let own = listener();
        let mut stranger = TcpStream::connect(&own.rails()[0].address).expect("connected");
        let strand = RailConnection {
            rail: 0,
            connection: 0,
        };
        let greeting = Greeting::new(&Digest([1; 32]), 3, 1, strand);
        stranger.write_all(&greeting.0).expect("written");
        let gone = listener();
        let measure = Measure::Pair {
            sibling: sibling(1, &gone),
            connects: false,
            connections: 1,
            bytes: 8,
            repeats: 1,
        };
        let round = Round {
            within_ms: 300,
            ..round(0, measure)
        };
        let shown = own.measure(&round);
        assert!(
            matches!(&shown, Shown::Failed { why } if why.contains("time")),
            "{shown:?}"
        );
    }
}
