//! Copies from one node to another over several connections together.
//!
//! One connection is the work of one core at each end, which is slower than a fabric's adapter. The
//! connections of a rail each take the next piece of a copy when they have finished one. A connection whose
//! core is busy otherwise then delays the copy by one piece at most. Each piece follows its length; a length
//! of 0 ends the copy, and the receiver acknowledges it.

use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::links::{read, write};
use super::sum::word;
use crate::threads::on_each;

/// The largest piece. Units: bytes.
const PIECE: usize = 256 << 10;
/// Before a piece: its length. Units: bytes.
const HEAD: usize = 8;
/// The least number of pieces per connection into which a small copy is split, where there are several.
const LEAST_PIECES: u64 = 8;
/// The receiver's acknowledgement on a connection when it has received all data.
const THANKS: u8 = 0x55;

/// One copy, for any number of repeats.
pub(super) struct Copies {
    bytes: u64,
    /// A piece of the largest size, after space for its length.
    piece: Vec<u8>,
    /// How much is written at once.
    at_once: usize,
    deadline: Instant,
}

/// When a connection began and ended carrying data.
struct Busy {
    from: Instant,
    until: Instant,
}

impl Copies {
    /// A copy of this many bytes with a deadline.
    pub(super) fn new(bytes: u64, deadline: Instant) -> Self {
        let data = (0..).flat_map(|at| word(at).to_le_bytes()).take(PIECE);
        Self {
            bytes,
            piece: [0; HEAD].into_iter().chain(data).collect(),
            at_once: HEAD + PIECE,
            deadline,
        }
    }

    /// The same over a bad link: a thousand times slower, because it writes one byte after the other.
    pub(super) fn slow(self) -> Self {
        Self { at_once: 1, ..self }
    }

    /// Its deadline.
    pub(super) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Sends the copy over all these connections and waits for an acknowledgement on each. Gives the rate,
    /// 1e6 bytes per second.
    pub(super) fn send(&self, connections: &mut [TcpStream]) -> io::Result<u64> {
        let pieces = match connections.len() as u64 {
            0 | 1 => 1,
            connections => LEAST_PIECES * connections,
        };
        let most = self.bytes.div_ceil(pieces).clamp(1, PIECE as u64);
        let left = AtomicU64::new(self.bytes);
        self.on_all(connections, |stream| {
            let mut piece = self.piece.clone();
            let from = Instant::now();
            while let Some(length) = taken(&left, most) {
                piece[..HEAD].copy_from_slice(&length.to_le_bytes());
                for part in piece[..HEAD + length as usize].chunks(self.at_once) {
                    write(stream, part, self.deadline)?;
                }
            }
            write(stream, &0_u64.to_le_bytes(), self.deadline)?;
            let mut thanks = [0];
            read(stream, &mut thanks, self.deadline)?;
            let until = Instant::now();
            Ok(Busy { from, until })
        })
    }

    /// Receives the copy over all these connections and acknowledges it on each. Gives the rate from the
    /// first piece on, 1e6 bytes per second.
    ///
    /// Errors: those of reading; more or fewer bytes than the copy has.
    pub(super) fn receive(&self, connections: &mut [TcpStream]) -> io::Result<u64> {
        let left = AtomicU64::new(self.bytes);
        let rate = self.on_all(connections, |stream| {
            let mut length = [0; HEAD];
            let mut piece = vec![0; PIECE];
            read(stream, &mut length, self.deadline)?;
            let from = Instant::now();
            loop {
                let mut coming = u64::from_le_bytes(length);
                if coming == 0 {
                    break;
                }
                if taken(&left, coming) != Some(coming) {
                    return Err(io::Error::other("the other node sent more than it was to"));
                }
                while coming > 0 {
                    let part = coming.min(PIECE as u64);
                    read(stream, &mut piece[..part as usize], self.deadline)?;
                    coming -= part;
                }
                read(stream, &mut length, self.deadline)?;
            }
            write(stream, &[THANKS], self.deadline)?;
            let until = Instant::now();
            Ok(Busy { from, until })
        })?;
        match left.into_inner() {
            0 => Ok(rate),
            _ => Err(io::Error::other("the other node sent less than it was to")),
        }
    }

    /// Does the same on every connection at once. A single connection gets no thread of its own, whose start
    /// would be most of a small copy's time. Gives the rate of all together.
    fn on_all(
        &self,
        connections: &mut [TcpStream],
        work: impl Fn(&mut TcpStream) -> io::Result<Busy> + Sync,
    ) -> io::Result<u64> {
        if let [only] = connections {
            let busy = work(only)?;
            return Ok(self.rate_over(busy.from, busy.until));
        }
        let busy = on_each(connections, work)?;
        let from = busy.iter().map(|busy| busy.from).min();
        let until = busy.iter().map(|busy| busy.until).max();
        let (Some(from), Some(until)) = (from, until) else {
            return Err(io::Error::other("there is no connection"));
        };
        Ok(self.rate_over(from, until))
    }

    /// 1e6 bytes per second.
    fn rate_over(&self, from: Instant, until: Instant) -> u64 {
        let took = until.saturating_duration_since(from);
        (self.bytes as f64 / took.as_secs_f64().max(1e-9) / 1e6) as u64
    }
}

/// Takes this much of the amount left, or all of it; none where none is left.
fn taken(left: &AtomicU64, most: u64) -> Option<u64> {
    let order = Ordering::Relaxed;
    let rest = |left: u64| (left > 0).then(|| left.saturating_sub(most));
    let before = left.fetch_update(order, order, rest).ok()?;
    Some(before.min(most))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    fn connected(connections: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let one = |_| {
            let near = TcpStream::connect(address).expect("connected");
            (near, listener.accept().expect("accepted").0)
        };
        (0..connections).map(one).unzip()
    }

    fn copies(bytes: u64) -> Copies {
        Copies::new(bytes, Instant::now() + Duration::from_secs(20))
    }

    #[test]
    fn a_copy_of_any_size_arrives_over_any_number_of_connections() {
        for (bytes, connections) in [(1, 1), (7, 3), (300_001, 16), (40_000_000, 16)] {
            let (mut near, mut far) = connected(connections);
            let copies = copies(bytes);
            std::thread::scope(|scope| {
                let sending = scope.spawn(|| copies.send(&mut near));
                let received = copies.receive(&mut far);
                assert!(received.is_ok(), "{received:?}");
                assert!(sending.join().expect("ended").is_ok());
            });
        }
    }

    #[test]
    fn a_connection_that_hangs_back_leaves_its_pieces_to_the_others() {
        let left = AtomicU64::new(10);
        assert_eq!(taken(&left, 4), Some(4));
        assert_eq!(taken(&left, 4), Some(4));
        assert_eq!(taken(&left, 4), Some(2));
        assert_eq!(taken(&left, 4), None);
    }

    /// The result of a receiver of ten bytes for this data.
    fn of_ten_bytes(sent: &[u8]) -> String {
        let (mut near, mut far) = connected(1);
        near[0].write_all(sent).expect("sent");
        match copies(10).receive(&mut far) {
            Ok(_) => "all".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn more_or_less_than_was_to_come_is_no_copy() {
        let piece = |length: u64| {
            let bytes = vec![1; length as usize];
            [length.to_le_bytes().to_vec(), bytes].concat()
        };
        let end = 0_u64.to_le_bytes().to_vec();
        assert_eq!(
            of_ten_bytes(&[piece(6), piece(4), end.clone()].concat()),
            "all"
        );
        let less = of_ten_bytes(&[piece(6), end.clone()].concat());
        assert!(less.contains("less"), "{less}");
        let more = of_ten_bytes(&[piece(6), piece(6), end].concat());
        assert!(more.contains("more"), "{more}");
        let endless = of_ten_bytes(&u64::MAX.to_le_bytes());
        assert!(endless.contains("more"), "{endless}");
    }
}
