//! A sum over all nodes, passed around in a ring, on one rail.
//!
//! Every node knows the right sum, so each detects wrong words itself.

use std::io;
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Instant;

use market::verification::Digest;

use super::links::{read, write};
use crate::prf::mix;

/// A word derived from its position: SplitMix64, so that no link can compress it.
pub(crate) const fn word(at: u64) -> u64 {
    mix(at.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A sum over all nodes on one rail: the ring algorithm, first reduced in pieces, then gathered.
///
/// Node j contributes `word(i) + j` as word i, so that every node knows the sum: n word(i) + n (n - 1) / 2.
#[derive(Clone, Copy)]
pub(super) struct Sum {
    pub(super) node: u32,
    pub(super) nodes: u32,
    pub(super) words: u64,
    pub(super) repeats: u32,
}

impl Sum {
    /// Gives the time of each repeat, microseconds, and the wrong words of all repeats.
    pub(super) fn over(
        &self,
        secret: &Digest,
        mut from: TcpStream,
        to: TcpStream,
        deadline: Instant,
    ) -> io::Result<(Vec<u64>, u64)> {
        let [a, b, c, d, e, f, g, h, ..] = secret.0;
        let seed = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let (sender, outbox) = mpsc::channel::<Vec<u8>>();
        std::thread::scope(|scope| {
            let sending = scope.spawn(move || -> io::Result<()> {
                let mut to = to;
                for piece in outbox {
                    write(&mut to, &piece, deadline)?;
                }
                Ok(())
            });
            let summed = (0..self.repeats)
                .map(|_| {
                    let mut words: Vec<u64> =
                        (0..self.words).map(|at| self.own(seed, at)).collect();
                    let began = Instant::now();
                    self.once(&mut words, &mut from, &sender, deadline)?;
                    let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
                    Ok((us, self.wrong(seed, &words)))
                })
                .collect::<io::Result<Vec<(u64, u64)>>>();
            drop(sender);
            let sent = sending
                .join()
                .map_err(|_| io::Error::other("a thread crashed"))?;
            let summed = summed?;
            sent?;
            let wrong = summed.iter().map(|(_, wrong)| wrong).sum();
            Ok((summed.into_iter().map(|(us, _)| us).collect(), wrong))
        })
    }

    fn own(&self, seed: u64, at: u64) -> u64 {
        word(seed.wrapping_add(at)).wrapping_add(u64::from(self.node))
    }

    fn wrong(&self, seed: u64, words: &[u64]) -> u64 {
        let nodes = u64::from(self.nodes);
        let numbers = nodes * (nodes - 1) / 2;
        let right = |at: u64| {
            let word = word(seed.wrapping_add(at));
            word.wrapping_mul(nodes).wrapping_add(numbers)
        };
        let wrong = words
            .iter()
            .zip(0..)
            .filter(|(word, at)| **word != right(*at));
        wrong.count() as u64
    }

    /// Where a piece of the payload lies, in words.
    fn piece(&self, number: u32) -> std::ops::Range<usize> {
        let at = |number: u32| (self.words * u64::from(number) / u64::from(self.nodes)) as usize;
        at(number)..at(number + 1)
    }

    fn once(
        &self,
        words: &mut [u64],
        from: &mut TcpStream,
        sender: &mpsc::Sender<Vec<u8>>,
        deadline: Instant,
    ) -> io::Result<()> {
        let (node, nodes) = (self.node, self.nodes);
        let mut pass = |out: u32, add: bool, words: &mut [u64]| -> io::Result<()> {
            let piece = &words[self.piece(out % nodes)];
            let bytes = piece.iter().flat_map(|word| word.to_le_bytes()).collect();
            let gone = |_| io::Error::other("the next node went away");
            sender.send(bytes).map_err(gone)?;
            let into = &mut words[self.piece((out + nodes - 1) % nodes)];
            let mut bytes = vec![0; into.len() * 8];
            read(from, &mut bytes, deadline)?;
            let came = bytes
                .as_chunks()
                .0
                .iter()
                .map(|word| u64::from_le_bytes(*word));
            for (word, came) in into.iter_mut().zip(came) {
                *word = if add { word.wrapping_add(came) } else { came };
            }
            Ok(())
        };
        for step in 0..nodes - 1 {
            pass(node + nodes - step, true, words)?;
        }
        for step in 0..nodes - 1 {
            pass(node + 1 + nodes - step, false, words)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    const SECRET: Digest = Digest([9; 32]);

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let near = TcpStream::connect(listener.local_addr().expect("an address"));
        let (far, _) = listener.accept().expect("accepted");
        (near.expect("connected"), far)
    }

    /// A node that contributes another word than it should, in its first repeat only.
    fn wrong_at_first(sum: Sum, mut from: TcpStream, mut to: TcpStream, deadline: Instant) {
        let (sender, outbox) = mpsc::channel::<Vec<u8>>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for piece in outbox {
                    write(&mut to, &piece, deadline).expect("sent");
                }
            });
            for repeat in 0..sum.repeats {
                let seed = u64::from_le_bytes([9; 8]);
                let mut words: Vec<u64> = (0..sum.words).map(|at| sum.own(seed, at)).collect();
                words[3] ^= u64::from(repeat == 0);
                sum.once(&mut words, &mut from, &sender, deadline)
                    .expect("summed");
            }
            drop(sender);
        });
    }

    #[test]
    fn a_word_that_was_wrong_in_an_early_repeat_is_counted() {
        let sum = |node| Sum {
            node,
            nodes: 2,
            words: 10,
            repeats: 3,
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        let (there, at_other) = connected();
        let (back, at_one) = connected();
        let (times, wrong) = std::thread::scope(|scope| {
            scope.spawn(move || wrong_at_first(sum(1), at_other, back, deadline));
            sum(0)
                .over(&SECRET, at_one, there, deadline)
                .expect("summed")
        });
        assert_eq!((times.len(), wrong), (3, 1));
    }

    #[test]
    fn a_word_that_is_not_the_sum_is_counted() {
        let sum = Sum {
            node: 1,
            nodes: 3,
            words: 5,
            repeats: 1,
        };
        let right = |at: u64| word(7 + at).wrapping_mul(3).wrapping_add(3);
        let mut words: Vec<u64> = (0..5).map(right).collect();
        assert_eq!(sum.wrong(7, &words), 0);
        words[3] ^= 1;
        assert_eq!(sum.wrong(7, &words), 1);
    }
}
