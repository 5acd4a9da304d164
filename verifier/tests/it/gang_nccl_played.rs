//! The GPUs of several nodes that sum together by NCCL: simulated nodes, and the judgement of their results.

use std::cell::RefCell;

use market::attestation::{FindingCode, Outcome, Verdict, Weight};
use market::fabric::Internode;
use market::verification::{
    CollectiveAlgorithm, GangAnswer, GangCall, Level, Measure, NcclId, NcclPart, NcclSum, Shown,
};
use verifier::gang::{CallRefused, Gang};
use verifier::order::Mode;

use crate::gang::*;
use crate::gang_nccl::CODE;
use crate::gang_players::*;
use crate::stage::*;

/// Simulated nodes with this many GPUs each, sold with an NDR fabric, whose repeats take this long.
fn summed(nodes: u8, gpus: u32, us: u64) -> (Verdict, Gang) {
    let mut played = Played::new(nodes).with_nccl(gpus);
    played.gang = played.gang.clone().sold_as(Internode::InfinibandNdr400);
    let verdict = played.play(|_, measure| match measure {
        Measure::NcclSum(sum) => Shown::NcclSum {
            algorithm: CollectiveAlgorithm::NcclDefault,
            gpus: sum.gpus,
            repeats_us: vec![us; sum.repeats as usize],
            wrong_words: 0,
        },
        measure => well(measure),
    });
    (verdict, played.gang)
}

#[test]
fn a_sum_below_what_the_fabric_that_was_sold_carries_is_told_and_decides_nothing() {
    // 4 GiB of each GPU. Eight adapters at 50,000 MB/s pass 400,000 MB/s from node to node, of which the
    // formula counts (k - 1) / (n - 1) for each GPU.
    for (nodes, expected) in [(2_u8, 26_666), (4, 38_709)] {
        let ranks = u64::from(nodes) * 8;
        let moved = (4_u64 << 30) * 2 * (ranks - 1) / ranks;
        let at = |bus_mb_per_s: u64| summed(nodes, 8, moved / bus_mb_per_s);
        let (verdict, gang) = at(281_000);
        let good = found(&gang, CODE);
        assert_eq!((verdict, good.outcome), (Verdict::Pass, Outcome::Met));
        assert_eq!(good.expected, Some(expected));
        assert_eq!(good.floor, Some(expected * 70 / 100));
        let (verdict, gang) = at(279_000);
        let slow = found(&gang, CODE);
        assert_eq!((verdict, slow.outcome), (Verdict::Pass, Outcome::Failed));
        assert_eq!(slow.weight, Weight::Shadow);
        let said = "where adapters of 400 Gb/s for each were sold";
        assert!(slow.note.contains(said), "{}", slow.note);
    }
    // With one GPU on each node the formula subtracts nothing.
    assert_eq!(found(&summed(2, 1, 100_000).1, CODE).expected, Some(50_000));
}

#[test]
fn what_is_not_proved_says_that_the_way_of_nccl_is_not_shown() {
    let not_proved = |gang: &Gang| {
        let order = opening(2, Level::Standard, Mode::Real).order;
        let all = verifier::rules::not_proved(&order, &gang.findings(), false);
        all.into_iter()
            .find(|it| it.contains("net.fabric"))
            .expect("said")
    };
    let way = "by which way NCCL summed (net.collective)";
    let said = not_proved(&summed(2, 8, 20_000).1);
    assert!(said.contains("over TCP") && said.contains(way), "{said}");
    for sold in [Internode::InfinibandNdr400, Internode::Ethernet] {
        let mut played = Played::new(2).with_nccl(8);
        played.gang = played.gang.clone().sold_as(sold);
        for call in &mut played.calls {
            call.rails[0].name = "host".to_owned();
        }
        played.play(|_, measure| well(measure));
        assert!(not_proved(&played.gang).contains(way), "{sold}");
        let findings = played.gang.findings();
        let fabric = findings
            .iter()
            .find(|it| it.code == FindingCode::NetworkFabric);
        let said = "by what way NCCL went is not shown";
        assert_eq!(fabric.is_some(), sold.is_rdma());
        assert!(fabric.is_none_or(|it| it.note.contains(said)), "{fabric:?}");
    }
    // A node that did not sum reveals nothing about a path.
    let mut played = Played::new(2).with_nccl(8);
    played.play(|_, measure| match measure {
        Measure::NcclSum(_) => failed(),
        measure => well(measure),
    });
    assert!(!not_proved(&played.gang).contains("NCCL"));
}

#[test]
fn sums_by_nccl_that_are_said_to_take_longer_than_their_round_are_told_and_decide_nothing() {
    let said = |us: u64| {
        let mut played = Played::new(3).with_nccl(8).without_pairs_by_nccl();
        let verdict = played.play(|node, measure| match measure {
            Measure::NcclSum(sum) if node == 1 => Shown::NcclSum {
                algorithm: CollectiveAlgorithm::NcclDefault,
                gpus: sum.gpus,
                repeats_us: vec![us; sum.repeats as usize],
                wrong_words: 0,
            },
            measure => well(measure),
        });
        assert_eq!(verdict, Verdict::Pass);
        let sum = found(&played.gang, CODE);
        (sum.outcome, sum.weight, sum.note)
    };
    let (outcome, _, note) = said(20_000);
    assert_eq!(outcome, Outcome::Met, "{note}");
    for us in [u64::MAX, 9_000_001] {
        let (outcome, weight, note) = said(us);
        assert_eq!(
            (outcome, weight),
            (Outcome::Failed, Weight::Shadow),
            "{note}"
        );
        let untrue = "it reports sums that took longer than their whole round may";
        assert!(note.contains(untrue), "{note}");
    }
}

pub fn failed() -> Shown {
    Shown::Failed {
        why: "refused".to_owned(),
    }
}

/// The sums requested of the nodes of a gang, in the order of their numbers.
fn asked(mut played: Played, pair_mb_per_s: u64) -> Vec<NcclSum> {
    let sums = RefCell::new(Vec::new());
    played.play(|_, measure| match measure {
        Measure::Pair { .. } => Shown::Pair {
            sent_mb_per_s: vec![pair_mb_per_s],
            received_mb_per_s: vec![pair_mb_per_s],
        },
        Measure::NcclSum(sum) => {
            sums.borrow_mut().push(**sum);
            well(measure)
        }
        measure => well(measure),
    });
    let mut sums = sums.into_inner();
    sums.sort_by_key(|sum| sum.first_rank);
    sums
}

#[test]
fn gpus_are_numbered_through_the_gang_and_slow_links_sum_less() {
    let mut played = Played::new(3).with_nccl(8);
    played.calls[1].nccl = Some(NcclPart {
        version: 22_809,
        gpus: 4,
    });
    let sums = asked(played.without_pairs_by_nccl(), 10_000);
    let numbers: Vec<_> = sums.iter().map(|sum| (sum.first_rank, sum.gpus)).collect();
    assert_eq!(numbers, [(0, 8), (8, 4), (12, 8)]);
    assert!(
        sums.iter()
            .all(|sum| sum.ranks == 20 && sum.bytes == 4 << 30)
    );
    // The amount that a link of 1 Gb/s carries in half a second, and never zero.
    for (pair_mb_per_s, bytes) in [(125, 62_500_000), (0, 1 << 20)] {
        let sums = asked(Played::new(2).with_nccl(1), pair_mb_per_s);
        assert!(sums.iter().all(|sum| sum.bytes == bytes), "{sums:?}");
    }
}

#[test]
fn a_gang_that_failed_before_is_not_asked_and_one_without_an_id_does_not_sum() {
    let outcome = |fails: fn(&Measure) -> bool| {
        let played = Played::new(3).with_nccl(8);
        let mut played = played.without_pairs_by_nccl();
        let asked = RefCell::new(Vec::new());
        played.play(|node, measure| {
            if matches!(measure, Measure::NcclId | Measure::NcclSum(_)) {
                asked.borrow_mut().push(node);
            }
            match fails(measure) {
                true => failed(),
                false => well(measure),
            }
        });
        (found(&played.gang, CODE), asked.into_inner())
    };
    let (sum, asked) = outcome(|measure| matches!(measure, Measure::Ring { .. }));
    assert_eq!((sum.outcome, sum.weight), (Outcome::NotRun, Weight::May));
    assert!(asked.is_empty(), "{asked:?}");
    let (sum, asked) = outcome(|measure| matches!(measure, Measure::NcclId));
    assert_eq!((sum.outcome, sum.weight), (Outcome::Failed, Weight::Shadow));
    let said =
        "NCCL did not sum 4096 MiB of each GPU (nccl_default) at node 0 (10.0.0.1): refused.";
    assert_eq!(sum.note, said);
    assert_eq!(asked, [0]);
}

#[test]
fn an_id_that_does_not_lead_to_the_first_node_is_handed_to_nobody() {
    let elsewhere = [
        NcclId([7; 128]),
        id_of([10, 0, 0, 8], 40_001),
        id_of([127, 0, 0, 1], 40_001),
        id_of([10, 0, 0, 9], 22),
    ];
    for id in elsewhere {
        let mut played = Played::new(3).with_nccl(8);
        let verdict = played.play(|_, measure| match measure {
            Measure::NcclId => Shown::NcclId { id },
            Measure::NcclSum(_) => panic!("led to {id}"),
            measure => well(measure),
        });
        assert_eq!(verdict, Verdict::Pass);
        let sum = found(&played.gang, CODE);
        assert_eq!((sum.outcome, sum.weight), (Outcome::NotRun, Weight::May));
        let said = "The NCCL id of node 0 (10.0.0.1) does not lead to one of its own addresses";
        assert!(sum.note.starts_with(said), "{}", sum.note);
    }
    // Nor to an address that it names after its own links have been measured.
    let mut played = Played::new(2).with_nccl(8);
    played.gang.on_call(&played.calls[0]).expect("an answer");
    played.calls[0].rails[0].address = "10.0.0.8:40000".to_owned();
    played.play(|_, measure| match measure {
        Measure::NcclId => Shown::NcclId {
            id: id_of([10, 0, 0, 8], 40_001),
        },
        measure => well(measure),
    });
    assert_eq!(found(&played.gang, CODE).outcome, Outcome::NotRun);
}

#[test]
fn a_node_with_another_number_of_gpus_than_was_sold_is_named_and_nothing_is_summed() {
    for (brings, sold) in [(1, Some(8)), (64, Some(8)), (4, None), (8, Some(8))] {
        let mut played = Played::new(3).with_nccl(8);
        played.gang = played.gang.clone().with_gpus_sold(sold);
        let version = 22_809;
        let gpus = brings;
        played.calls[1].nccl = Some(NcclPart { version, gpus });
        let verdict = played.play(|_, measure| match measure {
            Measure::NcclSum(_) if sold.is_some_and(|sold| sold != brings) => {
                panic!("{brings} of {sold:?}")
            }
            measure => well(measure),
        });
        assert_eq!(verdict, Verdict::Pass);
        let sum = found(&played.gang, CODE);
        if sold.is_none_or(|sold| sold == brings) {
            assert_eq!(sum.outcome, Outcome::Met);
            continue;
        }
        assert_eq!((sum.outcome, sum.weight), (Outcome::NotRun, Weight::May));
        let said = format!(
            "node 1 (10.0.0.2) brings {brings} GPUs to a sum by NCCL, and 8 were sold with each node"
        );
        assert!(sum.note.starts_with(&said), "{}", sum.note);
    }
}

#[test]
fn less_than_the_whole_payload_has_no_floor() {
    let summed = |pair_mb_per_s: u64| {
        let mut played = Played::new(2).with_nccl(8);
        played.gang = played
            .gang
            .clone()
            .sold_as(Internode::InfinibandNdr400)
            .with_gpus_sold(Some(8));
        played.play(|_, measure| match measure {
            Measure::Pair { .. } => Shown::Pair {
                sent_mb_per_s: vec![pair_mb_per_s],
                received_mb_per_s: vec![pair_mb_per_s],
            },
            // So slow that it is below any floor.
            Measure::NcclSum(sum) => Shown::NcclSum {
                algorithm: CollectiveAlgorithm::NcclDefault,
                gpus: sum.gpus,
                repeats_us: vec![1_000_000; sum.repeats as usize],
                wrong_words: 0,
            },
            measure => well(measure),
        });
        found(&played.gang, CODE)
    };
    let whole = summed(10_000);
    assert_eq!(whole.outcome, Outcome::Failed);
    assert!(whole.floor.is_some());
    let said = "sum up 4096 MiB of each GPU (nccl_default) rightly";
    assert!(whole.note.contains(said), "{}", whole.note);
    // In half a second such a link carries two gigabytes.
    let less = summed(4_000);
    assert_eq!(less.outcome, Outcome::Met);
    assert_eq!((less.floor, less.expected), (None, None));
    let said = "sum up 1953125 KiB of each GPU (nccl_default) rightly";
    assert!(less.note.contains(said), "{}", less.note);
}

#[test]
fn an_answer_to_another_question_is_no_sum() {
    let mut played = Played::new(2).with_nccl(8);
    played.play(|node, measure| match (node, well(measure)) {
        (1, Shown::NcclSum { repeats_us, .. }) => Shown::NcclSum {
            algorithm: CollectiveAlgorithm::NcclDefault,
            gpus: 4,
            repeats_us,
            wrong_words: 0,
        },
        (_, shown) => shown,
    });
    let sum = found(&played.gang, CODE);
    let said = "NCCL did not sum 4096 MiB of each GPU (nccl_default) at node 1 (10.0.0.2): it answered another \
                question.";
    assert_eq!((sum.outcome, sum.note.as_str()), (Outcome::Failed, said));
}

#[test]
fn what_no_node_brings_is_refused_and_what_one_brings_at_first_holds() {
    for (version, gpus) in [(0, 8), (1_000_000, 8), (22_809, 0), (22_809, 65)] {
        let mut played = Played::new(2);
        played.calls[0].nccl = Some(NcclPart { version, gpus });
        let refused = played.gang.on_call(&played.calls[0]);
        assert!(
            matches!(refused, Err(CallRefused::Malformed(_))),
            "{refused:?}"
        );
    }
    let mut played = Played::new(2).with_nccl(8);
    played.gang.on_call(&played.calls[0]).expect("an answer");
    played.calls[0].nccl = None;
    played.play(|_, measure| well(measure));
    assert_eq!(found(&played.gang, CODE).outcome, Outcome::Met);
}

#[test]
fn agents_and_rows_that_know_nothing_of_nccl_are_read_and_measured_as_before() {
    let with = Played::new(2).with_nccl(8);
    let mut call = serde_json::to_value(&with.calls[0]).expect("json");
    assert!(call["nccl"].is_object());
    call.as_object_mut().expect("an object").remove("nccl");
    let call: GangCall = serde_json::from_value(call).expect("a call");
    assert_eq!(call, Played::new(2).calls[0]);

    let mut row = serde_json::to_value(&with.gang).expect("json");
    for known in ["nccl_bytes", "nccl_warm_ups", "nccl_repeats"] {
        let work = row["work"].as_object_mut().expect("an object");
        assert!(work.remove(known).is_some());
    }
    let gang = row.as_object_mut().expect("an object");
    assert!(gang.remove("gpus_sold").is_some());
    for seen in row["seen"].as_array_mut().expect("a list") {
        assert!(
            seen.as_object_mut()
                .expect("an object")
                .remove("nccl")
                .is_some()
        );
    }
    // Agents with this feature return to a gang that began without it.
    let mut played = with;
    played.gang = serde_json::from_value(row).expect("a gang");
    let verdict = played.play(|_, measure| match measure {
        Measure::NcclId | Measure::NcclSum(_) => panic!("nobody asked for that"),
        measure => well(measure),
    });
    assert_eq!(verdict, Verdict::Pass);
    let findings = played.gang.findings();
    assert!(findings.iter().all(|found| found.code != CODE));
    let answer = played.gang.on_call(&call).expect("an answer");
    assert!(matches!(answer, GangAnswer::Over { .. }));
}
