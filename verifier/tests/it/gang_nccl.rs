//! The GPUs of several nodes that sum together by NCCL: real agents on the fake driver, whose library joins
//! them over loopback, and simulated nodes.

use std::io::Write;
use std::process::{Command, Stdio};

use fake_driver::script::{Fault, Joins, Script, VARIABLE};
use market::attestation::{FindingCode, Outcome, Verdict, Weight};
use market::verification::{GangWork, NcclId, NcclSum, Shown};
use verifier::gang::Gang;

use crate::eventually::ended;
use crate::gang::*;
use crate::gang_nccl_played::failed;
use crate::gang_players::*;
use crate::machine::*;

pub const CODE: FindingCode = FindingCode::NetworkCollective;
/// GPUs of a machine here.
const GPUS: u64 = 2;
/// The rate of its network to each, and its library's share of that: so little that some hundred kilobytes
/// take a while. Units: 1e6 bytes per second; percent.
pub const NETWORK_MB_PER_S: u64 = 500;
const EFFICIENCY_PERCENT: u64 = 95;

/// Machines that have NCCL, each after a change to its script.
pub fn machines(nodes: usize, change: impl Fn(usize, &mut Script)) -> Vec<Machine> {
    let machine = |node: usize| {
        let mut script = broken(|_| {});
        script.collective.network_mb_per_s = NETWORK_MB_PER_S as f64;
        script.collective.name = host(node);
        change(node, &mut script);
        let machine = Machine::new(&script);
        machine.install("libnccl.so.2");
        machine
    };
    (0..nodes).map(machine).collect()
}

/// The rate between nodes for each GPU on a network of this rate. Units: 1e6 bytes per second.
pub fn carried(nodes: u64, network_mb_per_s: u64) -> i64 {
    let bus = network_mb_per_s * GPUS * EFFICIENCY_PERCENT / 100;
    (bus * (nodes - 1) / (nodes * GPUS - 1)) as i64
}

pub fn is_about(measured: Option<i64>, expected: i64) -> bool {
    measured.is_some_and(|measured| (measured - expected).abs() * 50 <= expected)
}

pub fn all_ended_with(status: i32, ended: Vec<Ended>) {
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
            "By NCCL 2.28.9, over its own choice of path, {} GPUs",
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

/// The sum's outcome in the document of each node.
fn outcomes(gang: &Gang) -> Vec<Outcome> {
    let nodes = 0..gang.members().len();
    nodes.map(|node| of_node(gang, node, CODE)).collect()
}

#[test]
fn a_wrong_word_that_one_gpu_brings_is_wrong_at_all_nodes_and_none_alone_is_to_blame() {
    let wrong = |node, script: &mut Script| {
        if node == 1 {
            script.gpus[1].fault = Fault::BringsWrongly;
        }
    };
    let (gang, ended) = measured_on(&machines(3, wrong), None, work(1));
    let sum = found(&gang, CODE);
    assert_eq!((sum.outcome, sum.weight), (Outcome::Failed, Weight::Must));
    // The last word, in each repeat, on each GPU.
    let said = "6 words of NCCL's sum of 256 KiB of each GPU (nccl_default) were wrong at node 0 (10.0.0.1), \
                and such at 2 more: whose GPU or which way made them so is not shown.";
    assert_eq!(sum.note, said);
    assert_eq!(outcomes(&gang), [Outcome::Failed; 3]);
    assert_eq!(gang.verdict(), Some(Verdict::Fail));
    all_ended_with(1, ended);
}

#[test]
fn a_wrong_word_that_one_node_alone_of_three_has_fails_that_one() {
    let wrong = |node, script: &mut Script| {
        if node == 1 {
            script.gpus[1].fault = Fault::ErrsIn("ncclAllReduce".to_owned());
        }
    };
    let (gang, ended) = measured_on(&machines(3, wrong), None, work(1));
    let sum = found(&gang, CODE);
    assert_eq!((sum.outcome, sum.weight), (Outcome::Failed, Weight::Must));
    let said = "3 words of NCCL's sum of 256 KiB of each GPU (nccl_default) were wrong at node 1 (10.0.0.2), \
                and at no other node: it receives or keeps them wrongly.";
    assert_eq!(sum.note, said);
    let (noted, failed) = (Outcome::Noted, Outcome::Failed);
    assert_eq!(outcomes(&gang), [noted, failed, noted]);
    assert_eq!(gang.verdict(), Some(Verdict::Fail));
    all_ended_with(1, ended);
}

#[test]
fn one_that_says_that_its_words_are_right_leaves_the_blame_with_no_other() {
    let played = |nodes: u8, says: fn(u32, Shown) -> Shown| {
        let played = Played::new(nodes).with_nccl(8);
        let mut played = played.without_pairs_by_nccl();
        let verdict = played.play(|node, measure| says(node, well(measure)));
        assert_eq!(verdict, Verdict::Fail);
        outcomes(&played.gang)
    };
    // Node 0 corrupted the sum of all and does not report it.
    let at_others = |node, shown| if node == 0 { shown } else { wrongly(shown) };
    for nodes in [2, 3, 4] {
        let all = vec![Outcome::Failed; nodes.into()];
        assert_eq!(played(nodes, at_others), all, "{nodes}");
    }
    // A node without a sum reveals nothing about the others' sums.
    let one_is_silent = |node, shown| match (node, shown) {
        (0, Shown::NcclSum { .. }) => failed(),
        (1, shown) => wrongly(shown),
        (_, shown) => shown,
    };
    assert_eq!(played(3, one_is_silent), [Outcome::Failed; 3]);
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
    // No node waited until the broker gave up.
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
fn a_library_that_talks_does_not_disturb_the_answers_of_its_process() {
    let talks = |node, script: &mut Script| script.collective.talks = node == 0;
    let (gang, ended) = measured_on(&machines(2, talks), None, work(1));
    let sum = found(&gang, CODE);
    assert_eq!(sum.outcome, Outcome::Met, "{}", sum.note);
    all_ended_with(0, ended);
}

/// The answer of a process, on a machine with 64 MiB on each GPU, to a sum of this size that no other joins.
fn said_to_a_sum_of(mib: u64) -> String {
    let mut script = broken(|_| {});
    for card in &mut script.gpus {
        card.real_memory_mib = Some(64);
    }
    let machine = Machine::new(&script);
    machine.install("libnccl.so.2");
    let sum = NcclSum {
        id: NcclId([0; 128]),
        ranks: 4,
        first_rank: 2,
        gpus: 2,
        bytes: mib << 20,
        warm_ups: 1,
        repeats: 1,
    };
    let request = serde_json::json!({ "NcclSum": sum }).to_string();
    // A frame: the lengths of the head and of an absent body, and the head.
    let head = (request.len() as u32).to_le_bytes();
    let frame = [&head[..], &[0; 8], request.as_bytes()].concat();
    let mut worker = Command::new(env!("CARGO_BIN_EXE_verifier"))
        .env_clear()
        .env("LD_LIBRARY_PATH", machine.folder.path())
        .env(VARIABLE, machine.path("script.json"))
        .arg("gpu-worker")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut requests = worker.stdin.take().expect("a stream");
    requests.write_all(&frame).expect("written");
    drop(requests);
    let output = ended("the end of a GPU's process", worker);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_sum_for_which_a_gpu_has_no_room_is_refused_in_words() {
    // A sum may take a quarter of the free memory.
    let refused = said_to_a_sum_of(17);
    let said = "no room on this node's GPUs for a sum of 17825792 bytes of each";
    assert!(refused.contains(said), "{refused}");
    let alone = said_to_a_sum_of(16);
    assert!(alone.contains("ncclGroupEnd answered 2"), "{alone}");
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
            // NCCL does not join another patch release of its own version either.
            script.collective.version = 22_808;
        }
    });
    let sum = found(&gang_of(&unlike), CODE);
    assert_eq!((sum.outcome, sum.weight), (Outcome::NotRun, Weight::May));
    let said = "node 0 (10.0.0.1) has NCCL 2.28.9, node 1 (10.0.0.2) has NCCL 2.28.8, and versions";
    assert!(sum.note.starts_with(said), "{}", sum.note);
}
