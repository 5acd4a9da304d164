//! The GPUs of two nodes at a time that sum together by NCCL: real agents on the fake driver, and simulated
//! nodes.

use std::cell::RefCell;
use std::collections::BTreeSet;

use fake_driver::script::{Fault, Joins};
use market::attestation::{FindingCode, Outcome, Verdict, Weight};
use market::fabric::Internode;
use market::verification::{GangWork, Measure, NcclId, NcclPart, NcclSum, Shown};
use verifier::gang::Gang;

use crate::gang::*;
use crate::gang_nccl::{NETWORK_MB_PER_S, all_ended_with, carried, is_about, machines};
use crate::gang_nccl_played::failed;
use crate::gang_players::*;

const CODE: FindingCode = FindingCode::NetworkCollectivePairs;

/// The same sizes as pairs over TCP; the test is about their sums by NCCL.
fn with_pairs() -> GangWork {
    GangWork {
        nccl_pair_bytes: 64 << 10,
        nccl_pair_repeats: 3,
        ..work(1)
    }
}

fn named(node: usize) -> String {
    format!("node {node} ({})", host(node))
}

#[test]
fn a_link_that_is_slow_for_nccl_alone_is_named_by_its_pair() {
    let slow = |node, script: &mut fake_driver::script::Script| {
        if node == 1 {
            script.collective.slow_to = Some(host(3));
        }
    };
    let (gang, ended) = measured_on(&machines(4, slow), None, with_pairs());
    let pairs = found(&gang, CODE);
    assert_eq!(
        (pairs.outcome, pairs.weight),
        (Outcome::Failed, Weight::Shadow)
    );
    let said = format!("{} and {} sum up 64 KiB of each GPU", named(1), named(3));
    assert!(pairs.note.contains(&said), "{}", pairs.note);
    assert!(!pairs.note.contains(&named(0)) && !pairs.note.contains(&named(2)));
    assert!(
        is_about(pairs.measured, carried(2, NETWORK_MB_PER_S / 10)),
        "{pairs:#?}"
    );
    assert!(
        is_about(pairs.expected, carried(2, NETWORK_MB_PER_S)),
        "{pairs:#?}"
    );
    assert_eq!(pairs.samples.len(), 6, "every pair");
    // Sockets between them are as fast as any, and the rule fails nobody while it is tried out.
    assert_eq!(
        found(&gang, FindingCode::NetworkPairs).outcome,
        Outcome::Met
    );
    let outcomes = [0, 1, 2, 3].map(|node| of_node(&gang, node, CODE));
    let (noted, failed) = (Outcome::Noted, Outcome::Failed);
    assert_eq!(outcomes, [noted, failed, noted, failed]);
    assert!(gang.verdict().is_some_and(Verdict::is_pass));
    all_ended_with(0, ended);
}

#[test]
fn pairs_that_are_alike_are_met_at_the_rate_of_their_network() {
    let (gang, ended) = measured_on(&machines(3, |_, _| {}), None, with_pairs());
    let pairs = found(&gang, CODE);
    assert_eq!(
        (pairs.outcome, pairs.weight),
        (Outcome::Met, Weight::Shadow)
    );
    assert!(
        is_about(pairs.measured, carried(2, NETWORK_MB_PER_S)),
        "{pairs:#?}"
    );
    let said = "3 pairs of nodes sum up 64 KiB of each GPU (nccl_default) rightly by NCCL 2.28.9";
    assert!(pairs.note.starts_with(said), "{}", pairs.note);
    // All of them go on to sum together.
    let all = found(&gang, FindingCode::NetworkCollective);
    assert_eq!(all.outcome, Outcome::Met, "{}", all.note);
    all_ended_with(0, ended);
}

#[test]
fn a_node_that_brings_wrong_words_to_each_of_its_pairs_is_to_blame_alone() {
    let wrong = |node, script: &mut fake_driver::script::Script| {
        if node == 1 {
            script.gpus[1].fault = Fault::BringsWrongly;
        }
    };
    let (gang, ended) = measured_on(&machines(3, wrong), None, with_pairs());
    let pairs = found(&gang, CODE);
    assert_eq!(
        (pairs.outcome, pairs.weight),
        (Outcome::Failed, Weight::Must)
    );
    assert!(
        pairs.note.ends_with("were wrong; 2 pairs have such."),
        "{}",
        pairs.note
    );
    let outcomes = [0, 1, 2].map(|node| of_node(&gang, node, CODE));
    let (noted, failed) = (Outcome::Noted, Outcome::Failed);
    assert_eq!(outcomes, [noted, failed, noted]);
    assert_eq!(gang.verdict(), Some(Verdict::Fail));
    all_ended_with(1, ended);
}

#[test]
fn a_pair_that_hangs_ends_with_its_round_and_no_other_is_asked_after_it() {
    let hangs = |node, script: &mut fake_driver::script::Script| {
        if node == 2 {
            script.collective.joins = Joins::Hangs;
        }
    };
    let short = GangWork {
        round_ms: 15_000,
        ..with_pairs()
    };
    let (gang, ended) = measured_on(&machines(4, hangs), None, short);
    let pairs = found(&gang, CODE);
    assert_eq!(
        (pairs.outcome, pairs.weight),
        (Outcome::Failed, Weight::Shadow)
    );
    let said = "did not sum 64 KiB of each GPU (nccl_default) by NCCL: it did not finish in time and was given up.";
    assert!(pairs.note.ends_with(said), "{}", pairs.note);
    assert!(pairs.note.contains(&named(2)), "{}", pairs.note);
    let all = found(&gang, FindingCode::NetworkCollective);
    assert_eq!((all.outcome, all.weight), (Outcome::NotRun, Weight::May));
    assert!(all.note.contains("net.collective_pairs"), "{}", all.note);
    assert!(gang.verdict().is_some_and(Verdict::is_pass));
    all_ended_with(0, ended);
}

/// The sums requested of a gang's nodes, each with its number, and the judgement of their results.
fn asked(mut played: Played, show: fn(u32, &Measure) -> Shown) -> (Gang, Vec<(u32, NcclSum)>) {
    let sums = RefCell::new(Vec::new());
    played.play(|node, measure| {
        if let Measure::NcclSum(sum) = measure {
            sums.borrow_mut().push((node, **sum));
        }
        show(node, measure)
    });
    (played.gang, sums.into_inner())
}

/// An id that contains its node.
fn id_by(node: u32) -> NcclId {
    id_of([10, 0, 0, 9], 40_000 + node as u16)
}

#[test]
fn the_two_of_a_pair_find_each_other_by_what_its_first_makes() {
    let show = |node, measure: &Measure| match measure {
        Measure::NcclId => Shown::NcclId { id: id_by(node) },
        measure => well(measure),
    };
    let mut played = Played::new(3).with_nccl(8);
    played.calls[1].nccl = Some(NcclPart {
        version: 22_809,
        gpus: 4,
    });
    let (gang, sums) = asked(played, show);
    let mut of_pairs: Vec<_> = sums.iter().filter(|(_, sum)| sum.ranks < 20).collect();
    of_pairs.sort_by_key(|(node, sum)| (sum.ranks, sum.id.0, *node));
    let told = of_pairs.iter().map(|(node, sum)| {
        assert_eq!((sum.bytes, sum.warm_ups, sum.repeats), (1 << 30, 5, 5));
        (*node, sum.id, sum.first_rank, sum.gpus, sum.ranks)
    });
    let expected = [
        (0, id_by(0), 0, 8, 12),
        (1, id_by(0), 8, 4, 12),
        (1, id_by(1), 0, 4, 12),
        (2, id_by(1), 4, 8, 12),
        (0, id_by(0), 0, 8, 16),
        (2, id_by(0), 8, 8, 16),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    assert_eq!(found(&gang, CODE).outcome, Outcome::Met);
    assert_eq!(sums.iter().filter(|(_, sum)| sum.ranks == 20).count(), 3);
}

#[test]
fn an_id_that_leads_elsewhere_is_not_handed_to_the_other_of_the_pair() {
    let show = |node, measure: &Measure| match measure {
        Measure::NcclId if node == 1 => Shown::NcclId {
            id: id_of([10, 0, 0, 8], 40_000),
        },
        measure => well(measure),
    };
    let (gang, sums) = asked(Played::new(3).with_nccl(8), show);
    let of_pairs = sums.iter().filter(|(_, sum)| sum.ranks == 16);
    let met: BTreeSet<u32> = of_pairs.map(|(node, _)| *node).collect();
    assert_eq!(met, BTreeSet::from([0, 1, 2]), "but not 1 and 2");
    let pairs = found(&gang, CODE);
    assert_eq!(
        (pairs.outcome, pairs.weight),
        (Outcome::Failed, Weight::Shadow)
    );
    let said = format!(
        "{} and {} did not sum 1024 MiB of each GPU (nccl_default) by NCCL: the first node's NCCL id",
        named(1),
        named(2)
    );
    assert!(pairs.note.starts_with(&said), "{}", pairs.note);
}

#[test]
fn of_many_nodes_each_sums_with_fifteen_others() {
    for (nodes, pairs) in [(2_u8, 0), (3, 3), (16, 120), (17, 120), (40, 300)] {
        let (gang, sums) = asked(Played::new(nodes).with_nccl(1), |_, measure| well(measure));
        let of_pairs = sums.iter().filter(|(_, sum)| sum.ranks == 2 && nodes > 2);
        assert_eq!(of_pairs.count(), 2 * pairs, "{nodes}");
        let findings = gang.findings();
        let of_pairs = findings.iter().find(|found| found.code == CODE);
        let samples = of_pairs.map(|found| (found.outcome, found.samples.len()));
        assert_eq!(
            samples,
            (nodes > 2).then_some((Outcome::Met, pairs)),
            "{nodes}"
        );
        assert!(gang.verdict().is_some_and(Verdict::is_pass));
    }
}

/// Four nodes with eight GPUs, of which 1 and 2 together take this long for a sum and the other pairs 15 ms.
fn with_one_pair_at(us: u64, sold_as: Internode) -> (Verdict, Gang) {
    let mut played = Played::new(4).with_nccl(8);
    played.gang = played.gang.clone().sold_as(sold_as);
    let verdict = played.play(|node, measure| match measure {
        Measure::NcclId => Shown::NcclId { id: id_by(node) },
        Measure::NcclSum(sum) if sum.ranks == 16 => {
            // The slower of the two counts.
            let is_slow = node == 2 && sum.id == id_by(1);
            let Shown::NcclSum {
                algorithm,
                gpus,
                repeats_us,
                wrong_words,
            } = well(measure)
            else {
                unreachable!("it is a sum")
            };
            let repeats_us = vec![if is_slow { us } else { 15_000 }; repeats_us.len()];
            Shown::NcclSum {
                algorithm,
                gpus,
                repeats_us,
                wrong_words,
            }
        }
        measure => well(measure),
    });
    (verdict, played.gang)
}

#[test]
fn a_pair_is_held_against_the_others_and_against_what_was_sold() {
    // 1 GiB of each of 16 GPUs in 15 ms: a bus rate of 134,217 MB/s, a fifteenth of which counts by the
    // formula.
    let (_, gang) = with_one_pair_at(29_000, Internode::Unknown);
    assert_eq!(found(&gang, CODE).outcome, Outcome::Met);
    let (verdict, gang) = with_one_pair_at(31_000, Internode::Unknown);
    let slow = found(&gang, CODE);
    assert_eq!((verdict, slow.outcome), (Verdict::Pass, Outcome::Failed));
    assert_eq!((slow.measured, slow.expected), (Some(4_329), Some(8_947)));
    assert_eq!(slow.floor, Some(4_473));
    let said = "where the median of all pairs is 8947 MB/s";
    assert!(slow.note.ends_with(&format!("{said}.")), "{}", slow.note);
    assert!(slow.note.contains(&named(1)) && slow.note.contains(&named(2)));
    // Eight adapters at 50,000 MB/s give 26,666 each; all pairs have less than 70 % of that.
    let (verdict, gang) = with_one_pair_at(31_000, Internode::InfinibandNdr400);
    let slow = found(&gang, CODE);
    assert_eq!((verdict, slow.outcome), (Verdict::Pass, Outcome::Failed));
    assert_eq!((slow.floor, slow.expected), (Some(18_666), Some(26_666)));
    let said = "where adapters of 400 Gb/s for each were sold; 6 pairs are slow.";
    assert!(slow.note.ends_with(said), "{}", slow.note);
}

#[test]
fn fewer_sums_than_were_asked_for_are_none() {
    let few = |node, measure: &Measure| match (node, well(measure)) {
        (
            1,
            Shown::NcclSum {
                algorithm, gpus, ..
            },
        ) => Shown::NcclSum {
            algorithm,
            gpus,
            repeats_us: vec![1],
            wrong_words: 0,
        },
        (_, shown) => shown,
    };
    let (gang, _) = asked(Played::new(3).with_nccl(8), few);
    let pairs = found(&gang, CODE);
    assert_eq!(pairs.outcome, Outcome::Failed);
    let said = "by NCCL: it reports 1 of 5 sums; 2 pairs did not.";
    assert!(pairs.note.ends_with(said), "{}", pairs.note);
    let all = found(&gang, FindingCode::NetworkCollective);
    let said = "node 1 (10.0.0.2): it reports 1 of 20 sums.";
    assert!(all.note.ends_with(said), "{}", all.note);
}

#[test]
fn one_that_failed_over_tcp_is_asked_for_no_sum_of_pairs() {
    let fails = |_, measure: &Measure| match measure {
        Measure::Ring { .. } => failed(),
        measure => well(measure),
    };
    let (gang, sums) = asked(Played::new(3).with_nccl(8), fails);
    assert!(sums.is_empty(), "{sums:?}");
    let pairs = found(&gang, CODE);
    assert_eq!(
        (pairs.outcome, pairs.weight),
        (Outcome::NotRun, Weight::May)
    );
}

#[test]
fn a_gang_that_was_begun_before_pairs_summed_ends_as_it_began() {
    let mut played = Played::new(3).with_nccl(8);
    let mut row = serde_json::to_value(&played.gang).expect("json");
    for known in ["nccl_pair_bytes", "nccl_pair_repeats"] {
        let work = row["work"].as_object_mut().expect("an object");
        assert!(work.remove(known).is_some());
    }
    played.gang = serde_json::from_value(row).expect("a gang");
    let (gang, sums) = asked(played, |_, measure| well(measure));
    assert!(sums.iter().all(|(_, sum)| sum.ranks == 24), "{sums:?}");
    assert!(gang.findings().iter().all(|found| found.code != CODE));
}
