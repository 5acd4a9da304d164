//! Which nodes are measured together in which round: every pair once, each node in one at a time.
//!
//! Source: the circle method of round-robin tournaments: one place stands still, the others turn.

/// How many rounds measure every pair of so many nodes.
pub(super) fn rounds_of_pairs(nodes: usize) -> u32 {
    // At most a thousand nodes.
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
