//! How fast all nodes of a gang sum together, and which nodes are to blame where they do not.

use market::attestation::{FindingCode, Outcome, Verdict, Weight};
use market::verification::{Measure, Shown};
use verifier::gang::Gang;

use crate::gang::found;
use crate::gang_players::*;

/// A gang of three whose repeats of the sum take this long.
fn summed(repeats_us: &[u64]) -> (Verdict, Gang) {
    let mut played = Played::new(3);
    let verdict = played.play(|_, measure| match measure {
        Measure::Ring { .. } => Shown::Ring {
            repeats_us: repeats_us.to_vec(),
            wrong_words: 0,
        },
        measure => well(measure),
    });
    (verdict, played.gang)
}

#[test]
fn sums_that_are_said_to_take_longer_than_their_round_fail() {
    for us in [u64::MAX, u64::MAX / 3 + 1, 180_000_001, 9_000_001] {
        let untrue = |node, measure: &Measure| match measure {
            Measure::Ring { .. } if node == 1 => Shown::Ring {
                repeats_us: vec![us; 20],
                wrong_words: 0,
            },
            measure => well(measure),
        };
        let mut played = Played::new(3);
        assert_eq!(played.play(untrue), Verdict::Fail, "{us}");
        let sum = found(&played.gang, FindingCode::NetworkAllReduce);
        let said = "node 1 (10.0.0.2) could not sum: it reports sums that took longer than their whole round may.";
        assert_eq!(sum.note, said);
        assert_eq!(of_node(&played.gang, 0, sum.code), Outcome::Noted);
    }
}

#[test]
fn a_sum_that_hardly_goes_on_fails_with_the_slowest_link_named() {
    let code = FindingCode::NetworkAllReduce;
    // 256 MiB from three nodes, at 0.5 % of 10,000 MB/s.
    let at_floor_us = 256 * (1 << 20) * 4 / 3 / 50;
    let (verdict, gang) = summed(&[at_floor_us; 20]);
    assert!(verdict.is_pass(), "{:#?}", gang.findings());
    assert_eq!(found(&gang, code).floor, Some(50));
    for slow_us in [at_floor_us + at_floor_us / 100, 9_000_000] {
        let (verdict, gang) = summed(&[slow_us; 20]);
        assert_eq!(verdict, Verdict::Fail);
        let sum = found(&gang, code);
        assert_eq!(sum.outcome, Outcome::Failed);
        for named in [
            "from node 1 (10.0.0.2)",
            "over mlx5_0",
            "carries 10000 MB/s",
        ] {
            assert!(sum.note.contains(named), "{}", sum.note);
        }
    }
    // One repeat in twenty decides nothing.
    let mut repeats = [20_000; 20];
    repeats[7] = 60_000_000;
    assert_eq!(found(&summed(&repeats).1, code).outcome, Outcome::Met);
}

/// The outcome of the sum for each of this many nodes, whose links carry this rate and whose node 1 reports
/// other times than the others, and whether node 1 alone is blamed.
fn slow_sums(nodes: u8, mb_per_s: u64, of_node_1: u64, of_others: u64) -> (bool, Vec<Outcome>) {
    let code = FindingCode::NetworkAllReduce;
    let mut played = Played::new(nodes);
    let verdict = played.play(|node, measure| match measure {
        Measure::Pair { .. } => Shown::Pair {
            sent_mb_per_s: vec![mb_per_s],
            received_mb_per_s: vec![mb_per_s],
        },
        Measure::Ring { .. } => Shown::Ring {
            repeats_us: vec![if node == 1 { of_node_1 } else { of_others }; 20],
            wrong_words: 0,
        },
        measure => well(measure),
    });
    assert_eq!(verdict, Verdict::Fail);
    let said = found(&played.gang, code).note;
    let alone = said.contains("by what node 1 (10.0.0.2) alone tells of its sums");
    let each = (0..nodes.into()).map(|node| of_node(&played.gang, node, code));
    (alone, each.collect())
}

#[test]
fn who_alone_tells_of_slow_sums_fails_alone() {
    let only_node_1 = vec![Outcome::Noted, Outcome::Failed, Outcome::Noted];
    let all = vec![Outcome::Failed; 3];
    // At 10 GB/s three nodes must sum in 7.2 s.
    assert_eq!(
        slow_sums(3, 10_000, 8_000_001, 4_000_000),
        (true, only_node_1.clone())
    );
    assert_eq!(
        slow_sums(3, 10_000, 8_000_000, 4_000_000),
        (false, all.clone())
    );
    // A node that alone reports fast sums makes no other slow.
    assert_eq!(
        slow_sums(3, 10_000, 20_000, 8_000_000),
        (false, all.clone())
    );
    // At 20 GB/s in half of that: where the others are too slow as well, no node is slow alone.
    assert_eq!(
        slow_sums(3, 20_000, 8_000_001, 3_500_000),
        (true, only_node_1)
    );
    assert_eq!(slow_sums(3, 20_000, 8_000_001, 4_000_000), (false, all));
    // With two nodes either may be the slow one. They must sum in 5.4 s.
    assert_eq!(
        slow_sums(2, 10_000, 8_000_000, 20_000),
        (false, vec![Outcome::Failed; 2])
    );
}

#[test]
fn a_sum_that_now_and_then_takes_far_longer_is_told_and_decides_nothing() {
    let code = FindingCode::NetworkJitter;
    let outcome_of = |longest_us| {
        let mut repeats = [20_000; 20];
        repeats[13] = longest_us;
        let (verdict, gang) = summed(&repeats);
        assert_eq!(verdict, Verdict::Pass);
        let jitter = found(&gang, code);
        assert_eq!(jitter.weight, Weight::Shadow);
        assert_eq!((jitter.floor, jitter.samples.len()), (Some(3_000), 20));
        (jitter.outcome, jitter.measured)
    };
    assert_eq!(outcome_of(20_000), (Outcome::Met, Some(1_000)));
    assert_eq!(outcome_of(60_000), (Outcome::Met, Some(3_000)));
    assert_eq!(outcome_of(60_020), (Outcome::Warned, Some(3_001)));
    // An unfinished gang has no times.
    let early = Played::new(3).gang;
    assert_eq!(found(&early, code).outcome, Outcome::NotRun);
}
