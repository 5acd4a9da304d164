//! The nodes of a gang together: the network between them, measured by all nodes at once.
//!
//! A node that works well alone may be slow together with one other: a cable, a port of a switch, a wrong
//! route. The broker's side ([`Gang`]) leads all nodes through the same rounds and judges their results
//! (`judge`). The agent's side ([`take_part()`]) listens, connects and measures ([`links`]). Copies and sums
//! use TCP, on the fabric's adapters where they have addresses: they show which pair is slower than its
//! siblings. Where every node has the same NCCL, their GPUs also sum by that (`nccl`), two nodes at a time
//! and then all, over any path it takes.

mod addresses;
mod apart;
mod calls;
mod copies;
mod judge;
pub mod links;
mod lobby;
mod nccl;
mod nccl_id;
mod rounds;
mod sum;
mod take_part;

use std::time::Duration;

use market::attestation::{Finding, Verdict};
use market::fabric::Internode;
use market::verification::{
    AgentKey, Digest, GangAnswer, GangCall, GangWork, MOST_CONNECTIONS, Measure, NcclPart, Rail,
    Round, Shown, Sibling,
};
use serde::{Deserialize, Serialize};

use crate::order::Mode;
pub use addresses::rails_of;
pub use apart::{Apart, absence};
pub use calls::CallRefused;
use calls::{check_rails, check_shown};
pub use nccl::rounds_of_nccl_pairs;
pub(crate) use nccl::version_words;
use rounds::{RoundKind, Rounds, pairs_of_round};
pub(crate) use sum::word;
pub use take_part::{GangError, GangLine, Ways, take_part};

/// How long a node that has nothing to do waits before it calls again.
const PAUSE: Duration = Duration::from_millis(250);
/// How long after its own end a round may still be reported: for the way to the broker, and a replica that is
/// unavailable for a moment.
const GRACE: Duration = Duration::from_secs(60);
/// The most nodes of a gang that are measured together: all their results are one document.
pub const MOST_NODES: usize = 128;

/// How much is measured between the nodes of a gang.
///
/// In simulation, only as much as shows a slow pair on one machine, and often enough that the best result is
/// not limited by the machine's other work. Otherwise enough that a pair at 400 Gb/s works for some tens of
/// milliseconds on each rail, over as many connections as keep an adapter busy, and that a round ends in time
/// on a link of 1 Gb/s.
#[must_use]
pub const fn work_for(mode: Mode) -> GangWork {
    const MIB: u64 = 1 << 20;
    match mode {
        Mode::Simulation => GangWork {
            pair_connections: 1,
            pair_bytes: MIB / 16,
            pair_repeats: 12,
            ring_bytes: MIB / 4,
            ring_repeats: 10,
            round_ms: 60_000,
            nccl_bytes: MIB / 4,
            nccl_warm_ups: 2,
            nccl_repeats: 10,
            nccl_pair_bytes: MIB / 4,
            nccl_pair_repeats: 5,
        },
        Mode::Real => GangWork {
            pair_connections: MOST_CONNECTIONS,
            pair_bytes: 1_024 * MIB,
            pair_repeats: 5,
            ring_bytes: 256 * MIB,
            ring_repeats: 20,
            round_ms: 120_000,
            nccl_bytes: 4_096 * MIB,
            nccl_warm_ups: 5,
            nccl_repeats: 20,
            nccl_pair_bytes: 1_024 * MIB,
            nccl_pair_repeats: 5,
        },
    }
}

/// One node of a gang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its address at the provider.
    pub host: String,
    /// The key to which it committed; it signs with it here too.
    pub agent_key: AgentKey,
}

/// A node's results so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    rails: Vec<Rail>,
    /// Its contribution to a sum by NCCL, from its first call.
    #[serde(default)]
    nccl: Option<NcclPart>,
    /// Per round, from the first; none for a round in which it had nothing to do.
    shown: Vec<Option<Shown>>,
    /// The rounds for which it reported impossible values: these count against no other node.
    #[serde(default)]
    untrue: Vec<u32>,
}

/// The broker's state of a gang during its measurement. Pure: no clock, no I/O.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gang {
    mode: Mode,
    work: GangWork,
    secret: Digest,
    sold_as: Internode,
    /// GPUs of each node, where that is known as a whole number.
    #[serde(default)]
    gpus_sold: Option<u32>,
    members: Vec<Member>,
    seen: Vec<Seen>,
    /// The nodes that kept the others waiting too long.
    late: Vec<usize>,
    verdict: Option<Verdict>,
}

impl Gang {
    /// A gang before its measurement. `entropy` must be fresh from the operating system.
    ///
    /// Shape: 2 to [`MOST_NODES`] members, numbered in this order; none otherwise.
    #[must_use]
    pub fn try_new(members: Vec<Member>, mode: Mode, entropy: [u8; 32]) -> Option<Self> {
        (2..=MOST_NODES).contains(&members.len()).then(|| Self {
            mode,
            work: work_for(mode),
            secret: Digest(entropy),
            sold_as: Internode::Unknown,
            gpus_sold: None,
            seen: vec![Seen::default(); members.len()],
            members,
            late: Vec::new(),
            verdict: None,
        })
    }

    /// The same gang, whose nodes were sold with this fabric.
    #[must_use]
    pub fn sold_as(mut self, internode: Internode) -> Self {
        self.sold_as = internode;
        self
    }

    /// The same gang, whose nodes were sold with this many GPUs each; `None` where they differ, or are sold
    /// in slices.
    #[must_use]
    pub const fn with_gpus_sold(mut self, gpus: Option<u32>) -> Self {
        self.gpus_sold = gpus;
        self
    }

    /// The same gang, with other amounts to measure.
    #[must_use]
    pub fn with_work(mut self, work: GangWork) -> Self {
        self.work = work;
        self
    }

    /// Handles a node's call and gives its next work. A repeated call gets the same answer.
    ///
    /// Errors: [`CallRefused`].
    pub fn on_call(&mut self, call: &GangCall) -> Result<GangAnswer, CallRefused> {
        let speaks = |member: &Member| member.agent_key == call.agent_key;
        let node = self.members.iter().position(speaks);
        let node = node.ok_or(CallRefused::Stranger)?;
        if let Some(verdict) = self.verdict {
            return Ok(GangAnswer::Over { verdict });
        }
        check_rails(&call.rails, self.mode)?;
        nccl::check_part(call.nccl)?;
        let now = self.round();
        let seen = &mut self.seen[node];
        // The adapters that were measured stay those to which the broker directs the others.
        if seen.rails.is_empty() {
            seen.nccl = call.nccl;
            seen.rails.clone_from(&call.rails);
        }
        if let Some(done) = &call.done
            && done.round as usize == seen.shown.len()
            && now == Some(done.round)
        {
            check_shown(&done.shown)?;
            let shown = match self.untrue(&done.shown) {
                Some(why) => {
                    self.seen[node].untrue.push(done.round);
                    Shown::Failed { why }
                }
                None => done.shown.clone(),
            };
            self.seen[node].shown.push(Some(shown));
        }
        self.pass_over_idle();
        if self.is_done() {
            let verdict = crate::rules::verdict(&self.findings());
            self.verdict = Some(verdict);
            return Ok(GangAnswer::Over { verdict });
        }
        Ok(self.next_for(node))
    }

    /// Why a node's result is impossible: too few repeats, although the least of all nodes limits the result
    /// of the whole gang, or sums that took longer than all of them may.
    fn untrue(&self, shown: &Shown) -> Option<String> {
        let most_us = self.stage_limit().as_micros();
        match shown {
            Shown::Ring { repeats_us, .. } | Shown::NcclSum { repeats_us, .. }
                if repeats_us.iter().map(|us| u128::from(*us)).sum::<u128>() > most_us =>
            {
                Some("it reports sums that took longer than their whole round may".to_owned())
            }
            Shown::Ring { repeats_us, .. }
                if repeats_us.len() != self.work.ring_repeats as usize =>
            {
                let (done, asked) = (repeats_us.len(), self.work.ring_repeats);
                Some(format!("it reports {done} of {asked} sums"))
            }
            _ => None,
        }
    }

    /// The nodes, in order.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The result, once there is one.
    #[must_use]
    pub const fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }

    /// Its progress: 0 while nodes are missing, then one more with each round.
    #[must_use]
    pub fn stage(&self) -> u32 {
        self.round().map_or(0, |round| round + 1)
    }

    /// How long a stage may take, by the broker's clock.
    #[must_use]
    pub const fn stage_limit(&self) -> Duration {
        Duration::from_millis(self.work.round_ms).saturating_add(GRACE)
    }

    /// Ends it, because a stage took too long: the nodes that were waited for are late. Never a pass.
    pub fn give_up(&mut self) -> Verdict {
        if let Some(verdict) = self.verdict {
            return verdict;
        }
        let round = self.round().map(|round| round as usize);
        let waited_for = |seen: &Seen| match round {
            Some(round) => seen.shown.len() <= round,
            None => seen.rails.is_empty(),
        };
        let seen = self.seen.iter().enumerate();
        self.late = seen
            .filter(|(_, seen)| waited_for(seen))
            .map(|(node, _)| node)
            .collect();
        let verdict = crate::rules::verdict(&self.findings());
        self.verdict = Some(verdict);
        verdict
    }

    /// The findings; for an unfinished gang, those known so far.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        let judged = judge::judged(self).into_iter();
        judged.map(|judged| judged.finding).collect()
    }

    /// The findings, as they count for one node: faults of other nodes are only noted.
    #[must_use]
    pub fn findings_of(&self, node: usize) -> Vec<Finding> {
        let judged = judge::judged(self).into_iter();
        judged.map(|judged| judged.for_node(node)).collect()
    }

    /// The rounds, as far as the nodes' contributions are known.
    fn rounds(&self) -> Rounds {
        let (nccl_pairs, nccl) = self.rounds_of_nccl();
        Rounds {
            nodes: self.members.len(),
            nccl_pairs,
            nccl,
        }
    }

    /// The round that is measured now; none while nodes are missing, and at the end.
    fn round(&self) -> Option<u32> {
        if self.seen.iter().any(|seen| seen.rails.is_empty()) {
            return None;
        }
        let done = self.seen.iter().map(|seen| seen.shown.len()).min()?;
        u32::try_from(done)
            .ok()
            .filter(|round| *round < self.rounds().count())
    }

    /// With an odd number of nodes one has nothing to do in each round of pairs, and one node alone makes the
    /// id for NCCL.
    fn pass_over_idle(&mut self) {
        while let Some(round) = self.round() {
            let idle = |node: &usize| {
                self.seen[*node].shown.len() == round as usize && !self.is_busy(*node, round)
            };
            let Some(node) = (0..self.seen.len()).find(idle) else {
                return;
            };
            self.seen[node].shown.push(None);
        }
    }

    fn is_busy(&self, node: usize, round: u32) -> bool {
        match self.rounds().kind(round) {
            RoundKind::Pairs(round) => self.pair_of(node, round).is_some(),
            RoundKind::Ring => true,
            of_nccl => self.is_busy_with_nccl(node, of_nccl),
        }
    }

    /// A node's pair in a round of pairs.
    fn pair_of(&self, node: usize, round: u32) -> Option<(usize, usize)> {
        let pairs = pairs_of_round(self.members.len(), round);
        pairs.into_iter().find(|(a, b)| *a == node || *b == node)
    }

    fn is_done(&self) -> bool {
        let rounds = self.rounds().count() as usize;
        self.seen.iter().all(|seen| seen.shown.len() == rounds)
    }

    fn next_for(&self, node: usize) -> GangAnswer {
        let wait = GangAnswer::Wait {
            after_ms: PAUSE.as_millis() as u64,
        };
        let Some(number) = self.round() else {
            return wait;
        };
        if self.seen[node].shown.len() > number as usize {
            return wait;
        }
        let kind = self.rounds().kind(number);
        let (ends, measure) = match kind {
            RoundKind::Pairs(round) => (self.pair_of(node, round), self.pair_measure(node, round)),
            RoundKind::Ring => (None, Some(self.ring_measure(node, number))),
            of_nccl => (None, self.nccl_measure(node, of_nccl)),
        };
        let Some(measure) = measure else {
            return wait;
        };
        GangAnswer::Measure {
            round: Round {
                number,
                secret: self.secret_of(number, ends),
                node: node as u32,
                within_ms: self.work.round_ms,
                measure,
            },
        }
    }

    /// A secret of a round; for a pair, only its two nodes get it, so that no third node can impersonate one
    /// of them.
    fn secret_of(&self, round: u32, ends: Option<(usize, usize)>) -> Digest {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret.0);
        hasher.update(&round.to_le_bytes());
        if let Some((from, to)) = ends {
            hasher.update(&(from as u64).to_le_bytes());
            hasher.update(&(to as u64).to_le_bytes());
        }
        Digest(*hasher.finalize().as_bytes())
    }

    fn sibling(&self, node: usize) -> Sibling {
        Sibling {
            node: node as u32,
            rails: self.seen[node].rails.clone(),
        }
    }

    fn pair_measure(&self, node: usize, round: u32) -> Option<Measure> {
        let (first, second) = self.pair_of(node, round)?;
        let connects = first == node;
        Some(Measure::Pair {
            sibling: self.sibling(if connects { second } else { first }),
            connects,
            connections: self.work.pair_connections,
            bytes: self.work.pair_bytes,
            repeats: self.work.pair_repeats,
        })
    }

    fn ring_measure(&self, node: usize, round: u32) -> Measure {
        let nodes = self.members.len();
        let (before, next) = ((node + nodes - 1) % nodes, (node + 1) % nodes);
        let rails = self.seen.iter().map(|seen| seen.rails.len()).min();
        Measure::Ring {
            next: self.sibling(next),
            to_next: self.secret_of(round, Some((node, next))),
            from_before: self.secret_of(round, Some((before, node))),
            nodes: nodes as u32,
            rails: rails.unwrap_or(0) as u32,
            bytes: self.work.ring_bytes,
            repeats: self.work.ring_repeats,
        }
    }
}
