//! Whether the GPUs of a gang's nodes sum by NCCL, and which nodes meet in which rounds: first two nodes at a
//! time, then all. The first of those nodes makes the id by which they find each other, then they join. The
//! process that made the id must be one of those that join, so the broker hands it on only where it leads to
//! that node (`nccl_id`).

use market::verification::{Measure, NcclId, NcclPart, NcclSum, Shown};

use super::nccl_id::leads_to_one_of;
use super::rounds::{RoundKind, pairs_of_round, rounds_of_pairs};
use super::{CallRefused, Gang, Seen, judge};

/// The least that is summed, however slow the links. Units: bytes.
const LEAST_BYTES: u64 = 1 << 20;
/// Payloads are multiples of this. Units: bytes.
const UNIT_BYTES: u64 = 16;
/// The slowest link carries a payload in one second divided by this. All repeats then end within a round,
/// although an algorithm moves some data more than once.
const OF_A_SECOND: u64 = 2;

/// Which nodes of a gang have NCCL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Library {
    /// None of them: no agent reports it, or the gang began before agents were asked.
    Nowhere,
    /// Some, but not this one.
    Missing(usize),
    /// All, but this one another than the first.
    Unlike(usize),
    /// All the same, but this one has another number of GPUs than was sold.
    Unsold(usize),
    /// All of them the same.
    Everywhere(u32),
}

/// The most rounds in which pairs sum by NCCL: up to sixteen nodes all pairs, beyond that each node with
/// fifteen others. Joining takes many seconds a round, and the nodes are paid for meanwhile.
const MOST_ROUNDS_OF_PAIRS: u32 = 15;

/// In how many rounds the pairs of this many nodes sum by NCCL. Two nodes sum as all nodes do.
#[must_use]
pub fn rounds_of_nccl_pairs(nodes: usize) -> u32 {
    match nodes {
        0..=2 => 0,
        nodes => rounds_of_pairs(nodes).min(MOST_ROUNDS_OF_PAIRS),
    }
}

/// Nodes that sum by NCCL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meeting {
    /// In ascending order; never empty.
    pub(super) nodes: Vec<usize>,
    /// The round in which the first of them makes the id by which they find each other. They sum in the next
    /// one.
    id_round: u32,
}

impl Meeting {
    /// The two nodes of a pair, the lower number first, that sum in this round.
    fn of_pair((first, second): (usize, usize), sum_round: u32) -> Self {
        Self {
            nodes: vec![first, second],
            id_round: sum_round - 1,
        }
    }

    pub(super) fn first(&self) -> usize {
        self.nodes[0]
    }

    pub(super) const fn sum_round(&self) -> u32 {
        self.id_round + 1
    }
}

/// A version as its maker writes it.
pub(crate) fn version_words(version: u32) -> String {
    // Source: NCCL documentation, ncclGetVersion: NCCL_VERSION, whose first form ended with 2.8.
    let unit = match version {
        0..10_000 => 10,
        _ => 100,
    };
    let (major, minor) = (version / 100 / unit, version / 100 % unit);
    format!("{major}.{minor}.{}", version % 100)
}

/// Refuses a contribution that no node can make.
pub(super) fn check_part(part: Option<NcclPart>) -> Result<(), CallRefused> {
    let fits =
        |part: NcclPart| (1..1_000_000).contains(&part.version) && (1..=64).contains(&part.gpus);
    match part.is_none_or(fits) {
        true => Ok(()),
        false => Err(CallRefused::Malformed(
            "a node brings 1 to 64 GPUs and a version of NCCL",
        )),
    }
}

impl Gang {
    /// Which nodes have NCCL. It does not join nodes whose versions differ in any part.
    pub(super) fn nccl(&self) -> Library {
        let of = |node: usize| self.seen[node].nccl.map(|part| part.version);
        let nodes = 0..self.seen.len();
        if self.work.nccl_bytes == 0 || nodes.clone().all(|node| of(node).is_none()) {
            return Library::Nowhere;
        }
        if let Some(node) = nodes.clone().find(|node| of(*node).is_none()) {
            return Library::Missing(node);
        }
        if let Some(node) = nodes.clone().find(|node| of(*node) != of(0)) {
            return Library::Unlike(node);
        }
        let gpus = |node: usize| self.seen[node].nccl.map(|part| part.gpus);
        let is_unsold = |node: &usize| self.gpus_sold.is_some() && gpus(*node) != self.gpus_sold;
        match (nodes.into_iter().find(is_unsold), of(0)) {
            (Some(node), _) => Library::Unsold(node),
            (None, Some(version)) => Library::Everywhere(version),
            (None, None) => Library::Nowhere,
        }
    }

    /// How many rounds of pairs also sum by NCCL, and whether all nodes sum by it. Two nodes are one pair.
    pub(super) fn rounds_of_nccl(&self) -> (u32, bool) {
        match self.nccl() {
            Library::Everywhere(_) if self.work.nccl_pair_bytes > 0 => {
                (rounds_of_nccl_pairs(self.members.len()), true)
            }
            Library::Everywhere(_) => (0, true),
            Library::Nowhere | Library::Missing(_) | Library::Unlike(_) | Library::Unsold(_) => {
                (0, false)
            }
        }
    }

    /// The number of GPUs of these nodes together.
    pub(super) fn ranks(&self, meeting: &Meeting) -> u32 {
        self.parts(meeting).map(|part| part.gpus).sum()
    }

    pub(super) fn parts(&self, meeting: &Meeting) -> impl Iterator<Item = NcclPart> {
        let nodes = meeting.nodes.iter();
        nodes.filter_map(|node| self.seen[*node].nccl)
    }

    /// Whether a round before this one failed: those that follow would only wait.
    pub(super) fn failed_before(&self, round: u32) -> bool {
        let before = |seen: &Seen| {
            let mut shown = seen.shown.iter().take(round as usize).flatten();
            shown.any(|shown| matches!(shown, Shown::Failed { .. }))
        };
        self.seen.iter().any(before)
    }

    /// Whether a node has work in a round of these.
    pub(super) fn is_busy_with_nccl(&self, node: usize, kind: RoundKind) -> bool {
        let Some(meeting) = self.meeting(node, kind) else {
            return false;
        };
        match kind {
            RoundKind::NcclPairIds(_) | RoundKind::NcclId => {
                meeting.first() == node && !self.failed_before(meeting.id_round)
            }
            _ => self.nccl_id(&meeting).is_some(),
        }
    }

    /// The nodes that a node meets in a round of these; none where it is alone in it.
    fn meeting(&self, node: usize, kind: RoundKind) -> Option<Meeting> {
        let rounds = self.rounds();
        match kind {
            RoundKind::NcclPairIds(round) | RoundKind::NcclPairs(round) => {
                let pair = self.pair_of(node, round)?;
                Some(Meeting::of_pair(pair, rounds.of_nccl_pairs(round)))
            }
            RoundKind::NcclId | RoundKind::NcclSum => Some(self.meeting_of_all()),
            RoundKind::Pairs(_) | RoundKind::Ring => None,
        }
    }

    /// The sum of all.
    pub(super) fn meeting_of_all(&self) -> Meeting {
        let id_round = self.rounds().of_nccl_sum() - 1;
        let nodes = (0..self.members.len()).collect();
        Meeting { nodes, id_round }
    }

    /// The sums of two nodes, in the order of their rounds.
    pub(super) fn meetings_of_pairs(&self) -> Vec<Meeting> {
        let rounds = self.rounds();
        let of_round = |round| {
            let pairs = pairs_of_round(self.members.len(), round).into_iter();
            pairs.map(move |pair| Meeting::of_pair(pair, rounds.of_nccl_pairs(round)))
        };
        (0..rounds.nccl_pairs).flat_map(of_round).collect()
    }

    /// The id by which they find each other.
    fn nccl_id(&self, meeting: &Meeting) -> Option<NcclId> {
        let id = self.shown_id(meeting)?;
        self.leads_to_the_first(meeting, &id).then_some(id)
    }

    /// Whether the first of them would direct the others elsewhere than to itself.
    pub(super) fn would_mislead(&self, meeting: &Meeting) -> bool {
        let id = self.shown_id(meeting);
        id.is_some_and(|id| !self.leads_to_the_first(meeting, &id))
    }

    fn shown_id(&self, meeting: &Meeting) -> Option<NcclId> {
        let seen = &self.seen[meeting.first()];
        match seen.shown.get(meeting.id_round as usize) {
            Some(Some(Shown::NcclId { id })) => Some(*id),
            _ => None,
        }
    }

    fn leads_to_the_first(&self, meeting: &Meeting, id: &NcclId) -> bool {
        leads_to_one_of(id, &self.seen[meeting.first()].rails)
    }

    /// A node's measurement in a round of these.
    pub(super) fn nccl_measure(&self, node: usize, kind: RoundKind) -> Option<Measure> {
        let (bytes, repeats) = match kind {
            RoundKind::NcclPairIds(_) | RoundKind::NcclId => return Some(Measure::NcclId),
            RoundKind::NcclPairs(_) => (self.nccl_pair_bytes(), self.work.nccl_pair_repeats),
            RoundKind::NcclSum => (self.nccl_bytes(), self.work.nccl_repeats),
            RoundKind::Pairs(_) | RoundKind::Ring => return None,
        };
        let meeting = self.meeting(node, kind)?;
        let gpus = |node: &usize| self.seen[*node].nccl.map_or(0, |part| part.gpus);
        let before = meeting.nodes.iter().filter(|other| **other < node);
        Some(Measure::NcclSum(Box::new(NcclSum {
            id: self.nccl_id(&meeting)?,
            ranks: self.ranks(&meeting),
            first_rank: before.map(gpus).sum(),
            gpus: gpus(&node),
            bytes,
            warm_ups: self.work.nccl_warm_ups,
            repeats,
        })))
    }

    /// The payload of each GPU in the sum of all.
    pub(super) fn nccl_bytes(&self) -> u64 {
        self.carried_bytes(self.work.nccl_bytes)
    }

    /// The payload of each GPU in the sums of two nodes, which is the same for all pairs.
    pub(super) fn nccl_pair_bytes(&self) -> u64 {
        self.carried_bytes(self.work.nccl_pair_bytes)
    }

    /// This much; on slow links less, so that all repeats end within a round.
    fn carried_bytes(&self, most: u64) -> u64 {
        let slowest_mb_per_s = judge::slowest_mb_per_s(self).unwrap_or(0);
        let carried = slowest_mb_per_s.saturating_mul(1_000_000) / OF_A_SECOND;
        carried.max(LEAST_BYTES).min(most) / UNIT_BYTES * UNIT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_reads_as_its_maker_writes_it() {
        assert_eq!(version_words(22_809), "2.28.9");
        assert_eq!(version_words(2_804), "2.8.4");
    }
}
