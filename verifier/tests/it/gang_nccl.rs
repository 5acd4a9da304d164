//! The GPUs of several nodes that sum up together by NCCL: real agents on the fake driver, whose library
//! joins them over loopback, and nodes that are played.

use std::cell::RefCell;

use fake_driver::script::{Fault, Joins, Script};
use market::attestation::{FindingCode, Outcome, Verdict, Weight};
use market::fabric::Internode;
use market::verification::{
    CollectiveAlgorithm, GangAnswer, GangCall, GangWork, Level, Measure, NcclPart, NcclSum, Shown,
};
use verifier::gang::{CallRefused, Gang};
use verifier::order::Mode;

use crate::gang::*;
use crate::machine::*;
use crate::stage::*;

const CODE: FindingCode = FindingCode::NetworkCollective;
/// GPUs of a machine here.
const GPUS: u64 = 2;
/// How fast its network is to each, and what of that its library reaches: so little that some hundred
/// kilobytes take a while. Units: 1e6 bytes per second; percent.
const NETWORK_MB_PER_S: u64 = 500;
const EFFICIENCY_PERCENT: u64 = 95;

/// Machines that have NCCL, each after a change to its script.
fn machines(nodes: usize, change: impl Fn(usize, &mut Script)) -> Vec<Machine> {
    let machine = |node: usize| {
        let mut script = broken(|_| {});
        script.collective.network_mb_per_s = NETWORK_MB_PER_S as f64;
        change(node, &mut script);
        let machine = Machine::new(&script);
        machine.install("libnccl.so.2");
        machine
    };
    (0..nodes).map(machine).collect()
}

/// As much between nodes for each GPU as a network of this rate shows. Units: 1e6 bytes per second.
fn carried(nodes: u64, network_mb_per_s: u64) -> i64 {
    let bus = network_mb_per_s * GPUS * EFFICIENCY_PERCENT / 100;
    (bus * (nodes - 1) / (nodes * GPUS - 1)) as i64
}

fn is_about(measured: Option<i64>, expected: i64) -> bool {
    measured.is_some_and(|measured| (measured - expected).abs() * 50 <= expected)
}

fn all_ended_with(status: i32, ended: Vec<Ended>) {
    for (ended, said) in ended {
        assert_eq!(ended, Some(status), "{said}");
    }
}

#[test]
fn the_gpus_of_two_nodes_and_of_four_sum_up_at_the_rate_of_their_network() {
    for nodes in [2, 4] {
        let (gang, ended) = measured_on(&machines(nodes, |_, _| {}), None, work(1));
        let sum = found(&gang, CODE);
        assert_eq!((sum.outcome, sum.weight), (Outcome::Met, Weight::Shadow));
        let expected = carried(nodes as u64, NETWORK_MB_PER_S);
        assert!(is_about(sum.measured, expected), "{expected}: {sum:#?}");
        assert_eq!(sum.samples.len(), 3);
        let said = format!(
            "By NCCL 2.28.9, over whichever way it took, {} GPUs",
            2 * nodes
        );
        assert!(sum.note.starts_with(&said), "{}", sum.note);
        assert!(gang.verdict().is_some_and(Verdict::is_pass));
        all_ended_with(0, ended);
    }
}

#[test]
fn one_node_with_a_slow_network_makes_the_sum_slow_for_all() {
    let slow = |node, script: &mut Script| {
        if node == 1 {
            script.collective.network_mb_per_s = 100.0;
        }
    };
    let (gang, _) = measured_on(&machines(2, slow), None, work(1));
    let sum = found(&gang, CODE);
    assert!(is_about(sum.measured, carried(2, 100)), "{sum:#?}");
}

#[test]
fn a_word_of_the_sum_that_is_wrong_on_one_gpu_fails_its_node() {
    let wrong = |node, script: &mut Script| {
        if node == 1 {
            script.gpus[1].fault = Fault::ReducesWrongly;
        }
    };
    let (gang, ended) = measured_on(&machines(2, wrong), None, work(1));
    let sum = found(&gang, CODE);
    assert_eq!((sum.outcome, sum.weight), (Outcome::Failed, Weight::Must));
    // Its last word, in each repeat.
    let said = "3 words of NCCL's sum were wrong at node 1 (10.0.0.2).";
    assert_eq!(sum.note, said);
    let outcomes = [0, 1].map(|node| of_node(&gang, node, CODE));
    assert_eq!(outcomes, [Outcome::Noted, Outcome::Failed]);
    assert_eq!(gang.verdict(), Some(Verdict::Fail));
    all_ended_with(1, ended);
}

#[test]
fn a_library_that_hangs_ends_with_its_round_and_decides_nothing() {
    let hangs = |node, script: &mut Script| match node {
        1 => script.collective.joins = Joins::Hangs,
        2 => script.collective.joins = Joins::Refused,
        _ => {}
    };
    let short = GangWork {
        round_ms: 15_000,
        ..work(1)
    };
    let (gang, ended) = measured_on(&machines(3, hangs), None, short);
    let sum = found(&gang, CODE);
    assert_eq!((sum.outcome, sum.weight), (Outcome::Failed, Weight::Shadow));
    let both = [
        "node 0 (10.0.0.1) and 1 more: it did not finish in time and was given up",
        "node 2 (10.0.0.3): GPU 0: ncclGroupEnd answered 2",
    ];
    for said in both {
        assert!(sum.note.contains(said), "{}", sum.note);
    }
    // Nobody waited for the broker to lose patience.
    let findings = gang.findings();
    assert!(
        findings
            .iter()
            .all(|found| found.code != FindingCode::StepTimedOut)
    );
    assert!(gang.verdict().is_some_and(Verdict::is_pass));
    all_ended_with(0, ended);
}

#[test]
fn a_node_without_the_library_and_one_with_another_are_summed_over_tcp_alone() {
    let gang_of = |machines: &[Machine]| {
        let (gang, ended) = measured_on(machines, None, work(1));
        assert!(gang.verdict().is_some_and(Verdict::is_pass));
        all_ended_with(0, ended);
        let sum = found(&gang, FindingCode::NetworkAllReduce);
        assert_eq!(sum.outcome, Outcome::Met);
        gang
    };
    let mut without = machines(2, |_, _| {});
    without[1] = Machine::new(&broken(|_| {}));
    let sum = found(&gang_of(&without), CODE);
    assert_eq!((sum.outcome, sum.weight), (Outcome::NotRun, Weight::May));
    assert!(
        sum.note.starts_with("node 1 (10.0.0.2) has no NCCL"),
        "{}",
        sum.note
    );
    let unlike = machines(2, |node, script| {
        if node == 1 {
            // NCCL takes no other patch of its own version either.
            script.collective.version = 22_808;
        }
    });
    let sum = found(&gang_of(&unlike), CODE);
    assert_eq!((sum.outcome, sum.weight), (Outcome::NotRun, Weight::May));
    let said = "node 0 (10.0.0.1) has NCCL 2.28.9, node 1 (10.0.0.2) has NCCL 2.28.8, and versions";
    assert!(sum.note.starts_with(said), "{}", sum.note);
}

/// Played nodes with so many GPUs each, whose repeats take so long where an NDR fabric was sold.
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
    // formula counts for each GPU (k - 1) / (n - 1).
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
    // With one GPU on each node nothing is left to count down.
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
    // One that did not sum shows nothing of a way.
    let mut played = Played::new(2).with_nccl(8);
    played.play(|_, measure| match measure {
        Measure::NcclSum(_) => failed(),
        measure => well(measure),
    });
    assert!(!not_proved(&played.gang).contains("NCCL"));
}

fn failed() -> Shown {
    Shown::Failed {
        why: "refused".to_owned(),
    }
}

/// The sums that the nodes of a gang are asked for, in the order of their numbers.
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
    let sums = asked(played, 10_000);
    let numbers: Vec<_> = sums.iter().map(|sum| (sum.first_rank, sum.gpus)).collect();
    assert_eq!(numbers, [(0, 8), (8, 4), (12, 8)]);
    assert!(
        sums.iter()
            .all(|sum| sum.ranks == 20 && sum.bytes == 4 << 30)
    );
    // What a link of 1 Gb/s carries in half a second, and never nothing.
    for (pair_mb_per_s, bytes) in [(125, 62_500_000), (0, 1 << 20)] {
        let sums = asked(Played::new(2).with_nccl(1), pair_mb_per_s);
        assert!(sums.iter().all(|sum| sum.bytes == bytes), "{sums:?}");
    }
}

#[test]
fn a_gang_that_failed_before_is_not_asked_and_one_without_an_id_does_not_sum() {
    let outcome = |fails: fn(&Measure) -> bool| {
        let mut played = Played::new(3).with_nccl(8);
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
    assert_eq!(sum.note, "NCCL did not sum at node 0 (10.0.0.1): refused.");
    assert_eq!(asked, [0]);
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
    let said = "NCCL did not sum at node 1 (10.0.0.2): it answered another question.";
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
    for seen in row["seen"].as_array_mut().expect("a list") {
        assert!(
            seen.as_object_mut()
                .expect("an object")
                .remove("nccl")
                .is_some()
        );
    }
    // Agents that know of it come back to a gang that was begun without.
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
