//! The work of each round, and which nodes then meet: every pair once, each node in one pair at a time.
//!
//! Source: the circle method of round-robin tournaments: one place is fixed, the others rotate.

/// The work in one round of a gang, in the order of the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RoundKind {
    /// Pairs copy. With the number of their round.
    Pairs(u32),
    /// All sum by a ring.
    Ring,
    /// The first node of each pair makes the NCCL id by which the two find each other. With the pairs' round.
    NcclPairIds(u32),
    /// Pairs sum by NCCL. With the pairs' round.
    NcclPairs(u32),
    /// The first node makes the NCCL id by which all find each other.
    NcclId,
    /// All sum by NCCL.
    NcclSum,
}

/// The rounds of a gang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rounds {
    pub(super) nodes: usize,
    /// How many rounds of pairs also sum by NCCL; none where it sums nothing.
    pub(super) nccl_pairs: u32,
    /// Whether all sum by NCCL.
    pub(super) nccl: bool,
}

impl Rounds {
    /// How many rounds there are.
    pub(super) fn count(self) -> u32 {
        let of_all = if self.nccl { 2 } else { 0 };
        self.ring() + 1 + 2 * self.nccl_pairs + of_all
    }

    /// The round of the sum by a ring, after those of pairs.
    pub(super) fn ring(self) -> u32 {
        rounds_of_pairs(self.nodes)
    }

    /// The round in which NCCL begins.
    pub(super) fn first_of_nccl(self) -> u32 {
        self.ring() + 1
    }

    /// The round in which the pairs of this round of pairs sum by NCCL.
    pub(super) fn of_nccl_pairs(self, round_of_pairs: u32) -> u32 {
        self.first_of_nccl() + 2 * round_of_pairs + 1
    }

    /// The round in which all sum by NCCL.
    pub(super) fn of_nccl_sum(self) -> u32 {
        self.first_of_nccl() + 2 * self.nccl_pairs + 1
    }

    /// The work in a round.
    pub(super) fn kind(self, round: u32) -> RoundKind {
        let Some(of_nccl) = round.checked_sub(self.first_of_nccl()) else {
            return match round == self.ring() {
                true => RoundKind::Ring,
                false => RoundKind::Pairs(round),
            };
        };
        let (pairs, sums) = (of_nccl / 2, of_nccl % 2 == 1);
        match (pairs < self.nccl_pairs, sums) {
            (true, false) => RoundKind::NcclPairIds(pairs),
            (true, true) => RoundKind::NcclPairs(pairs),
            (false, false) => RoundKind::NcclId,
            (false, true) => RoundKind::NcclSum,
        }
    }
}

/// How many rounds measure every pair of this many nodes.
pub(super) fn rounds_of_pairs(nodes: usize) -> u32 {
    // No gang has so many nodes that this is truncated.
    (nodes.next_multiple_of(2) - 1) as u32
}

/// The pairs of a round, the lower number first. With an odd number of nodes one node has none.
pub(super) fn pairs_of_round(nodes: usize, round: u32) -> Vec<(usize, usize)> {
    let places = nodes.next_multiple_of(2);
    let turning = places - 1;
    let at = |place: usize| match place {
        0 => turning,
        place => (round as usize + place) % turning,
    };
    let facing = (0..places / 2).map(|place| match place {
        0 => (at(0), round as usize % turning),
        place => (at(place), at(turning - place)),
    });
    facing
        .filter(|(a, b)| *a < nodes && *b < nodes)
        .map(|(a, b)| (a.min(b), a.max(b)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nccl_comes_last_with_an_id_before_each_sum() {
        let rounds = Rounds {
            nodes: 3,
            nccl_pairs: 2,
            nccl: true,
        };
        let kinds: Vec<RoundKind> = (0..rounds.count())
            .map(|round| rounds.kind(round))
            .collect();
        let pairs = [
            RoundKind::Pairs(0),
            RoundKind::Pairs(1),
            RoundKind::Pairs(2),
            RoundKind::Ring,
        ];
        let by_nccl = [
            RoundKind::NcclPairIds(0),
            RoundKind::NcclPairs(0),
            RoundKind::NcclPairIds(1),
            RoundKind::NcclPairs(1),
            RoundKind::NcclId,
            RoundKind::NcclSum,
        ];
        assert_eq!(kinds, [&pairs[..], &by_nccl].concat());
        let at = |round: u32| kinds[round as usize];
        assert_eq!(at(rounds.of_nccl_pairs(1)), RoundKind::NcclPairs(1));
        assert_eq!(at(rounds.of_nccl_sum()), RoundKind::NcclSum);
        let without = Rounds {
            nccl_pairs: 0,
            nccl: false,
            ..rounds
        };
        assert_eq!(without.count(), 4);
    }

    #[test]
    fn every_pair_meets_once_and_no_node_is_in_two_pairs_of_a_round() {
        for nodes in 2..=33 {
            let mut met = BTreeSet::new();
            for round in 0..rounds_of_pairs(nodes) {
                let mut busy = BTreeSet::new();
                for (a, b) in pairs_of_round(nodes, round) {
                    assert!(a < b && b < nodes);
                    assert!(busy.insert(a) && busy.insert(b), "{nodes}: round {round}");
                    assert!(met.insert((a, b)), "{nodes}: {a} and {b} meet again");
                }
            }
            assert_eq!(met.len(), nodes * (nodes - 1) / 2, "{nodes}");
        }
    }
}
